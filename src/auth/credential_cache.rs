//! The credential cache: recent logins, in memory only, and without passwords.
//!
//! A hit lets a client in; a miss never refuses one.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_lc_rs::hmac;
use quick_cache::sync::Cache;

use super::account::UserAccount;
use super::digest::{self, Ha1};
use super::nonce::Nonce;
use crate::fault::OrBug;
use crate::model::Algorithm;

/// How long a login is cached, so that its password is not hashed again. Each use extends the time, so that
/// an authenticated client stays logged in while others fail with the same name or from the same address.
const LOGIN_TTL: Duration = Duration::from_secs(60);
/// A login is extended only when less than this is left, so that most requests only read the cache.
const LOGIN_EXTEND_BELOW: Duration = Duration::from_secs(30);
const LOGINS_MAX: usize = 16_384;
/// The maximum number of cached nonces of authenticated users.
const SESSION_NONCES_MAX: usize = 16_384;

/// The cached logins of Basic and the session nonces of Digest.
#[derive(Debug)]
pub(super) struct CredentialCache {
    /// Recent logins, by a MAC of their credentials; the key of the MAC never leaves the process.
    logins: Cache<[u8; 32], CachedLogin>,
    key: hmac::Key,
    /// Nonces of authenticated users, by a keyed hash of nonce and name: a nonce proves nothing about other
    /// users, and no client can construct a collision.
    session_nonces: Cache<u64, Nonce>,
    hasher: RandomState,
    /// Substitutes for the HA1 of users who do not exist.
    dummy_ha1s: [Ha1; 2],
}

#[derive(Debug, Clone)]
pub(super) struct CachedLogin {
    /// The user at the time of the login.
    pub(super) user: Arc<UserAccount>,
    pub(super) until: Instant,
}

impl CredentialCache {
    pub(super) fn new() -> io::Result<Self> {
        let mut random = [0; 32];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let secret: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let nobody = |algorithm| digest::ha1(algorithm, "", "", &secret);
        Ok(Self {
            logins: Cache::new(LOGINS_MAX),
            key: hmac::Key::new(hmac::HMAC_SHA256, &random),
            session_nonces: Cache::new(SESSION_NONCES_MAX),
            hasher: RandomState::new(),
            dummy_ha1s: [nobody(Algorithm::Md5), nobody(Algorithm::Sha256)],
        })
    }

    /// The MAC under which credentials are cached. The cache never holds them in clear.
    pub(super) fn credentials_mac(&self, credentials: &[u8]) -> [u8; 32] {
        let tag = hmac::sign(&self.key, credentials);
        tag.as_ref().try_into().or_bug("the tag of HMAC-SHA256 has 32 bytes")
    }

    /// The login of these credentials, if they were correct recently.
    pub(super) fn find_login(&self, trace: &[u8; 32], now: Instant) -> Option<CachedLogin> {
        self.logins.get(trace).filter(|known| now < known.until)
    }

    /// Caches a login, or extends it.
    pub(super) fn cache_login(&self, trace: [u8; 32], known: CachedLogin, now: Instant) {
        if known.until < now + LOGIN_EXTEND_BELOW {
            self.logins.insert(trace, CachedLogin { until: now + LOGIN_TTL, ..known });
        }
    }

    /// Removes a login.
    pub(super) fn remove_login(&self, trace: &[u8; 32]) {
        self.logins.remove(trace);
    }

    /// The parsed nonce, if this user has authenticated with it before; then one of our keys has signed it.
    pub(super) fn find_session_nonce(&self, nonce: &[u8], name: &str) -> Option<Nonce> {
        self.session_nonces.get(&self.hasher.hash_one((nonce, name)))
    }

    pub(super) fn cache_session_nonce(&self, (text, nonce): (&[u8], Nonce), name: &str) {
        let key = self.hasher.hash_one((text, name));
        if self.session_nonces.get(&key).is_none() {
            self.session_nonces.insert(key, nonce);
        }
    }

    /// Removes the nonce of this user.
    pub(super) fn remove_session_nonce(&self, nonce: &[u8], name: &str) {
        self.session_nonces.remove(&self.hasher.hash_one((nonce, name)));
    }

    pub(super) fn dummy_ha1(&self, algorithm: Algorithm) -> &Ha1 {
        let [md5, sha256] = &self.dummy_ha1s;
        match algorithm {
            Algorithm::Md5 => md5,
            Algorithm::Sha256 => sha256,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    #[test]
    fn credential_cache_extends_a_login_that_is_used() {
        let (memory, start) = (CredentialCache::new().unwrap(), clock::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let trace = memory.credentials_mac(b"YW5uOnRlYQ==");
        let (ann, other) = (UserAccount::example(1), UserAccount::example(2));
        assert!(memory.find_login(&trace, at(0)).is_none());
        let user = Arc::new(UserAccount::example(1));
        memory.cache_login(trace, CachedLogin { user, until: at(0) }, at(0));
        let known = memory.find_login(&trace, at(0)).unwrap();
        assert!(known.user.is_same_login(&ann));
        assert!(!known.user.is_same_login(&other), "another user of the same name");
        let mut disabled = UserAccount::example(1);
        disabled.is_disabled = true;
        assert!(!known.user.is_same_login(&disabled));
        let mut changed = UserAccount::example(1);
        changed.record.argon2.push('x');
        assert!(!known.user.is_same_login(&changed), "another password");
        // Used every twenty seconds, for longer than a minute.
        for seconds in (20..200).step_by(20) {
            let known = memory.find_login(&trace, at(seconds)).unwrap();
            memory.cache_login(trace, known, at(seconds));
        }
        // The last use that extended the login was at 160 or later.
        assert!(memory.find_login(&trace, at(219)).is_some());
        assert!(memory.find_login(&trace, at(241)).is_none());
        assert!(memory.find_login(&memory.credentials_mac(b"YW5uOnRlYX=="), at(1)).is_none());
    }

    #[test]
    fn credential_cache_remove_takes_one_login_only() {
        let (memory, now) = (CredentialCache::new().unwrap(), clock::now());
        let (mine, other) = (memory.credentials_mac(b"mine"), memory.credentials_mac(b"other"));
        for trace in [mine, other] {
            let user = Arc::new(UserAccount::example(1));
            memory.cache_login(trace, CachedLogin { user, until: now }, now);
        }
        memory.remove_login(&mine);
        assert!(memory.find_login(&mine, now).is_none());
        assert!(memory.find_login(&other, now).is_some());
        let nonce = Nonce { epoch: 1, issued: 2, id: 3, is_near_end: false };
        memory.cache_session_nonce((b"n", nonce), "ann");
        memory.cache_session_nonce((b"n", nonce), "bob");
        memory.remove_session_nonce(b"n", "ann");
        assert_eq!(memory.find_session_nonce(b"n", "ann"), None);
        assert_eq!(memory.find_session_nonce(b"n", "bob"), Some(nonce));
    }
}
