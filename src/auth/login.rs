//! Authentication by Basic and Digest: the schemes combined with stored users, caches and used nonces.
//!
//! A request that the credential cache can verify uses nothing else. Any other request costs the same
//! whether its user exists or not: one read, one hash. Digest credentials are verified before their nonce.
//! Only a client that knows the password learns that the nonce is stale, and retries with a new one without
//! prompting its user.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use http::header;

use super::account::UserAccount;
use super::authenticator::Authenticator;
use super::credential_cache::CachedLogin;
use super::digest::{self, DigestCredentials, ScopeMismatch};
use super::fair_queue::HashPriority;
use super::nonce::{Nonce, NonceError};
use super::password_check::{DigestAttempt, PasswordCheck, PasswordVerdict};
use super::request::{
    AuthError, AuthRequest, AuthenticationInfo, Identification, identified,
    ready_authentication_info, request_target,
};
use super::signing::{Signer, SigningState};
use super::{basic, password, tarpit};
use crate::clock;
use crate::model::Algorithm;
use crate::model::builtin::PASSWORD;
use crate::plan::{ChangeAuthor, WritePlan};
use crate::problem::{self, Problem};
use crate::store::{self, NonceClaim, NonceClaimResult, StoreError, WriteOptions};
use crate::value::Value;

/// How long a login waits to store the Digest credentials that it derives from a password.
const COMPLETE_TIMEOUT: Duration = Duration::from_secs(5);

impl Authenticator {
    /// Accepts Basic credentials that are in the cache. Synchronous, without a future: nearly all requests
    /// with Basic use this path.
    pub(super) fn basic_from_cache(
        &self,
        request: &AuthRequest<'_>,
        credentials: &[u8],
    ) -> Option<Identification> {
        let trace = self.credential_cache.credentials_mac(credentials);
        let known = self.credential_cache.find_login(&trace, request.now)?;
        let user = self.users.cached(&known.user.name, request.now)?;
        self.refresh_login(request, (trace, known), &user)
    }

    /// Accepts a cached login, if it is still the same user.
    fn refresh_login(
        &self,
        request: &AuthRequest<'_>,
        (trace, known): ([u8; 32], CachedLogin),
        user: &Arc<UserAccount>,
    ) -> Option<Identification> {
        if !known.is_same_login(user) {
            return None;
        }
        self.credential_cache.cache_login(trace, known, request.now);
        Some(Identification::Known(identified(user, AuthenticationInfo::Absent)))
    }

    /// Verifies Basic credentials (RFC 7617).
    pub(super) async fn login_basic(
        &self,
        store: &store::StoreWorker,
        request: &AuthRequest<'_>,
        credentials: &[u8],
    ) -> Result<Identification, AuthError> {
        let trace = self.credential_cache.credentials_mac(credentials);
        if let Some(known) = self.credential_cache.find_login(&trace, request.now)
            && let Some(user) =
                self.users.cached_or_reread(store, &known.user.name, request.now).await?
            && let Some(identity) = self.refresh_login(request, (trace, known), &user)
        {
            return Ok(identity);
        }
        let Some(pair) = basic::read(credentials) else {
            return Err(self.unauthorized(store, request, &problem::CREDENTIALS_WRONG).await);
        };
        self.check_lockout(&pair.name, request).await?;
        let user = self.users.read(store, &pair.name, request.now).await?;
        let guess = PasswordCheck {
            credentials_mac: trace,
            user: user.clone(),
            credentials: pair.clone(),
            address: request.address,
            cache: Arc::clone(&self.credential_cache),
            throttle: Arc::clone(&self.throttle),
        };
        let verdict =
            self.hasher.run(HashPriority::Unauthenticated(request.address), || guess.run()).await;
        let user = match verdict.unwrap_or(PasswordVerdict::Throttled(Duration::from_secs(1))) {
            PasswordVerdict::Correct => user,
            PasswordVerdict::Wrong => None,
            PasswordVerdict::Throttled(time) => {
                return Err(self.locked_out(request, time).await.into());
            }
        };
        let Some(user) = user else { return Err(self.delayed_failure(store, request).await) };
        self.complete_digest_credentials(store, request, &user, &pair.password).await;
        let proved = CachedLogin { user: Arc::clone(&user), until: request.now };
        self.credential_cache.cache_login(trace, proved, request.now);
        Ok(Identification::Known(identified(&user, AuthenticationInfo::Absent)))
    }

    /// Derives Digest credentials for realms that were added after the password was set: only now is the
    /// password known in clear.
    async fn complete_digest_credentials(
        &self,
        store: &store::StoreWorker,
        request: &AuthRequest<'_>,
        user: &UserAccount,
        password: &str,
    ) {
        let Some(signer) = &self.signer else { return };
        if !password::lacks_digests(&user.record, &self.model, &signer.keyring.keys()) {
            return;
        }
        // A rotation may be in progress: what this login seals must be sealed with the new key.
        let keys = signer.keyring.reload_if_changed();
        let mut record = user.record.clone();
        if record.complete(&self.model, &keys, &user.name, password).is_err() {
            return;
        }
        let by = ChangeAuthor { actor: (&*user.name).into(), request_id: request.id.into() };
        let stored = (user.id, user.version);
        let record = Value::text(&record.to_string());
        let write = WritePlan::change_user(&self.model, stored, (PASSWORD, record), by);
        // If another login was faster, or the write fails, the next login tries again.
        let options = WriteOptions::with_deadline(request.now + COMPLETE_TIMEOUT);
        let _ = store.write(Box::new(write), options).await;
        self.users.invalidate();
    }

