//! How much may be under way at once: so many requests work, so many wait, and their bodies take up so
//! much memory; the rest are told to come back.

use std::cell::Cell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use tokio::sync::Semaphore;

use crate::store::StoreError;

/// What all bodies together may take up in memory.
const BODY_BYTES_MAX: usize = 256 << 20;

/// Guards the store, and the memory.
#[derive(Debug)]
pub struct Gate {
    body_bytes: AtomicUsize,
    places: Semaphore,
    waiting: AtomicUsize,
    waiting_max: usize,
}

impl Gate {
    pub fn new(requests_max: usize) -> Self {
        Self {
            body_bytes: AtomicUsize::new(0),
            places: Semaphore::new(requests_max),
            waiting: AtomicUsize::new(0),
            waiting_max: requests_max,
        }
    }

    /// Room for the body of one request, to be asked for as it arrives.
    pub fn room(&self) -> Room<'_> {
        Room { gate: self, bytes: Cell::new(0) }
    }

    /// Does the work as soon as there is a place for it, if there is one before the deadline.
    pub async fn pass<T>(
        &self,
        deadline: Instant,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let _place = match self.places.try_acquire() {
            Ok(place) => place,
            Err(_) => self.wait(deadline).await?,
        };
        crate::fault::point("gate");
        work.await
    }

    async fn wait(
        &self,
        deadline: Instant,
    ) -> Result<tokio::sync::SemaphorePermit<'_>, StoreError> {
        let _seat = Seat::take(self)?;
        match tokio::time::timeout_at(deadline.into(), self.places.acquire()).await {
            Ok(Ok(place)) => Ok(place),
            Ok(Err(_)) | Err(_) => Err(StoreError::Busy),
        }
    }
}

/// What one body takes up; given back when its request ends.
#[derive(Debug)]
pub struct Room<'a> {
    gate: &'a Gate,
    bytes: Cell<usize>,
}

impl Room<'_> {
    /// False when all bodies together have taken up what there is.
    pub fn take(&self, bytes: usize) -> bool {
        self.bytes.set(self.bytes.get() + bytes);
        self.gate.body_bytes.fetch_add(bytes, Ordering::Relaxed) + bytes <= BODY_BYTES_MAX
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        self.gate.body_bytes.fetch_sub(self.bytes.get(), Ordering::Relaxed);
    }
}

/// A place in the queue; given back also when the client leaves.
struct Seat<'a>(&'a Gate);

impl<'a> Seat<'a> {
    fn take(gate: &'a Gate) -> Result<Self, StoreError> {
        let seat = Self(gate);
        if gate.waiting.fetch_add(1, Ordering::Relaxed) < gate.waiting_max {
            Ok(seat)
        } else {
            Err(StoreError::Busy)
        }
    }
}

impl Drop for Seat<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_share_their_room_and_give_it_back() {
        let gate = Gate::new(1);
        let large = gate.room();
        assert!(large.take(BODY_BYTES_MAX - 10));
        let small = gate.room();
        assert!(small.take(10));
        assert!(!small.take(1));
        drop(large);
        assert!(small.take(1));
        drop(small);
        assert_eq!(gate.body_bytes.load(Ordering::Relaxed), 0);
    }
}
