//! Pipelined connection for small reads: each read is sent behind the others without waiting for their
//! answers.
//!
//! One write to the socket carries several reads, and one backend serves them without being woken for each.
//! It is an ordinary connection of the pool, which gets it back when the last read has left.
//! The one surprising thing is head-of-line blocking: answers come in order, so a read that waits for a lock
//! holds up all reads behind it. A read does not join a pipeline that has stalled, and reads that are stalled
//! together leave it and run on connections of their own. A read that is stalled alone stays, and no other
//! read joins it.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::time::timeout;

use super::pool::{Connection, Lease, Pool, Purpose};
use crate::clock;
use crate::store::StoreError;

/// How many reads share the connection.
const READS_MAX: usize = 16;
/// A pipeline without an answer for this long has stalled.
const STOPPED: Duration = Duration::from_millis(20);
/// How long reads wait in a shared pipeline: far longer than small ones take, and bearable for a client.
const TOGETHER_MAX: Duration = Duration::from_secs(1);
/// How long an abandoned pipeline keeps its pool slot while it drains. Until the database has answered all
/// that was sent, the running statement is cancelled again and again.
const CLEAR_MAX: Duration = Duration::from_secs(10);
const CLEAR_PAUSE: Duration = Duration::from_millis(100);

/// The shared connection; it lives as long as a read holds a slot.
pub(super) struct Lane {
    lease: Option<Lease>,
    moving: Mutex<Moving>,
    /// A read left before its answer, which is still to come.
    is_left: AtomicBool,
    /// A read failed in a way that may be the connection's fault.
    is_broken: AtomicBool,
}

/// Detects a stall.
#[derive(Debug)]
struct Moving {
    /// When a joining read last noticed an answer.
    seen: Instant,
    is_answered: bool,
}

/// The connection that a read runs on.
pub(super) enum Way {
    Alone(Lease),
    Shared(Seat),
}

/// A read's slot in the pipeline. Dropped before the answer, it marks the pipeline as abandoned, because
/// other reads do not know what runs on it.
pub(super) struct Seat {
    lane: Arc<Lane>,
    stay_until: Instant,
    is_answered: bool,
}

impl Seat {
    /// Waits in the pipeline for at most half of the time left, so that the read can run elsewhere.
    fn new(lane: Arc<Lane>, now: Instant, until: Instant) -> Self {
        let stay = TOGETHER_MAX.min(until.saturating_duration_since(now) / 2);
        Self { lane, stay_until: now + stay, is_answered: false }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        if self.is_answered {
            self.lane.moving().is_answered = true;
        } else {
            self.lane.is_left.store(true, Ordering::Relaxed);
        }
    }
}

impl Way {
    pub(super) fn connection(&self) -> Option<&Connection> {
        match self {
            Self::Alone(lease) => lease.connection(),
            Self::Shared(seat) => seat.lane.lease.as_ref()?.connection(),
        }
    }

    /// How long to wait for the answer; `until` is the deadline of the read.
    pub(super) fn wait_until(&self, until: Instant) -> Instant {
        match self {
            Self::Alone(_) => until,
            Self::Shared(seat) => until.min(seat.stay_until),
        }
    }

    /// Whether no other read is in the pipeline: then another connection would gain nothing.
    pub(super) fn is_only_one(&self) -> bool {
        match self {
            Self::Alone(_) => true,
            Self::Shared(Seat { lane, .. }) => lane.is_whole() && Arc::strong_count(lane) == 1,
        }
    }

    /// The read was answered.
    pub(super) fn keep(self) {
        match self {
            Self::Alone(lease) => lease.keep(),
            Self::Shared(mut seat) => seat.is_answered = true,
        }
    }

    /// The read failed: no other read uses this connection.
    pub(super) fn give_up(self) {
        if let Self::Shared(seat) = self {
            seat.lane.is_broken.store(true, Ordering::Relaxed);
        }
    }

    /// There is no answer yet. The statement on an exclusive connection is cancelled, and its connection
    /// closed.
    pub(super) fn leave(self) {
        if let Self::Alone(lease) = self {
            lease.cancel();
        }
    }
}

impl Lane {
    fn begin(lease: Lease, now: Instant) -> Arc<Self> {
        let moving = Mutex::new(Moving { seen: now, is_answered: false });
        let (is_left, is_broken) = Default::default();
        Arc::new(Self { lease: Some(lease), moving, is_left, is_broken })
    }

    fn moving(&self) -> MutexGuard<'_, Moving> {
        self.moving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_whole(&self) -> bool {
        !self.is_left.load(Ordering::Relaxed) && !self.is_broken.load(Ordering::Relaxed)
    }

    /// Whether one more read may join. The caller's own reference counts already.
    fn has_room(self: &Arc<Self>, now: Instant) -> bool {
        let connection = self.lease.as_ref().and_then(Lease::connection);
        let is_open = connection.is_some_and(|connection| !connection.client.is_closed());
        let is_one_more = Arc::strong_count(self) <= READS_MAX;
        is_open && self.is_whole() && is_one_more && self.moving().goes_on(now)
    }
}

impl Moving {
    /// Called by each read that wants to join.
    fn goes_on(&mut self, now: Instant) -> bool {
        if std::mem::take(&mut self.is_answered) {
            self.seen = now;
        }
        now.saturating_duration_since(self.seen) < STOPPED
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        let Some(lease) = self.lease.take() else { return };
        if self.is_whole() {
            lease.keep();
        } else if !self.is_broken.load(Ordering::Relaxed) && Handle::try_current().is_ok() {
            tokio::task::spawn_local(clear(lease));
        }
    }
}

/// Drains an abandoned pipeline. A cancel request may arrive after the next statement has started, so the
/// connection cannot be reused.
async fn clear(lease: Lease) {
    let Some(connection) = lease.connection() else { return };
    // Answers come in order, so the answer to an empty query comes after all others.
    let mut last = pin!(connection.client.batch_execute(""));
    let cleared = async {
        while timeout(CLEAR_PAUSE, last.as_mut()).await.is_err() {
            lease.stop().await;
        }
    };
    // After the timeout the connection is closed, whatever the network does.
    let _ = timeout(CLEAR_MAX, cleared).await;
}

impl Pool {
    /// A connection for a small read: the pipelined one if it can be joined, else a new pipeline.
    pub(super) async fn way(
        self: &Arc<Self>,
        now: Instant,
        until: Instant,
    ) -> Result<Way, StoreError> {
        // A pipeline may live long, and writes need a connection too.
        if self.connections_max < 2 {
            return Ok(Way::Alone(self.lease(Purpose::Read, until).await?));
        }
        let joined =
            self.lane().upgrade().filter(|lane| !self.is_queued_for() && lane.has_room(now));
        if let Some(lane) = joined {
            self.lent_at_once();
            return Ok(Way::Shared(Seat::new(lane, now, until)));
        }
        let (lease, now) = match self.lease_at_once(Purpose::Read) {
            Some(lease) => (lease, now),
            None => (self.wait_for_lease(Purpose::Read, until).await?, clock::now()),
        };
        let mut lane = self.lane();
        if lane.strong_count() > 0 {
            return Ok(Way::Alone(lease));
        }
        let first = Lane::begin(lease, now);
        *lane = Arc::downgrade(&first);
        Ok(Way::Shared(Seat::new(first, now, until)))
    }
}

#[cfg(test)]
mod tests;
