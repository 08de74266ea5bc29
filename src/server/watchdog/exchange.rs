//! Reports of the service to the watchdog: requests in flight, and their responses.
//!
//! The watchdog decides on the consequences.

use std::rc::Rc;
use std::sync::Arc;

use super::in_flight::InFlightRequest;
use super::phase::{AbortCause, ConnectionEvent, ConnectionPhase, WatchdogSignal};
use super::state::ConnectionWatchdog;
use crate::fault;
use crate::pipeline::{ExchangeObserver, StreamRights};

/// One request, from its head to the moment the kernel has its whole response.
#[derive(Debug)]
pub struct Exchange {
    watch: Rc<ConnectionWatchdog>,
    request: Rc<InFlightRequest>,
}

impl Exchange {
    pub fn begin(watch: &Rc<ConnectionWatchdog>) -> Self {
        let request = Rc::new(InFlightRequest::new(watch.now()));
        watch.in_flight.borrow_mut().push(Rc::clone(&request));
        watch.has_begun_request.set(true);
        watch.worker.requests.set(watch.worker.requests.get() + 1);
        if watch.phase() == ConnectionPhase::Streams {
            *watch.without_task.borrow_mut() = Some(Rc::clone(&request));
        }
        watch.on(ConnectionEvent::RequestBegun);
        let exchange = Self { watch: Rc::clone(watch), request };
        exchange.set_counted(true);
        exchange
    }

    /// Counts an HTTP/2 request among those in flight, or no longer.
    fn set_counted(&self, is_counted: bool) {
        let is_http2 = self.watch.phase() == ConnectionPhase::Streams;
        if !is_http2 || self.request.set_counted(is_counted) == is_counted {
            return;
        }
        let streams = &self.watch.worker.streams;
        match streams.get().checked_sub(1) {
            _ if is_counted => streams.set(streams.get() + 1),
            Some(others) => streams.set(others),
            None => fault::log_bug("`begin` has counted the stream"),
        }
    }

    /// Whether its response is the last one on an HTTP/1 connection, so that it should say `Connection: close`.
    pub fn is_last(&self) -> bool {
        self.watch.signal.get() == WatchdogSignal::Drain
            && self.watch.phase() != ConnectionPhase::Streams
    }

    /// Records the memory of the request's head.
    pub fn has_head(&self, bytes: usize) {
        self.request.set_head(bytes);
    }

    /// Records that hyper has the response.
    pub fn response_ready(&self, bytes: usize) {
        self.request.set_response(self.watch.now(), bytes);
        self.watch.on(ConnectionEvent::ResponseReady);
    }

    /// Records that the response is a stream, for as long as its caller has these rights.
    pub fn mark_streaming(&self, rights: Option<Arc<StreamRights>>, is_event_stream: bool) {
        self.request.begin_stream(rights, is_event_stream);
        self.set_counted(!is_event_stream);
    }

    /// Records that hyper has a chunk of a streaming response.
    pub fn begin_chunk(&self, bytes: usize) -> InFlightChunk {
        self.request.add_chunk(self.watch.now(), bytes);
        self.watch.on(ConnectionEvent::ResponseReady);
        InFlightChunk { watch: Rc::clone(&self.watch), request: Rc::clone(&self.request) }
    }

    /// Why the watchdog has aborted the connection, for the log of a streaming response; `None` if it has not.
    pub fn abort_reason(&self) -> Option<&'static str> {
        match self.watch.signal.get() {
            WatchdogSignal::Abort(_) if self.watch.is_stopping() => Some("the server has stopped"),
            WatchdogSignal::Abort(AbortCause::Unread) => {
                Some("the client did not read the response in time")
            }
            WatchdogSignal::Abort(_) => Some("the connection was aborted"),
            WatchdogSignal::Continue | WatchdogSignal::Park | WatchdogSignal::Drain => None,
        }
    }

    /// Records that a streaming response has ended; its last bytes may not be sent yet.
    pub fn end_stream(&self) {
        self.watch.on(ConnectionEvent::ResponseReady);
    }
}

impl ExchangeObserver for Exchange {
    fn set_waiting(&self, is_waiting: bool) {
        self.request.set_waiting(self.watch.now(), is_waiting);
        self.set_counted(!is_waiting);
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let watch = &self.watch;
        self.request.end();
        watch.forget_done_requests();
        self.set_counted(false);
        if watch.phase() == ConnectionPhase::Streams {
            watch.frame_budget.credit_request();
        }
        watch.on(ConnectionEvent::RequestDone);
    }
}

/// A chunk of a streaming response, until it is sent.
#[derive(Debug)]
pub struct InFlightChunk {
    watch: Rc<ConnectionWatchdog>,
    request: Rc<InFlightRequest>,
}

impl Drop for InFlightChunk {
    fn drop(&mut self) {
        self.request.remove_chunk();
        self.watch.forget_done_requests();
        if self.watch.waits_for_server() {
            self.watch.on(ConnectionEvent::WaitsForServer);
        }
    }
}
