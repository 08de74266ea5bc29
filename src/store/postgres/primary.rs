//! The primary: what the connections of a server share about the PostgreSQL server that takes writes, and what a
//! failover changes.
//!
//! - The host that took writes last is tried first, so that a dead host is not waited for at every connection.
//! - A connection to a server that takes no writes any more is *left*: it and all older ones are closed instead of
//!   being reused, and new ones look for the primary.
//! - The low-water mark of the change log belongs to one incarnation of the database. A promoted standby may lack
//!   entries, and draws their numbers again; a mark of the former primary would hide entries that are in flight. A
//!   read of the former primary may end after the failover, so each connection raises the mark of its own
//!   incarnation only.

use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::Notify;

use crate::store::postgres::database_clock::DatabaseClock;

/// SQL for the incarnation: when the PostgreSQL server was started, in microseconds since 1970. A server that takes
/// writes takes them until it ends, so another primary has another number.
pub const INCARNATION: &str = "(extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint";

/// The primary as a server knows it; shared by all its connections.
#[derive(Debug, Default)]
pub struct PrimaryState {
    pub clock: DatabaseClock,
    /// The host that took writes last: an index into the hosts of the URL.
    host: AtomicUsize,
    /// Counts the signs that the primary is another one.
    generation: AtomicU64,
    left: Notify,
    low_watermark: Mutex<IncarnationMark>,
}

/// The low-water mark of one incarnation; 0 if it is not known.
#[derive(Debug, Default)]
struct IncarnationMark {
    incarnation: i64,
    mark: Arc<AtomicI64>,
}

impl PrimaryState {
    pub fn host(&self) -> usize {
        self.host.load(Ordering::Relaxed)
    }

    pub fn set_host(&self, index: usize) {
        self.host.store(index, Ordering::Relaxed);
    }

    /// The generation of connections that are opened from now on.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    /// Leaves the server of a connection with this generation. If several connections fail, the first one counts.
    pub fn leave(&self, generation: u64) {
        let next = generation + 1;
        let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
        if self.generation.compare_exchange(generation, next, success, failure).is_ok() {
            self.left.notify_one();
        }
    }

    /// Waits until a server is left; for one task.
    pub async fn left(&self) {
        self.left.notified().await;
    }

    /// The low-water mark that the connections of one incarnation share.
    pub fn low_watermark(&self, incarnation: i64) -> Arc<AtomicI64> {
        let mut current = self.low_watermark.lock().unwrap_or_else(PoisonError::into_inner);
        if current.incarnation != incarnation {
            *current = IncarnationMark { incarnation, mark: Arc::default() };
        }
        Arc::clone(&current.mark)
    }

    /// After the loss of a connection: those that are opened from now on share another mark. PostgreSQL may have
    /// recovered from a crash without a new incarnation, and numbers that no entry has may be drawn again.
    pub fn retire_low_watermark(&self, mark: &Arc<AtomicI64>) {
        let mut current = self.low_watermark.lock().unwrap_or_else(PoisonError::into_inner);
        if Arc::ptr_eq(&current.mark, mark) {
            current.mark = Arc::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn primary_low_watermark_read_before_a_failover_is_unknown_after_it() {
        let primary = PrimaryState::default();
        let former = primary.low_watermark(1);
        let new = primary.low_watermark(2);
        // A read of the former primary ends late.
        former.fetch_max(100, Ordering::Relaxed);
        assert_eq!(new.load(Ordering::Relaxed), 0);
        assert!(Arc::ptr_eq(&new, &primary.low_watermark(2)), "its connections share it");
        assert_eq!(primary.low_watermark(1).load(Ordering::Relaxed), 0);
    }

    #[test]
    fn primary_low_watermark_of_a_lost_connection_is_not_shared_any_more() {
        let primary = PrimaryState::default();
        let before = primary.low_watermark(1);
        primary.retire_low_watermark(&before);
        before.fetch_max(100, Ordering::Relaxed);
        let after = primary.low_watermark(1);
        assert_eq!(after.load(Ordering::Relaxed), 0);
        // The end of another connection from before does not concern the new ones.
        primary.retire_low_watermark(&before);
        assert!(Arc::ptr_eq(&after, &primary.low_watermark(1)));
    }

    #[test]
    fn primary_is_left_once_by_all_connections_of_a_generation() {
        let primary = PrimaryState::default();
        let generation = primary.generation();
        primary.leave(generation);
        let next = primary.generation();
        assert_ne!(next, generation);
        primary.leave(generation);
        assert_eq!(primary.generation(), next);
    }
}
