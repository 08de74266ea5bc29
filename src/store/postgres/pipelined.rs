//! Pipelined connection for small reads: each read is sent behind the others without waiting for their
//! answers.
//!
//! One write to the socket carries several reads, and one backend serves them without being woken for each.
//! It is an ordinary connection of the pool, which gets it back when the last read has left.
//! Reads are subject to head-of-line blocking: answers arrive in order, so a read that waits for a lock holds
//! up all reads behind it. A read does not join a pipeline that has stalled, and reads that are stalled
//! together leave it and run on separate connections. A read that is stalled alone stays, and no other read
//! joins it.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::time::timeout;

use crate::clock;
use crate::store::error::StoreError;
use crate::store::postgres::pool::{
    ConnectionLease, ConnectionPool, DatabaseConnection, LeasePurpose,
};

/// How many reads share the connection.
const PIPELINE_DEPTH_MAX: usize = 16;
/// A pipeline without an answer for this long has stalled.
const STALL_TIMEOUT: Duration = Duration::from_millis(20);
/// How long reads wait in a shared pipeline: far longer than small ones take, and bearable for a client.
const SHARED_WAIT_MAX: Duration = Duration::from_secs(1);
/// How long an abandoned pipeline keeps its pool slot while it drains. Until the database has answered all
/// that was sent, the running statement is cancelled again and again.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
const DRAIN_CANCEL_INTERVAL: Duration = Duration::from_millis(100);

/// The shared connection; it lives as long as a read holds a slot.
pub struct PipelinedConnection {
    lease: Option<ConnectionLease>,
    moving: Mutex<PipelineProgress>,
    /// Whether a read left before its answer, which is still to arrive.
    is_abandoned: AtomicBool,
    /// Whether a read failed in a way that may be the connection's fault.
    is_broken: AtomicBool,
}

/// Detects a stall.
#[derive(Debug)]
struct PipelineProgress {
    /// When a joining read last noticed an answer.
    last_answer_seen: Instant,
    has_new_answer: bool,
}

/// The connection that a read runs on.
pub enum ReadConnection {
    Exclusive(ConnectionLease),
    Pipelined(PipelineSlot),
}

/// A read's slot in the pipeline. Dropped before the answer, it marks the pipeline as abandoned, because
/// other reads do not know what runs on it.
pub struct PipelineSlot {
    pipeline: Arc<PipelinedConnection>,
    shared_until: Instant,
    is_answered: bool,
}

impl PipelineSlot {
    /// Waits in the pipeline for at most half of the time left, so that the read can run elsewhere.
    fn new(pipeline: Arc<PipelinedConnection>, now: Instant, until: Instant) -> Self {
        let stay = SHARED_WAIT_MAX.min(until.saturating_duration_since(now) / 2);
        Self { pipeline, shared_until: now + stay, is_answered: false }
    }
}

impl Drop for PipelineSlot {
    fn drop(&mut self) {
        if self.is_answered {
            self.pipeline.progress().has_new_answer = true;
        } else {
            self.pipeline.is_abandoned.store(true, Ordering::Relaxed);
        }
    }
}

impl ReadConnection {
    pub fn connection(&self) -> Option<&DatabaseConnection> {
        match self {
            Self::Exclusive(lease) => lease.connection(),
            Self::Pipelined(slot) => slot.pipeline.lease.as_ref()?.connection(),
        }
    }

    /// How long to wait for the answer; `until` is the deadline of the read.
    pub fn answer_deadline(&self, until: Instant) -> Instant {
        match self {
            Self::Exclusive(_) => until,
            Self::Pipelined(slot) => until.min(slot.shared_until),
        }
    }

    /// Whether no other read is in the pipeline: then another connection would gain nothing.
    pub fn is_sole_read(&self) -> bool {
        match self {
            Self::Exclusive(_) => true,
            Self::Pipelined(PipelineSlot { pipeline, .. }) => {
                pipeline.is_usable() && Arc::strong_count(pipeline) == 1
            }
        }
    }

    /// Releases the slot after the read was answered.
    pub fn complete(self) {
        match self {
            Self::Exclusive(lease) => lease.return_to_pool(),
            Self::Pipelined(mut slot) => slot.is_answered = true,
        }
    }

    /// Releases the slot after the read failed: no other read uses this connection.
    pub fn mark_broken(self) {
        if let Self::Pipelined(slot) = self {
            slot.pipeline.is_broken.store(true, Ordering::Relaxed);
        }
    }

