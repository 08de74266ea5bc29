//! Authentication: from the credentials of a request to a caller.
//!
//! `Authenticator::identify` dispatches by the scheme of the credentials; `permit` decides what the caller
//! may do. The schemes are pure files of their own (`basic`, `digest`, `nonce`, `challenge`); `login`
//! combines them with stored users, used nonces and time. The one surprising thing: Digest with `auth-int`
//! covers the body too, so the caller may be known only after the body was read.

pub mod basic;
mod challenge;
pub mod digest;
mod guess;
mod hasher;
pub mod key;
mod login;
mod logout;
mod memory;
mod nonce;
pub mod parameters;
pub mod password;
mod patience;
mod prints;
mod seal;
mod signing;
mod stamp_lease;
pub mod text;
mod throttle;
mod users;

use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use http::request::Parts;
use http::{HeaderName, HeaderValue, header};

use crate::clock;
use crate::model::{Algorithm, Model, Scheme};
use crate::permit::{Caller, Rights};
use crate::plan::{Mandate, Write};
use crate::problem::{self, Problem};
use crate::store::{self, StoreError};
use crate::value::Value;
use digest::Ha1;
use hasher::{Hasher, Who, Wrong};
use key::Keyring;
pub use prints::each;
use signing::Signer;
pub use users::LEASE;

/// What authentication needs, shared by all threads.
#[derive(Debug)]
pub struct Auth {
    model: Arc<Model>,
    /// The caller of requests without credentials; with `--open` one with all rights.
    nobody: Caller,
    is_open: bool,
    /// `None`: nothing can be signed or sealed, which happens with `--open` only.
    signer: Option<Arc<Signer>>,
    users: users::Users,
    hasher: Hasher,
    throttle: Arc<throttle::Throttle>,
    memory: Arc<memory::Memory>,
    patience: patience::Patience,
}

/// The parts of a request that authentication needs.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
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
pub enum Identity {
    Known(Known),
    /// The credentials cover the body: call again with it.
    WantsBody,
}

/// The caller, and the `Authentication-Info` of the response.
#[derive(Debug)]
pub struct Known {
    pub caller: Caller,
    /// The user at the time of the login; `None` for an anonymous caller.
    user: Option<Arc<users::User>>,
    info: Info,
}

/// Whether a caller's user has changed since the login.
#[derive(Debug)]
pub enum Standing {
    Same,
    /// The same user with other rights.
    Changed(Known),
    /// Disabled, removed, or with another password.
    Gone,
}

/// The value of `Authentication-Info`.
#[derive(Debug)]
enum Info {
    Nothing,
    Ready(HeaderValue),
    /// It covers the response's body too. The last element is the next nonce.
    OfBody(Box<(Ha1, Algorithm, Option<String>)>),
}

impl Known {
    /// The same caller, for something that outlives the request.
    pub fn without_info(&self) -> Self {
        Self { caller: self.caller.clone(), user: self.user.clone(), info: Info::Nothing }
    }

    /// What a write needs to check the caller's rights again; `checked` is the time of the last check.
    pub fn mandate(&self, checked: Instant) -> Option<Mandate> {
        let user = Arc::clone(self.user.as_ref()?);
        Some(Mandate { user, good_until: checked + LEASE })
    }

    /// The header by which the server authenticates itself to the client, for a response with this body. A
    /// streaming body cannot be covered, and RFC 7616 §3.5 leaves `rspauth` to the server: to cover less
    /// than the client requested, under the same name, could be mistaken for more than it is.
    pub fn info(&self, parts: &Parts, body: Option<&[u8]>) -> Option<(HeaderName, HeaderValue)> {
        const AUTHENTICATION_INFO: HeaderName = HeaderName::from_static("authentication-info");
        let value = match &self.info {
            Info::Nothing => return None,
            Info::Ready(value) => value.clone(),
            Info::OfBody(proved) => {
                let (ha1, algorithm, next) = &**proved;
                let credentials = parts.headers.get(header::AUTHORIZATION)?;
                let proof = digest::read(parameters::split(credentials.as_bytes())?.1).ok()?;
                let hash = body.map(|body| digest::hash(*algorithm, body));
                let text = proof.with(ha1)?.information(hash.as_ref(), next.as_deref())?;
                HeaderValue::try_from(text).ok()?
            }
        };
        Some((AUTHENTICATION_INFO, value))
    }
}

