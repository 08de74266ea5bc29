//! Authentication: from the credentials of a request to a caller.
//!
//! `Authenticator::identify` dispatches by the scheme of the credentials; `permit` decides what the caller
//! may do. Each scheme is in separate, pure files (`basic`, `digest`, `nonce`, `challenge`); `login` combines
//! them with stored users, used nonces and time. Digest with `auth-int` covers the body too, so the caller
//! may be known only after the body was read.

pub mod basic;
mod challenge;
pub mod digest;
mod password_check;
mod hasher;
pub mod key;
mod login;
mod logout;
mod credential_cache;
mod nonce;
pub mod parameters;
pub mod password;
mod tarpit;
mod request_fingerprint;
mod seal;
mod signing;
mod stamp_lease;
pub mod credential_text;
mod throttle;
mod users;

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use http::request::Parts;
use http::{HeaderName, HeaderValue, header};

use crate::clock;
use crate::model::{Algorithm, AuthScheme, Model};
use crate::permit::{Caller, Rights};
use crate::plan::{RightsLease, WritePlan};
use crate::problem::{self, Problem};
use crate::store::{self, StoreError};
use crate::value::Value;
use digest::Ha1;
use hasher::{HashPriority, Hasher, WrongPassword};
use key::Keyring;
pub use request_fingerprint::update_length_prefixed;
use signing::Signer;
pub use users::LEASE;

/// The state of authentication, shared by all threads.
#[derive(Debug)]
pub struct Authenticator {
    model: Arc<Model>,
    /// The caller of requests without credentials; with `--open` one with all rights.
    anonymous: Caller,
    is_open: bool,
    /// `None`: nothing can be signed or sealed, which happens with `--open` only.
    signer: Option<Arc<Signer>>,
    users: users::UserCache,
    hasher: Hasher,
    throttle: Arc<throttle::LoginThrottle>,
    credential_cache: Arc<credential_cache::CredentialCache>,
    delayed_failures: tarpit::DelayedFailures,
}

/// The parts of a request that authentication needs.
#[derive(Debug, Clone, Copy)]
pub struct AuthRequest<'a> {
    pub parts: &'a Parts,
    pub id: &'a str,
    /// The realm of the requested resource, by its index in the model.
    pub realm: usize,
    /// The client's address.
    pub address: IpAddr,
    /// Whether the connection is encrypted or local: only then Basic is offered.
    pub is_private: bool,
    pub now: Instant,
}

/// The result of authentication.
#[derive(Debug)]
pub enum Identification {
    Known(IdentifiedCaller),
    /// The credentials cover the body: call again with it.
    NeedsBody,
}

/// The caller, and the `Authentication-Info` of the response.
#[derive(Debug)]
pub struct IdentifiedCaller {
    pub caller: Caller,
    /// The user at the time of the login; `None` for an anonymous caller.
    user: Option<Arc<users::UserAccount>>,
    info: AuthenticationInfo,
}

/// Whether a caller's user has changed since the login.
#[derive(Debug)]
pub enum CallerStatus {
    Unchanged,
    /// The same user with other rights.
    Changed(IdentifiedCaller),
    /// The user is disabled, removed, or has another password.
    Gone,
}

/// The value of `Authentication-Info`.
#[derive(Debug)]
enum AuthenticationInfo {
    Absent,
    Ready(HeaderValue),
    /// It covers the response's body too. The last element is the next nonce.
    CoversBody(Box<(Ha1, Algorithm, Option<String>)>),
}

impl IdentifiedCaller {
    /// The same caller without `Authentication-Info`, for work that outlives the request.
    pub fn without_info(&self) -> Self {
        Self {
            caller: self.caller.clone(),
            user: self.user.clone(),
            info: AuthenticationInfo::Absent,
        }
    }

    /// The lease for checking the caller's rights again in a write; `checked`: the time of the last check.
    pub fn mandate(&self, checked: Instant) -> Option<RightsLease> {
        let user = Arc::clone(self.user.as_ref()?);
        Some(RightsLease { user, valid_until: checked + LEASE })
    }

    /// The header by which the server authenticates itself to the client, for a response with this body. For
    /// a streaming body, which cannot be covered, there is no `rspauth`, as RFC 7616 §3.5 allows: a proof
    /// that covers less than the client requested, under the same name, could be mistaken for one that covers
    /// all.
    pub fn authentication_info(
        &self,
        parts: &Parts,
        body: Option<&[u8]>,
    ) -> Option<(HeaderName, HeaderValue)> {
        const AUTHENTICATION_INFO: HeaderName = HeaderName::from_static("authentication-info");
        let value = match &self.info {
            AuthenticationInfo::Absent => return None,
            AuthenticationInfo::Ready(value) => value.clone(),
            AuthenticationInfo::CoversBody(proved) => {
                let (ha1, algorithm, next) = &**proved;
                let credentials = parts.headers.get(header::AUTHORIZATION)?;
                let proof =
                    digest::read(parameters::split_scheme(credentials.as_bytes())?.1).ok()?;
                let hash = body.map(|body| digest::hash_bytes(*algorithm, body));
                let text =
                    proof.with_ha1(ha1)?.authentication_info(hash.as_ref(), next.as_deref())?;
                HeaderValue::try_from(text).ok()?
            }
        };
        Some((AUTHENTICATION_INFO, value))
    }
}

/// Why a request was not authenticated.
#[derive(Debug)]
pub enum AuthError {
    Problem(Problem),
    Store(StoreError),
}

impl From<Problem> for AuthError {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

impl From<StoreError> for AuthError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
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
            users: users::UserCache::new(model, signer.clone()),
            signer,
            hasher: Hasher::start()?,
            throttle: Arc::new(throttle::LoginThrottle::new(
                limits.failed_logins_max,
                clock::now(),
            )),
            credential_cache: Arc::new(credential_cache::CredentialCache::new()),
            delayed_failures: tarpit::DelayedFailures::default(),
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
            Some(now) => CallerStatus::Changed(login::identified(&now, AuthenticationInfo::Absent)),
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
    async fn unauthorized(
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

    async fn issue_nonce(&self, store: &store::StoreWorker) -> Result<String, StoreError> {
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