    /// Releases the slot before there is an answer. The statement on an exclusive connection is cancelled,
    /// and its connection closed.
    pub fn abandon(self) {
        if let Self::Exclusive(lease) = self {
            lease.spawn_cancel();
        }
    }
}

impl PipelinedConnection {
    fn start(lease: ConnectionLease, now: Instant) -> Arc<Self> {
        let moving = Mutex::new(PipelineProgress { last_answer_seen: now, has_new_answer: false });
        let (is_left, is_broken) = Default::default();
        Arc::new(Self { lease: Some(lease), moving, is_abandoned: is_left, is_broken })
    }

    fn progress(&self) -> MutexGuard<'_, PipelineProgress> {
        self.moving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_usable(&self) -> bool {
        !self.is_abandoned.load(Ordering::Relaxed) && !self.is_broken.load(Ordering::Relaxed)
    }

    /// Whether one more read may join. The caller's own reference counts already.
    fn can_join(self: &Arc<Self>, now: Instant) -> bool {
        let connection = self.lease.as_ref().and_then(ConnectionLease::connection);
        let is_open = connection.is_some_and(|connection| !connection.client.is_closed());
        let is_one_more = Arc::strong_count(self) <= PIPELINE_DEPTH_MAX;
        is_open && self.is_usable() && is_one_more && self.progress().is_progressing(now)
    }
}

impl PipelineProgress {
    /// Called by each read that wants to join.
    fn is_progressing(&mut self, now: Instant) -> bool {
        if std::mem::take(&mut self.has_new_answer) {
            self.last_answer_seen = now;
        }
        now.saturating_duration_since(self.last_answer_seen) < STALL_TIMEOUT
    }
}

impl Drop for PipelinedConnection {
    fn drop(&mut self) {
        let Some(lease) = self.lease.take() else { return };
        if self.is_usable() {
            lease.return_to_pool();
        } else if !self.is_broken.load(Ordering::Relaxed) && Handle::try_current().is_ok() {
            tokio::task::spawn_local(drain(lease));
        }
    }
}

/// Drains an abandoned pipeline. A cancel request may arrive after the next statement has started, so the
/// connection cannot be reused.
async fn drain(lease: ConnectionLease) {
    let Some(connection) = lease.connection() else { return };
    // Answers arrive in order, so the answer to an empty query arrives last.
    let mut last = pin!(connection.client.batch_execute(""));
    let cleared = async {
        while timeout(DRAIN_CANCEL_INTERVAL, last.as_mut()).await.is_err() {
            lease.cancel_and_wait().await;
        }
    };
    // After the timeout the connection is closed, even if the network hangs.
    let _ = timeout(DRAIN_TIMEOUT, cleared).await;
}

/// The small reads of one worker thread.
#[derive(Debug)]
pub struct PipelinedReads {
    pool: Arc<ConnectionPool>,
    /// The connection that they share, while one is open.
    pipeline: Mutex<Weak<PipelinedConnection>>,
}

impl PipelinedReads {
    pub fn new(pool: &Arc<ConnectionPool>) -> Self {
        Self { pool: Arc::clone(pool), pipeline: Mutex::default() }
    }

    fn pipelined(&self) -> MutexGuard<'_, Weak<PipelinedConnection>> {
        self.pipeline.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection for a small read: the pipelined one if it can be joined, else a new pipeline.
    pub async fn lease_for_read(
        &self,
        now: Instant,
        until: Instant,
    ) -> Result<ReadConnection, StoreError> {
        let pool = &self.pool;
        // A pipeline may live long, and writes need a connection too.
        if pool.connections_max < 2 {
            return Ok(ReadConnection::Exclusive(pool.lease(LeasePurpose::Read, until).await?));
        }
        let joined = self
            .pipelined()
            .upgrade()
            .filter(|pipeline| !pool.has_waiters() && pipeline.can_join(now));
        if let Some(pipeline) = joined {
            pool.record_no_wait();
            return Ok(ReadConnection::Pipelined(PipelineSlot::new(pipeline, now, until)));
        }
        let (lease, now) = match pool.try_lease(LeasePurpose::Read) {
            Some(lease) => (lease, now),
            None => (pool.wait_for_lease(LeasePurpose::Read, until).await?, clock::now()),
        };
        let mut pipeline = self.pipelined();
        if pipeline.strong_count() > 0 {
            return Ok(ReadConnection::Exclusive(lease));
        }
        let first = PipelinedConnection::start(lease, now);
        *pipeline = Arc::downgrade(&first);
        Ok(ReadConnection::Pipelined(PipelineSlot::new(first, now, until)))
    }
}

#[cfg(test)]
mod tests;
