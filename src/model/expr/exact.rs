//! Exact fractions of 128-bit integers, for arithmetic on integers and decimals.
//!
//! Every operation returns `None` instead of wrapping or rounding.

use std::cmp::Ordering;

use crate::value::{Decimal, INTEGER_MAX};

/// The maximum units of a decimal: 18 digits.
const UNITS_MAX: i128 = 999_999_999_999_999_999;

/// A fraction; `denominator` is positive. Results of arithmetic are in lowest terms; a stored decimal is not
/// reduced, so that its conversion to a double is the same as the database's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Exact {
    above: i128,
    below: i128,
}

impl Exact {
    pub(super) fn integer(value: i128) -> Self {
        Self { above: value, below: 1 }
    }

    pub(super) fn decimal(value: Decimal) -> Self {
        let below = 10i128.pow(u32::from(value.scale).min(18));
        Self { above: i128::from(value.units), below }
    }

    fn reduced(above: i128, below: i128) -> Option<Self> {
        let divisor = divisor(above.unsigned_abs(), below.unsigned_abs());
        let divisor = i128::try_from(divisor).ok().filter(|divisor| *divisor > 0)?;
        let (above, below) = (above / divisor, below / divisor);
        if below < 0 {
            return Some(Self { above: above.checked_neg()?, below: below.checked_neg()? });
        }
        Some(Self { above, below })
    }

    pub(super) fn is_zero(self) -> bool {
        self.above == 0
    }

    pub(super) fn add(self, other: Self) -> Option<Self> {
        let left = self.above.checked_mul(other.below)?;
        let right = other.above.checked_mul(self.below)?;
        Self::reduced(left.checked_add(right)?, self.below.checked_mul(other.below)?)
    }

    pub(super) fn negate(self) -> Option<Self> {
        Some(Self { above: self.above.checked_neg()?, below: self.below })
    }

    pub(super) fn subtract(self, other: Self) -> Option<Self> {
        self.add(other.negate()?)
    }

    pub(super) fn multiply(self, other: Self) -> Option<Self> {
        Self::reduced(self.above.checked_mul(other.above)?, self.below.checked_mul(other.below)?)
    }

    /// `other` must not be zero.
    pub(super) fn divide(self, other: Self) -> Option<Self> {
        Self::reduced(self.above.checked_mul(other.below)?, self.below.checked_mul(other.above)?)
    }

    /// Compares by division with remainder, so that even the largest fractions do not overflow.
    pub(super) fn order(self, other: Self) -> Ordering {
        let whole = self.above.div_euclid(self.below).cmp(&other.above.div_euclid(other.below));
        let (left, right) =
            (self.above.rem_euclid(self.below), other.above.rem_euclid(other.below));
        whole.then_with(|| match (left == 0, right == 0) {
            (true, true) => Ordering::Equal,
            (true, false) => Ordering::Less,
            (false, true) => Ordering::Greater,
            // l/b against r/d, both below one: their reciprocals compare the other way round.
            (false, false) => {
                let left = Self { above: self.below, below: left };
                let right = Self { above: other.below, below: right };
                right.order(left)
            }
        })
    }

    /// The nearest double.
    pub(super) fn real(self) -> f64 {
        self.above as f64 / self.below as f64
    }

    /// Converts to the value of an integer field.
    pub(super) fn to_integer(self) -> Result<i64, Misfit> {
        if self.above % self.below != 0 {
            return Err(Misfit::Fraction);
        }
        i64::try_from(self.above / self.below)
            .ok()
            .filter(|value| value.abs() <= INTEGER_MAX)
            .ok_or(Misfit::Size)
    }

    pub(super) fn to_decimal(self, scale: u8) -> Result<Decimal, Misfit> {
        let tens = 10i128.pow(u32::from(scale).min(18));
        let reduced = Self::reduced(self.above, self.below).ok_or(Misfit::Size)?;
        if tens % reduced.below != 0 {
            return Err(Misfit::Fraction);
        }
        let units = reduced.above.checked_mul(tens / reduced.below).ok_or(Misfit::Size)?;
        if units.abs() > UNITS_MAX {
            return Err(Misfit::Size);
        }
        i64::try_from(units).map(|units| Decimal { units, scale }).map_err(|_| Misfit::Size)
    }
}

/// Why a value does not fit its field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Misfit {
    Size,
    Fraction,
}

fn divisor(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fraction(above: i128, below: i128) -> Exact {
        Exact::reduced(above, below).unwrap()
    }

    #[test]
    fn fraction_arithmetic_reduces_to_lowest_terms() {
        assert_eq!(fraction(6, -4), Exact { above: -3, below: 2 });
        assert_eq!(fraction(1, 3).add(fraction(1, 6)), Some(fraction(1, 2)));
        assert_eq!(fraction(1, 3).multiply(fraction(3, 1)), Some(Exact::integer(1)));
        assert_eq!(Exact::integer(1).divide(fraction(-2, 3)), Some(fraction(-3, 2)));
        assert_eq!(Exact::integer(i128::MAX).add(Exact::integer(1)), None);
        assert_eq!(Exact::integer(i128::MIN).negate(), None);
    }

    #[test]
    fn fraction_order_does_not_overflow() {
        let huge = fraction(i128::MAX, i128::MAX - 1);
        assert_eq!(huge.order(Exact::integer(1)), Ordering::Greater);
        assert_eq!(fraction(-1, 2).order(fraction(-1, 3)), Ordering::Less);
        assert_eq!(fraction(2, 3).order(fraction(3, 4)), Ordering::Less);
        assert_eq!(fraction(2, 3).order(fraction(2, 3)), Ordering::Equal);
    }

    #[test]
    fn fraction_conversion_reports_misfits() {
        assert_eq!(Exact::integer(i128::from(INTEGER_MAX)).to_integer(), Ok(INTEGER_MAX));
        assert_eq!(Exact::integer(i128::from(INTEGER_MAX) + 1).to_integer(), Err(Misfit::Size));
        assert_eq!(fraction(1, 2).to_integer(), Err(Misfit::Fraction));
        assert_eq!(fraction(1, 4).to_decimal(2), Ok(Decimal { units: 25, scale: 2 }));
        assert_eq!(fraction(1, 8).to_decimal(2), Err(Misfit::Fraction));
        assert_eq!(Exact::integer(10i128.pow(16)).to_decimal(2), Err(Misfit::Size));
    }
}
