//! Reports of the service to the watchdog: requests in flight, and their responses.
//!
//! The watchdog decides what follows from them.

use std::rc::Rc;
use std::sync::Arc;

use super::revocation::GuardedStream;
use super::{Ask, Kind, Phase, UnderWay, Watch};
use crate::pipeline::StreamRights;

/// One request, from its head to the moment the kernel has its whole response.
#[derive(Debug)]
pub(in crate::server) struct Exchange {
    watch: Rc<Watch>,
    number: u32,
}

impl Exchange {
    pub(in crate::server) fn begin(watch: &Rc<Watch>) -> Self {
        // Zero is reserved for a connection without any.
        let number = watch.requests.get().wrapping_add(1).max(1);
        watch.requests.set(number);
        watch.common.requests.set(watch.common.requests.get() + 1);
        let begun = watch.now();
        let request =
            UnderWay { number, begun, head_bytes: 0, answered: None, kind: Kind::Request };
        watch.under_way.borrow_mut().push(request);
        if watch.phase() == Phase::Streams {
            watch.common.streams.set(watch.common.streams.get() + 1);
            watch.without_task.set(Some(number));
            watch.enter(Phase::Streams);
        } else {
            watch.enter(Phase::Busy);
        }
        Self { watch: Rc::clone(watch), number }
    }

    /// Whether its answer is the last one on a connection of HTTP/1, which the client should know.
    pub(in crate::server) fn is_last(&self) -> bool {
        self.watch.ask.get() == Ask::Leave && self.watch.phase() != Phase::Streams
    }

    /// What the head of the request takes up.
    pub(in crate::server) fn has_head(&self, bytes: usize) {
        let mut under_way = self.watch.under_way.borrow_mut();
        if let Some(request) = under_way.iter_mut().find(|request| request.number == self.number) {
            request.head_bytes = bytes;
        }
    }

    /// The answer is with hyper.
    pub(in crate::server) fn answered(&self, bytes: usize) {
        let watch = &self.watch;
        let mut under_way = watch.under_way.borrow_mut();
        if let Some(request) = under_way.iter_mut().find(|request| request.number == self.number) {
            request.answered = Some((watch.now(), bytes));
        }
        if watch.phase() == Phase::Busy {
            watch.enter(Phase::Sending);
        }
    }
}

impl Exchange {
    /// The response is a stream, for as long as its caller has these rights.
    pub(in crate::server) fn flows(&self, rights: Option<Arc<StreamRights>>) {
        if let Some(rights) = rights {
            let stream = GuardedStream { number: self.number, rights, task: None };
            self.watch.streams.borrow_mut().push(stream);
        }
        let mut under_way = self.watch.under_way.borrow_mut();
        if let Some(request) = under_way.iter_mut().find(|request| request.number == self.number) {
            request.kind = Kind::Flow;
        }
    }

    /// hyper has a chunk of a streaming response.
    pub(in crate::server) fn part(&self, bytes: usize) -> Part {
        let watch = &self.watch;
        let answered = Some((watch.now(), bytes));
        let (number, begun) = (self.number, watch.now());
        let part = UnderWay { number, begun, head_bytes: 0, answered, kind: Kind::Part };
        watch.under_way.borrow_mut().push(part);
        if watch.phase() == Phase::Busy {
            watch.enter(Phase::Sending);
        }
        Part { watch: Rc::clone(watch), number: self.number }
    }

    /// A streaming response has ended; its last bytes may not be sent yet.
    pub(in crate::server) fn ends(&self) {
        if self.watch.phase() == Phase::Busy {
            self.watch.enter(Phase::Sending);
        }
    }
}

/// A chunk of a streaming response, until it is sent.
#[derive(Debug)]
pub(in crate::server) struct Part {
    watch: Rc<Watch>,
    number: u32,
}

impl Drop for Part {
    fn drop(&mut self) {
        let mut under_way = self.watch.under_way.borrow_mut();
        // Chunks are sent in their order.
        let mine = |request: &UnderWay| request.kind == Kind::Part && request.number == self.number;
        if let Some(at) = under_way.iter().position(mine) {
            under_way.remove(at);
        }
        let waits_for_us = under_way.iter().all(|request| request.answered.is_none());
        drop(under_way);
        if waits_for_us && self.watch.phase() == Phase::Sending && !self.watch.is_idle() {
            self.watch.enter(Phase::Busy);
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        let watch = &self.watch;
        watch
            .under_way
            .borrow_mut()
            .retain(|request| request.kind == Kind::Part || request.number != self.number);
        watch.streams.borrow_mut().retain(|stream| stream.number != self.number);
        if watch.phase() == Phase::Streams {
            watch.common.streams.set(watch.common.streams.get().saturating_sub(1));
            watch.enter(Phase::Streams);
            watch.allowance.has_served();
        }
    }
}
