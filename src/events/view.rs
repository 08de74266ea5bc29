//! Views: the recent events of one subscription, which all of its streams share.
//!
//! A view keeps the encoded events of the last seconds in a ring. `start` is the position up to which it has
//! forgotten them, `end` the position up to which it has seen the log; the ring has every event between the two.
//! A stream at or above `start` takes its events from the ring; one below it catches up from the log first, until
//! its position is at or above `start` (which may have moved meanwhile). So no event is lost or sent twice.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::evaluate::Subscription;
use super::slot::StreamSlot;

/// The maximum size of the ring of one view.
const RING_BYTES_MAX: usize = 64 << 10;
/// How long the ring keeps an event for streams that are slow.
pub const RING_KEEP: Duration = Duration::from_secs(2);

/// The failure of a view whose changes cannot be evaluated, because of a panic.
pub const NOT_EVALUATED: &str = "a change could not be evaluated";

/// One subscription with its recent events and its streams.
#[derive(Debug)]
pub struct View {
    pub subscription: Subscription,
    state: Mutex<ViewState>,
}

#[derive(Debug, Default)]
struct ViewState {
    /// `None` until the feed has adopted the view.
    ring: Option<EventRing>,
    streams: HashMap<u64, Arc<StreamSlot>>,
    /// The position of its last event, if there will be no others.
    ended_at: Option<i64>,
    /// Why its streams are cut.
    failure: Option<&'static str>,
}

#[derive(Debug)]
struct EventRing {
    start: i64,
    end: i64,
    batches: VecDeque<EventBatch>,
    bytes: usize,
}

/// The events of one batch of the log; at least one.
#[derive(Debug)]
pub struct EventBatch {
    pub bytes: Bytes,
    /// The number of each event, and where it begins in `bytes`.
    pub events: Vec<(i64, usize)>,
    /// Whether the last event ends the streams.
    pub is_last: bool,
    pub read_at: Instant,
}

impl EventBatch {
    fn last_sequence(&self) -> i64 {
        self.events.last().map_or(0, |(sequence, _)| *sequence)
    }
}

impl EventRing {
    fn forget_oldest(&mut self) {
        if let Some(batch) = self.batches.pop_front() {
            self.bytes -= batch.bytes.len();
            self.start = batch.last_sequence();
        }
    }

    fn forget_all(&mut self) {
        self.batches.clear();
        (self.bytes, self.start) = (0, self.end);
    }
}

/// All views of the feed.
#[derive(Debug, Default)]
pub struct ViewRegistry {
    pub by_key: HashMap<Box<str>, Arc<View>>,
    /// Views that have ended, whose streams have not; others may have their keys.
    pub ended: Vec<Arc<View>>,
    /// Changes when a view is added or removed.
    pub generation: u64,
    pub next_stream: u64,
}

impl ViewRegistry {
    pub fn views(&self) -> impl Iterator<Item = &Arc<View>> {
        self.by_key.values().chain(&self.ended)
    }
}

