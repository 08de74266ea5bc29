//! The credential cache: recent logins, in memory only, and without passwords.
//!
//! A hit lets a client in; a miss never refuses one.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_lc_rs::hmac;
use quick_cache::sync::Cache;

use super::digest::{self, Ha1};
use super::nonce::Nonce;
use super::users::User;
use crate::model::Algorithm;

/// How long a correct password is not hashed again. Use extends it, so that an authenticated client stays
/// in, whatever others do to the name or from the address meanwhile.
const REMEMBERED: Duration = Duration::from_secs(60);
/// Extended only when less than this is left, so that most requests only read.
const REMEMBERED_AGAIN: Duration = Duration::from_secs(30);
const REMEMBERED_MAX: usize = 16_384;
/// Nonces that a client with the password has used.
const PROVED_MAX: usize = 16_384;

/// The cached logins of Basic and the session nonces of Digest.
#[derive(Debug)]
pub(super) struct Memory {
    /// By a MAC of the credentials that were correct lately; the key never leaves the process.
    remembered: Cache<[u8; 32], Remembered>,
    key: hmac::Key,
    /// By a keyed hash of nonce and name: a nonce proves nothing about other users, and nobody can
    /// construct a collision.
    proved: Cache<u64, Nonce>,
    hasher: RandomState,
    /// Stand in for users who do not exist.
    nobody: [Ha1; 2],
}

#[derive(Debug, Clone)]
pub(super) struct Remembered {
    /// The user at the time of the login.
    pub(super) user: Arc<User>,
    pub(super) until: Instant,
}

impl Remembered {
    /// Whether this is the same user, with the same password: another one of the same name may have come
    /// after.
    pub(super) fn is(&self, user: &User) -> bool {
        self.user.is_same_login(user)
    }
}

impl Memory {
    pub(super) fn new() -> Self {
        let mut random = [0; 32];
        // A process without randomness has no ids, and does not get this far.
        let _ = getrandom::fill(&mut random);
        let secret: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let nobody = |algorithm| digest::ha1(algorithm, "", "", &secret);
        Self {
            remembered: Cache::new(REMEMBERED_MAX),
            key: hmac::Key::new(hmac::HMAC_SHA256, &random),
            proved: Cache::new(PROVED_MAX),
            hasher: RandomState::new(),
            nobody: [nobody(Algorithm::Md5), nobody(Algorithm::Sha256)],
        }
    }

    /// The MAC that stands for some credentials. Nothing keeps them in clear.
    pub(super) fn trace(&self, credentials: &[u8]) -> [u8; 32] {
        let tag = hmac::sign(&self.key, credentials);
        tag.as_ref().try_into().unwrap_or_default()
    }

    /// The login of these credentials, if they were correct lately.
    pub(super) fn recall(&self, trace: &[u8; 32], now: Instant) -> Option<Remembered> {
        self.remembered.get(trace).filter(|known| now < known.until)
    }

    /// Caches a login, or extends it.
    pub(super) fn remember(&self, trace: [u8; 32], known: Remembered, now: Instant) {
        if known.until < now + REMEMBERED_AGAIN {
            self.remembered.insert(trace, Remembered { until: now + REMEMBERED, ..known });
        }
    }

    /// Removes a login.
    pub(super) fn forget(&self, trace: &[u8; 32]) {
        self.remembered.remove(trace);
    }

    /// The parsed nonce, if this user has authenticated with it before: then it is one of ours.
    pub(super) fn proved(&self, nonce: &[u8], name: &str) -> Option<Nonce> {
        self.proved.get(&self.hasher.hash_one((nonce, name)))
    }

    pub(super) fn prove(&self, (text, nonce): (&[u8], Nonce), name: &str) {
        let key = self.hasher.hash_one((text, name));
        if self.proved.get(&key).is_none() {
            self.proved.insert(key, nonce);
        }
    }

    /// Removes the nonce of this user.
    pub(super) fn disprove(&self, nonce: &[u8], name: &str) {
        self.proved.remove(&self.hasher.hash_one((nonce, name)));
    }

    pub(super) fn nobody(&self, algorithm: Algorithm) -> &Ha1 {
        let [md5, sha256] = &self.nobody;
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
        let (memory, start) = (Memory::new(), clock::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        let trace = memory.trace(b"YW5uOnRlYQ==");
        let (ann, other) = (User::example(1), User::example(2));
        assert!(memory.recall(&trace, at(0)).is_none());
        let user = Arc::new(User::example(1));
        memory.remember(trace, Remembered { user, until: at(0) }, at(0));
        let known = memory.recall(&trace, at(0)).unwrap();
        assert!(known.is(&ann));
        assert!(!known.is(&other), "another user of the same name");
        let mut disabled = User::example(1);
        disabled.is_disabled = true;
        assert!(!known.is(&disabled));
        let mut changed = User::example(1);
        changed.record.argon2.push('x');
        assert!(!known.is(&changed), "another password");
        // Used every twenty seconds, for longer than a minute.
        for seconds in (20..200).step_by(20) {
            let known = memory.recall(&trace, at(seconds)).unwrap();
            memory.remember(trace, known, at(seconds));
        }
        // The last one that extended it was at 160 or later.
        assert!(memory.recall(&trace, at(219)).is_some());
        assert!(memory.recall(&trace, at(241)).is_none());
        assert!(memory.recall(&memory.trace(b"YW5uOnRlYX=="), at(1)).is_none());
    }

    #[test]
    fn credential_cache_remove_takes_one_login_only() {
        let (memory, now) = (Memory::new(), clock::now());
        let (mine, other) = (memory.trace(b"mine"), memory.trace(b"other"));
        for trace in [mine, other] {
            let user = Arc::new(User::example(1));
            memory.remember(trace, Remembered { user, until: now }, now);
        }
        memory.forget(&mine);
        assert!(memory.recall(&mine, now).is_none());
        assert!(memory.recall(&other, now).is_some());
        let nonce = Nonce { epoch: 1, issued: 2, id: 3, is_near_end: false };
        memory.prove((b"n", nonce), "ann");
        memory.prove((b"n", nonce), "bob");
        memory.disprove(b"n", "ann");
        assert_eq!(memory.proved(b"n", "ann"), None);
        assert_eq!(memory.proved(b"n", "bob"), Some(nonce));
    }
}
