//! The tarpit: delays the responses to failed logins.
//!
//! The response to a wrong password is sent at a fixed time after its request, so that timing does not reveal
//! whether the user exists. The response to a locked-out client is sent later still, so that an immediate
//! retry gains nothing. A delayed response holds a timer and no other resource. The number of delayed
//! responses is limited, so that the memory is bounded; further responses are sent immediately.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The delay of a wrong password: longer than one hash takes on an idle server, and short enough for
/// a user who mistyped.
pub(super) const WRONG_PASSWORD_DELAY: Duration = Duration::from_millis(100);
/// The delay for a locked-out client.
pub(super) const LOCKED_OUT_DELAY: Duration = Duration::from_secs(1);

const WAITING_MAX: usize = 4_096;

/// The delayed responses.
#[derive(Debug, Default)]
pub(super) struct DelayedFailures {
    waiting: AtomicUsize,
}

/// A slot of a delayed response; released with its request.
struct DelaySlot<'p>(&'p DelayedFailures);

impl Drop for DelaySlot<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl DelayedFailures {
    /// Waits until this moment, if there is a free slot.
    pub(super) async fn wait(&self, until: Instant) {
        if let Some(_slot) = self.acquire_slot() {
            tokio::time::sleep_until(until.into()).await;
        }
    }

    fn acquire_slot(&self) -> Option<DelaySlot<'_>> {
        let before = self.waiting.fetch_add(1, Ordering::Relaxed);
        let slot = DelaySlot(self);
        (before < WAITING_MAX).then_some(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tarpit_limits_the_number_of_delayed_responses() {
        let delays = DelayedFailures::default();
        let mut slots: Vec<_> = (0..WAITING_MAX).map(|_| delays.acquire_slot().unwrap()).collect();
        assert!(delays.acquire_slot().is_none());
        assert!(delays.acquire_slot().is_none(), "a response that is not delayed takes no slot");
        slots.pop();
        assert!(delays.acquire_slot().is_some());
        drop(slots);
        assert_eq!(delays.waiting.load(Ordering::Relaxed), 0);
    }
}
