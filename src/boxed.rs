//! Futures that are made where they stay.
//!
//! `Box::pin(work())` first makes the work on the stack, with all the room that it will ever need, and then
//! copies all of it: its parts must still be dropped if there is no memory for the box.
//! The one surprising thing: here the box comes first, and with that the compiler sees that nothing but
//! the arguments of the work has to be written.

use std::pin::Pin;

pub fn boxed<F: Future>(make: impl FnOnce() -> F) -> Pin<Box<F>> {
    Box::into_pin(Box::write(Box::new_uninit(), make()))
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn it_is_the_same_work() {
        let words = "seven".to_owned();
        let mut work = boxed(|| async move { words.len() });
        let polled = work.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(polled, Poll::Ready(5));
    }
}