/// Why a request was not authenticated.
#[derive(Debug)]
pub enum Stop {
    Problem(Problem),
    Store(StoreError),
}

impl From<Problem> for Stop {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

impl From<StoreError> for Stop {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl Auth {
    /// A server that requires authentication. `None`: the keys cannot sign.
    pub fn closed(model: &Arc<Model>, keys: Keyring) -> io::Result<Option<Self>> {
        let anyone = Caller::anyone(Arc::new(Rights::of(model, ["anyone"].into_iter())));
        match Signer::new(model, keys) {
            Some(signer) => Self::new(model, Some(Arc::new(signer)), (anyone, false)).map(Some),
            None => Ok(None),
        }
    }

    /// A server without authentication (`--open`). With keys, new passwords are good for Digest too.
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
            nobody,
            is_open,
            users: users::Users::new(model, signer.clone()),
            signer,
            hasher: Hasher::start()?,
            throttle: Arc::new(throttle::Throttle::new(limits.failed_logins_max, clock::now())),
            memory: Arc::new(memory::Memory::new()),
            patience: patience::Patience::default(),
        })
    }

    /// Whether the server runs with `--open`.
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// The caller of a request without credentials.
    pub fn nobody(&self) -> Known {
        Known { caller: self.nobody.clone(), user: None, info: Info::Nothing }
    }

    /// Step 4 of the order of checks. Without credentials the caller is `anyone`, who may have grants or
    /// not.
    pub async fn identify(
        &self,
        store: &store::Worker,
        request: &Request<'_>,
        body: Option<&[u8]>,
    ) -> Result<Identity, Stop> {
        crate::fault::point("identify");
        if self.is_open {
            return Ok(Identity::Known(self.nobody()));
        }
        let mut sent = request.parts.headers.get_all(header::AUTHORIZATION).iter();
        let (credentials, more) = (sent.next(), sent.next());
        let Some(credentials) = credentials else {
            return Ok(Identity::Known(self.nobody()));
        };
        if more.is_some() {
            let detail = "expected one Authorization header, got several";
            return Err(Problem::new(&problem::BAD_CREDENTIALS).detail(detail).into());
        }
        match self.scheme(credentials, request) {
            Some((Scheme::Basic, rest)) => match self.remembered(request, rest) {
                Some(known) => Ok(known),
                None => Box::pin(self.basic(store, request, rest)).await,
            },
            Some((Scheme::Digest, rest)) => match self.goes_on(store, request, rest) {
                Some(known) => Ok(known),
                None => Box::pin(self.digest(store, request, rest, body)).await,
            },
            None => Err(Box::pin(self.refuse(store, request, &problem::CREDENTIALS_WRONG)).await),
        }
    }

    /// The scheme of some credentials, if it is offered, and what follows its name.
    fn scheme<'c>(
        &self,
        credentials: &'c HeaderValue,
        request: &Request<'_>,
    ) -> Option<(Scheme, &'c [u8])> {
        let offered = &self.model.realms.get(request.realm)?.schemes;
        let is_offered = |scheme: &Scheme| {
            offered.contains(scheme) && (request.is_private || *scheme != Scheme::Basic)
        };
        parameters::split(credentials.as_bytes()).filter(|(scheme, _)| is_offered(scheme))
    }

    /// Checks whether the user of an identified caller has changed.
    pub async fn standing(
        &self,
        store: &store::Worker,
        known: &Known,
    ) -> Result<Standing, StoreError> {
        let Some(user) = &known.user else { return Ok(Standing::Same) };
        Ok(match self.users.current(store, &user.name).await? {
            Some(now) if !user.is_same_login(&now) => Standing::Gone,
            Some(now) if user.rights.is_same(&now.rights) => Standing::Same,
            Some(now) => Standing::Changed(login::known_as(&now, Info::Nothing)),
            None => Standing::Gone,
        })
    }

    /// Reads whether users have changed: from then on `caller_status` answers for this moment.
    pub async fn renew(&self, store: &store::Worker) -> Result<(), StoreError> {
        self.users.renew(store).await
    }

    /// 401 for a caller whose user is gone.
    pub async fn turn_away(&self, store: &store::Worker, request: &Request<'_>) -> Stop {
        self.refuse(store, request, &problem::CREDENTIALS_WRONG).await
    }

    /// 401 for an anonymous caller without the grant.
    pub async fn ask_for_credentials(&self, store: &store::Worker, request: &Request<'_>) -> Stop {
        self.refuse(store, request, &problem::CREDENTIALS_NEEDED).await
    }

    /// A 401 with the challenges of the realm.
    async fn refuse(
        &self,
        store: &store::Worker,
        request: &Request<'_>,
        kind: &'static problem::Kind,
    ) -> Stop {
        let is_stale = kind == &problem::STALE_NONCE;
        match self.challenges(store, request, is_stale).await {
            // RFC 9110 §11.6.1: a 401 has a challenge, and all that could be offered is Basic in clear.
            Ok(lines) if lines.is_empty() => Problem::new(&problem::PASSWORD_IN_CLEAR).into(),
            Ok(lines) => {
                Stop::Problem(lines.into_iter().fold(Problem::new(kind), |problem, line| {
                    problem.header(header::WWW_AUTHENTICATE, line)
                }))
            }
            Err(error) => Stop::Store(error),
        }
    }

    async fn challenges(
        &self,
        store: &store::Worker,
        &Request { realm, is_private, .. }: &Request<'_>,
        is_stale: bool,
    ) -> Result<Vec<HeaderValue>, StoreError> {
        let (Some(declared), Some(signer)) = (self.model.realms.get(realm), &self.signer) else {
            return Ok(Vec::new());
        };
        let has_digest = declared.schemes.contains(&Scheme::Digest);
        let nonce = if has_digest { self.nonce(store).await? } else { String::new() };
        let signing = signer.now();
        let Some(challenges) = signing.challenges(realm) else { return Ok(Vec::new()) };
        Ok(if is_private {
            challenges.lines(&nonce, is_stale)
        } else {
            challenges.lines_in_clear(&nonce, is_stale)
        })
    }

    async fn nonce(&self, store: &store::Worker) -> Result<String, StoreError> {
        let epoch = store.epoch().await?;
        Ok(self.signer.as_ref().map_or(String::new(), |signer| signer.now().nonce(epoch)))
    }

    /// Replaces each clear-text password by its record: neither the store nor the queue on the way there
    /// ever sees one.
    pub async fn conceal(&self, write: &mut Write) -> Result<(), Problem> {
        for (name, secret) in write.secrets(&self.model) {
            let Value::Clear(password) = &*secret else { continue };
            let (name, password) = (name.to_owned(), password.reveal().to_owned());
            let model = Arc::clone(&self.model);
            // A rotation may be in progress: what is sealed now must be sealed with the new key.
            let keys = self.signer.as_ref().map(|signer| signer.ring.look_again());
            let make =
                move || (password::make(&model, keys.as_deref(), &name, &password), Wrong::No);
            let made = self.hasher.run(Who::Proved, make).await;
            let made = made.map_err(|_| Problem::new(&problem::BUSY))?;
            let record =
                made.map_err(|unfit| Problem::new(&problem::UNAVAILABLE).cause(unfit.to_string()))?;
            *secret = Value::text(&record.to_string());
        }
        Ok(())
    }

    /// Invalidates the cached users, after this server has changed some.
    pub fn forget(&self) {
        self.users.forget();
    }
}
