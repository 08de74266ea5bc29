//! Who is asking?
//!
//! `Auth::identify` takes a request to a caller, by the scheme of its credentials; what the caller may
//! do is not decided here. The schemes are pure files of their own (`basic`, `digest`, `nonce`,
//! `challenge`); what they need of stored users, used nonces and time comes together in `login`.
//! The one surprising thing: a Digest with `auth-int` proves the body too, so who is asking may be
//! known only when the body is there.

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

/// What is needed to know callers, shared by all threads.
#[derive(Debug)]
pub struct Auth {
    model: Arc<Model>,
    /// What the caller is when nobody is asked: with `--open` everything.
    nobody: Caller,
    is_open: bool,
    /// None: nothing can be signed or sealed, which is so with `--open` alone.
    signer: Option<Arc<Signer>>,
    users: users::Users,
    hasher: Hasher,
    throttle: Arc<throttle::Throttle>,
    memory: Arc<memory::Memory>,
    patience: patience::Patience,
}

/// A request, as far as it tells who is asking.
#[derive(Debug, Clone, Copy)]
pub struct Request<'a> {
    pub parts: &'a Parts,
    pub id: &'a str,
    /// The realm of what is asked for, by its index in the model.
    pub realm: usize,
    /// Who sends it.
    pub address: IpAddr,
    /// Whether nobody can read it on its way: only then a password may be in it.
    pub is_private: bool,
    pub now: Instant,
}

/// Who is asking, as far as can be told.
#[derive(Debug)]
pub enum Identity {
    Known(Known),
    /// The proof covers the body: ask again with it.
    WantsBody,
}

/// Who is asking, and what the answer says about it.
#[derive(Debug)]
pub struct Known {
    pub caller: Caller,
    /// As they were let in; none where nobody was asked or nobody answered.
    user: Option<Arc<users::User>>,
    info: Info,
}

/// What has become of a caller since they were let in.
#[derive(Debug)]
pub enum Standing {
    Same,
    /// The same user with other rights.
    Changed(Known),
    /// Disabled, removed, or with another password.
    Gone,
}

/// What `Authentication-Info` will say.
#[derive(Debug)]
enum Info {
    Nothing,
    Ready(HeaderValue),
    /// It proves the answer's body too. The next nonce comes last.
    OfBody(Box<(Ha1, Algorithm, Option<String>)>),
}

impl Known {
    /// The same caller, for what outlives the request.
    pub fn without_info(&self) -> Self {
        Self { caller: self.caller.clone(), user: self.user.clone(), info: Info::Nothing }
    }

    /// What a write needs to look at the caller's rights again, when they were last looked at then.
    pub fn mandate(&self, checked: Instant) -> Option<Mandate> {
        let user = Arc::clone(self.user.as_ref()?);
        Some(Mandate { user, good_until: checked + LEASE })
    }

    /// The header by which the server proves itself to the client, for an answer with this body. One that
    /// is not known yet cannot be proved, and RFC 7616 §3.5 leaves `rspauth` to the server: to say less
    /// than the client asked for, under the same name, could be taken for more than it is.
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

/// Why it is not known who is asking.
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
    /// A server that asks who is there. None: the keys cannot sign.
    pub fn closed(model: &Arc<Model>, keys: Keyring) -> io::Result<Option<Self>> {
        let anyone = Caller::anyone(Arc::new(Rights::of(model, ["anyone"].into_iter())));
        match Signer::new(model, keys) {
            Some(signer) => Self::new(model, Some(Arc::new(signer)), (anyone, false)).map(Some),
            None => Ok(None),
        }
    }

    /// A server that asks nobody. With keys, passwords that are set are good for Digest too.
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

    /// Whether nobody is asked.
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// The caller where nobody is asked, or nobody answers.
    pub fn nobody(&self) -> Known {
        Known { caller: self.nobody.clone(), user: None, info: Info::Nothing }
    }

    /// Step 4 of the order of checks. Without credentials it is anyone, who may be let in or not.
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

    /// Looks again at a caller who was let in before.
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

    /// Reads whether users have changed: from then on `standing` is asked about this moment.
    pub async fn renew(&self, store: &store::Worker) -> Result<(), StoreError> {
        self.users.renew(store).await
    }

    /// 401 for somebody who was let in and is no more.
    pub async fn turn_away(&self, store: &store::Worker, request: &Request<'_>) -> Stop {
        self.refuse(store, request, &problem::CREDENTIALS_WRONG).await
    }

    /// 401 for anyone who may not do what they ask for.
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
            // RFC 9110 §11.6.1: a 401 has a challenge, and what is left to offer is in clear.
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

    /// Puts a record in place of each password in clear: what is stored, and the queue on the way
    /// there, never sees one.
    pub async fn conceal(&self, write: &mut Write) -> Result<(), Problem> {
        for (name, secret) in write.secrets(&self.model) {
            let Value::Clear(password) = &*secret else { continue };
            let (name, password) = (name.to_owned(), password.reveal().to_owned());
            let model = Arc::clone(&self.model);
            // A rotation may be under way: what is sealed now must be sealed with the new key.
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

    /// Users may have changed by what this server did.
    pub fn forget(&self) {
        self.users.forget();
    }
}
