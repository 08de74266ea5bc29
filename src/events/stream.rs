//! An event stream: the body of one response.
//!
//! The server polls it when the socket takes bytes, and it hands out one chunk at a time: the next one only after
//! the former was sent (backpressure). So a client that does not read costs one chunk, and nothing is queued for it.
//! No store is accessed here: catch-up pages come from the feed's thread.

use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use bytes::Bytes;

use super::catch_up::{CatchUpRequest, SnapshotBridge};
use super::evaluate::Subscription;
use super::feed::{Feed, ViewMembership};
use super::publish::CHUNK_BYTES;
use super::slot::{CatchUpPage, PageState, StreamSlot};
use super::view::ViewRead;
use crate::admission::CallerKey;
use crate::formats::event_stream;
use crate::store::{ExportStream, SnapshotStart};

/// How long a client waits before it reconnects after a failure.
const RETRY_MS: u32 = 2_000;
/// The range of that time after a shutdown, so that the clients of a server do not all reconnect at once.
const RETRY_AFTER_SHUTDOWN_MS: std::ops::Range<u32> = 1_000..5_000;
/// The positions in heartbeats are multiples of this number, so that a caller who sees some items only cannot
/// tell how many changes others make.
const HEARTBEAT_POSITION_STEP: i64 = 1_024;

/// Where a stream begins.
#[derive(Debug)]
pub enum StreamStart {
    /// After this number of the change log.
    After(i64),
    /// With all items.
    Snapshot(SnapshotSource),
}

/// The items of a snapshot, encoded as events.
#[derive(Debug)]
pub struct SnapshotSource {
    pub first: Bytes,
    pub rest: Option<ExportStream>,
    /// The position of the snapshot; known when the first items are.
    pub start: Arc<OnceLock<SnapshotStart>>,
}

/// A stream of events.
#[derive(Debug)]
pub struct EventStream {
    feed: Arc<Feed>,
    membership: ViewMembership,
    /// Everything up to this number in the log is sent, or is not for this stream.
    position: i64,
    /// The position that the client resumes at; none before the end of a snapshot.
    last_id: Option<i64>,
    heartbeats_seen: u64,
    /// The rest of an event that is larger than a chunk.
    rest: Bytes,
    phase: StreamPhase,
}

#[derive(Debug)]
enum StreamPhase {
    /// The first block is not sent yet.
    Starting(Option<Box<SnapshotSource>>),
    Snapshot(Box<SnapshotSource>),
    /// Between a snapshot and the first position that can be resumed at.
    Bridging(Arc<SnapshotBridge>),
    Following,
    Ended,
}

impl EventStream {
    pub fn open(
        feed: &Arc<Feed>,
        subscription: Subscription,
        caller: CallerKey,
        start: StreamStart,
    ) -> Self {
        let (position, snapshot) = match start {
            StreamStart::After(position) => (position, None),
            StreamStart::Snapshot(source) => (0, Some(Box::new(source))),
        };
        Self {
            feed: Arc::clone(feed),
            membership: feed.subscribe(subscription, caller),
            position,
            last_id: snapshot.is_none().then_some(position),
            heartbeats_seen: feed.heartbeats(),
            rest: Bytes::new(),
            phase: StreamPhase::Starting(snapshot),
        }
    }

    /// Wakes the stream, from any thread.
    pub fn slot(&self) -> &Arc<StreamSlot> {
        &self.membership.slot
    }

