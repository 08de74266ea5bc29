//! Which counts of which nonces were used: each count once, in any order (RFC 7616 §3.4: `nc`).
//!
//! Here: what is asked and answered, and the memory of a server that is alone with its data. Servers
//! that share a database share this memory there (`postgres/claims.rs`).
//! A clock that is set back begins a new epoch: floors from before it would make every nonce stale until
//! the time has caught up.
//! The one surprising thing: what has to be forgotten for want of room is never taken for unused. A
//! floor is raised instead, and whatever lies below it is stale, so that the client asks for a new nonce.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// One use of a nonce.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// Of the store that gave it out: `Worker::epoch`.
    pub epoch: u64,
    pub nonce: u128,
    /// How many requests the client has sent with it, this one included: 1 for the first.
    pub count: u32,
    /// When it was given out, in seconds since 1970.
    pub issued: i64,
}

/// What became of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claimed {
    /// Nobody has used this count of this nonce before.
    First,
    /// Somebody has.
    Again,
    /// It is no longer known who has: the client needs a new nonce.
    Stale,
}

/// How long a nonce lives, in seconds; what is older is refused before it is claimed.
pub const NONCE_SECONDS: i64 = 300;
/// By how much clocks may differ.
pub(super) const SKEW_SECONDS: i64 = 120;

/// A clock that goes back by more than this was set back. Nonces that were given out by the former time
/// are refused then as from the future (`auth::nonce`), so that a new epoch takes nothing away.
const SET_BACK_SECONDS: i64 = 60;

/// How many nonces are remembered, and how much of each: 64 counts a word.
const NONCES_MAX: usize = 262_144;
const WORDS_MAX: usize = 16;
/// So many threads rarely meet in one.
const SHARDS: usize = 64;
/// Nonces that one claim clears away at most.
const CLEARED_MAX: usize = 4;

/// The memory of one process.
pub(super) struct Claims {
    epoch: AtomicU64,
    /// The latest time that was seen in this epoch.
    latest: AtomicI64,
    shards: Box<[Mutex<Shard>]>,
    shard_nonces_max: usize,
}

impl fmt::Debug for Claims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claims").finish_non_exhaustive()
    }
}

impl Claims {
    /// With a new epoch: what another process knew of its nonces is gone with it.
    pub(super) fn new() -> Result<Self, getrandom::Error> {
        Ok(Self::with(getrandom::u64()?, SHARDS, NONCES_MAX))
    }

    fn with(epoch: u64, shards: usize, nonces_max: usize) -> Self {
        let shards = (0..shards).map(|_| Mutex::default()).collect::<Box<[_]>>();
        let shard_nonces_max = nonces_max / shards.len().max(1);
        let latest = AtomicI64::new(i64::MIN);
        Self { epoch: AtomicU64::new(epoch), latest, shards, shard_nonces_max }
    }

    /// The epoch of nonces that are given out at this time, in seconds since 1970.
    pub(super) fn epoch(&self, now: i64) -> u64 {
        let epoch = self.epoch.load(Ordering::SeqCst);
        let latest = self.latest.fetch_max(now, Ordering::SeqCst);
        if now >= latest.saturating_sub(SET_BACK_SECONDS) {
            return epoch;
        }
        // No epoch comes twice, also without randomness.
        let next = getrandom::u64().unwrap_or_else(|_| epoch.wrapping_add(1));
        // Of threads that find out together, one begins it; another that sees the former time a moment
        // later begins one more, which does no harm.
        match self.epoch.compare_exchange(epoch, next, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => {
                self.latest.store(now, Ordering::SeqCst);
                next
            }
            Err(current) => current,
        }
    }

