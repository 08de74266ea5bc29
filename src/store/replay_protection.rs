//! Replay protection for Digest authentication: each (nonce, count) pair is accepted once, in any order (RFC
//! 7616 §3.4: `nc`).
//!
//! This file has the types, and the in-memory table of a server that has the data to itself (SQLite). Servers
//! that share a database share the table there (`postgres/replay_protection.rs`).
//! A clock that is set back starts a new epoch: the floors of the old epoch would make every nonce stale
//! until the clock has caught up.
//! Invariant: a nonce whose state was evicted is reported as stale, never accepted. Eviction raises a floor:
//! every nonce issued before it is stale, and the client gets a new one.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::fault::OrBug;

/// One use of a nonce.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NonceClaim {
    /// The epoch of the store that issued it: `StoreWorker::nonce_epoch`.
    pub epoch: u64,
    pub nonce: u128,
    /// The nonce count (`nc`): how many requests the client has sent with this nonce, including this one.
    pub count: u32,
    /// When the nonce was issued, in Unix seconds.
    pub issued: i64,
}

/// The result of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NonceClaimResult {
    /// The first use of this count of this nonce.
    First,
    /// A replay: this count was used before.
    Replay,
    /// Unknown, because the state was evicted: the client needs a new nonce.
    Stale,
}

/// The lifetime of a nonce in seconds; older ones are refused before they are claimed.
pub const NONCE_SECONDS: i64 = 300;
/// The tolerated clock skew between servers.
pub const CLOCK_SKEW_SECONDS: i64 = 120;

/// A clock that goes back by more than this was set back. Nonces issued by the former time are then refused
/// as issued in the future (`auth::nonce`), so that a new epoch invalidates nothing that is still valid.
const CLOCK_SET_BACK_SECONDS: i64 = 60;

/// Capacity: the number of nonces, and the words of 64 counts kept for each.
const NONCES_MAX: usize = 262_144;
const WORDS_PER_NONCE_MAX: usize = 16;
/// Enough shards that threads rarely contend for one.
const SHARDS: usize = 64;
/// Nonces that one claim evicts at most.
const EVICTIONS_PER_CLAIM_MAX: usize = 4;

/// The used nonces of one process.
pub struct UsedNonces {
    epoch: AtomicU64,
    /// The latest time seen in this epoch.
    latest_seconds: AtomicI64,
    shards: Box<[Mutex<NonceShard>]>,
    shard_nonces_max: usize,
}

impl fmt::Debug for UsedNonces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UsedNonces").finish_non_exhaustive()
    }
}

impl UsedNonces {
    /// Starts a new random epoch: the state of an earlier process is lost.
    pub fn new() -> Result<Self, getrandom::Error> {
        Ok(Self::with_capacity(getrandom::u64()?, SHARDS, NONCES_MAX))
    }

    fn with_capacity(epoch: u64, shards: usize, nonces_max: usize) -> Self {
        let shards = (0..shards).map(|_| Mutex::default()).collect::<Box<[_]>>();
        let shard_nonces_max = nonces_max / shards.len().max(1);
        let latest = AtomicI64::new(i64::MIN);
        Self { epoch: AtomicU64::new(epoch), latest_seconds: latest, shards, shard_nonces_max }
    }

    /// The epoch of nonces that are issued at `now`, in Unix seconds.
    pub fn epoch(&self, now: i64) -> u64 {
        let epoch = self.epoch.load(Ordering::SeqCst);
        let latest = self.latest_seconds.fetch_max(now, Ordering::SeqCst);
        if now >= latest.saturating_sub(CLOCK_SET_BACK_SECONDS) {
            return epoch;
        }
        // An epoch never repeats, even without a random source.
        let next = getrandom::u64().unwrap_or_else(|_| epoch.wrapping_add(1));
        // Of several threads that notice the change together, one starts the epoch. Another one that still
        // sees the former time a moment later starts one more, which is harmless.
        match self.epoch.compare_exchange(epoch, next, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => {
                self.latest_seconds.store(now, Ordering::SeqCst);
                next
            }
            Err(current) => current,
        }
    }

    /// Claims a count. `now` is in Unix seconds.
    pub fn claim(&self, claim: &NonceClaim, now: i64) -> NonceClaimResult {
        if claim.epoch != self.epoch(now) {
            return NonceClaimResult::Stale;
        }
        // A nonce is random, so it can choose its shard directly.
        let count = u128::try_from(self.shards.len()).or_bug("a length fits");
        let at = usize::try_from(claim.nonce % count).or_bug("a number of a shard fits");
        let shard = self.shards.get(at).or_bug("the remainder is the number of a shard");
        let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
        // Checked again under the lock: a shard drops the state of an epoch only when that epoch is over.
        if claim.epoch != self.epoch.load(Ordering::SeqCst) {
            return NonceClaimResult::Stale;
        }
        if shard.epoch != claim.epoch {
            *shard = NonceShard { epoch: claim.epoch, floor: i64::MIN, ..NonceShard::default() };
        }
        shard.claim(claim, now, self.shard_nonces_max)
    }
}

