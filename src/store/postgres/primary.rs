//! The primary: what the connections of a server share about the PostgreSQL server that takes writes, and what a
//! failover changes.
//!
//! - The host and the address that took writes last are tried first, so that a dead one is not waited for at every
//!   connection.
//! - A new connection is opened only to a server that takes writes. If that is another incarnation of the database
//!   than before, the former primary is *left*: older connections are closed instead of being reused.
//! - A server that refuses writes or does not answer is *doubted*: the maintenance thread opens a connection to find
//!   out where the primary is. Until one is found, nothing is closed, so a server without a primary still reads.
//! - The low-water mark of the change log belongs to one incarnation of the database. A promoted standby may lack
//!   entries, and draws their numbers again; a mark of the former primary would hide entries that are in flight. A
//!   read of the former primary may end after the failover, so each connection raises the mark of its own
//!   incarnation only.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, watch};

use crate::store::postgres::database_clock::DatabaseClock;

/// SQL for the incarnation: when the PostgreSQL server was started, in microseconds since 1970. A server that takes
/// writes takes them until it ends, so another primary has another number.
pub const INCARNATION: &str = "(extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint";

/// The primary as a server knows it; shared by all its connections.
#[derive(Debug, Default)]
pub struct PrimaryState {
    pub clock: DatabaseClock,
    last: Mutex<PrimaryAddress>,
    /// Counts the primaries that were left.
    generation: AtomicU64,
    left: Notify,
    doubted: Notify,
    /// Each time the maintenance thread has looked for the primary: whether it found one. Commands have no such thread.
    searches: watch::Sender<bool>,
    has_searcher: AtomicBool,
    current: Mutex<Incarnation>,
}

/// An address that took writes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub struct PrimaryAddress {
    /// An index into the hosts of the URL.
    pub host: usize,
    /// `None` where the host has no name that was resolved.
    pub ip: Option<IpAddr>,
}

/// One incarnation of the database, and its low-water mark; 0 if that is not known.
#[derive(Debug, Default)]
struct Incarnation {
    /// `None` before the first connection.
    number: Option<i64>,
    mark: Arc<AtomicI64>,
}

/// The state that a connection shares with the others to the same primary.
#[derive(Debug, Clone)]
pub struct PrimarySession {
    pub generation: u64,
    pub low_watermark: Arc<AtomicI64>,
}

impl PrimaryState {
    pub fn last_address(&self) -> PrimaryAddress {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn set_last_address(&self, address: PrimaryAddress) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = address;
    }

    /// The generation of connections to the current primary.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Relaxed)
    }

    /// A connection to a server that takes writes was opened. Leaves the former primary if it is another one.
    pub fn opened(&self, incarnation: i64) -> PrimarySession {
        let mut current = self.current();
        if current.number != Some(incarnation) {
            let former = current.number.replace(incarnation);
            current.mark = Arc::default();
            if former.is_some() {
                self.generation.fetch_add(1, Ordering::Relaxed);
                self.left.notify_one();
            }
        }
        PrimarySession { generation: self.generation(), low_watermark: Arc::clone(&current.mark) }
    }

    /// Something suggests that the primary is another one, or is gone.
    pub fn doubt(&self) {
        self.doubted.notify_one();
    }

    /// Looks for the primary; returns whether there is one.
    pub async fn find(&self) -> bool {
        if !self.has_searcher.load(Ordering::Relaxed) {
            return false;
        }
        let mut searches = self.searches.subscribe();
        self.doubt();
        // The sender lives as long as this.
        searches.changed().await.is_ok() && *searches.borrow()
    }

    pub fn record_search(&self, is_found: bool) {
        self.searches.send_replace(is_found);
    }

    /// Waits until the primary is doubted; for one task, which looks for it then.
    pub async fn doubted(&self) {
        self.has_searcher.store(true, Ordering::Relaxed);
        self.doubted.notified().await;
    }

    /// Waits until the primary of this generation is left; for one task.
    pub async fn left(&self, generation: u64) {
        while self.generation() == generation {
            self.left.notified().await;
        }
    }

    /// After the loss of a connection: those that are opened from now on share another mark. PostgreSQL may have
    /// recovered from a crash without a new incarnation, and numbers that no entry has may be drawn again.
    pub fn retire_low_watermark(&self, mark: &Arc<AtomicI64>) {
        let mut current = self.current();
        if Arc::ptr_eq(&current.mark, mark) {
            current.mark = Arc::default();
        }
    }

    fn current(&self) -> MutexGuard<'_, Incarnation> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn primary_low_watermark_read_before_a_failover_is_unknown_after_it() {
        let primary = PrimaryState::default();
        let former = primary.opened(1).low_watermark;
        let new = primary.opened(2).low_watermark;
        // A read of the former primary ends late.
        former.fetch_max(100, Ordering::Relaxed);
        assert_eq!(new.load(Ordering::Relaxed), 0);
        assert!(Arc::ptr_eq(&new, &primary.opened(2).low_watermark), "its connections share it");
        assert_eq!(primary.opened(1).low_watermark.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn primary_low_watermark_of_a_lost_connection_is_not_shared_any_more() {
        let primary = PrimaryState::default();
        let before = primary.opened(1).low_watermark;
        primary.retire_low_watermark(&before);
        before.fetch_max(100, Ordering::Relaxed);
        let after = primary.opened(1).low_watermark;
        assert_eq!(after.load(Ordering::Relaxed), 0);
        // The end of another connection from before does not concern the new ones.
        primary.retire_low_watermark(&before);
        assert!(Arc::ptr_eq(&after, &primary.opened(1).low_watermark));
    }

    #[test]
    fn primary_is_left_when_another_takes_writes_and_not_by_doubts() {
        let primary = PrimaryState::default();
        let first = primary.opened(1).generation;
        primary.doubt();
        assert_eq!(primary.opened(1).generation, first);
        let second = primary.opened(2).generation;
        assert_ne!(second, first);
        assert_eq!(primary.opened(2).generation, second);
        assert_eq!(primary.generation(), second);
    }
}
