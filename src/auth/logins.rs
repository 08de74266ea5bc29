//! The logins of a server that requires authentication: what its schemes share, and the responses to
//! credentials that they do not accept.

use std::io;
use std::sync::Arc;

use http::{HeaderValue, header};

use super::credential_cache::CredentialCache;
use super::hasher::Hasher;
use super::lockout::{LOCKED_OUT_DELAY, Lockout, WRONG_PASSWORD_DELAY};
use super::request::{
    AuthError, AuthRequest, AuthenticationInfo, CallerStatus, Denial, IdentifiedCaller,
};
use super::signing::Signer;
use super::user_cache::UserCache;
use crate::clock;
use crate::model::{AuthScheme, Model};
use crate::problem::{self, Problem, ProblemKind};
use crate::store::{StoreError, StoreWorker};

/// The state of all logins, shared by all threads.
#[derive(Debug)]
pub(super) struct Logins {
    pub(super) model: Arc<Model>,
    pub(super) signer: Arc<Signer>,
    pub(super) users: UserCache,
    pub(super) credentials: Arc<CredentialCache>,
    pub(super) lockout: Arc<Lockout>,
    pub(super) hasher: Arc<Hasher>,
}

impl Logins {
    pub(super) fn new(
        model: &Arc<Model>,
        signer: Arc<Signer>,
        hasher: Arc<Hasher>,
    ) -> io::Result<Self> {
        let failures_max = model.server.limits.failed_logins_max;
        Ok(Self {
            model: Arc::clone(model),
            users: UserCache::new(model, Arc::clone(&signer)),
            signer,
            credentials: Arc::new(CredentialCache::new()?),
            lockout: Arc::new(Lockout::new(failures_max, clock::now())),
            hasher,
        })
    }

    /// The response to credentials that are not accepted: the only place that delays one.
    pub(super) async fn deny(&self, request: &AuthRequest<'_>, denial: Denial) -> AuthError {
        match denial {
            Denial::Malformed(detail) => {
                Problem::new(&problem::BAD_CREDENTIALS).detail(detail).into()
            }
            Denial::Rejected(kind) => self.unauthorized(request, kind).await,
            Denial::WrongPassword => {
                self.lockout.delay(request.now + WRONG_PASSWORD_DELAY).await;
                self.unauthorized(request, &problem::CREDENTIALS_WRONG).await
            }
            Denial::LockedOut(time) => {
                self.lockout.delay(request.now + LOCKED_OUT_DELAY).await;
                let seconds = time.as_secs().saturating_add(1);
                let problem = Problem::new(&problem::TOO_MANY_LOGINS);
                problem.header(header::RETRY_AFTER, seconds.into()).into()
            }
            Denial::Store(error) => error.into(),
        }
    }

    /// A 401 with the challenges of the realm.
    pub(super) async fn unauthorized(
        &self,
        request: &AuthRequest<'_>,
        kind: &'static ProblemKind,
    ) -> AuthError {
        match self.challenges(request, kind == &problem::STALE_NONCE).await {
            // RFC 9110 §11.6.1: a 401 must have a challenge, and the realm could only offer Basic in clear.
            Ok(lines) if lines.is_empty() => Problem::new(&problem::PASSWORD_IN_CLEAR).into(),
            Ok(lines) => {
                AuthError::Problem(lines.into_iter().fold(Problem::new(kind), |problem, line| {
                    problem.header(header::WWW_AUTHENTICATE, line)
                }))
            }
            Err(error) => AuthError::Store(error),
        }
    }

    async fn challenges(
        &self,
        &AuthRequest { store, realm, is_private, .. }: &AuthRequest<'_>,
        is_stale: bool,
    ) -> Result<Vec<HeaderValue>, StoreError> {
        let has_digest = self.model.realm(realm).schemes.contains(&AuthScheme::Digest);
        let nonce = if has_digest { self.issue_nonce(store).await? } else { String::new() };
        let signing = self.signer.current();
        Ok(signing.realm(realm).challenges.lines(&nonce, is_stale, is_private))
    }

    pub(super) async fn issue_nonce(&self, store: &StoreWorker) -> Result<String, StoreError> {
        let epoch = store.nonce_epoch().await?;
        self.signer.current().issue_nonce(epoch)
    }

    /// Whether the user is locked out by failed logins from this address.
    pub(super) fn check_lockout(
        &self,
        request: &AuthRequest<'_>,
        name: &str,
    ) -> Result<(), Denial> {
        match self.lockout.locked_out_for(name, request.address, clock::now()) {
            None => Ok(()),
            Some(time) => Err(Denial::LockedOut(time)),
        }
    }

    /// Checks whether the user of an identified caller has changed.
    pub(super) async fn caller_status(
        &self,
        store: &StoreWorker,
        known: &IdentifiedCaller,
    ) -> Result<CallerStatus, StoreError> {
        let Some(user) = &known.user else { return Ok(CallerStatus::Unchanged) };
        Ok(match self.users.find(store, &user.name, clock::now()).await?.user {
            Some(now) if !user.is_same_login(&now) => CallerStatus::Gone,
            Some(now) if user.has_same_rights(&now) => CallerStatus::Unchanged,
            Some(now) => {
                CallerStatus::Changed(IdentifiedCaller::user(&now, AuthenticationInfo::Absent))
            }
            None => CallerStatus::Gone,
        })
    }
}
