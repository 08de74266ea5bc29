//! Lossless conversion of JSON numbers from their text: to an integer, a decimal or a double.
//!
//! Every conversion starts from the exact decimal value of the text, so `1`, `1.0` and `10e-1` are the same
//! number. No number is ever expanded, so `1e999999999` costs no more than its length.

use crate::value::INTEGER_MAX;

/// Maximum digits in the units of a decimal.
const DECIMAL_DIGITS_MAX: i64 = 18;

/// Larger exponents are clamped. No text is long enough to bring such a number back into range.
const EXPONENT_MAX: i64 = 1_000_000_000_000_000;

/// The double that a JSON number stands for, if the text has no more precision than the double keeps: it must
/// equal the double's shortest representation, or its representation with 17 significant digits, which C's
/// `%.17g` prints.
pub fn parse_exact_double(text: &str) -> Option<f64> {
    let sent = ExactNumber::read(text)?;
    let number: f64 = text.parse().ok()?;
    if !number.is_finite() {
        return None;
    }
    let is_sent = |spelling: &str| ExactNumber::read(spelling) == Some(sent);
    let lossless = is_sent(zmij::Buffer::new().format_finite(number))
        // Two shortest representations can be equally near (…584.25 as .2 or .3); this accepts the other one.
        || is_sent(&format!("{number:e}"))
        || is_sent(&format!("{number:.16e}"));
    lossless.then_some(number)
}

/// The integer that a JSON number stands for, in any spelling, within ±(2^53 - 1).
pub fn parse_integer(text: &str) -> Option<i64> {
    let exact = ExactNumber::read(text)?;
    exact.scaled_integer(0, 16).filter(|number| (-INTEGER_MAX..=INTEGER_MAX).contains(number))
}

/// The units of a decimal with `scale` decimal places. Further places must be zeros.
pub fn parse_decimal_units(text: &str, scale: u8) -> Option<i64> {
    ExactNumber::read(text)?.scaled_integer(i64::from(scale), DECIMAL_DIGITS_MAX)
}

/// Whether two number texts have the same value.
pub fn is_same_number(one: &str, other: &str) -> bool {
    let (one, other) = (ExactNumber::read(one), ExactNumber::read(other));
    one.zip(other).is_some_and(|(one, other)| one == other || (one.is_zero() && other.is_zero()))
}

/// Whether a text, such as the content of a string, is a valid JSON number.
pub fn is_number(text: &str) -> bool {
    ExactNumber::read(text).is_some()
}

/// The normalized value of a number text: the digits of `head` and `tail` together, times 10^`power`. The
/// digits neither begin nor end with a zero, so equal values have equal digits and powers; zero has no
/// digits.
#[derive(Debug, Clone, Copy)]
struct ExactNumber<'a> {
    negative: bool,
    head: &'a str,
    tail: &'a str,
    power: i64,
}

impl<'a> ExactNumber<'a> {
    /// `None` unless the whole text is a JSON number.
    fn read(text: &'a str) -> Option<Self> {
        let pieces = NumberParts::read(text).ok()?;
        if pieces.length != text.len() {
            return None;
        }
        let mut head = pieces.whole.trim_start_matches('0');
        let mut tail = pieces.fraction.trim_end_matches('0');
        let mut power = parse_exponent(pieces.exponent).saturating_sub_unsigned(digit_count(tail));
        if tail.is_empty() {
            let trimmed = head.trim_end_matches('0');
            power = power.saturating_add_unsigned(digit_count(head) - digit_count(trimmed));
            head = trimmed;
        }
        if head.is_empty() {
            tail = tail.trim_start_matches('0');
        }
        if head.is_empty() && tail.is_empty() {
            power = 0;
        }
        Some(Self { negative: pieces.negative, head, tail, power })
    }

    fn digits(self) -> impl Iterator<Item = u8> {
        self.head.bytes().chain(self.tail.bytes())
    }

    fn is_zero(self) -> bool {
        self.digits().next().is_none()
    }

    /// The value times 10^`places`, if that is an integer of at most `digits_max` digits (up to 18).
    fn scaled_integer(self, places: i64, digits_max: i64) -> Option<i64> {
        let power = self.power + places;
        let count = i64::try_from(digit_count(self.head) + digit_count(self.tail)).ok()?;
        if count == 0 {
            return Some(0);
        }
        if power < 0 || count + power > digits_max {
            return None;
        }
        let digits = self.digits().fold(0, |sum: i64, digit| sum * 10 + i64::from(digit - b'0'));
        let units = digits * 10_i64.pow(u32::try_from(power).ok()?);
        Some(if self.negative { -units } else { units })
    }
}

