//! Reports of the service to the watchdog: requests in flight, and their responses.
//!
//! The watchdog decides on the consequences.

use std::rc::Rc;
use std::sync::Arc;

use super::state::{
    ConnectionPhase, ConnectionWatchdog, GuardedStream, InFlightEntry, InFlightKind, WatchdogSignal,
};
use crate::pipeline::StreamRights;

/// One request, from its head to the moment the kernel has its whole response.
#[derive(Debug)]
pub struct Exchange {
    watch: Rc<ConnectionWatchdog>,
    number: u32,
}

impl Exchange {
    pub fn begin(watch: &Rc<ConnectionWatchdog>) -> Self {
        // Zero is reserved for a connection without requests.
        let number = watch.requests.get().wrapping_add(1).max(1);
        watch.requests.set(number);
        watch.worker.requests.set(watch.worker.requests.get() + 1);
        let begun = watch.now();
        let request = InFlightEntry {
            number,
            begun,
            head_bytes: 0,
            response_ready: None,
            kind: InFlightKind::Request,
        };
        watch.in_flight.borrow_mut().push(request);
        if watch.phase() == ConnectionPhase::Streams {
            watch.worker.streams.set(watch.worker.streams.get() + 1);
            watch.without_task.set(Some(number));
            watch.enter_phase(ConnectionPhase::Streams);
        } else {
            watch.enter_phase(ConnectionPhase::Busy);
        }
        Self { watch: Rc::clone(watch), number }
    }

    /// Whether its response is the last one on an HTTP/1 connection, so that it should say `Connection: close`.
    pub fn is_last(&self) -> bool {
        self.watch.signal.get() == WatchdogSignal::Drain
            && self.watch.phase() != ConnectionPhase::Streams
    }

    /// Records the memory of the request's head.
    pub fn has_head(&self, bytes: usize) {
        let mut under_way = self.watch.in_flight.borrow_mut();
        if let Some(request) = under_way.iter_mut().find(|request| request.number == self.number) {
            request.head_bytes = bytes;
        }
    }

    /// Records that hyper has the response.
    pub fn response_ready(&self, bytes: usize) {
        let watch = &self.watch;
        let mut under_way = watch.in_flight.borrow_mut();
        if let Some(request) = under_way.iter_mut().find(|request| request.number == self.number) {
            request.response_ready = Some((watch.now(), bytes));
        }
        if watch.phase() == ConnectionPhase::Busy {
            watch.enter_phase(ConnectionPhase::Sending);
        }
    }
}

impl Exchange {
    /// Records that the response is a stream, for as long as its caller has these rights.
    pub fn mark_streaming(&self, rights: Option<Arc<StreamRights>>) {
        if let Some(rights) = rights {
            let stream = GuardedStream { number: self.number, rights, task: None };
            self.watch.streams.borrow_mut().push(stream);
        }
        let mut under_way = self.watch.in_flight.borrow_mut();
        if let Some(request) = under_way.iter_mut().find(|request| request.number == self.number) {
            request.kind = InFlightKind::Stream;
        }
    }

    /// Records that hyper has a chunk of a streaming response.
    pub fn begin_chunk(&self, bytes: usize) -> InFlightChunk {
        let watch = &self.watch;
        let answered = Some((watch.now(), bytes));
        let (number, begun) = (self.number, watch.now());
        let part = InFlightEntry {
            number,
            begun,
            head_bytes: 0,
            response_ready: answered,
            kind: InFlightKind::Chunk,
        };
        watch.in_flight.borrow_mut().push(part);
        if watch.phase() == ConnectionPhase::Busy {
            watch.enter_phase(ConnectionPhase::Sending);
        }
        InFlightChunk { watch: Rc::clone(watch), number: self.number }
    }

    /// Records that a streaming response has ended; its last bytes may not be sent yet.
    pub fn end_stream(&self) {
        if self.watch.phase() == ConnectionPhase::Busy {
            self.watch.enter_phase(ConnectionPhase::Sending);
        }
    }
}

/// A chunk of a streaming response, until it is sent.
#[derive(Debug)]
pub struct InFlightChunk {
    watch: Rc<ConnectionWatchdog>,
    number: u32,
}

impl Drop for InFlightChunk {
    fn drop(&mut self) {
        let mut under_way = self.watch.in_flight.borrow_mut();
        // Chunks are sent in their order.
        let mine = |request: &InFlightEntry| {
            request.kind == InFlightKind::Chunk && request.number == self.number
        };
        if let Some(at) = under_way.iter().position(mine) {
            under_way.remove(at);
        }
        let waits_for_us = under_way.iter().all(|request| request.response_ready.is_none());
        drop(under_way);
        if waits_for_us && self.watch.phase() == ConnectionPhase::Sending && !self.watch.is_idle() {
            self.watch.enter_phase(ConnectionPhase::Busy);
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let watch = &self.watch;
        watch
            .in_flight
            .borrow_mut()
            .retain(|request| request.kind == InFlightKind::Chunk || request.number != self.number);
        watch.streams.borrow_mut().retain(|stream| stream.number != self.number);
        if watch.phase() == ConnectionPhase::Streams {
            watch.worker.streams.set(watch.worker.streams.get().saturating_sub(1));
            watch.enter_phase(ConnectionPhase::Streams);
            watch.frame_budget.credit_request();
        }
    }
}
