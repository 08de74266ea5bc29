//! Authentication by Basic and Digest: the schemes combined with stored users, caches and used nonces.
//!
//! A request that the credential cache can verify touches nothing else. Any other request costs the same
//! whether its user exists or not: one read, one hash. The one surprising thing: Digest credentials are
//! verified before their nonce. Only a client that knows the password learns that the nonce is stale, and
//! retries with a new one without prompting its user.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, header};

use super::digest::{self, Keyed, Misfit, Proof, Target};
use super::guess::{BasicGuess, Claimant, Verdict};
use super::hasher::Who;
use super::memory::Remembered;
use super::nonce::{Nonce, NonceFault};
use super::signing::{Signer, Signing};
use super::users::User;
use super::{Auth, Identity, Info, Known, Request, Stop, basic, password, patience};
use crate::clock;
use crate::model::Algorithm;
use crate::model::own::PASSWORD;
use crate::permit::Caller;
use crate::plan::{By, Write};
use crate::problem::{self, Problem};
use crate::store::{self, Claim, Claimed, StoreError, WriteOptions};
use crate::value::Value;

/// How long a login waits to store the Digest credentials that it derives from a password.
const COMPLETE_MAX: Duration = Duration::from_secs(5);

impl Auth {
    /// Basic credentials that were correct a moment ago. Synchronous, without a future: this is the path of
    /// nearly all requests with Basic.
    pub(super) fn remembered(&self, request: &Request<'_>, credentials: &[u8]) -> Option<Identity> {
        let trace = self.memory.trace(credentials);
        let known = self.memory.recall(&trace, request.now)?;
        let user = self.users.known(&known.user.name, request.now)?;
        self.still_in(request, (trace, known), &user)
    }

    /// Accepts a cached login, if it is still the same user.
    fn still_in(
        &self,
        request: &Request<'_>,
        (trace, known): ([u8; 32], Remembered),
        user: &Arc<User>,
    ) -> Option<Identity> {
        if !known.is(user) {
            return None;
        }
        self.memory.remember(trace, known, request.now);
        Some(Identity::Known(known_as(user, Info::Nothing)))
    }

    /// RFC 7617.
    pub(super) async fn basic(
        &self,
        store: &store::Worker,
        request: &Request<'_>,
        credentials: &[u8],
    ) -> Result<Identity, Stop> {
        let trace = self.memory.trace(credentials);
        if let Some(known) = self.memory.recall(&trace, request.now)
            && let Some(user) = self.users.recall(store, &known.user.name, request.now).await?
            && let Some(identity) = self.still_in(request, (trace, known), &user)
        {
            return Ok(identity);
        }
        let Some(pair) = basic::read(credentials) else {
            return Err(self.refuse(store, request, &problem::CREDENTIALS_WRONG).await);
        };
        self.refuse_shut(&pair.name, request).await?;
        let user = self.users.read(store, &pair.name, request.now).await?;
        let guess = BasicGuess {
            trace,
            user: user.clone(),
            pair: pair.clone(),
            address: request.address,
            memory: Arc::clone(&self.memory),
            throttle: Arc::clone(&self.throttle),
        };
        let verdict = self.hasher.run(Who::Unproved(request.address), || guess.judge()).await;
        let user = match verdict.unwrap_or(Verdict::Throttled(Duration::from_secs(1))) {
            Verdict::Right => user,
            Verdict::Wrong => None,
            Verdict::Throttled(time) => return Err(self.shut_out(request, time).await.into()),
        };
        let Some(user) = user else { return Err(self.fail(store, request).await) };
        self.complete(store, request, &user, &pair.password).await;
        let proved = Remembered { user: Arc::clone(&user), until: request.now };
        self.memory.remember(trace, proved, request.now);
        Ok(Identity::Known(known_as(&user, Info::Nothing)))
    }

    /// Derives Digest credentials for realms that were added after the password was set: only now is the
    /// password known in clear.
    async fn complete(
        &self,
        store: &store::Worker,
        request: &Request<'_>,
        user: &User,
        password: &str,
    ) {
        let Some(signer) = &self.signer else { return };
        if !password::lacks(&user.record, &self.model, &signer.ring.keys()) {
            return;
        }
        // A rotation may be in progress: what is sealed now must be sealed with the new key.
        let keys = signer.ring.look_again();
        let mut record = user.record.clone();
        if record.complete(&self.model, &keys, &user.name, password).is_err() {
            return;
        }
        let by = By { actor: (&*user.name).into(), request_id: request.id.into() };
        let stored = (user.id, user.version);
        let record = Value::text(&record.to_string());
        let write = Write::change_user(&self.model, stored, (PASSWORD, record), by);
        // If somebody was faster, or the write fails, the next login tries again.
        let options = WriteOptions::until(request.now + COMPLETE_MAX);
        let _ = store.write(Box::new(write), options).await;
        self.users.forget();
    }

