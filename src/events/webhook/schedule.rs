//! When a failed delivery is tried again: exponential backoff with jitter, over three days.
//!
//! Pure. The number of attempts is fixed, so that nothing but the number of failed ones has to be stored.

use std::time::{Duration, SystemTime};

const SECOND: u64 = 1;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;

/// The delay after each failed attempt; after the last one the delivery is dead. Together about 72 hours.
const DELAYS: [u64; 13] = [
    5 * SECOND,
    30 * SECOND,
    2 * MINUTE,
    10 * MINUTE,
    30 * MINUTE,
    HOUR,
    2 * HOUR,
    4 * HOUR,
    8 * HOUR,
    12 * HOUR,
    12 * HOUR,
    12 * HOUR,
    20 * HOUR,
];

/// A receiver cannot ask for a longer delay.
const RETRY_AFTER_MAX: Duration = Duration::from_secs(6 * HOUR);

/// The delay after an attempt that failed; `None`: it was the last one. `tries` are the failed attempts before it,
/// `random` is any number, and `asked` is what the receiver asked for.
pub fn retry_delay(tries: i64, random: u64, asked: Option<Duration>) -> Option<Duration> {
    let delay = *DELAYS.get(usize::try_from(tries).unwrap_or(0))?;
    // Jitter of a quarter to both sides, so that deliveries that failed together do not return together.
    let thousandths = 750 + random % 501;
    let delay = Duration::from_millis(delay * thousandths);
    Some(asked.map_or(delay, |asked| delay.max(asked.min(RETRY_AFTER_MAX))))
}

/// The value of `Retry-After` (RFC 9110 §10.2.3): seconds, or a date.
pub fn parse_retry_after(text: &str, now: SystemTime) -> Option<Duration> {
    let text = text.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // More digits than a number has are a long time too.
        return Some(text.parse().map_or(RETRY_AFTER_MAX, Duration::from_secs));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    Some(date.duration_since(now).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn retry_delays_grow_and_end_after_three_days() {
        let total: u64 = DELAYS.iter().sum();
        assert!((71 * HOUR..=72 * HOUR).contains(&total), "{total}");
        assert!(DELAYS.is_sorted());
        for (tries, delay) in DELAYS.iter().enumerate() {
            let tries = i64::try_from(tries).unwrap();
            for random in [0, 1, 250, 500, u64::MAX] {
                let got = retry_delay(tries, random, None).unwrap().as_millis();
                let expected = u128::from(*delay) * 1000;
                assert!(
                    (expected * 3 / 4..=expected * 5 / 4).contains(&got),
                    "{tries} {random} {got}"
                );
            }
        }
        assert_eq!(retry_delay(13, 0, None), None);
        assert_eq!(retry_delay(13, 0, Some(Duration::from_secs(1))), None);
    }

    #[test]
    fn retry_after_is_respected_within_bounds() {
        let [second, hour, day] = [1, HOUR, 24 * HOUR].map(Duration::from_secs);
        assert_eq!(retry_delay(0, 250, Some(second)), Some(Duration::from_secs(5)));
        assert_eq!(retry_delay(0, 250, Some(hour)), Some(hour));
        assert_eq!(retry_delay(0, 250, Some(day)), Some(RETRY_AFTER_MAX));
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now = UNIX_EPOCH + Duration::from_secs(1_794_885_600);
        let parse = |text: &str| parse_retry_after(text, now);
        assert_eq!(parse(" 120 "), Some(Duration::from_secs(120)));
        assert_eq!(parse(&"9".repeat(30)), Some(RETRY_AFTER_MAX));
        let date = httpdate::fmt_http_date(now + Duration::from_secs(60));
        assert_eq!(parse(&date), Some(Duration::from_secs(60)));
        let date = httpdate::fmt_http_date(now - Duration::from_secs(60));
        assert_eq!(parse(&date), Some(Duration::ZERO));
        for bad in ["", "-1", "1.5", "soon", "é"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
