//! A request in flight, up to the last byte of its response: what the client has not read of it, its memory,
//! and the rights that a streaming response depends on.
//!
//! The source of a response whose caller has lost their rights is cancelled already (`pipeline::end_revoked`),
//! but if the client does not read, nothing polls it, so its error is not noticed. With HTTP/1 the connection
//! is aborted. With HTTP/2 its other streams may belong to other callers, so only the task of the stream ends:
//! h2 resets a stream that was dropped before its end.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use crate::admission::{self, MemoryPressure};
use crate::pipeline::StreamRights;
use crate::server::deadlines::{Deadlines, SweepTime};

/// The memory of a request without its head: its future, and the stream state of HTTP/2.
const REQUEST_BYTES: usize = 8 << 10;

/// Bytes of a response that hyper has; from then on the client is expected to read them.
#[derive(Debug, Clone, Copy)]
struct UnreadBytes {
    since: SweepTime,
    bytes: usize,
}

#[derive(Debug)]
pub struct InFlightRequest {
    begun: Cell<SweepTime>,
    /// Whether the worker counts it among the HTTP/2 requests in flight.
    is_counted: Cell<bool>,
    /// Whether it only waits for changes.
    is_waiting: Cell<bool>,
    /// The memory of its head.
    head_bytes: Cell<usize>,
    /// The whole response, or chunks of a stream in their order.
    unread: RefCell<VecDeque<UnreadBytes>>,
    is_streaming: Cell<bool>,
    /// Whether the response is an event stream, which may have nothing to send for long.
    is_event_stream: Cell<bool>,
    /// Its exchange has ended; chunks of the response may still be unread.
    is_done: Cell<bool>,
    rights: OnceCell<Arc<StreamRights>>,
    /// The task that runs the stream; HTTP/2 only.
    task: RefCell<Option<Waker>>,
}

impl InFlightRequest {
    pub(super) fn new(begun: SweepTime) -> Self {
        Self {
            begun: Cell::new(begun),
            is_counted: Cell::new(false),
            is_waiting: Cell::new(false),
            head_bytes: Cell::new(0),
            unread: RefCell::default(),
            is_streaming: Cell::new(false),
            is_event_stream: Cell::new(false),
            is_done: Cell::new(false),
            rights: OnceCell::new(),
            task: RefCell::new(None),
        }
    }

    /// When an open request has begun, or hyper got the first of the chunks that an ended one has left unread.
    /// `None` for event streams and long polls: they are open because their clients want them to be.
    pub(super) fn unfinished_since(&self) -> Option<SweepTime> {
        match (self.follows_changes(), self.is_open()) {
            (true, _) => None,
            (false, true) => Some(self.begun.get()),
            (false, false) => self.unread.borrow().front().map(|chunk| chunk.since),
        }
    }

    /// Records whether it only waits for changes. The time of a wait does not count.
    pub(super) fn set_waiting(&self, now: SweepTime, is_waiting: bool) {
        self.is_waiting.set(is_waiting);
        self.begun.set(now);
    }

    /// Records whether the worker counts it; returns whether it has counted it before.
    pub(super) fn set_counted(&self, is_counted: bool) -> bool {
        self.is_counted.replace(is_counted)
    }

    pub(super) fn set_head(&self, bytes: usize) {
        self.head_bytes.set(bytes);
    }

    pub(super) fn set_response(&self, since: SweepTime, bytes: usize) {
        *self.unread.borrow_mut() = VecDeque::from([UnreadBytes { since, bytes }]);
    }

    pub(super) fn begin_stream(&self, rights: Option<Arc<StreamRights>>, is_event_stream: bool) {
        self.is_streaming.set(true);
        self.is_event_stream.set(is_event_stream);
        if let Some(rights) = rights {
            self.rights.get_or_init(|| rights);
        }
    }

    pub(super) fn add_chunk(&self, since: SweepTime, bytes: usize) {
        self.unread.borrow_mut().push_back(UnreadBytes { since, bytes });
    }

    /// Chunks are sent in their order.
    pub(super) fn remove_chunk(&self) {
        self.unread.borrow_mut().pop_front();
    }

    /// The exchange has ended, and with it a response that is not a stream.
    pub(super) fn end(&self) {
        self.is_done.set(true);
        if !self.is_streaming.get() {
            self.unread.borrow_mut().clear();
        }
    }

    /// Whether the request is not answered, or its answer not handed over.
    pub(super) fn is_open(&self) -> bool {
        !self.is_done.get()
    }

    /// Whether it is an event stream, or a long poll that waits.
    pub(super) fn follows_changes(&self) -> bool {
        self.is_waiting.get() || self.is_event_stream.get()
    }

    /// Whether the connection still has to remember it.
    pub(super) fn is_in_flight(&self) -> bool {
        self.is_open() || self.has_buffered_bytes()
    }

    /// Whether hyper has bytes of the response.
    pub(super) fn has_buffered_bytes(&self) -> bool {
        !self.unread.borrow().is_empty()
    }

    /// Whether the client has not read everything of a response that has begun.
    pub(super) fn is_response_unfinished(&self) -> bool {
        self.has_buffered_bytes() || (self.is_open() && self.is_streaming.get())
    }

    /// Whether the client takes too long to read. `is_stalled`: nothing is sent on the connection for as long
    /// as it may stall.
    pub(super) fn is_unread_too_long(
        &self,
        now: SweepTime,
        deadlines: &Deadlines,
        (pressure, is_stalled): (MemoryPressure, bool),
    ) -> bool {
        self.unread.borrow().iter().any(|UnreadBytes { since, bytes }| {
            let age: Duration = now.age(*since);
            age >= deadlines.reading(*bytes)
                || (age >= deadlines.sending && is_stalled)
                || (age >= deadlines.under_pressure && pressure.hurries(*bytes))
        })
    }

    pub(super) fn held_bytes(&self) -> usize {
        // Admission control counts the other responses.
        let is_small = |bytes: &usize| *bytes <= admission::SMALL_BYTES_MAX;
        let unread = self.unread.borrow();
        let unread: usize = unread.iter().map(|unread| unread.bytes).filter(is_small).sum();
        let request = if self.is_open() { REQUEST_BYTES + self.head_bytes.get() } else { 0 };
        request + unread
    }

    /// The rights that its streaming response depends on.
    pub(super) fn rights(&self) -> Option<&Arc<StreamRights>> {
        self.rights.get().filter(|_| self.is_open())
    }

    /// Whether its streaming response is revoked, and has not ended yet.
    pub(super) fn is_revoked(&self) -> bool {
        self.rights().is_some_and(|rights| rights.is_revoked())
    }

    /// Whether its streaming response has to end now; if not, its task is woken when it has to.
    pub fn poll_revoked(&self, context: &Context<'_>) -> bool {
        if self.is_revoked() {
            return true;
        }
        if self.rights().is_some() {
            let mut task = self.task.borrow_mut();
            if !task.as_ref().is_some_and(|task| task.will_wake(context.waker())) {
                *task = Some(context.waker().clone());
            }
        }
        false
    }

    /// Wakes the task of a revoked stream, so that it checks its rights.
    pub(super) fn wake_if_revoked(&self) {
        if self.is_revoked()
            && let Some(task) = self.task.take()
        {
            task.wake();
        }
    }
}
