//! Reports of the service to the watchdog: requests in flight, and their responses.
//!
//! The watchdog decides on the consequences.

use std::rc::Rc;
use std::sync::Arc;

use super::in_flight::InFlightRequest;
use super::phase::{AbortCause, ConnectionEvent, ConnectionPhase, WatchdogSignal};
use super::state::ConnectionWatchdog;
use crate::fault;
use crate::pipeline::StreamRights;

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
            watch.worker.streams.set(watch.worker.streams.get() + 1);
            *watch.without_task.borrow_mut() = Some(Rc::clone(&request));
        }
        watch.on(ConnectionEvent::RequestBegun);
        Self { watch: Rc::clone(watch), request }
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

impl Drop for Exchange {
    fn drop(&mut self) {
        let watch = &self.watch;
        self.request.end();
        watch.forget_done_requests();
        if watch.phase() == ConnectionPhase::Streams {
            let streams = watch.worker.streams.get();
            watch.worker.streams.set(streams.saturating_sub(1));
            watch.frame_budget.credit_request();
            if streams == 0 {
                fault::log_bug("`begin` has counted the stream");
            }
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
