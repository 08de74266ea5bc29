//! Points in time, in the one spelling that every stored and sent timestamp has.
//!
//! That spelling is written and read for every item of every answer, so both are plain arithmetic on
//! its 27 bytes; any other spelling of RFC 3339 is first brought into it. The days are counted in
//! years that begin in March, which puts the leap day at the end of the year.

use std::fmt;

/// A point in time: microseconds since 1970 in UTC, years 0001 to 9999.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(i64);

/// `2026-11-15T02:28:14.000000Z`: always so long, so that text order is time order.
pub type MomentText = [u8; 27];

const LAYOUT: MomentText = *b"0000-00-00T00:00:00.000000Z";
/// Where the year, the month, the day and so on stand, and with how many digits.
const PLACES: [(usize, usize); 7] = [(0, 4), (5, 2), (8, 2), (11, 2), (14, 2), (17, 2), (20, 6)];

const DAY_SECONDS: i64 = 86_400;
/// From 1 March of the year 0 to 1 January 1970.
const DAYS_TO_1970: i64 = 719_468;
/// Days of 400 years, 100 years, 4 years.
const DAYS_400: i64 = 146_097;
const DAYS_100: i64 = 36_524;
const DAYS_4: i64 = 1_461;

impl Moment {
    /// 9999-12-31T23:59:59.999999Z and 0001-01-01T00:00:00Z.
    const MAX: i64 = 253_402_300_799_999_999;
    const MIN: i64 = -62_135_596_800_000_000;

    pub fn from_micros(micros: i64) -> Option<Self> {
        (Self::MIN..=Self::MAX).contains(&micros).then_some(Self(micros))
    }

    /// So long before this moment.
    pub fn earlier(self, by: std::time::Duration) -> Option<Self> {
        let by = i64::try_from(by.as_micros()).ok()?;
        self.0.checked_sub(by).and_then(Self::from_micros)
    }

    /// Seconds and nanoseconds since 1970; nothing before that.
    pub fn since_1970(self) -> (u64, u32) {
        let seconds = u64::try_from(self.seconds()).unwrap_or(0);
        let micros = u32::try_from(self.0.rem_euclid(1_000_000)).unwrap_or(0);
        (seconds, micros * 1_000)
    }

    pub fn seconds(self) -> i64 {
        self.0.div_euclid(1_000_000)
    }

    /// Reads the one spelling; anything else is `None`, whatever it is.
    fn parse_own(text: &str) -> Option<Self> {
        let bytes: &MomentText = text.as_bytes().try_into().ok()?;
        let mut parts = [0; 7];
        for (part, (at, digits)) in parts.iter_mut().zip(PLACES) {
            for byte in bytes.iter().skip(at).take(digits) {
                let digit = byte.wrapping_sub(b'0');
                if digit > 9 {
                    return None;
                }
                *part = *part * 10 + i64::from(digit);
            }
        }
        let moment = Self::from_parts(parts)?;
        // Says at once that the separators are right and that there is such a day.
        (moment.text() == *bytes).then_some(moment)
    }

    fn from_parts([year, month, day, hour, minute, second, micros]: [i64; 7]) -> Option<Self> {
        if year < 1
            || !(1..=12).contains(&month)
            || day < 1
            || hour > 23
            || minute > 59
            || second > 59
        {
            return None;
        }
        let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
        let in_era = year.rem_euclid(400);
        // Months from March on: 31 30 31 30 31, twice, and what is left.
        let in_year = (153 * month + 2) / 5 + day - 1;
        let days =
            year.div_euclid(400) * DAYS_400 + in_era * 365 + in_era / 4 - in_era / 100 + in_year;
        let seconds = (days - DAYS_TO_1970) * DAY_SECONDS + hour * 3_600 + minute * 60 + second;
        Self::from_micros(seconds * 1_000_000 + micros)
    }

