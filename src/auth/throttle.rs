//! The login throttle: after a number of failed logins of one user from one address in a minute, that pair is
//! locked out until the minute is over, also with the correct password.
//!
//! Whether the user exists makes no difference. There is no clock here, and authenticated callers are not
//! checked. The memory is fixed (`rate_window`).

use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::rate_window::{FixedWindowCounters, network};

const WINDOW: Duration = Duration::from_secs(60);

/// Failed logins of the last minute.
#[derive(Debug)]
pub struct LoginThrottle {
    failures_max: u32,
    failures: FixedWindowCounters,
}

impl LoginThrottle {
    pub fn new(failures_max: u32, now: Instant) -> Self {
        Self { failures_max, failures: FixedWindowCounters::new(now) }
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
}

#[cfg(test)]
mod tests;
