//! Exact fractions of 128-bit integers, for arithmetic on integers and decimals.
//!
//! Every operation returns `None` instead of wrapping or rounding.

use std::cmp::Ordering;
use std::fmt;

use crate::value::{Decimal, INTEGER_MAX};

/// The maximum units of a decimal: 18 digits.
const UNITS_MAX: i128 = 999_999_999_999_999_999;

/// A fraction; `denominator` is positive. Results of arithmetic are in lowest terms; a stored decimal is not
/// reduced, so that its conversion to a double is the same as the database's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fraction {
    numerator: i128,
    denominator: i128,
}

impl Fraction {
    pub fn integer(value: i128) -> Self {
        Self { numerator: value, denominator: 1 }
    }

    pub fn decimal(value: Decimal) -> Self {
        let below = 10i128.pow(u32::from(value.scale).min(18));
        Self { numerator: i128::from(value.units), denominator: below }
    }

    fn reduced(above: i128, below: i128) -> Option<Self> {
        let divisor = greatest_common_divisor(above.unsigned_abs(), below.unsigned_abs());
        let divisor = i128::try_from(divisor).ok().filter(|divisor| *divisor > 0)?;
        let (above, below) = (above / divisor, below / divisor);
        if below < 0 {
            return Some(Self {
                numerator: above.checked_neg()?,
                denominator: below.checked_neg()?,
            });
        }
        Some(Self { numerator: above, denominator: below })
    }

    pub fn is_zero(self) -> bool {
        self.numerator == 0
    }

    pub fn add(self, other: Self) -> Option<Self> {
        let left = self.numerator.checked_mul(other.denominator)?;
        let right = other.numerator.checked_mul(self.denominator)?;
        Self::reduced(left.checked_add(right)?, self.denominator.checked_mul(other.denominator)?)
    }

    pub fn negate(self) -> Option<Self> {
        Some(Self { numerator: self.numerator.checked_neg()?, denominator: self.denominator })
    }

    pub fn subtract(self, other: Self) -> Option<Self> {
        self.add(other.negate()?)
    }

    pub fn multiply(self, other: Self) -> Option<Self> {
        Self::reduced(
            self.numerator.checked_mul(other.numerator)?,
            self.denominator.checked_mul(other.denominator)?,
        )
    }

    /// `other` must not be zero.
    pub fn divide(self, other: Self) -> Option<Self> {
        Self::reduced(
            self.numerator.checked_mul(other.denominator)?,
            self.denominator.checked_mul(other.numerator)?,
        )
    }

    /// Compares by division with remainder, so that even the largest fractions do not overflow.
    pub fn order(self, other: Self) -> Ordering {
        let whole = self
            .numerator
            .div_euclid(self.denominator)
            .cmp(&other.numerator.div_euclid(other.denominator));
        let (left, right) = (
            self.numerator.rem_euclid(self.denominator),
            other.numerator.rem_euclid(other.denominator),
        );
        whole.then_with(|| match (left == 0, right == 0) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            // l/b against r/d, both below one: their reciprocals compare the other way round.
            (false, false) => {
                let left = Self { numerator: self.denominator, denominator: left };
                let right = Self { numerator: other.denominator, denominator: right };
                right.order(left)
            }
        })
    }

    /// The nearest double.
    pub fn to_real(self) -> f64 {
        self.numerator as f64 / self.denominator as f64
    }

    /// Converts to the value of an integer field.
    pub fn to_integer(self) -> Result<i64, ComputedFault> {
        if self.numerator % self.denominator != 0 {
            return Err(ComputedFault::NotExact);
        }
        i64::try_from(self.numerator / self.denominator)
            .ok()
            .filter(|value| value.abs() <= INTEGER_MAX)
            .ok_or(ComputedFault::OutOfRange)
    }

    pub fn to_decimal(self, scale: u8) -> Result<Decimal, ComputedFault> {
        let tens = 10i128.pow(u32::from(scale).min(18));
        let reduced =
            Self::reduced(self.numerator, self.denominator).ok_or(ComputedFault::OutOfRange)?;
        if tens % reduced.denominator != 0 {
            return Err(ComputedFault::NotExact);
        }
        let units = reduced
            .numerator
            .checked_mul(tens / reduced.denominator)
            .ok_or(ComputedFault::OutOfRange)?;
        if units.abs() > UNITS_MAX {
            return Err(ComputedFault::OutOfRange);
        }
        i64::try_from(units)
            .map(|units| Decimal { units, scale })
            .map_err(|_| ComputedFault::OutOfRange)
    }
}

/// Why a computed value does not fit its field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ComputedFault {
    OutOfRange,
    NotExact,
    DivisionByZero,
}

impl fmt::Display for ComputedFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OutOfRange => "the computed value is out of range",
            Self::NotExact => "the computed value is not exact in this field",
            Self::DivisionByZero => "the computed value is a division by zero",
        })
    }
}

fn greatest_common_divisor(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fraction(above: i128, below: i128) -> Fraction {
        Fraction::reduced(above, below).unwrap()
    }

    #[test]
    fn fraction_arithmetic_reduces_to_lowest_terms() {
        assert_eq!(fraction(6, -4), Fraction { numerator: -3, denominator: 2 });
        assert_eq!(fraction(1, 3).add(fraction(1, 6)), Some(fraction(1, 2)));
        assert_eq!(fraction(1, 3).multiply(fraction(3, 1)), Some(Fraction::integer(1)));
        assert_eq!(Fraction::integer(1).divide(fraction(-2, 3)), Some(fraction(-3, 2)));
        assert_eq!(Fraction::integer(i128::MAX).add(Fraction::integer(1)), None);
        assert_eq!(Fraction::integer(i128::MIN).negate(), None);
    }

    #[test]
    fn fraction_order_does_not_overflow() {
        let huge = fraction(i128::MAX, i128::MAX - 1);
        assert_eq!(huge.order(Fraction::integer(1)), Ordering::Greater);
        assert_eq!(fraction(-1, 2).order(fraction(-1, 3)), Ordering::Less);
        assert_eq!(fraction(2, 3).order(fraction(3, 4)), Ordering::Less);
        assert_eq!(fraction(2, 3).order(fraction(2, 3)), Ordering::Equal);
    }

    #[test]
    fn fraction_conversion_reports_misfits() {
        assert_eq!(Fraction::integer(i128::from(INTEGER_MAX)).to_integer(), Ok(INTEGER_MAX));
        assert_eq!(
            Fraction::integer(i128::from(INTEGER_MAX) + 1).to_integer(),
            Err(ComputedFault::OutOfRange)
        );
        assert_eq!(fraction(1, 2).to_integer(), Err(ComputedFault::NotExact));
        assert_eq!(fraction(1, 4).to_decimal(2), Ok(Decimal { units: 25, scale: 2 }));
        assert_eq!(fraction(1, 8).to_decimal(2), Err(ComputedFault::NotExact));
        assert_eq!(Fraction::integer(10i128.pow(16)).to_decimal(2), Err(ComputedFault::OutOfRange));
    }
}
