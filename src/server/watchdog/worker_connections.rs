//! All connections of one worker: the sweep signals each of them, and a shutdown drains them.
//!
//! Each connection's watchdog decides on its signal; this file has the part that concerns connections
//! without a request.

use std::rc::Rc;
use std::sync::Arc;

use super::phase::{ConnectionPhase, WatchdogSignal};
use super::state::{ConnectionWatchdog, WorkerState};
use crate::admission::MemoryPressure;
use crate::pipeline::StreamRights;
use crate::server::deadlines::Deadlines;

/// All connections of one worker.
#[derive(Debug)]
pub struct WorkerConnections {
    pub(super) worker: Rc<WorkerState>,
    connections: Vec<Rc<ConnectionWatchdog>>,
}

impl WorkerConnections {
    pub fn new(streams_max: usize) -> Self {
        let common = WorkerState { streams_max, ..WorkerState::default() };
        Self { worker: Rc::new(common), connections: Vec::new() }
    }

    pub fn add(&mut self) -> Rc<ConnectionWatchdog> {
        let watch = ConnectionWatchdog::new(&self.worker);
        self.connections.push(Rc::clone(&watch));
        watch
    }

    /// Whether there is nothing to sweep: connections that ended since the last sweep are removed too.
    pub fn is_empty(&self) -> bool {
        self.connections.is_empty()
    }

    /// `pressure` is called with the memory of all connections.
    pub fn sweep(&mut self, deadlines: &Deadlines, pressure: impl FnOnce(usize) -> MemoryPressure) {
        self.worker.now.set(self.worker.now.get().next());
        self.connections.retain(|watch| !watch.ended.get());
        let pressure = pressure(self.connections.iter().map(|watch| watch.held_bytes()).sum());
        for watch in &self.connections {
            watch.set_signal(watch.next_signal(deadlines, pressure));
        }
    }

    /// The rights that streaming responses depend on.
    pub fn stream_rights(&self) -> Vec<Arc<StreamRights>> {
        let mut all = Vec::new();
        for watch in &self.connections {
            let in_flight = watch.in_flight.borrow();
            all.extend(in_flight.iter().filter_map(|request| request.rights().cloned()));
        }
        all
    }

    /// Aborts connections with unsent data, so that no client mistakes a truncated response for the whole.
    pub fn abort_unread(&self) {
        for watch in self.connections.iter().filter(|watch| watch.has_unfinished_response()) {
            watch.set_signal(WatchdogSignal::Abort(watch.unread_cause()));
        }
    }

    /// Begins the shutdown: all connections finish their requests in flight.
    pub fn drain(&self) {
        self.worker.stopping_since.set(Some(self.worker.now.get()));
        for watch in &self.connections {
            watch.set_signal(WatchdogSignal::Drain);
        }
    }
}

impl ConnectionWatchdog {
    /// Whether it delays the shutdown without a request: an unfinished head or handshake is not a request. Each may
    /// still be completed in a time that begins with the shutdown, as may the first request of a connection.
    pub(super) fn delays_shutdown(&self, deadlines: &Deadlines) -> bool {
        let Some(stopping_since) = self.worker.stopping_since.get() else { return false };
        let (since, grace) = match self.phase.get() {
            ConnectionPhase::Handshake | ConnectionPhase::Head | ConnectionPhase::Idle => {
                (stopping_since, deadlines.shutdown)
            }
            ConnectionPhase::Fresh => (stopping_since, deadlines.silent_shutdown),
            // The end of the last response may still be in flight.
            ConnectionPhase::Streams => {
                let last = self.since.get().max(self.progress.get());
                (last.max(stopping_since), deadlines.shutdown)
            }
            ConnectionPhase::Busy | ConnectionPhase::Sending | ConnectionPhase::Closing => {
                return false;
            }
        };
        self.is_idle() && self.now().age(since) >= grace
    }

    /// Whether no HTTP/1 request is in flight while hyper holds buffers for the next one.
    pub fn can_park(&self) -> bool {
        !self.is_parked.get()
            && self.phase.get().is_before_request()
            && self.message.borrow().is_in_head()
    }

    /// Sets whether the connection is without hyper.
    pub fn set_parked(&self, is_parked: bool) {
        self.is_parked.set(is_parked);
        if self.signal.get() == WatchdogSignal::Park {
            self.signal.set(WatchdogSignal::Continue);
        }
    }
}
