//! One connection that small reads share: each is sent behind the others, and none waits until those are
//! answered.
//!
//! So one write to the socket carries several of them, and one backend of the database serves them without
//! being woken for each. It is an ordinary connection of the pool, which goes back when nobody shares it.
//! The one surprising thing: answers come in order, so one that waits for a lock holds up all behind it.
//! Nobody gets on a lane that is seen to have come to a stop, and those who wait there together get off,
//! and read on connections of their own. One that waits there alone stays, and nobody shares meanwhile.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::time::timeout;

use super::pool::{Connection, Lease, Pool, Purpose};
use crate::clock;
use crate::store::StoreError;

/// How many share it.
const READS_MAX: usize = 16;
/// A lane on which nothing was answered for so long has come to a stop.
const STOPPED: Duration = Duration::from_millis(20);
/// How long reads wait together: far longer than small ones take, and not too long for a client.
const TOGETHER_MAX: Duration = Duration::from_secs(1);
/// A lane that was left keeps its place until the database has answered all that was sent, but not longer
/// than this: what it does is stopped, and what comes next after a moment too.
const CLEAR_MAX: Duration = Duration::from_secs(10);
const CLEAR_PAUSE: Duration = Duration::from_millis(100);

/// The connection that is shared, as long as somebody holds it.
pub(super) struct Lane {
    lease: Option<Lease>,
    moving: Mutex<Moving>,
    /// Somebody got off before the answer, which is still to come.
    is_left: AtomicBool,
    /// There was trouble, which may be the connection's own.
    is_broken: AtomicBool,
}

/// Whether answers come.
#[derive(Debug)]
struct Moving {
    /// When somebody last saw that it moves.
    seen: Instant,
    is_answered: bool,
}

/// What a read goes over.
pub(super) enum Way {
    Alone(Lease),
    Shared(Seat),
}

/// A place on the lane. Who goes before the answer leaves a lane of which others do not know what it does.
pub(super) struct Seat {
    lane: Arc<Lane>,
    stay_until: Instant,
    is_answered: bool,
}

impl Seat {
    /// There has to be time left to read elsewhere.
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

    /// How long to wait for the answer, where there is time until then.
    pub(super) fn wait_until(&self, until: Instant) -> Instant {
        match self {
            Self::Alone(_) => until,
            Self::Shared(seat) => until.min(seat.stay_until),
        }
    }

    /// Whether it waits for nobody else: there is nothing to be gained elsewhere.
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

    /// There was trouble: nobody uses the connection any more.
    pub(super) fn give_up(self) {
        if let Self::Shared(seat) = self {
            seat.lane.is_broken.store(true, Ordering::Relaxed);
        }
    }

    /// There is no answer yet. What is asked of a connection alone is stopped, and the connection goes.
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

    /// Whether one more may get on: the one who asks counts already.
    fn has_room(self: &Arc<Self>, now: Instant) -> bool {
        let connection = self.lease.as_ref().and_then(Lease::connection);
        let is_open = connection.is_some_and(|connection| !connection.client.is_closed());
        let is_one_more = Arc::strong_count(self) <= READS_MAX;
        is_open && self.is_whole() && is_one_more && self.moving().goes_on(now)
    }
}

impl Moving {
    /// Asked by each who wants to get on.
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

/// Nobody waits for what is still under way. A word that stops it may come late, so the connection is of
/// no use any more.
async fn clear(lease: Lease) {
    let Some(connection) = lease.connection() else { return };
    // The answer to nothing comes behind all others.
    let mut last = pin!(connection.client.batch_execute(""));
    let cleared = async {
        while timeout(CLEAR_PAUSE, last.as_mut()).await.is_err() {
            lease.stop().await;
        }
    };
    // What a network that hangs does not end goes with its connection.
    let _ = timeout(CLEAR_MAX, cleared).await;
}

impl Pool {
    /// A way for a small read: beside others, where there are any, or as the first of a new lane.
    pub(super) async fn way(
        self: &Arc<Self>,
        now: Instant,
        until: Instant,
    ) -> Result<Way, StoreError> {
        // A lane may go on for long, and there has to be a connection for all else.
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
