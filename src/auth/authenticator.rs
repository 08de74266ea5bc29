//! The state of authentication, and the responses that ask for credentials.
//!
//! `Authenticator::identify` dispatches by the scheme of the credentials; `login` has one function for each.

use std::io;
use std::sync::Arc;

use http::{HeaderValue, header};

use super::credential_cache::CredentialCache;
use super::fair_queue::HashPriority;
use super::hasher::{Hasher, WrongPassword};
use super::key_source::Keyring;
use super::request::{
    self, AuthError, AuthRequest, AuthenticationInfo, CallerStatus, Identification,
    IdentifiedCaller,
};
use super::signing::Signer;
use super::tarpit::DelayedFailures;
use super::throttle::LoginThrottle;
use super::user_cache::UserCache;
use super::{parameters, password};
use crate::clock;
use crate::model::{AuthScheme, Model};
use crate::permit::{Caller, Rights};
use crate::plan::WritePlan;
use crate::problem::{self, Problem};
use crate::store::{self, StoreError};
use crate::value::Value;

/// The state of authentication, shared by all threads.
#[derive(Debug)]
pub struct Authenticator {
    pub(super) model: Arc<Model>,
    /// The caller of requests without credentials; with `--open` one with all rights.
    anonymous: Caller,
    pub(super) is_open: bool,
    /// `None`: nothing can be signed or sealed, which happens with `--open` only.
    pub(super) signer: Option<Arc<Signer>>,
    pub(super) users: UserCache,
    pub(super) hasher: Hasher,
    pub(super) throttle: Arc<LoginThrottle>,
    pub(super) credential_cache: Arc<CredentialCache>,
    pub(super) delayed_failures: DelayedFailures,
}

impl Authenticator {
    /// A server that requires authentication. `None`: the keys cannot sign.
    pub fn required(model: &Arc<Model>, keys: Keyring) -> io::Result<Option<Self>> {
        let anyone = Caller::anonymous(Arc::new(Rights::of_roles(model, ["anyone"].into_iter())));
        match Signer::new(model, keys) {
            Some(signer) => Self::new(model, Some(Arc::new(signer)), (anyone, false)).map(Some),
            None => Ok(None),
        }
    }

    /// A server without authentication (`--open`). With keys, new passwords work for Digest too.
    pub fn open(model: &Arc<Model>, keys: Option<Keyring>) -> io::Result<Self> {
        let signer = keys.and_then(|keys| Signer::new(model, keys)).map(Arc::new);
        Self::new(model, signer, (Caller::open(), true))
    }

    fn new(
        model: &Arc<Model>,
        signer: Option<Arc<Signer>>,
        (nobody, is_open): (Caller, bool),
    ) -> io::Result<Self> {
        let limits = &model.server.limits;
        Ok(Self {
            model: Arc::clone(model),
            anonymous: nobody,
            is_open,
            users: UserCache::new(model, signer.clone()),
            signer,
            hasher: Hasher::start()?,
            throttle: Arc::new(LoginThrottle::new(limits.failed_logins_max, clock::now())),
            credential_cache: Arc::new(CredentialCache::new()),
            delayed_failures: DelayedFailures::default(),
        })
    }

    /// Whether the server runs with `--open`.
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// The caller of a request without credentials.
    pub fn anonymous(&self) -> IdentifiedCaller {
        IdentifiedCaller {
            caller: self.anonymous.clone(),
            user: None,
            info: AuthenticationInfo::Absent,
        }
    }

    /// Step 4 of the order of checks. A caller without credentials has the role `anyone`, which may have
    /// grants or not.
    pub async fn identify(
        &self,
        store: &store::StoreWorker,
        request: &AuthRequest<'_>,
        body: Option<&[u8]>,
    ) -> Result<Identification, AuthError> {
        crate::fault::point("identify");
        if self.is_open {
            return Ok(Identification::Known(self.anonymous()));
        }
        let mut sent = request.parts.headers.get_all(header::AUTHORIZATION).iter();
        let (credentials, more) = (sent.next(), sent.next());
        let Some(credentials) = credentials else {
            return Ok(Identification::Known(self.anonymous()));
        };
        if more.is_some() {
            let detail = "expected one Authorization header, got several";
            return Err(Problem::new(&problem::BAD_CREDENTIALS).detail(detail).into());
        }
        match self.scheme(credentials, request) {
            Some((AuthScheme::Basic, rest)) => match self.basic_from_cache(request, rest) {
                Some(known) => Ok(known),
                None => Box::pin(self.login_basic(store, request, rest)).await,
            },
            Some((AuthScheme::Digest, rest)) => {
                match self.digest_from_cache(store, request, rest) {
                    Some(known) => Ok(known),
                    None => Box::pin(self.login_digest(store, request, rest, body)).await,
                }
            }
            None => {
                Err(Box::pin(self.unauthorized(store, request, &problem::CREDENTIALS_WRONG)).await)
            }
        }
    }

