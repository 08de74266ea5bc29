//! Estimate of the database's clock, from which every stored time is taken.
//!
//! A server reads the database's time when a connection opens, and once a minute in the maintenance thread,
//! in statements that are sent anyway. In between, the estimate advances by the monotonic clock, so the
//! wall clock of this machine is not used, and a request needs no round trip to know the time. The error
//! is at most half the round trip of the last reading, plus the drift of the monotonic clock since
//! (`DRIFT_PPM`).

use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::clock;
use crate::value::Moment;

/// SQL for the database's time: microseconds since 1970.
pub const DATABASE_MICROS: &str = "(extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

/// The kernel corrects its clock by at most this many microseconds a second.
const DRIFT_PPM: i64 = 500;
/// The offset before the first reading.
const OFFSET_UNKNOWN: i64 = i64::MIN;

/// An estimate of the database's clock; shared by all connections of a server.
#[derive(Debug)]
pub struct DatabaseClock {
    origin: Instant,
    /// The database's time at `origin`, in microseconds since 1970.
    offset: AtomicI64,
    /// The reading that the offset was estimated from.
    best: Mutex<Option<Reading>>,
}

/// One reading of the database's clock, in microseconds.
#[derive(Debug, Clone, Copy)]
struct Reading {
    offset: i64,
    /// The maximum error of the offset.
    error: i64,
    /// Since `origin`.
    at: i64,
}

impl Default for DatabaseClock {
    fn default() -> Self {
        let (origin, offset) = (clock::now(), AtomicI64::new(OFFSET_UNKNOWN));
        Self { origin, offset, best: Mutex::default() }
    }
}

impl DatabaseClock {
    /// The database's time. Before the first reading, which no request can observe, the local time.
    pub fn now(&self) -> Moment {
        let offset = self.offset.load(Ordering::Relaxed);
        let micros = offset.checked_add(self.micros_at(clock::now()));
        let known = micros.filter(|_| offset != OFFSET_UNKNOWN).and_then(Moment::from_micros);
        known.unwrap_or_else(clock::moment)
    }

    /// Records a reading: the query was sent and answered at these instants, and the database's clock showed
    /// `micros` at some instant in between.
    pub fn record_reading(&self, sent_at: Instant, received_at: Instant, micros: i64) {
        let (sent_at, received_at) = (self.micros_at(sent_at), self.micros_at(received_at));
        let error = (received_at - sent_at) / 2;
        let Some(offset) = micros.checked_sub(sent_at + error) else { return };
        let reading = Reading { offset, error, at: received_at };
        let mut best = self.best.lock().unwrap_or_else(PoisonError::into_inner);
        let chosen = best.map_or(reading, |last| last.more_exact(reading));
        *best = Some(chosen);
        self.offset.store(chosen.offset, Ordering::Relaxed);
    }

    fn micros_at(&self, instant: Instant) -> i64 {
        let since: Duration = instant.saturating_duration_since(self.origin);
        i64::try_from(since.as_micros()).unwrap_or(i64::MAX / 4)
    }
}

impl Reading {
    /// The more exact of two readings that agree. If they disagree, the database's clock was set or a
    /// failover happened, and the newer one is right.
    fn more_exact(self, newer: Self) -> Self {
        let drift = newer.at.saturating_sub(self.at).saturating_mul(DRIFT_PPM) / 1_000_000;
        let error = self.error.saturating_add(drift);
        let differ = self.offset.abs_diff(newer.offset);
        let agree = differ <= error.saturating_add(newer.error).unsigned_abs();
        if agree && error < newer.error { Self { error, at: newer.at, ..self } } else { newer }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY_2020: i64 = 1_577_836_800_000_000;

    fn millis(clock: &DatabaseClock, after: u64) -> Instant {
        clock.origin + Duration::from_millis(after)
    }

    fn offset(clock: &DatabaseClock) -> i64 {
        clock.offset.load(Ordering::Relaxed) - DAY_2020
    }

    #[test]
    fn database_clock_before_a_reading_is_the_local_one() {
        let local = clock::moment().seconds();
        let seconds = DatabaseClock::default().now().seconds();
        assert!((local..=local + 10).contains(&seconds), "{seconds} {local}");
    }

    #[test]
    fn database_clock_reading_is_dated_at_the_midpoint_of_its_round_trip() {
        let clock = DatabaseClock::default();
        clock.record_reading(millis(&clock, 100), millis(&clock, 120), DAY_2020);
        assert_eq!(offset(&clock), -110_000);
        let now = clock.now().micros() - DAY_2020;
        assert!((-110_000..60_000_000).contains(&now), "{now}");
    }

    #[test]
    fn database_clock_keeps_the_more_exact_reading_while_both_agree() {
        let clock = DatabaseClock::default();
        clock.record_reading(millis(&clock, 0), millis(&clock, 2), DAY_2020);
        clock.record_reading(millis(&clock, 1_000), millis(&clock, 1_400), DAY_2020 + 1_100_000);
        assert_eq!(offset(&clock), -1_000);
        clock.record_reading(millis(&clock, 2_000), millis(&clock, 2_001), DAY_2020 + 2_000_000);
        assert_eq!(offset(&clock), -500);
    }

    #[test]
    fn database_clock_that_was_set_is_followed() {
        let clock = DatabaseClock::default();
        clock.record_reading(millis(&clock, 0), millis(&clock, 2), DAY_2020);
        let hour = 3_600_000_000;
        clock.record_reading(millis(&clock, 1_000), millis(&clock, 1_400), DAY_2020 - hour);
        assert_eq!(offset(&clock), -hour - 1_200_000);
    }
}
