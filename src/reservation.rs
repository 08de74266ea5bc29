//! Shared memory reservations: bytes that stay reserved until their last holder drops them.
//!
//! Admission control decides how much may be reserved, and whom to refuse. A request shares its reservation
//! with the work that it started, because that work continues when the client resets the stream or closes the
//! connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A number of bytes of a counter, subtracted when it is dropped.
#[derive(Debug)]
pub struct SharedReservation {
    counter: Arc<AtomicUsize>,
    bytes: AtomicUsize,
}

impl SharedReservation {
    /// Takes over bytes that are in the counter already.
    pub fn from_counted(counter: &Arc<AtomicUsize>, bytes: usize) -> Arc<Self> {
        Arc::new(Self { counter: Arc::clone(counter), bytes: AtomicUsize::new(bytes) })
    }

    /// Takes over more of them.
    pub fn add_counted(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl Drop for SharedReservation {
    fn drop(&mut self) {
        self.counter.fetch_sub(*self.bytes.get_mut(), Ordering::Relaxed);
    }
}
