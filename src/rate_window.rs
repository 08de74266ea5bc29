//! Fixed-window counters for rate limits: a window begins with a key's first event, and the count is
//! reset after its end.
//!
//! There is no clock here. The memory is fixed: a set-associative table. A keyed hash that no client can
//! predict chooses a key's set, and a new key evicts the entry with the lowest count among those below their
//! limit. To evict a key that is at its limit, an attacker has to fill a whole set with keys at their limits,
//! and cannot aim at a set.

use std::hash::{BuildHasher, Hash, RandomState};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub const SHARDS: usize = 16;
pub const SETS: usize = 256;
pub const WAYS: usize = 8;

/// The counters of all live windows.
#[derive(Debug)]
pub struct FixedWindowCounters {
    /// Times are stored as milliseconds since this moment.
    began: Instant,
    hashes: RandomState,
    /// When the last live window ends; 0 before the first one.
    all_ended_at_ms: AtomicU64,
    shards: [Mutex<Box<[WindowSet; SETS]>>; SHARDS],
}

type WindowSet = [Window; WAYS];

#[derive(Debug, Clone, Copy, Default)]
struct Window {
    hash: u64,
    count: u32,
    is_at_limit: bool,
    /// 0 is a window that has ended.
    ends_at_ms: u64,
}

/// The count of a window, and how long it still lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WindowState {
    pub count: u32,
    pub remaining: Duration,
}

impl FixedWindowCounters {
    pub fn new(now: Instant) -> Self {
        Self {
            began: now,
            hashes: RandomState::new(),
            all_ended_at_ms: AtomicU64::new(0),
            shards: std::array::from_fn(|_| Mutex::new(Box::new([WindowSet::default(); SETS]))),
        }
    }

    /// The state of a key's window.
    pub fn state(&self, who: impl Hash, now: Instant) -> Option<WindowState> {
        let now_ms = self.millis(now);
        // The fast path: no window is live.
        if self.all_ended_at_ms.load(Ordering::Relaxed) <= now_ms {
            return None;
        }
        let hash = self.hashes.hash_one(who);
        let mut shard = self.shard(hash);
        let window =
            find_set(&mut shard, hash)?.iter().find(|window| window.matches(hash, now_ms))?;
        Some(window.state(now_ms))
    }

    /// Counts one event, unless the limit is reached: then `Err`.
    pub fn count(
        &self,
        who: impl Hash,
        (count_max, span): (u32, Duration),
        now: Instant,
    ) -> Result<WindowState, WindowState> {
        let now_ms = self.millis(now);
        let hash = self.hashes.hash_one(who);
        let span_ms = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        let over_at_ms = now_ms.saturating_add(span_ms);
        self.all_ended_at_ms.fetch_max(over_at_ms, Ordering::Relaxed);
        let first = Window { hash, count: 1, is_at_limit: count_max <= 1, ends_at_ms: over_at_ms };
        let mut shard = self.shard(hash);
        let Some(set) = find_set(&mut shard, hash) else { return Ok(first.state(now_ms)) };
        if let Some(window) = set.iter_mut().find(|window| window.matches(hash, now_ms)) {
            if window.count >= count_max {
                return Err(window.state(now_ms));
            }
            window.count += 1;
            window.is_at_limit = window.count >= count_max;
            return Ok(window.state(now_ms));
        }
        // Evicts a window that has ended, else of those below their limit the oldest with the lowest count.
        let worth = |window: &&mut Window| match window.has_ended(now_ms) {
            true => (false, 0, 0),
            false => (window.is_at_limit, window.count, window.ends_at_ms),
        };
        if let Some(window) = set.iter_mut().min_by_key(worth) {
            *window = first;
        }
        Ok(first.state(now_ms))
    }

    /// Uncounts one event, if its window has not ended.
    pub fn take_back(&self, who: impl Hash, now: Instant) {
        let now_ms = self.millis(now);
        let hash = self.hashes.hash_one(who);
        let mut shard = self.shard(hash);
        let found = find_set(&mut shard, hash)
            .and_then(|set| set.iter_mut().find(|window| window.matches(hash, now_ms)));
        if let Some(window) = found {
            window.count = window.count.saturating_sub(1);
            window.is_at_limit = false;
        }
    }

    /// The number of live windows.
    #[cfg(test)]
    pub fn len(&self, now: Instant) -> usize {
        let now_ms = self.millis(now);
        let shards = self.shards.iter().map(|shard| shard.lock().unwrap());
        let live = |window: &&Window| !window.has_ended(now_ms);
        shards.map(|shard| shard.iter().flatten().filter(live).count()).sum()
    }

