//! Authentication by Digest (RFC 7616, RFC 2617): the scheme combined with stored users, caches and used
//! nonces.
//!
//! Cache hits and misses take the same path. It awaits the store only on a cache miss, in a boxed future, so on
//! a hit the whole future is small and ready at its first poll. A pending future must not be dropped and
//! started over: it may already have claimed the nonce.

use std::borrow::Cow;
use std::sync::Arc;

use super::account::UserAccount;
use super::digest::{self, DigestCredentials, DigestUsername, HexDigest, KeyedCredentials};
use super::logins::Logins;
use super::nonce::Nonce;
use super::request::{AuthRequest, AuthenticationInfo, Denial, Identification};
use super::user_cache::UserLookup;
use super::userhash::HashedName;
use crate::clock;
use crate::fault::OrBug;
use crate::model::Algorithm;
use crate::store::{NonceClaim, NonceClaimResult, StoreError};

/// Verifies Digest credentials. `body`: the body they may cover, if it was read.
pub(super) async fn authenticate(
    logins: &Logins,
    request: &AuthRequest<'_>,
    credentials: &[u8],
    body: Option<&[u8]>,
) -> Result<Identification, Denial> {
    let proof = digest::read(credentials)?;
    let session = match &proof.user {
        DigestUsername::Name(name) => logins.credentials.find_session_nonce(&proof.nonce, name),
        DigestUsername::Hash(_) => None,
    };
    // The nonce of a session was verified before. Any other may be signed by a key that is not loaded yet.
    let (signing, nonce) = match session {
        Some(nonce) => (logins.signer.current(), nonce.check_age(clock::moment().seconds())),
        None => logins.signer.read_nonce(&proof.nonce),
    };
    let opaques = &signing.realm(request.realm).opaques;
    let algorithm =
        proof.check_scope(logins.model.realm(request.realm), opaques, &request.target())?;
    let name = match &proof.user {
        DigestUsername::Name(name) => Cow::Borrowed(&**name),
        DigestUsername::Hash(hash) => {
            Cow::Owned(Box::pin(throttled_name(logins, request, algorithm, hash)).await?)
        }
    };
    // A client that has authenticated with this nonce before is not locked out by others' failures.
    let is_session =
        nonce.is_ok() && logins.credentials.find_session_nonce(&proof.nonce, &name).is_some();
    if !is_session {
        logins.check_lockout(request, &name)?;
    }
    if proof.covers_body() && body.is_none() {
        // The body is read only for a client with one of our nonces.
        return nonce.map(|_| Identification::NeedsBody).map_err(|_| Denial::STALE);
    }
    let covered = body.filter(|_| proof.covers_body());
    let body_hash = covered.map(|body| digest::hash_bytes(algorithm, body));
    let attempt = DigestAttempt {
        logins,
        request,
        proof: &proof,
        algorithm,
        body_hash,
        name: &name,
        is_session,
    };
    // The digest, then the nonce, then the claim: only a client that knows the password learns that its nonce
    // is stale, and nobody else uses up a count.
    let DigestProof { user, keyed } = attempt.verify().await?;
    let nonce = nonce.map_err(|_| Denial::STALE)?;
    // Without a count, a nonce is valid for one request.
    claim(request, nonce, proof.count().unwrap_or(1)).await?;
    if !is_session {
        logins.credentials.cache_session_nonce((&proof.nonce, nonce), &name);
    }
    let next = match nonce.is_near_end {
        true => Some(Box::pin(next_nonce(logins, request, &name)).await?),
        false => None,
    };
    let info = match proof.covers_body() {
        true => {
            let ha1 = user.ha1(request.realm, algorithm).or_bug("the proof was verified with it");
            AuthenticationInfo::CoversBody(Box::new((ha1.clone(), algorithm, next)))
        }
        false => AuthenticationInfo::ready(&keyed, next.as_deref()),
    };
    Ok(Identification::user(&user, info))
}

/// The name that failures of a `userhash` count for: the user name that it stands for, so that no password
/// can be guessed under several names. An unknown hash counts for itself.
async fn throttled_name(
    logins: &Logins,
    request: &AuthRequest<'_>,
    algorithm: Algorithm,
    hash: &str,
) -> Result<String, StoreError> {
    let hashed = HashedName { realm: request.realm, algorithm, hash };
    let name = logins.users.find_by_userhash(request.store, hashed, request.now).await?;
    // No user name has a colon, so this equals none.
    let unknown = || format!(":{}", hash.to_ascii_lowercase());
    Ok(name.map_or_else(unknown, |name| name.to_string()))
}

