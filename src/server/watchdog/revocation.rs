//! Streaming responses whose callers have lost their rights, and whose clients do not read.
//!
//! The source of such a response is cancelled already (`pipeline::end_revoked`), but nothing polls it, so
//! its error is not noticed. With HTTP/1 the connection is aborted. With HTTP/2 its other streams may belong
//! to other callers, so only the task of the stream ends: h2 resets a stream that was dropped before its end.
//! The executor gets no stream id from hyper, which spawns the task of a request right after it has called
//! the service, so the task belongs to the request that has begun and has no task yet.

use std::task::Context;

use super::state::ConnectionWatchdog;

impl ConnectionWatchdog {
    /// Whether a revoked response has not ended yet, because its client does not read and so nothing polls it.
    pub fn has_revoked_stream(&self) -> bool {
        self.streams.borrow().iter().any(|stream| stream.rights.is_revoked())
    }

    /// Wakes the tasks of revoked streams, so that they check their rights.
    pub(super) fn wake_revoked_streams(&self) {
        for stream in self.streams.borrow_mut().iter_mut() {
            if stream.rights.is_revoked()
                && let Some(task) = stream.task.take()
            {
                task.wake();
            }
        }
    }

    /// The request whose task is spawned now.
    pub fn take_request_without_task(&self) -> Option<u32> {
        self.without_task.take()
    }

    /// Whether the response to this request has to end now; if not, its task is woken when it has to.
    pub fn is_revoked(&self, number: u32, context: &Context<'_>) -> bool {
        let mut streams = self.streams.borrow_mut();
        let Some(stream) = streams.iter_mut().find(|stream| stream.number == number) else {
            return false;
        };
        if stream.rights.is_revoked() {
            return true;
        }
        if !stream.task.as_ref().is_some_and(|task| task.will_wake(context.waker())) {
            stream.task = Some(context.waker().clone());
        }
        false
    }
}
