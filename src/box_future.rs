//! Boxing of a future in place, so that a large future is not built on the stack and then copied.
//!
//! `Box::pin(work())` first builds the future on the stack, at its full size, and then copies it: its parts
//! must still be dropped if there is no memory for the box. Allocating the box first lets the compiler write
//! only the arguments of the future.

use std::pin::Pin;

pub fn box_future<F: Future>(make: impl FnOnce() -> F) -> Pin<Box<F>> {
    Box::into_pin(Box::write(Box::new_uninit(), make()))
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn box_future_runs_the_same_future() {
        let words = "seven".to_owned();
        let mut work = box_future(|| async move { words.len() });
        let polled = work.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(polled, Poll::Ready(5));
    }
}