/// -0 and 0 are not the same: they are different doubles.
impl PartialEq for ExactNumber<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.negative == other.negative
            && self.power == other.power
            && self.digits().eq(other.digits())
    }
}

fn digit_count(digits: &str) -> u64 {
    digits.len() as u64
}

/// Parses the digits of an exponent with their sign; an empty text is 0.
fn parse_exponent(text: &str) -> i64 {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let size = digits
        .bytes()
        .fold(0, |sum: i64, digit| (sum * 10 + i64::from(digit - b'0')).min(EXPONENT_MAX));
    if negative { -size } else { size }
}

/// The syntactic parts of a number (RFC 8259 §6).
#[derive(Debug)]
pub struct NumberParts<'a> {
    negative: bool,
    whole: &'a str,
    fraction: &'a str,
    /// With its sign, without the `e`.
    exponent: &'a str,
    pub length: usize,
}

/// The position at which a text stops being a number, and what was expected there.
#[derive(Debug, PartialEq, Eq)]
pub struct NotANumber {
    pub offset: usize,
    pub expected: &'static str,
}

impl<'a> NumberParts<'a> {
    /// Parses the number at the start of `text`; more may follow it.
    pub fn read(text: &'a str) -> Result<Self, NotANumber> {
        let unsigned = text.strip_prefix('-').unwrap_or(text);
        let (whole, mut rest) = split_digits(unsigned);
        let stop =
            |rest: &str, expected| Err(NotANumber { offset: text.len() - rest.len(), expected });
        if whole.is_empty() {
            return stop(rest, "a digit");
        }
        // RFC 8259 §6: leading zeros are not allowed.
        if whole.len() > 1 && whole.starts_with('0') {
            return stop(unsigned.get(1..).unwrap_or_default(), "no digit after a leading 0");
        }
        let mut fraction = "";
        if let Some(after) = rest.strip_prefix('.') {
            (fraction, rest) = split_digits(after);
            if fraction.is_empty() {
                return stop(rest, "a digit after the point");
            }
        }
        let mut exponent = "";
        if let Some(after) = rest.strip_prefix(['e', 'E']) {
            let (power, end) = split_digits(after.strip_prefix(['+', '-']).unwrap_or(after));
            if power.is_empty() {
                return stop(end, "a digit of the exponent");
            }
            exponent = after.get(..after.len() - end.len()).unwrap_or_default();
            rest = end;
        }
        let negative = unsigned.len() < text.len();
        Ok(Self { negative, whole, fraction, exponent, length: text.len() - rest.len() })
    }
}