    /// Accepts an authenticated client that reuses its nonce. Synchronous, without a future: nearly all
    /// requests with Digest use this path, and it asks no other server which counts were used. All other
    /// requests fall back to `login_digest`.
    pub(super) fn digest_from_cache(
        &self,
        store: &store::StoreWorker,
        request: &AuthRequest<'_>,
        credentials: &[u8],
    ) -> Option<Identification> {
        let (signer, realm) = self.signer.as_ref().zip(self.model.realms.get(request.realm))?;
        let proof = digest::read(credentials).ok()?;
        let digest::DigestUsername::Name(name) = &proof.user else { return None };
        let nonce = self.credential_cache.find_session_nonce(&proof.nonce, name)?;
        let nonce = nonce.check_age(clock::moment().seconds()).ok()?;
        if nonce.is_near_end || proof.covers_body() {
            return None;
        }
        let (epoch, issued, count) = (nonce.epoch, nonce.issued, proof.count()?);
        let claim = NonceClaim { epoch, nonce: nonce.id, count, issued };
        if !store.can_claim_nonce_locally(&claim) {
            return None;
        }
        let signing = signer.current();
        let opaques = signing.opaques.get(request.realm)?;
        let algorithm = proof.check_scope(realm, opaques, &request_target(request)).ok()?;
        let user = self.users.cached(name, request.now).filter(|user| !user.is_disabled)?;
        let ha1 = user.ha1(request.realm, algorithm)?;
        let keyed = proof.with_ha1(ha1)?;
        if !keyed.verify(request.parts.method.as_str(), None) {
            return None;
        }
        match store.claim_nonce_locally(&claim)? {
            NonceClaimResult::First => Some(Identification::Known(identified(
                &user,
                ready_authentication_info(&keyed, None),
            ))),
            NonceClaimResult::Replay | NonceClaimResult::Stale => None,
        }
    }

    /// Verifies Digest credentials (RFC 7616, RFC 2617). `body`: the body they may cover, if it was read.
    pub(super) async fn login_digest(
        &self,
        store: &store::StoreWorker,
        request: &AuthRequest<'_>,
        credentials: &[u8],
        body: Option<&[u8]>,
    ) -> Result<Identification, AuthError> {
        let malformed = |detail: String| Problem::new(&problem::BAD_CREDENTIALS).detail(detail);
        let proof = digest::read(credentials).map_err(|fault| malformed(fault.0.to_owned()))?;
        let Some((signer, realm)) = self.signer.as_ref().zip(self.model.realms.get(request.realm))
        else {
            return Err(self.unauthorized(store, request, &problem::CREDENTIALS_WRONG).await);
        };
        let (signing, nonce) = self.read_nonce(signer, &proof);
        let opaques = signing.opaques.get(request.realm).map_or(&[][..], Vec::as_slice);
        let algorithm = match proof.check_scope(realm, opaques, &request_target(request)) {
            Ok(algorithm) => algorithm,
            Err(ScopeMismatch::Uri) => {
                return Err(malformed("uri: expected the target of the request".to_owned()).into());
            }
            Err(
                ScopeMismatch::Realm
                | ScopeMismatch::Opaque
                | ScopeMismatch::Algorithm
                | ScopeMismatch::Qop,
            ) => {
                return Err(self.unauthorized(store, request, &problem::CREDENTIALS_WRONG).await);
            }
        };
        if proof.covers_body() && body.is_none() {
            let name = self.throttled_name(store, request, (&proof, algorithm)).await?;
            if !self.is_session_nonce((&proof, &nonce), &name) {
                self.check_lockout(&name, request).await?;
            }
            // The body is read only for a client with one of our nonces.
            return match nonce {
                Ok(_) => Ok(Identification::NeedsBody),
                Err(_) => Err(self.unauthorized(store, request, &problem::STALE_NONCE).await),
            };
        }
        let covered = body.filter(|_| proof.covers_body());
        let body_hash = covered.map(|body| digest::hash_bytes(algorithm, body));
        self.verify_and_claim(store, request, DigestAttempt { proof, algorithm, body_hash }, nonce)
            .await
    }

    /// The nonce of the credentials, and the keys that it was verified with.
    fn read_nonce(
        &self,
        signer: &Signer,
        proof: &DigestCredentials<'_>,
    ) -> (Arc<SigningState>, Result<Nonce, NonceError>) {
        let now = clock::moment().seconds();
        let signing = signer.current();
        match signing.nonces.read(&proof.nonce, now) {
            Err(NonceError::Foreign) if signer.reload_if_changed() => {
                let signing = signer.current();
                let nonce = signing.nonces.read(&proof.nonce, now);
                (signing, nonce)
            }
            nonce => (signing, nonce),
        }
    }