    /// The next chunk, which is not empty; `None` at the clean end.
    pub fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, String>>> {
        // Registered before anything is checked, so that no wake-up is lost.
        if !self.slot().register(context) {
            return Poll::Pending;
        }
        match self.next_chunk(context) {
            Ok(Some(bytes)) => {
                self.feed.metrics.stream_bytes.add(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
                Poll::Ready(Some(Ok(self.slot().begin_chunk(bytes))))
            }
            Ok(None) if matches!(self.phase, StreamPhase::Ended) => Poll::Ready(None),
            Ok(None) => Poll::Pending,
            Err(cause) => Poll::Ready(Some(Err(cause))),
        }
    }

    /// The next chunk, if there is something to send.
    fn next_chunk(&mut self, context: &mut Context<'_>) -> Result<Option<Bytes>, String> {
        if !self.rest.is_empty() {
            return Ok(Some(self.take_rest()));
        }
        let mut out = Vec::new();
        if let StreamPhase::Starting(snapshot) = &mut self.phase {
            event_stream::write_start(&mut out, RETRY_MS, self.last_id);
            self.phase = match snapshot.take() {
                None => StreamPhase::Following,
                Some(snapshot) => {
                    event_stream::write_event(&mut out, None, "reset", b"{}");
                    StreamPhase::Snapshot(snapshot)
                }
            };
            return Ok(Some(out.into()));
        }
        if self.feed.is_closed() && !matches!(self.phase, StreamPhase::Ended) {
            self.phase = StreamPhase::Ended;
            event_stream::write_end(&mut out, retry_after_shutdown(self.membership.number));
            return Ok(Some(out.into()));
        }
        let next = match &mut self.phase {
            StreamPhase::Snapshot(_) => self.next_items(context)?,
            StreamPhase::Bridging(_) => match self.membership.view.failure() {
                Some(cause) => return Err(cause.to_owned()),
                None => self.next_page()?,
            },
            StreamPhase::Following => self.next_events()?,
            StreamPhase::Starting(_) | StreamPhase::Ended => None,
        };
        if next.is_some() || matches!(self.phase, StreamPhase::Ended) {
            return Ok(next);
        }
        let heartbeats = self.feed.heartbeats();
        let is_probed = self.slot().take_probe();
        if std::mem::replace(&mut self.heartbeats_seen, heartbeats) != heartbeats || is_probed {
            let rounded = self.position - self.position % HEARTBEAT_POSITION_STEP;
            // A client cannot resume below what was deleted.
            let floor = rounded.max(self.feed.swept().min(self.position));
            self.last_id = self.last_id.map(|last| last.max(floor));
            event_stream::write_heartbeat(&mut out, self.last_id);
            return Ok(Some(out.into()));
        }
        Ok(None)
    }

    /// Items of the snapshot, and then the end of it.
    fn next_items(&mut self, context: &mut Context<'_>) -> Result<Option<Bytes>, String> {
        let StreamPhase::Snapshot(source) = &mut self.phase else { return Ok(None) };
        if !source.first.is_empty() {
            return Ok(Some(std::mem::take(&mut source.first)));
        }
        if let Some(rest) = &mut source.rest {
            match rest.poll(context) {
                Poll::Pending => return Ok(None),
                Poll::Ready(Some(items)) => return items.map(Some).map_err(|e| e.to_string()),
                Poll::Ready(None) => {}
            }
        }
        let Some(SnapshotStart { position, included }) = source.start.get() else {
            return Err("the snapshot has no position".to_owned());
        };
        self.position = *position;
        let Some(end) = included.last() else {
            self.last_id = Some(self.position);
            self.phase = StreamPhase::Following;
            let mut out = Vec::new();
            event_stream::write_event(&mut out, self.last_id, "synced", b"{}");
            return Ok(Some(out.into()));
        };
        let bridge = SnapshotBridge { included: included.clone(), end: *end };
        self.phase = StreamPhase::Bridging(Arc::new(bridge));
        self.next_page()
    }

    /// The events after the position, from the ring of the view or from the log.
    fn next_events(&mut self) -> Result<Option<Bytes>, String> {
        match self.membership.view.read_after(self.position) {
            ViewRead::Events { bytes, count, last } => {
                self.count_events(count);
                (self.position, self.last_id) = (last, Some(last));
                self.rest = bytes;
                Ok(Some(self.take_rest()))
            }
            ViewRead::UpToDate(end) => {
                self.position = self.position.max(end);
                Ok(None)
            }
            ViewRead::NotLive => Ok(None),
            ViewRead::Ended => {
                self.phase = StreamPhase::Ended;
                Ok(None)
            }
            ViewRead::Failed(cause) => Err(cause.to_owned()),
            ViewRead::Behind => self.next_page(),
        }
    }

    /// A chunk of the events that were taken from the ring or from a page. All streams of a view share their bytes,
    /// which stay reserved as long as one of them has a part.
    fn take_rest(&mut self) -> Bytes {
        self.rest.split_to(self.rest.len().min(CHUNK_BYTES))
    }

    fn count_events(&self, count: usize) {
        self.feed.metrics.events_sent.add(u64::try_from(count).unwrap_or(u64::MAX));
    }

    /// The next page of the log, if it has arrived; requests one otherwise.
    fn next_page(&mut self) -> Result<Option<Bytes>, String> {
        let Some(page) = self.take_page()? else { return Ok(None) };
        self.position = page.position;
        self.count_events(page.count);
        match &self.phase {
            StreamPhase::Bridging(bridge) if page.position >= bridge.end => {
                self.last_id = Some(page.position);
                self.phase = StreamPhase::Following;
            }
            StreamPhase::Bridging(_) => {}
            _ => self.last_id = page.last_event.or(self.last_id),
        }
        if page.is_last {
            self.phase = StreamPhase::Ended;
        }
        if page.bytes.is_empty() && !page.is_last {
            // Perhaps the ring has the rest, or the next page.
            return match &self.phase {
                StreamPhase::Bridging(_) => self.next_page(),
                _ => self.next_events(),
            };
        }
        self.rest = page.bytes;
        Ok(Some(self.take_rest()))
    }

    /// The requested page, if it has arrived; requests one otherwise.
    fn take_page(&self) -> Result<Option<CatchUpPage>, String> {
        match self.slot().take_page()? {
            PageState::Arrived(page) => return Ok(Some(page)),
            PageState::Requested => {}
            PageState::NotRequested => {
                let bridge = match &self.phase {
                    StreamPhase::Bridging(bridge) => Some(Arc::clone(bridge)),
                    _ => None,
                };
                self.feed.request_catch_up(CatchUpRequest {
                    view: Arc::clone(&self.membership.view),
                    slot: Arc::downgrade(self.slot()),
                    position: self.position,
                    bridge,
                });
            }
        }
        Ok(None)
    }
}

impl Drop for EventStream {
    fn drop(&mut self) {
        self.feed.unsubscribe(&self.membership);
    }
}

/// A different time for each stream.
fn retry_after_shutdown(number: u64) -> u32 {
    let range = RETRY_AFTER_SHUTDOWN_MS;
    let spread = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    range.start + u32::try_from(spread).unwrap_or(0) % (range.end - range.start)
}
