//! The lease on the users stamp: the last stamp that was read, and until when it is trusted.
//!
//! Stamp and time are one state behind one lock. Were they stored one after the other, a thread could trust
//! the stamp of one read for the time of another: a slow read that began before a change of the users would
//! put its old stamp under the lease of a later read that has seen the change. A read that ends is discarded
//! when one that began later has ended before it, or when the lease was invalidated meanwhile. Its stamp may
//! be from before the change.

use std::sync::{PoisonError, RwLock};
use std::time::{Duration, Instant};

/// The last stamp that was read.
#[derive(Debug, Default)]
pub(super) struct StampLease(RwLock<LeaseState>);

#[derive(Debug, Default, Clone, Copy)]
struct LeaseState {
    trusted: Option<TrustedStamp>,
    /// How often the lease was invalidated.
    invalidations: u64,
}

#[derive(Debug, Clone, Copy)]
struct TrustedStamp {
    stamp: i64,
    /// When the read of the stamp began.
    began: Instant,
    until: Instant,
}

/// A read of the stamp in flight.
#[derive(Debug, Clone, Copy)]
pub(super) struct StampRead {
    began: Instant,
    invalidations: u64,
}

impl StampLease {
    /// The stamp, while it is trusted.
    pub(super) fn stamp(&self, now: Instant) -> Option<i64> {
        self.state().trusted.filter(|trusted| now < trusted.until).map(|trusted| trusted.stamp)
    }

    /// Call this before the query is sent.
    pub(super) fn begin_read(&self, now: Instant) -> StampRead {
        StampRead { began: now, invalidations: self.state().invalidations }
    }

    /// Stores the result of a read. It is trusted for `lease` from the start of the read on, since the
    /// response may have waited.
    pub(super) fn end_read(&self, read: StampRead, stamp: i64, lease: Duration) {
        let mut state = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let is_later = state.trusted.is_none_or(|trusted| trusted.began <= read.began);
        if is_later && state.invalidations == read.invalidations {
            let (began, until) = (read.began, read.began + lease);
            state.trusted = Some(TrustedStamp { stamp, began, until });
        }
    }

    /// Ends the lease: the users may have changed just now.
    pub(super) fn invalidate(&self) {
        let mut state = self.0.write().unwrap_or_else(PoisonError::into_inner);
        state.invalidations += 1;
        state.trusted = None;
    }

    fn state(&self) -> LeaseState {
        *self.0.read().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;

    const LEASE: Duration = Duration::from_millis(500);

    fn times() -> impl Fn(u64) -> Instant {
        let start = clock::now();
        move |millis| start + Duration::from_millis(millis)
    }

    #[test]
    fn stamp_lease_begins_with_the_read() {
        let (lease, at) = (StampLease::default(), times());
        assert_eq!(lease.stamp(at(0)), None);
        let read = lease.begin_read(at(0));
        lease.end_read(read, 7, LEASE);
        assert_eq!([lease.stamp(at(499)), lease.stamp(at(500))], [Some(7), None]);
    }

    /// The interleaving that trusted a stale stamp: the slow read is from before the change, the quick one
    /// from after it.
    #[test]
    fn stamp_lease_slow_read_does_not_replace_a_later_one() {
        let (lease, at) = (StampLease::default(), times());
        let slow = lease.begin_read(at(0));
        let quick = lease.begin_read(at(400));
        lease.end_read(quick, 8, LEASE);
        lease.end_read(slow, 7, LEASE);
        assert_eq!(lease.stamp(at(450)), Some(8));
        assert_eq!([lease.stamp(at(899)), lease.stamp(at(900))], [Some(8), None]);
    }

    /// For reads that end in the order in which they began: each is trusted for its own lease, no longer.
    #[test]
    fn stamp_lease_earlier_read_is_trusted_until_a_later_one_ends() {
        let (lease, at) = (StampLease::default(), times());
        let (first, second) = (lease.begin_read(at(0)), lease.begin_read(at(400)));
        lease.end_read(first, 7, LEASE);
        assert_eq!([lease.stamp(at(499)), lease.stamp(at(500))], [Some(7), None]);
        lease.end_read(second, 8, LEASE);
        assert_eq!(lease.stamp(at(450)), Some(8));
    }

    #[test]
    fn stamp_lease_read_begun_before_a_change_is_not_trusted() {
        let (lease, at) = (StampLease::default(), times());
        let before = lease.begin_read(at(0));
        lease.invalidate();
        lease.end_read(before, 7, LEASE);
        assert_eq!(lease.stamp(at(1)), None);
        let after = lease.begin_read(at(1));
        lease.end_read(after, 8, LEASE);
        assert_eq!(lease.stamp(at(2)), Some(8));
        lease.end_read(before, 7, LEASE);
        assert_eq!(lease.stamp(at(2)), Some(8));
        lease.invalidate();
        assert_eq!(lease.stamp(at(2)), None);
    }

    /// Threads that read a growing stamp never see an older one after a newer one that was read later.
    #[test]
    fn stamp_lease_threads_never_see_an_older_stamp() {
        let (lease, stored) = (StampLease::default(), std::sync::atomic::AtomicI64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        stored.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                        lease.invalidate();
                        let changed = stored.load(std::sync::atomic::Ordering::SeqCst);
                        if let Some(stamp) = lease.stamp(clock::now()) {
                            assert!(stamp >= changed - 3, "{stamp} at {changed}");
                        }
                        let read = lease.begin_read(clock::now());
                        let stamp = stored.load(std::sync::atomic::Ordering::SeqCst);
                        lease.end_read(read, stamp, LEASE);
                    }
                });
            }
        });
    }
}