    /// `now` is in seconds since 1970.
    pub(super) fn claim(&self, claim: &Claim, now: i64) -> Claimed {
        if claim.epoch != self.epoch(now) {
            return Claimed::Stale;
        }
        // A nonce is random, so any part of it is.
        let count = u128::try_from(self.shards.len()).unwrap_or(1).max(1);
        let at = usize::try_from(claim.nonce % count).unwrap_or(0);
        let Some(shard) = self.shards.get(at) else { return Claimed::Stale };
        let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
        // Once more, under the lock: what the shard knows of an epoch goes only when that is over.
        if claim.epoch != self.epoch.load(Ordering::SeqCst) {
            return Claimed::Stale;
        }
        if shard.epoch != claim.epoch {
            *shard = Shard { epoch: claim.epoch, floor: i64::MIN, ..Shard::default() };
        }
        shard.claim(claim, now, self.shard_nonces_max)
    }
}

#[derive(Default)]
struct Shard {
    epoch: u64,
    nonces: HashMap<u128, Used>,
    /// The same, by when they were given out.
    by_age: BTreeMap<i64, Vec<u128>>,
    /// What was given out earlier is stale; what of it is still here is only not cleared away yet.
    floor: i64,
}

impl Shard {
    fn claim(&mut self, claim: &Claim, now: i64, nonces_max: usize) -> Claimed {
        self.floor = self.floor.max(now - NONCE_SECONDS - SKEW_SECONDS);
        self.clear_away();
        if claim.issued < self.floor {
            return Claimed::Stale;
        }
        if let Some(used) = self.nonces.get_mut(&claim.nonce) {
            return used.claim(claim.count);
        }
        if self.nonces.len() >= nonces_max {
            let oldest = self.by_age.keys().next().copied().unwrap_or(claim.issued);
            self.floor = self.floor.max(oldest.saturating_add(1));
            self.clear_away();
            if claim.issued < self.floor {
                return Claimed::Stale;
            }
        }
        self.by_age.entry(claim.issued).or_default().push(claim.nonce);
        self.nonces.entry(claim.nonce).or_default().claim(claim.count)
    }

    /// Some of what lies below the floor: more than one claim adds, and never so many that others wait.
    fn clear_away(&mut self) {
        for _ in 0..CLEARED_MAX {
            let Some(mut oldest) = self.by_age.first_entry() else { return };
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

/// The used counts of one nonce. Clients count up, so that all but the last few are one number.
#[derive(Default)]
struct Used {
    /// Words before this one are used, every count of them.
    whole: u32,
    /// Words before this one are not known any more.
    lost: u32,
    /// The others that have a used count: their place and their bits, in order.
    words: Vec<(u32, u64)>,
}

impl Used {
    fn claim(&mut self, count: u32) -> Claimed {
        // RFC 7616 §3.4: the first request has 1.
        let Some(index) = count.checked_sub(1) else { return Claimed::Stale };
        let (place, bit) = (index / 64, 1 << (index % 64));
        if place < self.whole {
            return Claimed::Again;
        }
        if place < self.lost {
            return Claimed::Stale;
        }
        match self.words.binary_search_by_key(&place, |(place, _)| *place) {
            Ok(at) => {
                let Some((_, bits)) = self.words.get_mut(at) else { return Claimed::Stale };
                if *bits & bit != 0 {
                    return Claimed::Again;
                }
                *bits |= bit;
            }
            Err(at) => return self.begin(at, (place, bit)),
        }
        self.settle();
        Claimed::First
    }

    /// The first use of a word. The oldest is given up when there are too many.
    fn begin(&mut self, at: usize, word: (u32, u64)) -> Claimed {
        if self.words.len() < WORDS_MAX {
            // Most nonces have one, and there are many nonces.
            self.words.reserve_exact(usize::from(self.words.is_empty()));
            self.words.insert(at, word);
            return Claimed::First;
        }
        let (oldest, _) = self.words.remove(0);
        self.lost = oldest + 1;
        // One that is older still is as lost as the oldest.
        let Some(at) = at.checked_sub(1) else { return Claimed::Stale };
        self.words.insert(at, word);
        Claimed::First
    }

    /// Takes in what became whole.
    fn settle(&mut self) {
        while let Some((place, u64::MAX)) = self.words.first().copied() {
            if place == self.whole {
                self.whole += 1;
            } else if place == self.lost {
                self.lost += 1;
            } else {
                return;
            }
            self.words.remove(0);
        }
    }
}

#[cfg(test)]
mod tests;