/// What a view has for a stream at some position.
#[derive(Debug, PartialEq, Eq)]
pub enum ViewRead {
    /// Some events, encoded, and the number of the last of them, which is the new position.
    Events { bytes: Bytes, count: usize, last: i64 },
    /// Nothing: the log is known up to this position.
    UpToDate(i64),
    /// The stream has to catch up from the log.
    Behind,
    /// The feed has not adopted the view yet.
    NotLive,
    /// There will be no more events.
    Ended,
    /// The stream is cut, for this reason.
    Failed(&'static str),
}

impl View {
    pub fn new(subscription: Subscription) -> Arc<Self> {
        Arc::new(Self { subscription, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, ViewState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to keep events: the next batch that the view gets begins after this position.
    pub fn adopt(&self, position: i64) {
        let mut state = self.state();
        if state.ring.is_none() {
            let batches = VecDeque::new();
            state.ring = Some(EventRing { start: position, end: position, batches, bytes: 0 });
            state.wake_all();
        }
    }

    pub fn add_stream(&self, number: u64, slot: &Arc<StreamSlot>) {
        self.state().streams.insert(number, Arc::clone(slot));
    }

    /// Returns whether other streams are left.
    pub fn remove_stream(&self, number: u64) -> bool {
        let mut state = self.state();
        state.streams.remove(&number);
        !state.streams.is_empty()
    }

    /// The events after a position.
    pub fn read_after(&self, position: i64) -> ViewRead {
        let state = self.state();
        if let Some(cause) = state.failure {
            return ViewRead::Failed(cause);
        }
        if state.ended_at.is_some_and(|ended_at| position >= ended_at) {
            return ViewRead::Ended;
        }
        let Some(ring) = &state.ring else { return ViewRead::NotLive };
        if position < ring.start {
            return ViewRead::Behind;
        }
        for batch in &ring.batches {
            let first = batch.events.partition_point(|(sequence, _)| *sequence <= position);
            if let Some((_, begin)) = batch.events.get(first) {
                let (bytes, last) = (batch.bytes.slice(*begin..), batch.last_sequence());
                return ViewRead::Events { bytes, count: batch.events.len() - first, last };
            }
        }
        ViewRead::UpToDate(ring.end)
    }

    /// Adds the events of a batch of the log that ends at `end`. Returns the size of the ring.
    pub fn publish(&self, batch: Option<EventBatch>, end: i64) -> usize {
        let mut state = self.state();
        let ViewState { ring: Some(ring), ended_at, .. } = &mut *state else { return 0 };
        ring.end = end;
        let has_events = batch.is_some();
        if let Some(batch) = batch {
            if batch.is_last {
                *ended_at = Some(batch.last_sequence());
            }
            ring.bytes += batch.bytes.len();
            ring.batches.push_back(batch);
        }
        // The newest batch stays, whatever its size is: streams that keep up need it.
        while ring.bytes > RING_BYTES_MAX && ring.batches.len() > 1 {
            ring.forget_oldest();
        }
        let bytes = ring.bytes;
        if has_events {
            state.wake_all();
        }
        bytes
    }

    /// Forgets all events up to the end of a batch, because one of them could not be evaluated from memory. Its
    /// streams catch up from the log.
    pub fn skip_to(&self, end: i64) {
        let mut state = self.state();
        if let Some(ring) = &mut state.ring {
            ring.end = end;
            ring.forget_all();
            state.wake_all();
        }
    }

    /// Forgets the events that are older than `RING_KEEP`. Returns the size of the ring.
    pub fn trim(&self, now: Instant) -> usize {
        let mut state = self.state();
        let Some(ring) = &mut state.ring else { return 0 };
        let is_old = |batch: &EventBatch| now.saturating_duration_since(batch.read_at) > RING_KEEP;
        while ring.batches.front().is_some_and(is_old) {
            ring.forget_oldest();
        }
        ring.bytes
    }

    /// Forgets all events, to save memory.
    pub fn forget_all(&self) {
        let mut state = self.state();
        if let Some(ring) = &mut state.ring {
            ring.forget_all();
            state.wake_all();
        }
    }

    /// The size of its ring.
    pub fn ring_bytes(&self) -> usize {
        self.state().ring.as_ref().map_or(0, |ring| ring.bytes)
    }

    /// Why its streams are cut, if they are.
    pub fn failure(&self) -> Option<&'static str> {
        self.state().failure
    }

    /// Whether it will have no more events.
    pub fn has_ended(&self) -> bool {
        let state = self.state();
        state.ended_at.is_some() || state.failure.is_some()
    }

    /// Cuts its streams.
    pub fn fail(&self, cause: &'static str) {
        let mut state = self.state();
        state.failure = Some(cause);
        state.wake_all();
    }

    /// Calls `visit` for each of its streams.
    pub fn for_each_stream(&self, mut visit: impl FnMut(&StreamSlot)) {
        self.state().streams.values().for_each(|slot| visit(slot));
    }
}

impl ViewState {
    fn wake_all(&self) {
        for slot in self.streams.values() {
            slot.wake();
        }
    }
}

#[cfg(test)]
mod tests;
