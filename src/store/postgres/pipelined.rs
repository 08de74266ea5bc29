//! Pipelined reads: the small reads of one worker thread share a connection, each sent behind the others
//! without waiting for their answers.
//!
//! One write to the socket carries several reads, and one backend serves them without being woken for each.
//! It is an ordinary connection of the pool, which gets it back when the last read has left.
//! Reads are subject to head-of-line blocking: answers arrive in order, so a read that waits for a lock holds
//! up all reads behind it. A read that has waited for `SHARED_WAIT_MAX` beside others leaves, and runs on a
//! separate connection. The shared one is then retired: no other read joins it, and when the last has left, what still
//! runs on it is cancelled and it is closed.

use std::ops::Deref;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::fault::OrBug;
use crate::store::error::StoreError;
use crate::store::postgres::pool::{
    ConnectionLease, ConnectionPool, DatabaseConnection, LeasePurpose,
};

/// How many reads share the connection.
const PIPELINE_DEPTH_MAX: usize = 16;
/// How long a read waits on a shared connection: far longer than small ones take, and bearable for a client.
const SHARED_WAIT_MAX: Duration = Duration::from_secs(1);
/// How long a connection that reads have left keeps its pool slot while it drains. Until the database has
/// answered all that was sent, the running statement is cancelled again and again.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
const DRAIN_CANCEL_INTERVAL: Duration = Duration::from_millis(100);

/// The shared connection; it lives as long as a read uses it.
pub struct SharedConnection {
    lease: Option<ConnectionLease>,
    /// Whether a read left before its answer, which is still to arrive.
    is_abandoned: AtomicBool,
    /// Whether a read failed in a way that may be the connection's fault.
    is_broken: AtomicBool,
}

/// The connection that a read runs on.
pub enum ReadConnection {
    Exclusive(ConnectionLease),
    Shared(Arc<SharedConnection>),
}

impl Deref for ReadConnection {
    type Target = DatabaseConnection;

    fn deref(&self) -> &DatabaseConnection {
        match self {
            Self::Exclusive(lease) => lease,
            Self::Shared(shared) => shared.lease(),
        }
    }
}

impl ReadConnection {
    /// How long a read waits on a shared connection; `until` is its deadline. Half of the time at least is
    /// left to run it elsewhere.
    pub fn shared_deadline(&self, now: Instant, until: Instant) -> Option<Instant> {
        match self {
            Self::Exclusive(_) => None,
            Self::Shared(_) => {
                Some(now + SHARED_WAIT_MAX.min(until.saturating_duration_since(now) / 2))
            }
        }
    }

    /// Whether no other read uses the connection: then another one would gain nothing.
    pub fn is_sole_read(&self) -> bool {
        match self {
            Self::Exclusive(_) => true,
            Self::Shared(shared) => shared.is_usable() && Arc::strong_count(shared) == 1,
        }
    }

    /// The read was answered, and the connection is intact.
    pub fn complete(self) {
        if let Self::Exclusive(lease) = self {
            lease.return_to_pool();
        }
    }

    /// The read failed: no other read uses this connection.
    pub fn mark_broken(self) {
        if let Self::Shared(shared) = self {
            shared.is_broken.store(true, Ordering::Relaxed);
        }
    }

    /// The read leaves before its answer. The statement on an exclusive connection is cancelled, and its
    /// connection closed.
    pub fn abandon(self) {
        match self {
            Self::Exclusive(lease) => lease.spawn_cancel(),
            Self::Shared(shared) => shared.is_abandoned.store(true, Ordering::Relaxed),
        }
    }
}

impl SharedConnection {
    fn lease(&self) -> &ConnectionLease {
        self.lease.as_ref().or_bug("a shared connection has its lease until it is dropped")
    }

    fn is_usable(&self) -> bool {
        !self.is_abandoned.load(Ordering::Relaxed) && !self.is_broken.load(Ordering::Relaxed)
    }

    /// Whether one more read may join. The caller's own reference counts already.
    fn can_join(self: &Arc<Self>) -> bool {
        self.is_usable()
            && Arc::strong_count(self) <= PIPELINE_DEPTH_MAX
            && self.lease().is_usable()
    }
}

impl Drop for SharedConnection {
    fn drop(&mut self) {
        let Some(lease) = self.lease.take() else { return };
        if self.is_usable() {
            lease.return_to_pool();
        } else if !self.is_broken.load(Ordering::Relaxed) && Handle::try_current().is_ok() {
            tokio::task::spawn_local(drain(lease));
        }
    }
}

/// Drains a connection that its reads have left. A cancel request may arrive after the next statement has
/// started, so the connection cannot be reused.
async fn drain(lease: ConnectionLease) {
    // Answers arrive in order, so the answer to an empty query arrives last.
    let mut last = pin!(lease.client.batch_execute(""));
    let cleared = async {
        while timeout(DRAIN_CANCEL_INTERVAL, last.as_mut()).await.is_err() {
            lease.cancel_and_wait().await;
        }
    };
    // After the timeout the connection is closed, even if the network hangs.
    let _ = timeout(DRAIN_TIMEOUT, cleared).await;
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
        // While others wait for a connection none joins, so that they get this one in the end.
        let joined =
            self.shared().upgrade().filter(|shared| !self.pool.has_waiters() && shared.can_join());
        if let Some(shared) = joined {
            self.pool.record_no_wait();
            return Ok(ReadConnection::Shared(shared));
        }
        let lease = self.pool.lease(LeasePurpose::Read, until).await?;
        // A shared connection may be in use for ever, and writes need one too.
        if self.pool.connections_max < 2 {
            return Ok(ReadConnection::Exclusive(lease));
        }
        let (is_abandoned, is_broken) = Default::default();
        let shared = Arc::new(SharedConnection { lease: Some(lease), is_abandoned, is_broken });
        *self.shared() = Arc::downgrade(&shared);
        Ok(ReadConnection::Shared(shared))
    }
}

#[cfg(test)]
mod tests;
