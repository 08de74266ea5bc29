//! How many requests may be under way at once: so many work, so many wait, the rest are told to
//! come back.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use tokio::sync::Semaphore;

use crate::store::StoreError;

/// Guards the store.
#[derive(Debug)]
pub struct Gate {
    places: Semaphore,
    waiting: AtomicUsize,
    waiting_max: usize,
}

impl Gate {
    pub fn new(requests_max: usize) -> Self {
        Self {
            places: Semaphore::new(requests_max),
            waiting: AtomicUsize::new(0),
            waiting_max: requests_max,
        }
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
