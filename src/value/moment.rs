//! Timestamps, in the one spelling that all stored and sent timestamps have.
//!
//! The server formats and parses that spelling for every item of every response, so both are plain arithmetic
//! on its 27 bytes; any other spelling of RFC 3339 is converted to it first. The calendar arithmetic uses
//! years that begin in March, which puts the leap day at the end of the year.

use std::fmt;
use std::ops::Range;

use crate::fault::OrBug as _;

/// A point in time: microseconds since 1970 in UTC, years 0001 to 9999.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(i64);

/// `2026-11-15T02:28:14.000000Z`: fixed length, so that text order is time order.
pub type MomentText = [u8; 27];

/// The form of the canonical spelling; `0` stands for any digit.
const CANONICAL_FORM: &MomentText = b"0000-00-00T00:00:00.000000Z";

const DAY_SECONDS: u32 = 86_400;
/// From 1 March of the year 0 to 1 January of the year 1.
const DAYS_TO_YEAR_1: u32 = 306;
/// Days of 400 years, 100 years, 4 years.
const DAYS_400: u32 = 146_097;
const DAYS_100: u32 = 36_524;
const DAYS_4: u32 = 1_461;

impl Moment {
    /// 9999-12-31T23:59:59.999999Z and 0001-01-01T00:00:00Z.
    const MAX: i64 = 253_402_300_799_999_999;
    const MIN: i64 = -62_135_596_800_000_000;

    pub fn from_micros(micros: i64) -> Option<Self> {
        (Self::MIN..=Self::MAX).contains(&micros).then_some(Self(micros))
    }

    /// Microseconds since 1970.
    pub fn micros(self) -> i64 {
        self.0
    }

    /// The moment this much earlier.
    pub fn checked_sub(self, by: std::time::Duration) -> Option<Self> {
        let by = i64::try_from(by.as_micros()).ok()?;
        self.0.checked_sub(by).and_then(Self::from_micros)
    }

    pub fn checked_add(self, by: std::time::Duration) -> Option<Self> {
        let by = i64::try_from(by.as_micros()).ok()?;
        self.0.checked_add(by).and_then(Self::from_micros)
    }

    /// Seconds and nanoseconds since 1970; zero for earlier moments.
    pub fn since_1970(self) -> (u64, u32) {
        let seconds = u64::try_from(self.seconds()).unwrap_or(0);
        let micros = u32::try_from(self.0.rem_euclid(1_000_000)).unwrap_or(0);
        (seconds, micros * 1_000)
    }

    pub fn seconds(self) -> i64 {
        self.0.div_euclid(1_000_000)
    }

    /// Parses the canonical spelling; `None` for anything else.
    pub fn from_canonical(bytes: &[u8]) -> Option<Self> {
        if !has_form(bytes, CANONICAL_FORM) {
            return None;
        }
        let number = |range: Range<usize>| parse_digits(bytes.get(range).unwrap_or_default());
        let (hour, minute, second) = (number(11..13), number(14..16), number(17..19));
        if hour > 23 || minute > 59 || second > 59 {
            return None;
        }
        let days = days_to_date(number(0..4), number(5..7), number(8..10))?;
        let seconds = i64::from(days) * i64::from(DAY_SECONDS)
            + i64::from(hour * 3_600 + minute * 60 + second);
        Self::from_micros(Self::MIN + seconds * 1_000_000 + i64::from(number(20..26)))
    }

    /// The canonical spelling.
    #[expect(clippy::cast_possible_truncation, reason = "a digit fits")]
    pub fn canonical_text(self) -> MomentText {
        // Counted from the year 1, so that it is never negative.
        let since = u64::try_from(self.0 - Self::MIN).unwrap_or(0);
        let seconds = since / 1_000_000;
        let [micros, days, second] =
            [since % 1_000_000, seconds / u64::from(DAY_SECONDS), seconds % u64::from(DAY_SECONDS)]
                .map(|number| u32::try_from(number).unwrap_or(0));
        let (year, month, day) = date_from_days(days);
        let two = |number: u32| [b'0' + (number / 10) as u8, b'0' + (number % 10) as u8];
        let ([y1, y2], [y3, y4]) = (two(year / 100), two(year % 100));
        let ([o1, o2], [d1, d2]) = (two(month), two(day));
        let [h1, h2] = two(second / 3_600);
        let ([m1, m2], [s1, s2]) = (two(second / 60 % 60), two(second % 60));
        let ([u1, u2], [u3, u4]) = (two(micros / 10_000), two(micros / 100 % 100));
        let [u5, u6] = two(micros % 100);
        [
            y1, y2, y3, y4, b'-', o1, o2, b'-', d1, d2, b'T', h1, h2, b':', m1, m2, b':', s1, s2,
            b'.', u1, u2, u3, u4, u5, u6, b'Z',
        ]
    }