    /// The one spelling.
    pub fn text(self) -> MomentText {
        let (seconds, micros) = (self.0.div_euclid(1_000_000), self.0.rem_euclid(1_000_000));
        let (days, second) =
            (seconds.div_euclid(DAY_SECONDS) + DAYS_TO_1970, seconds.rem_euclid(DAY_SECONDS));
        let (era, in_era) = (days.div_euclid(DAYS_400), days.rem_euclid(DAYS_400));
        let year =
            (in_era - in_era / (DAYS_4 - 1) + in_era / DAYS_100 - in_era / (DAYS_400 - 1)) / 365;
        let in_year = in_era - (365 * year + year / 4 - year / 100);
        let month = (5 * in_year + 2) / 153;
        let day = in_year - (153 * month + 2) / 5 + 1;
        let (year, month) = (era * 400 + year, month + 3);
        let (year, month) = if month > 12 { (year + 1, month - 12) } else { (year, month) };
        let parts = [year, month, day, second / 3_600, second / 60 % 60, second % 60, micros];
        let mut text = LAYOUT;
        for (mut part, (at, digits)) in parts.into_iter().zip(PLACES) {
            for byte in text.iter_mut().skip(at).take(digits).rev() {
                *byte = b'0' + u8::try_from(part % 10).unwrap_or(0);
                part /= 10;
            }
        }
        text
    }

    /// Reads RFC 3339. More than six decimals are refused unless they are zeros, and so is second
    /// 60 (a leap second would have to be stored as another moment).
    pub fn parse(text: &str) -> Option<Self> {
        if let Some(moment) = Self::parse_own(text) {
            return Some(moment);
        }
        // RFC 3339 §5.6: `T` and `Z` may be lower case; the form with a space is for people.
        let (date, time) = text.split_at_checked(10)?;
        let (time, zone) = split_zone(time.strip_prefix(['T', 't'])?)?;
        let (time, fraction) = time.split_at_checked(8)?;
        let micros = six_digits(fraction)?;
        let local = Self::parse_own(&format!("{date}T{time}.{micros:0<6}Z"))?;
        Self::from_micros(local.0 - zone * 1_000_000)
    }
}

/// Takes off `Z` or an offset; it comes back in seconds.
fn split_zone(text: &str) -> Option<(&str, i64)> {
    if let Some(time) = text.strip_suffix(['Z', 'z']) {
        return Some((time, 0));
    }
    let (time, offset) = text.split_at_checked(text.len().checked_sub(6)?)?;
    let [sign, h1, h2, b':', m1, m2] = offset.as_bytes() else { return None };
    let number = |ten: &u8, one: &u8| {
        let is_number = ten.is_ascii_digit() && one.is_ascii_digit();
        is_number.then(|| i64::from(ten - b'0') * 10 + i64::from(one - b'0'))
    };
    let hours = number(h1, h2).filter(|hours| *hours < 24)?;
    let minutes = number(m1, m2).filter(|minutes| *minutes < 60)?;
    match sign {
        b'+' => Some((time, hours * 3_600 + minutes * 60)),
        b'-' => Some((time, -hours * 3_600 - minutes * 60)),
        _ => None,
    }
}

/// What counts of a fraction, from nothing or a point and digits: at most six, unless zeros follow.
fn six_digits(fraction: &str) -> Option<&str> {
    if fraction.is_empty() {
        return Some("");
    }
    let digits = fraction.strip_prefix('.').filter(|digits| !digits.is_empty())?;
    let (kept, rest) = digits.split_at_checked(6).unwrap_or((digits, ""));
    rest.bytes().all(|b| b == b'0').then_some(kept)
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The text is ASCII.
        f.write_str(str::from_utf8(&self.text()).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use jiff::tz::Offset;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn moments_have_one_spelling_out_and_rfc_3339_in() {
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
        /// The calendar of another library is the judge.
        #[test]
        fn every_moment_is_spelled_as_the_calendar_says(micros in Moment::MIN..=Moment::MAX) {
            let moment = Moment::from_micros(micros).unwrap();
            let text = moment.to_string();
            prop_assert_eq!(Moment::parse(&text), Some(moment));
            // The other library's range ends a little earlier.
            if let Ok(theirs) = jiff::Timestamp::from_microsecond(micros) {
                let civil = Offset::UTC.to_datetime(theirs);
                prop_assert_eq!(text, format!("{}Z", civil.strftime("%Y-%m-%dT%H:%M:%S.%6f")));
            }
        }

        #[test]
        fn other_spellings_mean_the_same(
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
        fn never_panics(text in "[-+0-9TtZz:.,]{0,32}|\\PC{0,32}") {
            let _ = Moment::parse(&text);
        }
    }
}
