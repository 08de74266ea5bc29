//! Answers to those who guess, held back.
//!
//! A wrong password is answered at a fixed time after its request came, so that the time it took to
//! find out does not show, and with it whether the user exists. Who is shut out is answered later
//! still, so that to ask again at once gains nothing.
//! The one surprising thing: whoever waits holds a timer and nothing that others wait for, and only so
//! many do; the rest are answered at once, so that the memory is bounded.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// When a wrong password is answered: later than one hash takes on a server with nothing to do, and
/// soon enough for somebody who mistyped.
pub(super) const WRONG: Duration = Duration::from_millis(100);
/// When those are answered who are to come back later.
pub(super) const SHUT: Duration = Duration::from_secs(1);

const WAITING_MAX: usize = 4_096;

/// Who waits.
#[derive(Debug, Default)]
pub(super) struct Patience {
    waiting: AtomicUsize,
}

/// One of those who wait; gone with its request.
struct Place<'p>(&'p Patience);

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Patience {
    /// Waits until this moment, if there is room.
    pub(super) async fn wait(&self, until: Instant) {
        if let Some(_place) = self.place() {
            tokio::time::sleep_until(until.into()).await;
        }
    }

    fn place(&self) -> Option<Place<'_>> {
        let before = self.waiting.fetch_add(1, Ordering::Relaxed);
        let place = Place(self);
        (before < WAITING_MAX).then_some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_so_many_wait() {
        let patience = Patience::default();
        let mut places: Vec<_> = (0..WAITING_MAX).map(|_| patience.place().unwrap()).collect();
        assert!(patience.place().is_none());
        assert!(patience.place().is_none(), "one who does not wait takes no place");
        places.pop();
        assert!(patience.place().is_some());
        drop(places);
        assert_eq!(patience.waiting.load(Ordering::Relaxed), 0);
    }
}