/// The digits at the start of `text`, and the rest.
fn split_digits(text: &str) -> (&str, &str) {
    let end = text.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn json_number_exact_refuses_lossy_doubles() {
        for (text, number) in [
            ("0", 0.0),
            ("-0", -0.0),
            ("0e99999999999999999999", 0.0),
            ("0.1", 0.1),
            ("1E-1", 0.1),
            ("0.10000000000000001", 0.1),
            ("0.100000000000000010000", 0.1),
            ("0.30000000000000004", 0.1 + 0.2),
            ("1e300", 1e300),
            ("9007199254740992", 9_007_199_254_740_992.0),
            ("1.7976931348623157e308", f64::MAX),
            ("5e-324", 5e-324),
            ("930250826083584.2", 3_721_003_304_334_337.0 / 4.0),
            ("930250826083584.3", 3_721_003_304_334_337.0 / 4.0),
            ("930250826083584.25", 3_721_003_304_334_337.0 / 4.0),
            ("4.9406564584124654e-324", 5e-324),
            ("100000000000000000000000", 1e23),
        ] {
            assert_eq!(
                parse_exact_double(text).map(f64::to_bits),
                Some(f64::to_bits(number)),
                "{text}"
            );
        }
        for text in [
            "9007199254740993",
            "1234567890.12345678901",
            "12345678901234567890123",
            "0.1000000000000000055511151231257827",
            "1e400",
            "-1e99999999999999999999",
            "1e-400",
            "-1e-99999999999999999999",
            "3e-324",
            "",
            "-",
            "01",
            "1.",
            ".5",
            "+1",
            "1e",
            "0x10",
            "NaN",
            "inf",
            "1 ",
        ] {
            assert_eq!(parse_exact_double(text), None, "{text}");
        }
    }

    #[test]
    fn json_integer_compares_by_value_not_spelling() {
        for (text, number) in [
            ("1", 1),
            ("1.0", 1),
            ("1e3", 1000),
            ("1E+3", 1000),
            ("10e-1", 1),
            ("-0", 0),
            ("-0.0e-7", 0),
            ("0e999999999999999999999999", 0),
            ("1.5e1", 15),
            ("0.0012e4", 12),
            ("-9007199254740991", -INTEGER_MAX),
            ("9007199254740991.000", INTEGER_MAX),
            ("9.007199254740991e15", INTEGER_MAX),
        ] {
            assert_eq!(parse_integer(text), Some(number), "{text}");
        }
        for text in [
            "9007199254740992",
            "-9007199254740992",
            "1.5",
            "1e-1",
            "1e16",
            "1e999999999999999999999999",
            "1e-999999999999999999999999",
            "99999999999999999999999999",
            "",
            "one",
            "1_000",
        ] {
            assert_eq!(parse_integer(text), None, "{text}");
        }
    }

    #[test]
    fn json_decimal_units_are_exact_or_refused() {
        for (text, scale, units) in [
            ("1", 2, 100),
            ("1.5", 2, 150),
            ("1.50000000000000000000000", 2, 150),
            ("-0.01", 2, -1),
            ("1e2", 2, 10_000),
            ("125e-2", 2, 125),
            ("0", 9, 0),
            ("-0.000000000000", 2, 0),
            ("9999999999999999.99", 2, 999_999_999_999_999_999),
            ("999999999999999999", 0, 999_999_999_999_999_999),
            ("-999999999.999999999", 9, -999_999_999_999_999_999),
        ] {
            assert_eq!(parse_decimal_units(text, scale), Some(units), "{text}");
        }
        for (text, scale) in [
            ("1.001", 2),
            ("0.5", 0),
            ("1000000000000000000", 0),
            ("10000000000000000", 2),
            ("1e17", 2),
            ("1e-3", 2),
            ("1e1000000000000000000000", 2),
            ("", 2),
            (" 1", 2),
            ("1,5", 2),
            ("01.5", 2),
            ("1.5 EUR", 2),
        ] {
            assert_eq!(parse_decimal_units(text, scale), None, "{text}");
        }
    }

    #[test]
    fn json_integer_with_long_digits_and_large_exponent_is_exact() {
        let zeros = "0".repeat(100_000);
        assert_eq!(parse_integer(&format!("0.{zeros}17e100002")), Some(17));
        assert_eq!(parse_integer(&format!("17{zeros}e-100000")), Some(17));
        assert_eq!(parse_exact_double(&format!("17{zeros}e-100001")), Some(1.7));
    }

    proptest! {
        #[test]
        fn json_number_exact_round_trips_every_double(bits: u64) {
            let number = f64::from_bits(bits);
            prop_assume!(number.is_finite());
            let mut buffer = zmij::Buffer::new();
            for text in [buffer.format_finite(number), &format!("{number:?}"), &format!("{number:.16e}")] {
                prop_assert_eq!(parse_exact_double(text).map(f64::to_bits), Some(bits), "{}", text);
            }
        }

        #[test]
        fn json_number_exact_is_nearest_and_keeps_fifteen_digits(text in "-?(0|[1-9][0-9]{0,14})(e-?[0-9]{1,2})?") {
            prop_assert_eq!(parse_exact_double(&text), text.parse().ok());
        }

        #[test]
        fn json_integer_round_trips(number in -INTEGER_MAX..=INTEGER_MAX, zeros in 0_usize..30) {
            let fraction = "0".repeat(zeros + 1);
            prop_assert_eq!(parse_integer(&number.to_string()), Some(number));
            prop_assert_eq!(parse_integer(&format!("{number}.{fraction}")), Some(number));
            let padded = format!("{number}{}e-{zeros}", "0".repeat(zeros));
            prop_assert_eq!(parse_integer(&padded), Some(number));
        }

        #[test]
        fn json_decimal_units_round_trip(units in -999_999_999_999_999_999_i64..=999_999_999_999_999_999, scale in 0_u8..=9) {
            let text = crate::value::Decimal { units, scale }.to_string();
            prop_assert_eq!(parse_decimal_units(&text, scale), Some(units));
        }

        #[test]
        fn json_number_conversions_never_panic(text in r"[-+.eE0-9]{0,40}|\PC*", scale: u8) {
            let _ = (parse_exact_double(&text), parse_integer(&text), parse_decimal_units(&text, scale));
        }
    }
}
