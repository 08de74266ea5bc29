//! How the service tells the watch of its connection that a request is under way.
//!
//! What follows from it is the watch's to say.

use std::rc::Rc;

use super::{Phase, UnderWay, Watch};

/// One request, from its head to the moment the system has all of its answer.
#[derive(Debug)]
pub(in crate::server) struct Exchange {
    watch: Rc<Watch>,
    number: u32,
}

impl Exchange {
    pub(in crate::server) fn begin(watch: &Rc<Watch>) -> Self {
        // Zero is kept for a connection without any.
        let number = watch.requests.get().wrapping_add(1).max(1);
        watch.requests.set(number);
        watch.common.requests.set(watch.common.requests.get() + 1);
        let request = UnderWay { number, begun: watch.now(), answered: None };
        watch.under_way.borrow_mut().push(request);
        if watch.phase() == Phase::Streams {
            watch.common.streams.set(watch.common.streams.get() + 1);
            watch.enter(Phase::Streams);
        } else {
            watch.enter(Phase::Busy);
        }
        Self { watch: Rc::clone(watch), number }
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

impl Drop for Exchange {
    fn drop(&mut self) {
        let watch = &self.watch;
        watch.under_way.borrow_mut().retain(|request| request.number != self.number);
        if watch.phase() == Phase::Streams {
            watch.common.streams.set(watch.common.streams.get().saturating_sub(1));
            watch.enter(Phase::Streams);
            watch.allowance.has_served();
        }
    }
}
