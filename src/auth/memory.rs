//! What logins leave in memory: nothing that outlives the process, and no password.
//!
//! It lets in; it never turns anybody away.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::time::{Duration, Instant};

use aws_lc_rs::hmac;
use quick_cache::sync::Cache;

use super::digest::{self, Ha1};
use super::nonce::Nonce;
use super::users::User;
use crate::model::Algorithm;

/// How long a password that was right is not hashed again; longer while it is used, since whoever is in
/// stays in, whatever others do to the name or from the address meanwhile.
const REMEMBERED: Duration = Duration::from_secs(60);
/// Not at every request, so that most of them only read.
const REMEMBERED_AGAIN: Duration = Duration::from_secs(30);
const REMEMBERED_MAX: usize = 16_384;
/// Nonces that are known to be in the hands of somebody with the password.
const PROVED_MAX: usize = 16_384;

/// What is known of those who are in.
#[derive(Debug)]
pub(super) struct Memory {
    /// Keyed hashes of credentials that were right lately; the key is never told to anyone.
    remembered: Cache<[u8; 32], Remembered>,
    key: hmac::Key,
    /// By a hash of nonce and name: a nonce proves nothing of others. The hash has a key, so that nobody
    /// can make two that are the same.
    proved: Cache<u64, Nonce>,
    hasher: RandomState,
    /// Stand in for users who are not there.
    nobody: [Ha1; 2],
}

#[derive(Debug, Clone)]
pub(super) struct Remembered {
    /// As they were when the password was right.
    pub(super) user: Arc<User>,
    pub(super) until: Instant,
}

impl Remembered {
    /// Whether this is the same user, with the same password: one of the same name may have come after.
    pub(super) fn is(&self, user: &User) -> bool {
        self.user.is_same_login(user)
    }
}

impl Memory {
    pub(super) fn new() -> Self {
        let mut random = [0; 32];
        // A process without randomness has no ids, and does not come this far.
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

    /// What stands for some credentials. In clear they are kept nowhere.
    pub(super) fn trace(&self, credentials: &[u8]) -> [u8; 32] {
        let tag = hmac::sign(&self.key, credentials);
        tag.as_ref().try_into().unwrap_or_default()
    }

    /// Whose credentials these are, if they were right lately.
    pub(super) fn recall(&self, trace: &[u8; 32], now: Instant) -> Option<Remembered> {
        self.remembered.get(trace).filter(|known| now < known.until)
    }

    /// From now on for as long as it lasts.
    pub(super) fn remember(&self, trace: [u8; 32], known: Remembered, now: Instant) {
        if known.until < now + REMEMBERED_AGAIN {
            self.remembered.insert(trace, Remembered { until: now + REMEMBERED, ..known });
        }
    }

    /// As if they had never been right.
    pub(super) fn forget(&self, trace: &[u8; 32]) {
        self.remembered.remove(trace);
    }

    /// The nonce that this text is, if this user was in with it before: then it is one of ours.
    pub(super) fn proved(&self, nonce: &[u8], name: &str) -> Option<Nonce> {
        self.proved.get(&self.hasher.hash_one((nonce, name)))
    }

    pub(super) fn prove(&self, (text, nonce): (&[u8], Nonce), name: &str) {
        let key = self.hasher.hash_one((text, name));
        if self.proved.get(&key).is_none() {
            self.proved.insert(key, nonce);
        }
    }

    /// As if this user had never been in with it.
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
    fn what_is_used_stays_remembered() {
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
        // The last one that moved it was at 160 or later.
        assert!(memory.recall(&trace, at(219)).is_some());
        assert!(memory.recall(&trace, at(241)).is_none());
        assert!(memory.recall(&memory.trace(b"YW5uOnRlYX=="), at(1)).is_none());
    }

    #[test]
    fn what_is_forgotten_is_gone() {
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