    fn shard(&self, hash: u64) -> MutexGuard<'_, Box<[WindowSet; SETS]>> {
        #[expect(clippy::indexing_slicing, reason = "there are as many shards")]
        let shard = &self.shards[low_bits(hash) % SHARDS];
        shard.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn millis(&self, now: Instant) -> u64 {
        let since = now.saturating_duration_since(self.began).as_millis();
        u64::try_from(since).unwrap_or(u64::MAX - 1) + 1
    }
}

impl Window {
    fn has_ended(&self, now_ms: u64) -> bool {
        self.ends_at_ms <= now_ms
    }

    fn matches(&self, hash: u64, now_ms: u64) -> bool {
        self.hash == hash && !self.has_ended(now_ms)
    }

    fn state(&self, now_ms: u64) -> WindowState {
        let left = Duration::from_millis(self.ends_at_ms.saturating_sub(now_ms));
        WindowState { count: self.count, remaining: left }
    }
}

/// The unit of addresses that counts as one client: every IPv6 client has a /64, which is 2^64 addresses.
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX))),
        v4 @ IpAddr::V4(_) => v4,
    }
}

fn find_set(shard: &mut [WindowSet; SETS], hash: u64) -> Option<&mut WindowSet> {
    shard.get_mut(low_bits(hash) / SHARDS % SETS)
}

fn low_bits(hash: u64) -> usize {
    usize::try_from(hash & 0xffff_ffff).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn fixed_window_counts_up_to_the_limit_and_resets() {
        let now = clock::now();
        let windows = FixedWindowCounters::new(now);
        let limit = (3, seconds(10));
        let seen = |count, left| WindowState { count, remaining: seconds(left) };
        assert_eq!(windows.state("ann", now), None);
        assert_eq!(windows.count("ann", limit, now), Ok(seen(1, 10)));
        assert_eq!(windows.count("ann", limit, now + seconds(4)), Ok(seen(2, 6)));
        assert_eq!(windows.count("bob", limit, now + seconds(4)), Ok(seen(1, 10)));
        assert_eq!(windows.count("ann", limit, now + seconds(9)), Ok(seen(3, 1)));
        for _ in 0..3 {
            assert_eq!(windows.count("ann", limit, now + seconds(9)), Err(seen(3, 1)));
        }
        assert_eq!(windows.state("ann", now + seconds(9)), Some(seen(3, 1)));
        assert_eq!(windows.count("ann", limit, now + seconds(10)), Ok(seen(1, 10)));
        assert_eq!(windows.count("bob", limit, now + seconds(10)), Ok(seen(2, 4)));
    }

    #[test]
    fn take_back_makes_room_for_one_within_the_span() {
        let now = clock::now();
        let windows = FixedWindowCounters::new(now);
        let limit = (2, seconds(10));
        let seen = |count, left| WindowState { count, remaining: seconds(left) };
        windows.take_back("ann", now);
        assert_eq!(windows.state("ann", now), None);
        for _ in 0..2 {
            windows.count("ann", limit, now).unwrap();
        }
        windows.take_back("bob", now);
        assert_eq!(windows.count("ann", limit, now), Err(seen(2, 10)));
        windows.take_back("ann", now + seconds(1));
        assert_eq!(windows.count("ann", limit, now + seconds(1)), Ok(seen(2, 9)));
        windows.take_back("ann", now + seconds(10));
        assert_eq!(windows.count("ann", limit, now + seconds(10)), Ok(seen(1, 10)));
    }

    /// Concurrent threads together count no more events than one thread would.
    #[test]
    fn fixed_window_is_exact_across_threads() {
        let now = clock::now();
        let windows = FixedWindowCounters::new(now);
        let passed: usize = std::thread::scope(|scope| {
            let count =
                || (0..1_000).filter(|_| windows.count(7, (500, seconds(9)), now).is_ok()).count();
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(count)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum()
        });
        assert_eq!(passed, 500);
    }

    /// A low limit that is reached counts for more than a high one that is not.
    #[test]
    fn eviction_takes_keys_at_their_limit_last() {
        let now = clock::now();
        let windows = FixedWindowCounters::new(now);
        assert!(windows.count("ann", (1, seconds(60)), now).is_ok());
        for number in 0..1_000_000 {
            for _ in 0..2 {
                let _ = windows.count(number, (600, seconds(60)), now + seconds(1));
            }
        }
        assert!(windows.count("ann", (1, seconds(60)), now + seconds(2)).is_err());
    }

    /// Nothing in it can grow: 2^15 windows of 24 bytes.
    #[test]
    fn rate_window_memory_is_fixed() {
        assert_eq!(size_of::<WindowSet>() * SETS * SHARDS, 768 << 10);
    }
}