    /// An authenticated client that goes on with the same nonce. Synchronous, without a future: this is the
    /// path of nearly all requests with Digest, and asks no other server which counts were used. Anything
    /// else falls back to `login_digest`.
    pub(super) fn goes_on(
        &self,
        store: &store::Worker,
        request: &Request<'_>,
        credentials: &[u8],
    ) -> Option<Identity> {
        let (signer, realm) = self.signer.as_ref().zip(self.model.realms.get(request.realm))?;
        let proof = digest::read(credentials).ok()?;
        let digest::User::Name(name) = &proof.user else { return None };
        let nonce = self.memory.proved(&proof.nonce, name)?;
        let nonce = nonce.at(clock::moment().seconds()).ok()?;
        if nonce.is_near_end || proof.covers_body() {
            return None;
        }
        let (epoch, issued, count) = (nonce.epoch, nonce.issued, proof.count()?);
        let claim = Claim { epoch, nonce: nonce.id, count, issued };
        if !store.can_claim_here(&claim) {
            return None;
        }
        let signing = signer.now();
        let opaques = signing.opaques.get(request.realm)?;
        let algorithm = proof.fits(realm, opaques, &target(request)).ok()?;
        let user = self.users.known(name, request.now).filter(|user| !user.is_disabled)?;
        let ha1 = user.ha1(request.realm, algorithm)?;
        let keyed = proof.with(ha1)?;
        if !keyed.verify(request.parts.method.as_str(), None) {
            return None;
        }
        match store.claim_here(&claim)? {
            Claimed::First => Some(Identity::Known(known_as(&user, ready(&keyed, None)))),
            Claimed::Again | Claimed::Stale => None,
        }
    }

    /// RFC 7616 and RFC 2617. `body`: what the credentials may cover, if it was read already.
    pub(super) async fn digest(
        &self,
        store: &store::Worker,
        request: &Request<'_>,
        credentials: &[u8],
        body: Option<&[u8]>,
    ) -> Result<Identity, Stop> {
        let malformed = |detail: String| Problem::new(&problem::BAD_CREDENTIALS).detail(detail);
        let proof = digest::read(credentials).map_err(|fault| malformed(fault.0.to_owned()))?;
        let Some((signer, realm)) = self.signer.as_ref().zip(self.model.realms.get(request.realm))
        else {
            return Err(self.refuse(store, request, &problem::CREDENTIALS_WRONG).await);
        };
        let (signing, nonce) = self.nonce_of(signer, &proof);
        let opaques = signing.opaques.get(request.realm).map_or(&[][..], Vec::as_slice);
        let algorithm = match proof.fits(realm, opaques, &target(request)) {
            Ok(algorithm) => algorithm,
            Err(Misfit::Uri) => {
                return Err(malformed("uri: expected the target of the request".to_owned()).into());
            }
            Err(Misfit::Realm | Misfit::Opaque | Misfit::Algorithm | Misfit::Qop) => {
                return Err(self.refuse(store, request, &problem::CREDENTIALS_WRONG).await);
            }
        };
        if proof.covers_body() && body.is_none() {
            let name = self.name(store, request, (&proof, algorithm)).await?;
            if !self.is_proved((&proof, &nonce), &name) {
                self.refuse_shut(&name, request).await?;
            }
            // The body is read only for a client with one of our nonces.
            return match nonce {
                Ok(_) => Ok(Identity::WantsBody),
                Err(_) => Err(self.refuse(store, request, &problem::STALE_NONCE).await),
            };
        }
        let covered = body.filter(|_| proof.covers_body());
        let body_hash = covered.map(|body| digest::hash(algorithm, body));
        self.prove(store, request, Claimant { proof, algorithm, body_hash }, nonce).await
    }

    /// The nonce of the credentials, and the keys that it was verified with.
    fn nonce_of(
        &self,
        signer: &Signer,
        proof: &Proof<'_>,
    ) -> (Arc<Signing>, Result<Nonce, NonceFault>) {
        let now = clock::moment().seconds();
        let signing = signer.now();
        match signing.nonces.read(&proof.nonce, now) {
            Err(NonceFault::Foreign) if signer.look_again() => {
                let signing = signer.now();
                let nonce = signing.nonces.read(&proof.nonce, now);
                (signing, nonce)
            }
            nonce => (signing, nonce),
        }
    }