    /// Parses RFC 3339. Refuses more than six decimals unless they are zeros, and second 60 (a leap second
    /// would have to be stored as another moment).
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(moment) = Self::from_canonical(text.as_bytes()) {
            return Some(moment);
        }
        // RFC 3339 §5.6: `T` and `Z` may be lower case; a space instead of `T` is only for display.
        let (date, time) = text.split_at_checked(10)?;
        let (time, zone) = split_zone(time.strip_prefix(['T', 't'])?)?;
        let (time, fraction) = time.split_at_checked(8)?;
        let micros = significant_fraction(fraction)?;
        let local = Self::from_canonical(format!("{date}T{time}.{micros:0<6}Z").as_bytes())?;
        Self::from_micros(local.0 - zone * 1_000_000)
    }
}

/// The days from 1 January of the year 1 to a date; `None` if the date does not exist.
fn days_to_date(year: u32, month: u32, day: u32) -> Option<u32> {
    let is_leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let length = match month {
        4 | 6 | 9 | 11 => 30,
        2 if is_leap => 29,
        2 => 28,
        1..=12 => 31,
        _ => return None,
    };
    if year < 1 || !(1..=length).contains(&day) {
        return None;
    }
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    // Months from March on: 31 30 31 30 31, twice, and the rest.
    let in_year = (153 * month + 2) / 5 + day - 1;
    Some(year * 365 + year / 4 - year / 100 + year / 400 + in_year - DAYS_TO_YEAR_1)
}

/// The year, month and day that is this many days after 1 January of the year 1.
fn date_from_days(days: u32) -> (u32, u32, u32) {
    let days = days + DAYS_TO_YEAR_1;
    let (era, in_era) = (days / DAYS_400, days % DAYS_400);
    let year = (in_era - in_era / (DAYS_4 - 1) + in_era / DAYS_100 - in_era / (DAYS_400 - 1)) / 365;
    let in_year = in_era - (365 * year + year / 4 - year / 100);
    let month = (5 * in_year + 2) / 153;
    let day = in_year - (153 * month + 2) / 5 + 1;
    let (year, month) = (era * 400 + year, month + 3);
    let (year, month) = if month > 12 { (year + 1, month - 12) } else { (year, month) };
    (year, month, day)
}

/// Splits off `Z` or an offset, which it returns in seconds.
fn split_zone(text: &str) -> Option<(&str, i64)> {
    if let Some(time) = text.strip_suffix(['Z', 'z']) {
        return Some((time, 0));
    }
    let (time, offset) = text.split_at_checked(text.len().checked_sub(6)?)?;
    let (sign, offset) = match offset.as_bytes() {
        [b'+', offset @ ..] => (1, offset),
        [b'-', offset @ ..] => (-1, offset),
        _ => return None,
    };
    if !has_form(offset, b"00:00") {
        return None;
    }
    let (hours, minutes) = offset.split_at_checked(2)?;
    let (hours, minutes) = (parse_digits(hours), parse_digits(minutes.get(1..)?));
    (hours < 24 && minutes < 60).then(|| (time, sign * i64::from(hours * 3_600 + minutes * 60)))
}

/// Whether the bytes have a form in which `0` stands for any digit.
fn has_form(bytes: &[u8], form: &[u8]) -> bool {
    let fits = |(byte, form): (&u8, &u8)| match form {
        b'0' => byte.is_ascii_digit(),
        form => byte == form,
    };
    // Without an early exit, so that the compiler can vectorize it.
    bytes.len() == form.len() && bytes.iter().zip(form).fold(true, |all, pair| all & fits(pair))
}

/// The number that ASCII digits are.
fn parse_digits(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0, |number, byte| number * 10 + u32::from(byte - b'0'))
}

