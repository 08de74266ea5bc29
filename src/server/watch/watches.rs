//! All connections of one worker: the sweep signals each of them, and a shutdown drains them.
//!
//! Each connection's watchdog decides on its signal; this file has the part that concerns connections
//! without a request.

use std::rc::Rc;
use std::sync::Arc;

use super::{Ask, Common, Patience, Phase, Watch};
use crate::gate::MemoryPressure;
use crate::pipeline::StreamRights;

/// All connections of one worker.
#[derive(Debug)]
pub(in crate::server) struct Watches {
    pub(super) common: Rc<Common>,
    list: Vec<Rc<Watch>>,
}

impl Watches {
    pub(in crate::server) fn new(streams_max: usize) -> Self {
        let common = Common { streams_max, ..Common::default() };
        Self { common: Rc::new(common), list: Vec::new() }
    }

    pub(in crate::server) fn add(&mut self) -> Rc<Watch> {
        let watch = Watch::new(&self.common);
        self.list.push(Rc::clone(&watch));
        watch
    }

    /// Nothing to sweep: also the connections that ended since the last sweep are gone.
    pub(in crate::server) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// `pressure` is asked with what all connections take up.
    pub(in crate::server) fn sweep(
        &mut self,
        patience: &Patience,
        pressure: impl FnOnce(usize) -> MemoryPressure,
    ) {
        self.common.ticks.set(self.common.ticks.get() + 1);
        self.list.retain(|watch| !watch.ended.get());
        let pressure = pressure(self.list.iter().map(|watch| watch.held_bytes()).sum());
        for watch in &self.list {
            watch.ask(watch.verdict(patience, pressure));
        }
    }

    /// The rights that streaming responses depend on.
    pub(in crate::server) fn streams(&self) -> Vec<Arc<StreamRights>> {
        let mut all = Vec::new();
        for watch in &self.list {
            let streams = watch.streams.borrow();
            all.extend(streams.iter().map(|stream| Arc::clone(&stream.rights)));
        }
        all
    }

    /// Aborts connections with unsent data, so that no client takes a truncated response for the whole.
    pub(in crate::server) fn cut_unread(&self) {
        self.list.iter().filter(|watch| watch.has_unread()).for_each(|watch| watch.ask(Ask::Cut));
    }

    /// The server is shutting down: all connections finish what is in flight.
    pub(in crate::server) fn stop(&self) {
        self.common.stopping_since.set(Some(self.common.ticks.get()));
        for watch in &self.list {
            watch.ask(Ask::Leave);
        }
    }
}

impl Watch {
    /// Whether it delays the shutdown without a request in flight: an unfinished head or handshake is none.
    pub(super) fn holds_up_the_stop(&self, patience: &Patience) -> bool {
        let last = match self.phase.get() {
            Phase::Handshake | Phase::Fresh | Phase::Head | Phase::Idle => self.since.get(),
            // The end of the last response may still be in flight.
            Phase::Streams => self.since.get().max(self.progress.get()),
            Phase::Busy | Phase::Sending | Phase::Closing => return false,
        };
        // What was begun long before may still be completed now.
        self.common
            .stopping_since
            .get()
            .is_some_and(|since| self.is_idle() && self.age(last.max(since)) >= patience.stop)
    }

    /// Whether no HTTP/1 request is in flight while hyper holds buffers for the next one.
    pub(in crate::server) fn can_park(&self) -> bool {
        !self.is_parked.get()
            && matches!(self.phase.get(), Phase::Fresh | Phase::Head | Phase::Idle)
            && self.message.borrow().is_in_head()
    }

    /// Sets whether the connection is without hyper.
    pub(in crate::server) fn set_parked(&self, is_parked: bool) {
        self.is_parked.set(is_parked);
        if self.ask.get() == Ask::Park {
            self.ask.set(Ask::Nothing);
        }
    }
}
