//! A future that is detached on drop: the work finishes whether or not its caller still waits for it.
//!
//! While the caller waits, the work is polled in place and costs no task. Dropped before its end, it is
//! spawned as a task: a connection in the middle of a statement is of no use to other requests.
//! Work that panicked is dropped, and not polled again.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;

use crate::box_future::box_future;

/// Work that continues as a task if its caller is dropped.
pub struct DetachOnDrop<F: Future<Output: 'static> + 'static>(Option<Pin<Box<F>>>);

impl<F: Future<Output: 'static> + 'static> DetachOnDrop<F> {
    /// Boxes the future in place, because it is large and would otherwise be copied from the stack.
    pub fn new(make: impl FnOnce() -> F) -> Self {
        Self(Some(box_future(make)))
    }
}

impl<F: Future<Output: 'static> + 'static> Future for DetachOnDrop<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        // The future is moved out first, so that work that panics is not polled again.
        let Some(mut work) = self.0.take() else { return Poll::Pending };
        let polled = work.as_mut().poll(context);
        if polled.is_pending() {
            self.0 = Some(work);
        }
        polled
    }
}

impl<F: Future<Output: 'static> + 'static> Drop for DetachOnDrop<F> {
    fn drop(&mut self) {
        let Some(work) = self.0.take() else { return };
        // Without a runtime the server is shutting down, and no task could run.
        if Handle::try_current().is_ok() {
            tokio::task::spawn_local(work);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::rc::Rc;
    use std::task::Waker;

    use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
    use tokio::sync::Notify;

    use super::*;

    fn runtime() -> LocalRuntime {
        Builder::new_current_thread().build_local(LocalOptions::default()).unwrap()
    }

    /// Counts how often work has started and ended, and lets it continue.
    #[derive(Clone, Default)]
    struct WorkProbe {
        started: Rc<Cell<u32>>,
        resume: Rc<Notify>,
        ended: Rc<Cell<u32>>,
    }

    impl WorkProbe {
        fn work(&self) -> DetachOnDrop<impl Future<Output = ()> + use<>> {
            let seen = self.clone();
            DetachOnDrop::new(|| async move {
                seen.started.set(seen.started.get() + 1);
                seen.resume.notified().await;
                seen.ended.set(seen.ended.get() + 1);
            })
        }

        /// Resumes the work, yields to the tasks of this thread, and returns the counts.
        async fn counts_after_yield(&self) -> (u32, u32) {
            self.resume.notify_one();
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
            (self.started.get(), self.ended.get())
        }
    }

    #[test]
    fn detach_on_drop_dropped_while_pending_still_completes() {
        runtime().block_on(async {
            let seen = WorkProbe::default();
            let mut waited_for = seen.work();
            let mut context = Context::from_waker(Waker::noop());
            assert!(Pin::new(&mut waited_for).poll(&mut context).is_pending());
            drop(waited_for);
            assert_eq!(seen.counts_after_yield().await, (1, 1));
        });
    }

    #[test]
    fn detach_on_drop_dropped_before_first_poll_still_runs_once() {
        runtime().block_on(async {
            let seen = WorkProbe::default();
            drop(seen.work());
            assert_eq!(seen.counts_after_yield().await, (1, 1));
            seen.resume.notify_one();
            seen.work().await;
            assert_eq!(seen.counts_after_yield().await, (2, 2));
        });
    }

    #[test]
    fn detach_on_drop_after_panic_is_not_polled_again() {
        runtime().block_on(async {
            let begun = Rc::new(Cell::new(0));
            let counted = Rc::clone(&begun);
            let mut broken = DetachOnDrop::new(|| async move {
                counted.set(counted.get() + 1);
                panic!("planted");
            });
            let mut context = Context::from_waker(Waker::noop());
            let polled =
                catch_unwind(AssertUnwindSafe(|| Pin::new(&mut broken).poll(&mut context)));
            assert!(polled.is_err());
            drop(broken);
            tokio::task::yield_now().await;
            assert_eq!((begun.get(), Rc::strong_count(&begun)), (1, 1));
        });
    }

    #[test]
    fn detach_on_drop_without_runtime_drops_the_work() {
        let seen = WorkProbe::default();
        drop(seen.work());
        assert_eq!((seen.started.get(), Rc::strong_count(&seen.started)), (0, 1));
    }
}
