//! How often a password may be wrong: so many failed logins of one user from one address in a minute,
//! then that pair is shut until the minute is over, for a right password too.
//!
//! Whether the user exists plays no part. There is no clock here, and callers already proved never
//! come by.
//! The one surprising thing: the memory is fixed. Pairs share small sets, chosen by a keyed hash that
//! no client can foresee, and a newcomer takes the place of the pair with the fewest failures: to push
//! out a pair that is shut, a whole set has to be shut first, and nobody can aim at a set.

use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const WINDOW: Duration = Duration::from_secs(60);
const SHARDS: usize = 16;
const SETS: usize = 256;
const WAYS: usize = 8;

/// Failed logins of the last minute.
#[derive(Debug)]
pub struct Throttle {
    failures_max: u32,
    /// Times are kept as milliseconds since then.
    began: Instant,
    hashes: RandomState,
    /// When the last minute that holds a failure will be over; before the first one 0.
    calm_at_ms: AtomicU64,
    shards: [Mutex<Box<[Set; SETS]>>; SHARDS],
}

type Set = [Pair; WAYS];

/// The failures of one user at one address.
#[derive(Debug, Clone, Copy, Default)]
struct Pair {
    hash: u64,
    failures: u32,
    /// The minute that began with the first failure; 0 is over at any time.
    over_at_ms: u64,
}

impl Throttle {
    pub fn new(failures_max: u32, now: Instant) -> Self {
        Self {
            failures_max,
            began: now,
            hashes: RandomState::new(),
            calm_at_ms: AtomicU64::new(0),
            shards: std::array::from_fn(|_| Mutex::new(Box::new([Set::default(); SETS]))),
        }
    }

    /// How long this pair has to stay away, if it has to.
    pub fn is_shut(&self, name: &str, address: IpAddr, now: Instant) -> Option<Duration> {
        let now_ms = self.millis(now);
        // Almost always: nobody has failed for a minute.
        if self.calm_at_ms.load(Ordering::Relaxed) <= now_ms {
            return None;
        }
        let hash = self.hash(name, address);
        let mut shard = self.shard(hash);
        let pair = set(&mut shard, hash)?.iter().find(|pair| pair.is(hash, now_ms))?;
        let left_ms = pair.over_at_ms.saturating_sub(now_ms);
        (pair.failures >= self.failures_max).then(|| Duration::from_millis(left_ms))
    }

    pub fn count_failure(&self, name: &str, address: IpAddr, now: Instant) {
        let now_ms = self.millis(now);
        let hash = self.hash(name, address);
        let over_at_ms = now_ms + u64::try_from(WINDOW.as_millis()).unwrap_or(u64::MAX);
        self.calm_at_ms.fetch_max(over_at_ms, Ordering::Relaxed);
        let mut shard = self.shard(hash);
        let Some(set) = set(&mut shard, hash) else { return };
        if let Some(pair) = set.iter_mut().find(|pair| pair.is(hash, now_ms)) {
            pair.failures = pair.failures.saturating_add(1);
            return;
        }
        // One whose minute is over, else the one with the fewest failures, the oldest of them.
        let worth = |pair: &&mut Pair| match pair.is_over(now_ms) {
            true => (0, 0),
            false => (pair.failures.min(self.failures_max), pair.over_at_ms),
        };
        if let Some(pair) = set.iter_mut().min_by_key(worth) {
            *pair = Pair { hash, failures: 1, over_at_ms };
        }
    }

    fn hash(&self, name: &str, address: IpAddr) -> u64 {
        self.hashes.hash_one((name, network(address)))
    }

    fn shard(&self, hash: u64) -> MutexGuard<'_, Box<[Set; SETS]>> {
        #[expect(clippy::indexing_slicing, reason = "there are as many shards")]
        let shard = &self.shards[low(hash) % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn millis(&self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(self.began).as_millis();
        u64::try_from(since).unwrap_or(u64::MAX - 1) + 1
    }
}

impl Pair {
    fn is_over(&self, now_ms: u64) -> bool {
        self.over_at_ms <= now_ms
    }

    fn is(&self, hash: u64, now_ms: u64) -> bool {
        self.hash == hash && !self.is_over(now_ms)
    }
}

fn set(shard: &mut [Set; SETS], hash: u64) -> Option<&mut Set> {
    shard.get_mut(low(hash) / SHARDS % SETS)
}

fn low(hash: u64) -> usize {
    usize::try_from(hash & 0xffff_ffff).unwrap_or(0)
}

/// Who counts as one address: with IPv6 everyone has a /64, which is 2^64 addresses.
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX))),
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests;