    /// The scheme of the credentials, if it is offered, and the text after its name.
    fn scheme<'c>(
        &self,
        credentials: &'c HeaderValue,
        request: &AuthRequest<'_>,
    ) -> Option<(AuthScheme, &'c [u8])> {
        let offered = &self.model.realms.get(request.realm)?.schemes;
        let is_offered = |scheme: &AuthScheme| {
            offered.contains(scheme) && (request.is_private || *scheme != AuthScheme::Basic)
        };
        parameters::split_scheme(credentials.as_bytes()).filter(|(scheme, _)| is_offered(scheme))
    }

    /// Checks whether the user of an identified caller has changed.
    pub async fn caller_status(
        &self,
        store: &store::StoreWorker,
        known: &IdentifiedCaller,
    ) -> Result<CallerStatus, StoreError> {
        let Some(user) = &known.user else { return Ok(CallerStatus::Unchanged) };
        Ok(match self.users.current(store, &user.name).await? {
            Some(now) if !user.is_same_login(&now) => CallerStatus::Gone,
            Some(now) if user.rights.is_equivalent(&now.rights) => CallerStatus::Unchanged,
            Some(now) => {
                CallerStatus::Changed(request::identified(&now, AuthenticationInfo::Absent))
            }
            None => CallerStatus::Gone,
        })
    }

    /// Reads whether users have changed, so that `caller_status` is then valid for this moment.
    pub async fn renew_lease(&self, store: &store::StoreWorker) -> Result<(), StoreError> {
        self.users.renew_lease(store).await
    }

    /// 401 for a caller whose user no longer exists.
    pub async fn reject_credentials(
        &self,
        store: &store::StoreWorker,
        request: &AuthRequest<'_>,
    ) -> AuthError {
        self.unauthorized(store, request, &problem::CREDENTIALS_WRONG).await
    }

    /// 401 for an anonymous caller without the grant.
    pub async fn challenge(
        &self,
        store: &store::StoreWorker,
        request: &AuthRequest<'_>,
    ) -> AuthError {
        self.unauthorized(store, request, &problem::CREDENTIALS_NEEDED).await
    }

    /// A 401 with the challenges of the realm.
    pub(super) async fn unauthorized(
        &self,
        store: &store::StoreWorker,
        request: &AuthRequest<'_>,
        kind: &'static problem::ProblemKind,
    ) -> AuthError {
        let is_stale = kind == &problem::STALE_NONCE;
        match self.challenges(store, request, is_stale).await {
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
        store: &store::StoreWorker,
        &AuthRequest { realm, is_private, .. }: &AuthRequest<'_>,
        is_stale: bool,
    ) -> Result<Vec<HeaderValue>, StoreError> {
        let (Some(declared), Some(signer)) = (self.model.realms.get(realm), &self.signer) else {
            return Ok(Vec::new());
        };
        let has_digest = declared.schemes.contains(&AuthScheme::Digest);
        let nonce = if has_digest { self.issue_nonce(store).await? } else { String::new() };
        let signing = signer.current();
        let Some(challenges) = signing.challenges(realm) else { return Ok(Vec::new()) };
        Ok(if is_private {
            challenges.lines(&nonce, is_stale)
        } else {
            challenges.lines_without_basic(&nonce, is_stale)
        })
    }

    pub(super) async fn issue_nonce(
        &self,
        store: &store::StoreWorker,
    ) -> Result<String, StoreError> {
        let epoch = store.nonce_epoch().await?;
        Ok(self.signer.as_ref().map_or(String::new(), |signer| signer.current().issue_nonce(epoch)))
    }

    /// Replaces each clear-text password by its record: neither the store nor its queue ever holds a password
    /// in clear.
    pub async fn hash_passwords(&self, write: &mut WritePlan) -> Result<(), Problem> {
        for (name, secret) in write.secrets(&self.model) {
            let Value::Clear(password) = &*secret else { continue };
            let (name, password) = (name.to_owned(), password.reveal().to_owned());
            let model = Arc::clone(&self.model);
            // A rotation may be in progress: what this write seals must be sealed with the new key.
            let keys = self.signer.as_ref().map(|signer| signer.keyring.reload_if_changed());
            let make = move || {
                (
                    password::make_record(&model, keys.as_deref(), &name, &password),
                    WrongPassword::No,
                )
            };
            let made = self.hasher.run(HashPriority::Authenticated, make).await;
            let made = made.map_err(|_| Problem::new(&problem::BUSY))?;
            let record =
                made.map_err(|unfit| Problem::new(&problem::UNAVAILABLE).cause(unfit.to_string()))?;
            *secret = Value::text(&record.to_string());
        }
        Ok(())
    }

    /// Invalidates the cached users, after this server has changed some.
    pub fn invalidate_users(&self) {
        self.users.invalidate();
    }
}
