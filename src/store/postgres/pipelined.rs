//! Pipelined reads: the small reads of one worker thread share a connection, each sent behind the others
//! without waiting for their answers.
//!
//! One write to the socket carries several reads, and one backend serves them without being woken for each.
//! It is an ordinary connection of the pool, which gets it back when the last read has left.
//! Reads are subject to head-of-line blocking: answers arrive in order, so a read that waits for a lock holds
//! up all reads behind it. A read that has waited for `SHARED_WAIT_MAX` leaves, and runs on a separate
//! connection. The shared one is then retired: no other read joins it, and it is closed when the last has
//! left. What was sent on it ends by the timeouts of the session.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::store::error::StoreError;
use crate::store::postgres::pool::{
    ConnectionLease, ConnectionPool, DatabaseConnection, LeasePurpose,
};

/// How many reads share the connection.
const PIPELINE_DEPTH_MAX: usize = 16;
/// How long a read waits on a shared connection: far longer than small ones take, and bearable for a client.
const SHARED_WAIT_MAX: Duration = Duration::from_secs(1);

/// The shared connection; it lives as long as a read uses it.
pub struct SharedConnection {
    lease: Option<ConnectionLease>,
    is_retired: AtomicBool,
}

/// The connection that a read runs on.
pub enum ReadConnection {
    Exclusive(ConnectionLease),
    Shared(Arc<SharedConnection>),
}

impl ReadConnection {
    pub fn connection(&self) -> Option<&DatabaseConnection> {
        match self {
            Self::Exclusive(lease) => lease.connection(),
            Self::Shared(shared) => shared.lease.as_ref()?.connection(),
        }
    }

    /// How long to wait for the answer; `until` is the deadline of the read. On a shared connection half of
    /// the time at least is left to run the read elsewhere.
    pub fn answer_deadline(&self, now: Instant, until: Instant) -> Instant {
        match self {
            Self::Exclusive(_) => until,
            Self::Shared(_) => now + SHARED_WAIT_MAX.min(until.saturating_duration_since(now) / 2),
        }
    }

    /// The read was answered, and the connection is intact.
    pub fn complete(self) {
        if let Self::Exclusive(lease) = self {
            lease.return_to_pool();
        }
    }

    /// The read failed: no other read uses this connection.
    pub fn retire(self) {
        if let Self::Shared(shared) = self {
            shared.is_retired.store(true, Ordering::Relaxed);
        }
    }

    /// The read leaves before its answer. A statement on an exclusive connection is cancelled; a shared
    /// connection may have statements of other reads.
    pub fn abandon(self) {
        match self {
            Self::Exclusive(lease) => lease.spawn_cancel(),
            shared @ Self::Shared(_) => shared.retire(),
        }
    }
}

impl SharedConnection {
    /// Whether one more read may join. The caller's own reference counts already.
    fn can_join(self: &Arc<Self>) -> bool {
        let connection = self.lease.as_ref().and_then(ConnectionLease::connection);
        !self.is_retired.load(Ordering::Relaxed)
            && Arc::strong_count(self) <= PIPELINE_DEPTH_MAX
            && connection.is_some_and(|connection| !connection.client.is_closed())
    }
}

impl Drop for SharedConnection {
    fn drop(&mut self) {
        if let Some(lease) = self.lease.take()
            && !self.is_retired.load(Ordering::Relaxed)
        {
            lease.return_to_pool();
        }
    }
}

/// The reads of one worker thread.
#[derive(Debug)]
pub struct PipelinedReads {
    pool: Arc<ConnectionPool>,
    /// The connection that reads join.
    shared: Mutex<Weak<SharedConnection>>,
}

impl PipelinedReads {
    pub fn new(pool: &Arc<ConnectionPool>) -> Self {
        Self { pool: Arc::clone(pool), shared: Mutex::default() }
    }

    fn shared(&self) -> MutexGuard<'_, Weak<SharedConnection>> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection for a small read: the shared one if it can be joined, else a new one to share.
    pub async fn lease_for_read(&self, until: Instant) -> Result<ReadConnection, StoreError> {
        let joined = self.shared().upgrade().filter(SharedConnection::can_join);
        if let Some(shared) = joined {
            self.pool.record_no_wait();
            return Ok(ReadConnection::Shared(shared));
        }
        let lease = self.pool.lease(LeasePurpose::Read, until).await?;
        // A shared connection may be in use for ever, and writes need one too.
        if self.pool.connections_max < 2 {
            return Ok(ReadConnection::Exclusive(lease));
        }
        let shared =
            Arc::new(SharedConnection { lease: Some(lease), is_retired: AtomicBool::new(false) });
        *self.shared() = Arc::downgrade(&shared);
        Ok(ReadConnection::Shared(shared))
    }
}

#[cfg(test)]
mod tests;