    async fn prove(
        &self,
        store: &store::Worker,
        request: &Request<'_>,
        claimant: Claimant<'_>,
        nonce: Result<Nonce, NonceFault>,
    ) -> Result<Identity, Stop> {
        let Claimant { proof, algorithm, .. } = &claimant;
        let name = self.name(store, request, (proof, *algorithm)).await?;
        let is_proved = self.is_proved((proof, &nonce), &name);
        if !is_proved {
            self.refuse_shut(&name, request).await?;
        }
        let user = self.verified(store, request, (&name, is_proved), &claimant).await?;
        let Ok(nonce) = nonce else {
            return Err(self.refuse(store, request, &problem::STALE_NONCE).await);
        };
        let Nonce { epoch, issued, id, is_near_end } = nonce;
        // Without a count, a nonce is good for one request.
        let count = proof.count().unwrap_or(1);
        match store.claim(&Claim { epoch, nonce: id, count, issued }).await? {
            Claimed::First => {}
            Claimed::Again | Claimed::Stale => {
                return Err(self.refuse(store, request, &problem::STALE_NONCE).await);
            }
        }
        self.memory.prove((&proof.nonce, nonce), &name);
        let next = if is_near_end { Some(self.next_nonce(store, &name).await?) } else { None };
        let info = match user.ha1(request.realm, *algorithm) {
            Some(ha1) if proof.covers_body() => {
                Info::OfBody(Box::new((ha1.clone(), *algorithm, next)))
            }
            Some(ha1) => {
                proof.with(ha1).map_or(Info::Nothing, |keyed| ready(&keyed, next.as_deref()))
            }
            None => Info::Nothing,
        };
        Ok(Identity::Known(known_as(&user, info)))
    }

    /// Issues the next nonce for an authenticated client.
    async fn next_nonce(&self, store: &store::Worker, name: &str) -> Result<String, StoreError> {
        let next = self.nonce(store).await?;
        let signing = self.signer.as_ref().map(|signer| signer.now());
        let read = signing.map(|signing| signing.nonces.read(&next, clock::moment().seconds()));
        if let Some(Ok(nonce)) = read {
            self.memory.prove((next.as_bytes(), nonce), name);
        }
        Ok(next)
    }

    /// The name that failures count for. A `userhash` counts for the name behind it, so that nobody can be
    /// guessed at under several names; an unknown one counts for itself.
    async fn name<'p>(
        &self,
        store: &store::Worker,
        request: &Request<'_>,
        (proof, algorithm): (&'p Proof<'_>, Algorithm),
    ) -> Result<Cow<'p, str>, StoreError> {
        match &proof.user {
            digest::User::Name(name) => Ok(Cow::Borrowed(name)),
            digest::User::Hash(hash) => {
                let key = (request.realm, algorithm, &**hash);
                let name = self.users.unhash(store, key, request.now).await?;
                // No name has a colon.
                let unknown = || format!(":{}", hash.to_ascii_lowercase());
                Ok(Cow::Owned(name.map_or_else(unknown, |name| name.to_string())))
            }
        }
    }

    /// Whether this user is in already with the nonce of a proof: then failures of others do not concern them.
    fn is_proved(
        &self,
        (proof, nonce): (&Proof<'_>, &Result<Nonce, NonceFault>),
        name: &str,
    ) -> bool {
        nonce.is_ok() && self.memory.proved(&proof.nonce, name).is_some()
    }

    /// 429 while too many were wrong.
    pub(super) async fn refuse_shut(
        &self,
        name: &str,
        request: &Request<'_>,
    ) -> Result<(), Problem> {
        match self.throttle.is_shut(name, request.address, clock::now()) {
            None => Ok(()),
            Some(time) => Err(self.shut_out(request, time).await),
        }
    }

    /// 429, to come back after this time.
    pub(super) async fn shut_out(&self, request: &Request<'_>, time: Duration) -> Problem {
        self.patience.wait(request.now + patience::SHUT).await;
        let seconds = time.as_secs().saturating_add(1);
        Problem::new(&problem::TOO_MANY_LOGINS).header(header::RETRY_AFTER, seconds.into())
    }

    /// 401 for a failure that was counted.
    pub(super) async fn fail(&self, store: &store::Worker, request: &Request<'_>) -> Stop {
        self.patience.wait(request.now + patience::WRONG).await;
        self.refuse(store, request, &problem::CREDENTIALS_WRONG).await
    }
}

/// `Authentication-Info`, when it does not depend on the response's body.
fn ready(keyed: &Keyed<'_>, next: Option<&str>) -> Info {
    let text = keyed.information(None, next);
    text.and_then(|text| HeaderValue::try_from(text).ok()).map_or(Info::Nothing, Info::Ready)
}

pub(super) fn known_as(user: &Arc<User>, info: Info) -> Known {
    let caller = Caller::user(Arc::clone(&user.name), Arc::clone(&user.rights));
    Known { caller, user: Some(Arc::clone(user)), info }
}

fn target<'a>(request: &Request<'a>) -> Target<'a> {
    let uri = &request.parts.uri;
    let host = request.parts.headers.get(header::HOST).and_then(|host| host.to_str().ok());
    let host = uri.authority().map(http::uri::Authority::as_str).or(host).unwrap_or("");
    Target { text: uri.path_and_query().map_or("/", http::uri::PathAndQuery::as_str), host }
}