    async fn verify_and_claim(
        &self,
        store: &store::StoreWorker,
        request: &AuthRequest<'_>,
        claimant: DigestAttempt<'_>,
        nonce: Result<Nonce, NonceError>,
    ) -> Result<Identification, AuthError> {
        let DigestAttempt { proof, algorithm, .. } = &claimant;
        let name = self.throttled_name(store, request, (proof, *algorithm)).await?;
        let is_proved = self.is_session_nonce((proof, &nonce), &name);
        if !is_proved {
            self.check_lockout(&name, request).await?;
        }
        let user = self.find_verified_user(store, request, (&name, is_proved), &claimant).await?;
        let Ok(nonce) = nonce else {
            return Err(self.unauthorized(store, request, &problem::STALE_NONCE).await);
        };
        let Nonce { epoch, issued, id, is_near_end } = nonce;
        // Without a count, a nonce is valid for one request.
        let count = proof.count().unwrap_or(1);
        match store.claim_nonce(&NonceClaim { epoch, nonce: id, count, issued }).await? {
            NonceClaimResult::First => {}
            NonceClaimResult::Replay | NonceClaimResult::Stale => {
                return Err(self.unauthorized(store, request, &problem::STALE_NONCE).await);
            }
        }
        self.credential_cache.cache_session_nonce((&proof.nonce, nonce), &name);
        let next = if is_near_end { Some(self.next_nonce(store, &name).await?) } else { None };
        let info = match user.ha1(request.realm, *algorithm) {
            Some(ha1) if proof.covers_body() => {
                AuthenticationInfo::CoversBody(Box::new((ha1.clone(), *algorithm, next)))
            }
            Some(ha1) => proof.with_ha1(ha1).map_or(AuthenticationInfo::Absent, |keyed| {
                ready_authentication_info(&keyed, next.as_deref())
            }),
            None => AuthenticationInfo::Absent,
        };
        Ok(Identification::Known(identified(&user, info)))
    }

    /// Issues the next nonce for an authenticated client.
    async fn next_nonce(
        &self,
        store: &store::StoreWorker,
        name: &str,
    ) -> Result<String, StoreError> {
        let next = self.issue_nonce(store).await?;
        let signing = self.signer.as_ref().map(|signer| signer.current());
        let read = signing.map(|signing| signing.nonces.read(&next, clock::moment().seconds()));
        if let Some(Ok(nonce)) = read {
            self.credential_cache.cache_session_nonce((next.as_bytes(), nonce), name);
        }
        Ok(next)
    }

    /// The name that failures count for. A `userhash` counts for the user name that it stands for, so that no
    /// password can be guessed under several names; an unknown hash counts for itself.
    async fn throttled_name<'p>(
        &self,
        store: &store::StoreWorker,
        request: &AuthRequest<'_>,
        (proof, algorithm): (&'p DigestCredentials<'_>, Algorithm),
    ) -> Result<Cow<'p, str>, StoreError> {
        match &proof.user {
            digest::DigestUsername::Name(name) => Ok(Cow::Borrowed(name)),
            digest::DigestUsername::Hash(hash) => {
                let key = (request.realm, algorithm, &**hash);
                let name = self.users.find_by_userhash(store, key, request.now).await?;
                // No user name has a colon, so this equals none.
                let unknown = || format!(":{}", hash.to_ascii_lowercase());
                Ok(Cow::Owned(name.map_or_else(unknown, |name| name.to_string())))
            }
        }
    }

    /// Whether this user has authenticated with this nonce before: then others' failures do not matter.
    fn is_session_nonce(
        &self,
        (proof, nonce): (&DigestCredentials<'_>, &Result<Nonce, NonceError>),
        name: &str,
    ) -> bool {
        nonce.is_ok() && self.credential_cache.find_session_nonce(&proof.nonce, name).is_some()
    }

    /// 429 while the user is locked out by failed logins.
    pub(super) async fn check_lockout(
        &self,
        name: &str,
        request: &AuthRequest<'_>,
    ) -> Result<(), Problem> {
        match self.throttle.locked_out_for(name, request.address, clock::now()) {
            None => Ok(()),
            Some(time) => Err(self.locked_out(request, time).await),
        }
    }

    /// 429 with `Retry-After`, for a locked-out client.
    pub(super) async fn locked_out(&self, request: &AuthRequest<'_>, time: Duration) -> Problem {
        self.delayed_failures.wait(request.now + tarpit::LOCKED_OUT_DELAY).await;
        let seconds = time.as_secs().saturating_add(1);
        Problem::new(&problem::TOO_MANY_LOGINS).header(header::RETRY_AFTER, seconds.into())
    }

    /// 401 for a failure that was counted.
    pub(super) async fn delayed_failure(
        &self,
        store: &store::StoreWorker,
        request: &AuthRequest<'_>,
    ) -> AuthError {
        self.delayed_failures.wait(request.now + tarpit::WRONG_PASSWORD_DELAY).await;
        self.unauthorized(store, request, &problem::CREDENTIALS_WRONG).await
    }
}