/// Claims a count of the nonce: each is accepted once, on all servers together.
async fn claim(request: &AuthRequest<'_>, nonce: Nonce, count: u32) -> Result<(), Denial> {
    let Nonce { epoch, issued, id, .. } = nonce;
    let claim = NonceClaim { epoch, nonce: id, count, issued };
    let claimed = match request.store.claim_nonce_locally(&claim) {
        Some(claimed) => claimed,
        None => Box::pin(request.store.claim_nonce(&claim)).await?,
    };
    match claimed {
        NonceClaimResult::First => Ok(()),
        NonceClaimResult::Replay | NonceClaimResult::Stale => Err(Denial::STALE),
    }
}

/// Issues the next nonce for an authenticated client.
async fn next_nonce(
    logins: &Logins,
    request: &AuthRequest<'_>,
    name: &str,
) -> Result<String, StoreError> {
    let next = logins.issue_nonce(request.store).await?;
    let nonce = logins.signer.current().nonces.read(&next, clock::moment().seconds());
    // The keys may have been rotated just now; the client then authenticates with this nonce like any other.
    if let Ok(nonce) = nonce {
        logins.credentials.cache_session_nonce((next.as_bytes(), nonce), name);
    }
    Ok(next)
}

/// The Digest credentials of a request, checked to belong to it.
struct DigestAttempt<'a> {
    logins: &'a Logins,
    request: &'a AuthRequest<'a>,
    proof: &'a DigestCredentials<'a>,
    algorithm: Algorithm,
    /// The hash of the body, if the proof covers the body.
    body_hash: Option<HexDigest>,
    /// The name that failures count for.
    name: &'a str,
    /// Whether this user has authenticated with this nonce before.
    is_session: bool,
}

/// A user whose password the client knows.
struct DigestProof<'a> {
    user: Arc<UserAccount>,
    keyed: KeyedCredentials<'a>,
}

impl<'a> DigestAttempt<'a> {
    /// A cached user may accept the proof; only the stored user rejects it.
    async fn verify(&self) -> Result<DigestProof<'a>, Denial> {
        let AuthRequest { store, now, .. } = *self.request;
        let UserLookup { user, is_stored } = self.logins.users.find(store, self.name, now).await?;
        match self.compare_and_count(user) {
            Err(Denial::LockedOut(time)) if !self.is_session => Err(Denial::LockedOut(time)),
            Err(denial @ (Denial::WrongPassword | Denial::LockedOut(_))) if !is_stored => {
                Box::pin(self.verify_stored(denial)).await
            }
            verdict => verdict,
        }
    }

    /// A wrong guess at a cached user was counted; it is uncounted if the password has changed meanwhile and
    /// the guess is correct.
    async fn verify_stored(&self, denial: Denial) -> Result<DigestProof<'a>, Denial> {
        let AuthRequest { store, now, address, .. } = *self.request;
        let stored = self.logins.users.read(store, self.name, now).await?;
        let Some(proof) = self.compare(stored) else { return Err(denial) };
        if matches!(denial, Denial::WrongPassword) {
            self.logins.lockout.take_back(self.name, address, clock::now());
        }
        Ok(proof)
    }

    /// Nothing is awaited between a comparison and its count, so concurrent guesses get no more comparisons
    /// than sequential ones.
    fn compare_and_count(&self, user: Option<Arc<UserAccount>>) -> Result<DigestProof<'a>, Denial> {
        let Self { logins, request, name, is_session, .. } = self;
        match self.compare(user) {
            Some(proof) if *is_session => Ok(proof),
            // Other guesses may have failed while the user was read; at the limit even a correct one is
            // refused.
            Some(proof) => logins.check_lockout(request, name).map(|()| proof),
            None => Err(match logins.lockout.count_failure(name, request.address, clock::now()) {
                Ok(()) => Denial::WrongPassword,
                Err(time) => Denial::LockedOut(time),
            }),
        }
    }

    /// The user, if the proof is theirs. Takes equally long if there is no such user.
    fn compare(&self, user: Option<Arc<UserAccount>>) -> Option<DigestProof<'a>> {
        let ha1 = user.as_ref().and_then(|user| user.ha1(self.request.realm, self.algorithm));
        let nobody = self.logins.credentials.dummy_ha1(self.algorithm);
        let keyed = self.proof.with_ha1(ha1.unwrap_or(nobody));
        let keyed = keyed.or_bug("the scope of the credentials was checked");
        let is_right = keyed.verify(self.request.parts.method.as_str(), self.body_hash.as_ref());
        let is_known = ha1.is_some() && is_right;
        let user = user.filter(|user| is_known && !user.is_disabled)?;
        Some(DigestProof { user, keyed })
    }
}
