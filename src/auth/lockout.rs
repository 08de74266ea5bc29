//! The lockout: after a number of failed logins of one user from one address in a minute, that pair is locked
//! out until the minute is over, also with the correct password; and the tarpit, which delays the responses
//! to failed logins.
//!
//! Whether the user exists makes no difference to either. Authenticated callers are not checked. The memory
//! of the counts is fixed (`rate_window`).
//!
//! The response to a wrong password is sent at a fixed time after its request, so that timing does not reveal
//! whether the user exists. The response to a locked-out client is sent later still, so that an immediate
//! retry gains nothing. A delayed response holds a timer and no other resource. The number of delayed
//! responses is limited, so that the memory is bounded; further responses are sent immediately.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use tokio::sync::Semaphore;

use crate::rate_window::{FixedWindowCounters, network};

/// The delay of a wrong password: longer than one hash takes on an idle server, and short enough for
/// a user who mistyped.
pub(super) const WRONG_PASSWORD_DELAY: Duration = Duration::from_millis(100);
/// The delay for a locked-out client.
pub(super) const LOCKED_OUT_DELAY: Duration = Duration::from_secs(1);

const WINDOW: Duration = Duration::from_secs(60);
/// The maximum of delayed responses.
const DELAYED_MAX: usize = 4_096;

/// Failed logins of the last minute, and the delayed responses to them.
#[derive(Debug)]
pub struct Lockout {
    failures_max: u32,
    failures: FixedWindowCounters,
    delays: Semaphore,
}

impl Lockout {
    pub fn new(failures_max: u32, now: Instant) -> Self {
        let (failures, delays) = (FixedWindowCounters::new(now), Semaphore::new(DELAYED_MAX));
        Self { failures_max, failures, delays }
    }

    /// How long this pair is locked out, if it is.
    pub fn locked_out_for(&self, name: &str, address: IpAddr, now: Instant) -> Option<Duration> {
        let seen = self.failures.state((name, network(address)), now)?;
        (seen.count >= self.failures_max).then_some(seen.remaining)
    }

    /// Counts a failure, if the limit allows one more; if not, returns how long this pair is locked out.
    /// Atomic with respect to concurrent counts.
    pub fn count_failure(&self, name: &str, address: IpAddr, now: Instant) -> Result<(), Duration> {
        let counted =
            self.failures.count((name, network(address)), (self.failures_max, WINDOW), now);
        counted.map(drop).map_err(|seen| seen.remaining)
    }

    /// Uncounts a failure, when the guess turned out to be correct.
    pub fn take_back(&self, name: &str, address: IpAddr, now: Instant) {
        self.failures.take_back((name, network(address)), now);
    }

    /// Waits until this moment, if there is a slot for one more delayed response.
    pub async fn delay(&self, until: Instant) {
        if let Ok(_slot) = self.delays.try_acquire() {
            tokio::time::sleep_until(until.into()).await;
        }
    }
}

#[cfg(test)]
mod tests;