/// The significant digits of an optional fraction: at most six, unless only zeros follow.
fn significant_fraction(fraction: &str) -> Option<&str> {
    if fraction.is_empty() {
        return Some("");
    }
    let digits = fraction.strip_prefix('.').filter(|digits| !digits.is_empty())?;
    let (kept, rest) = digits.split_at_checked(6).unwrap_or((digits, ""));
    rest.bytes().all(|b| b == b'0').then_some(kept)
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(str::from_utf8(&self.canonical_text()).or_bug("a timestamp is ASCII"))
    }
}

#[cfg(test)]
mod tests {
    use jiff::tz::Offset;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn moment_formats_canonically_and_parses_rfc_3339() {
        let show = |text: &str| Moment::parse(text).map(|moment| moment.to_string());
        let same = Some("2026-11-15T02:28:14.000000Z".to_owned());
        assert_eq!(show("2026-11-15T02:28:14Z"), same);
        assert_eq!(show("2026-11-15t02:28:14z"), same);
        assert_eq!(show("2026-11-15T03:28:14+01:00"), same);
        assert_eq!(show("2026-11-15T02:28:14.000000000Z"), same);
        assert_eq!(show("1969-12-31T23:59:59.999999Z"), Some("1969-12-31T23:59:59.999999Z".into()));
        assert_eq!(show("0001-01-01T00:00:00Z"), Some("0001-01-01T00:00:00.000000Z".into()));
        assert_eq!(show("9999-12-31T23:59:59.999999Z"), Some("9999-12-31T23:59:59.999999Z".into()));
        assert_eq!(show("2024-02-29T23:30:00.5-00:45"), Some("2024-03-01T00:15:00.500000Z".into()));
        for bad in [
            "2026-11-15T02:28:14",
            "2026-11-15 02:28:14Z",
            "2026-11-15T02:28:60Z",
            "2026-11-15T02:28:14.0000001Z",
            "2026-02-29T00:00:00Z",
            "0000-12-31T23:59:59Z",
            "2026-11-15",
            "2026-11-15T02:28:14+0100",
            "2026-11-15T02:28:14Z[UTC]",
            "2026-11-15T02:28Z",
            "2026-11-15T02Z",
            "2026-11-15T022814Z",
            "2026-11-15T02:28:14,5Z",
            "2026-11-15T02:28:14.Z",
            "2026-11-15T02:28:14+24:00",
            "2026-11-15T02:28:14+23:60",
            "2026-11-15T24:00:00Z",
            "+2026-11-15T02:28:14Z",
            "0000-12-31T23:00:00-02:00",
            "0001-01-01T00:00:00+00:01",
            "9999-12-31T23:59:59-00:01",
            "",
        ] {
            assert_eq!(show(bad), None, "{bad}");
        }
    }

    proptest! {
        /// Checked against the calendar of jiff.
        #[test]
        fn moment_text_agrees_with_jiff(micros in Moment::MIN..=Moment::MAX) {
            let moment = Moment::from_micros(micros).unwrap();
            let text = moment.to_string();
            prop_assert_eq!(Moment::parse(&text), Some(moment));
            // jiff's range ends a little earlier.
            if let Ok(theirs) = jiff::Timestamp::from_microsecond(micros) {
                let civil = Offset::UTC.to_datetime(theirs);
                prop_assert_eq!(text, format!("{}Z", civil.strftime("%Y-%m-%dT%H:%M:%S.%6f")));
            }
        }

        #[test]
        fn moment_parses_equivalent_spellings(
            micros in Moment::MIN + 90_000_000_000..=Moment::MAX - 90_000_000_000,
            minutes in -1439_i32..1440,
        ) {
            let moment = Moment::from_micros(micros).unwrap();
            let local = Moment::from_micros(micros + i64::from(minutes) * 60_000_000).unwrap().to_string();
            let sign = if minutes < 0 { '-' } else { '+' };
            let (hours, rest) = (minutes.abs() / 60, minutes.abs() % 60);
            let text = format!("{}{sign}{hours:02}:{rest:02}", local.trim_end_matches('Z'));
            prop_assert_eq!(Moment::parse(&text), Some(moment));
        }

        #[test]
        fn moment_parse_never_panics(text in "[-+0-9TtZz:.,]{0,32}|\\PC{0,32}") {
            let _ = Moment::parse(&text);
        }
    }
}
