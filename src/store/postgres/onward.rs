//! Work that is done whether or not anybody still waits for it.
//!
//! As long as somebody waits, it is polled where they wait, and costs no task. Dropped before its end,
//! it goes on as a task of its own: a connection in the middle of something is of no use to others.
//! The one surprising thing: work that panicked is gone, and is not begun again.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;

use crate::boxed::boxed;

/// Work that goes on when whoever waits for it leaves.
pub(super) struct Onward<F: Future<Output: 'static> + 'static>(Option<Pin<Box<F>>>);

impl<F: Future<Output: 'static> + 'static> Onward<F> {
    /// The work is made where it stays: it is large, and would be copied on its way.
    pub(super) fn new(make: impl FnOnce() -> F) -> Self {
        Self(Some(boxed(make)))
    }
}

impl<F: Future<Output: 'static> + 'static> Future for Onward<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        // Taken out: a panic does not come back to it.
        let Some(mut work) = self.0.take() else { return Poll::Pending };
        let polled = work.as_mut().poll(context);
        if polled.is_pending() {
            self.0 = Some(work);
        }
        polled
    }
}

impl<F: Future<Output: 'static> + 'static> Drop for Onward<F> {
    fn drop(&mut self) {
        let Some(work) = self.0.take() else { return };
        // Without a runtime the server is ending, and nobody could go on.
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

    /// How often work has begun and ended, and what lets it on.
    #[derive(Clone, Default)]
    struct Seen {
        begun: Rc<Cell<u32>>,
        let_on: Rc<Notify>,
        ended: Rc<Cell<u32>>,
    }

    impl Seen {
        fn work(&self) -> Onward<impl Future<Output = ()> + use<>> {
            let seen = self.clone();
            Onward::new(|| async move {
                seen.begun.set(seen.begun.get() + 1);
                seen.let_on.notified().await;
                seen.ended.set(seen.ended.get() + 1);
            })
        }

        /// Lets it on; other tasks have their turn, on this one thread.
        async fn after_a_turn(&self) -> (u32, u32) {
            self.let_on.notify_one();
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
            (self.begun.get(), self.ended.get())
        }
    }

    #[test]
    fn what_is_left_in_the_middle_is_done_all_the_same() {
        runtime().block_on(async {
            let seen = Seen::default();
            let mut waited_for = seen.work();
            let mut context = Context::from_waker(Waker::noop());
            assert!(Pin::new(&mut waited_for).poll(&mut context).is_pending());
            drop(waited_for);
            assert_eq!(seen.after_a_turn().await, (1, 1));
        });
    }

    #[test]
    fn what_was_never_waited_for_is_done_too_and_what_is_done_is_not_done_again() {
        runtime().block_on(async {
            let seen = Seen::default();
            drop(seen.work());
            assert_eq!(seen.after_a_turn().await, (1, 1));
            seen.let_on.notify_one();
            seen.work().await;
            assert_eq!(seen.after_a_turn().await, (2, 2));
        });
    }

    #[test]
    fn what_panicked_is_gone() {
        runtime().block_on(async {
            let begun = Rc::new(Cell::new(0));
            let counted = Rc::clone(&begun);
            let mut broken = Onward::new(|| async move {
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
    fn without_a_runtime_it_ends() {
        let seen = Seen::default();
        drop(seen.work());
        assert_eq!((seen.begun.get(), Rc::strong_count(&seen.begun)), (0, 1));
    }
}
