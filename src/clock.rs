//! The clock: every other module gets the time as an argument or from here.
//!
//! Nothing here waits; tokio has the timers. A system clock outside the years 0001 to 9999 reads as 1970, so
//! that a machine with a broken clock still serves.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::value::Moment;

/// The monotonic clock, for durations and deadlines.
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the clock")]
pub fn now() -> Instant {
    Instant::now()
}

/// The wall clock, for dates in HTTP headers.
#[expect(clippy::disallowed_methods, reason = "this is the one place that reads the clock")]
pub fn system_time() -> SystemTime {
    SystemTime::now()
}

/// The wall clock, for timestamps that are stored and logged.
#[expect(clippy::expect_used, reason = "0 is a moment")]
pub fn moment() -> Moment {
    let micros = i64::try_from(since_1970().as_micros()).unwrap_or(0);
    Moment::from_micros(micros).or_else(|| Moment::from_micros(0)).expect("0 is a moment")
}

/// Milliseconds since 1970, for ids that sort by time.
pub fn unix_millis() -> u64 {
    u64::try_from(since_1970().as_millis()).unwrap_or(0)
}

fn since_1970() -> Duration {
    system_time().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_readings_agree() {
        let before = unix_millis();
        let seconds = u64::try_from(moment().seconds()).unwrap();
        let after = unix_millis();
        assert!((before / 1000..=after / 1000).contains(&seconds), "{before} {seconds} {after}");
        assert!(before > 1_600_000_000_000, "milliseconds, not seconds");
    }
}
