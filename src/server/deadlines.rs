//! The deadlines of connections, and the clock that measures them.
//!
//! The sweep of a worker advances the clock by a fixed interval; a request reads no clock and sets no timer.
//! The clock stands still while the event loop stalls, so that the server's delay is not counted as the
//! client's: what has arrived meanwhile is read before a deadline can pass. For the same reason these are not
//! timers of tokio. Memory pressure shortens deadlines too, and a timer for each connection would have to be
//! set again when it rises.

use std::time::Duration;

use crate::model::settings::ServerLimits;

/// How often the sweep runs.
pub(super) const SWEEP_INTERVAL: Duration = Duration::from_millis(250);

/// The deadline of large heads and responses under memory pressure.
const PRESSURE_TIMEOUT: Duration = Duration::from_secs(2);

/// How long the rest of a head or handshake may still arrive during a shutdown.
const STOP_GRACE: Duration = Duration::from_secs(1);

/// The time of a worker: the number of its sweeps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SweepTime(u64);

impl SweepTime {
    /// The time of the next sweep.
    pub(super) fn next(self) -> Self {
        Self(self.0 + 1)
    }

    pub(super) fn sweeps_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The time that has passed for certain: an event between two sweeps counts from the second one. So a
    /// deadline is never early, and late by one interval at most.
    pub(super) fn age(self, event: Self) -> Duration {
        let whole = self.sweeps_since(event).saturating_sub(1);
        SWEEP_INTERVAL.saturating_mul(u32::try_from(whole).unwrap_or(u32::MAX))
    }
}

/// How long a connection may stay in a phase (`ConnectionPhase`).
#[derive(Debug, Clone, Copy)]
pub(super) struct Deadlines {
    pub(super) handshake: Duration,
    pub(super) head: Duration,
    pub(super) idle: Duration,
    /// Without progress of the response that is sent.
    pub(super) sending: Duration,
    /// For large heads and responses under memory pressure, and for handshakes over their soft limit.
    pub(super) under_pressure: Duration,
    /// For connections without a request in flight, during a shutdown.
    pub(super) shutdown: Duration,
    /// For connections on which nothing has arrived, during a shutdown: a client sends its first request at once.
    pub(super) silent_shutdown: Duration,
}

impl Deadlines {
    pub(super) fn from_limits(limits: &ServerLimits) -> Self {
        let seconds = |seconds: u32| Duration::from_secs(seconds.into());
        Self {
            handshake: seconds(limits.handshake_seconds_max),
            head: seconds(limits.header_seconds_max),
            idle: seconds(limits.idle_seconds_max),
            sending: seconds(limits.send_seconds_max),
            under_pressure: PRESSURE_TIMEOUT,
            shutdown: STOP_GRACE,
            silent_shutdown: SWEEP_INTERVAL,
        }
    }

    /// A deadline that memory pressure may shorten.
    pub(super) fn hurried(&self, limit: Duration, is_hurried: bool) -> Duration {
        if is_hurried { limit.min(self.under_pressure) } else { limit }
    }

    /// How long a client may take to read a response of this size: after the stall timeout it must read at a
    /// minimum rate.
    pub(super) fn reading(&self, bytes: usize) -> Duration {
        // 32 KiB a second.
        const BYTES_PER_SWEEP_MIN: usize = 8 << 10;
        let sweeps = u32::try_from(bytes / BYTES_PER_SWEEP_MIN).unwrap_or(u32::MAX);
        self.sending.saturating_add(SWEEP_INTERVAL.saturating_mul(sweeps))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sweep_time_age_counts_whole_intervals_only() {
        let event = SweepTime::default();
        let (first, third) = (event.next(), event.next().next().next());
        assert_eq!(event.age(event), Duration::ZERO);
        assert_eq!(first.age(event), Duration::ZERO, "the event was just before the sweep, maybe");
        assert_eq!(third.age(event), 2 * SWEEP_INTERVAL);
        assert_eq!(event.age(third), Duration::ZERO);
        assert_eq!(SweepTime(u64::MAX).age(event), SWEEP_INTERVAL * u32::MAX);
    }

    #[test]
    fn deadline_of_a_response_grows_with_its_size() {
        let second = Duration::from_secs(1);
        let limits = Deadlines {
            handshake: second,
            head: second,
            idle: second,
            sending: 6 * second,
            under_pressure: second,
            shutdown: second,
            silent_shutdown: second,
        };
        assert_eq!(limits.reading(0), 6 * second);
        assert_eq!(limits.reading((8 << 10) - 1), 6 * second);
        assert_eq!(limits.reading(8 << 10), 6 * second + SWEEP_INTERVAL);
        assert_eq!(limits.reading(64 << 10), 8 * second);
        assert!(limits.reading(usize::MAX) > 8 * second);
    }
}
