//! Memory that is counted until its last holder lets go of it.
//!
//! How much may be held, and who is refused, is the gate's to say.
//! The one surprising thing: a reservation is shared between a request and the work it started, because that
//! work goes on when the client resets the stream or closes the connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// So many bytes of a counter, given back when it is dropped.
#[derive(Debug)]
pub struct Reservation {
    counter: Arc<AtomicUsize>,
    bytes: usize,
}

impl Reservation {
    /// Takes over bytes that the counter already has.
    pub fn of_counted(counter: &Arc<AtomicUsize>, bytes: usize) -> Arc<Self> {
        Arc::new(Self { counter: Arc::clone(counter), bytes })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.counter.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}