#[derive(Default)]
struct NonceShard {
    epoch: u64,
    nonces: HashMap<u128, UsedCounts>,
    /// The nonces by the second in which they were issued.
    by_issue_second: BTreeMap<i64, Vec<u128>>,
    /// Nonces issued before this are stale; those still in the map are not evicted yet.
    floor: i64,
}

impl NonceShard {
    fn claim(&mut self, claim: &NonceClaim, now: i64, nonces_max: usize) -> NonceClaimResult {
        self.floor = self.floor.max(now - NONCE_SECONDS - CLOCK_SKEW_SECONDS);
        self.evict_expired();
        if claim.issued < self.floor {
            return NonceClaimResult::Stale;
        }
        if let Some(used) = self.nonces.get_mut(&claim.nonce) {
            return used.claim(claim.count);
        }
        if self.nonces.len() >= nonces_max {
            let oldest = self.by_issue_second.keys().next().copied().unwrap_or(claim.issued);
            self.floor = self.floor.max(oldest.saturating_add(1));
            self.evict_expired();
            if claim.issued < self.floor {
                return NonceClaimResult::Stale;
            }
        }
        self.by_issue_second.entry(claim.issued).or_default().push(claim.nonce);
        self.nonces.entry(claim.nonce).or_default().claim(claim.count)
    }

    /// Evicts some nonces below the floor: more than one claim adds, and few enough that others do not wait.
    fn evict_expired(&mut self) {
        for _ in 0..EVICTIONS_PER_CLAIM_MAX {
            let Some(mut oldest) = self.by_issue_second.first_entry() else { return };
            if *oldest.key() >= self.floor {
                return;
            }
            if let Some(nonce) = oldest.get_mut().pop() {
                self.nonces.remove(&nonce);
            }
            if oldest.get().is_empty() {
                oldest.remove();
            }
        }
    }
}

/// The used counts of one nonce. Clients count up, so that all but the last few are a prefix.
#[derive(Default)]
struct UsedCounts {
    /// All counts of the words before this one are used.
    full_words: u32,
    /// The words before this one are evicted.
    evicted_words: u32,
    /// The other words with a used count, in order: their index and their bits.
    words: Vec<(u32, u64)>,
}

impl UsedCounts {
    fn claim(&mut self, count: u32) -> NonceClaimResult {
        // RFC 7616 §3.4: the first request has nc=1.
        let Some(index) = count.checked_sub(1) else { return NonceClaimResult::Stale };
        let (place, bit) = (index / 64, 1 << (index % 64));
        if place < self.full_words {
            return NonceClaimResult::Replay;
        }
        if place < self.evicted_words {
            return NonceClaimResult::Stale;
        }
        match self.words.binary_search_by_key(&place, |(place, _)| *place) {
            Ok(at) => {
                let (_, bits) = self.words.get_mut(at).or_bug("the search has found it");
                if *bits & bit != 0 {
                    return NonceClaimResult::Replay;
                }
                *bits |= bit;
            }
            Err(at) => return self.insert_word(at, (place, bit)),
        }
        self.fold_full_words();
        NonceClaimResult::First
    }

    /// The first use of a word. Evicts the oldest word if there are too many.
    fn insert_word(&mut self, at: usize, word: (u32, u64)) -> NonceClaimResult {
        if self.words.len() < WORDS_PER_NONCE_MAX {
            // Most nonces have one word, and there are many nonces.
            self.words.reserve_exact(usize::from(self.words.is_empty()));
            self.words.insert(at, word);
            return NonceClaimResult::First;
        }
        let (oldest, _) = self.words.remove(0);
        self.evicted_words = oldest + 1;
        // A word older than the evicted one is evicted as well.
        let Some(at) = at.checked_sub(1) else { return NonceClaimResult::Stale };
        self.words.insert(at, word);
        NonceClaimResult::First
    }

    /// Folds full words into the prefix.
    fn fold_full_words(&mut self) {
        while let Some((place, u64::MAX)) = self.words.first().copied() {
            if place == self.full_words {
                self.full_words += 1;
            } else if place == self.evicted_words {
                self.evicted_words += 1;
            } else {
                return;
            }
            self.words.remove(0);
        }
    }
}

#[cfg(test)]
mod tests;
