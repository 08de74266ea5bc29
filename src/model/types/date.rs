//! `date`: a calendar date, `YYYY-MM-DD`, years 0001 to 9999.

use super::{FieldType, expect_text};
use crate::json::{Json, quote_for_message};
use crate::model::{Field, StorageClass};
use crate::problem::{FaultCode, FaultCollector};
use crate::value::Value;

#[derive(Debug)]
pub struct DateType;

impl FieldType for DateType {
    fn name(&self) -> &'static str {
        "date"
    }

    fn about(&self) -> &'static str {
        "a date such as \"2026-11-15\""
    }

    fn class(&self, _field: &Field) -> StorageClass {
        StorageClass::Text
    }

    fn chars_max(&self) -> Option<usize> {
        Some(10)
    }

    fn keys(&self) -> &'static [&'static str] {
        &["min", "max", "one_of", "unique", "filter"]
    }

    fn read(&self, _field: &Field, json: &Json<'_>, faults: &mut FaultCollector) -> Option<Value> {
        let text = expect_text(json, self.about(), faults)?;
        if is_date(text) {
            return Some(Value::text(text));
        }
        faults.add(
            FaultCode::Format,
            format!("expected a date such as \"2026-11-15\", got {}", quote_for_message(text)),
        );
        None
    }
}

/// Whether `text` is an existing date. Text order is date order.
pub fn is_date(text: &str) -> bool {
    // RFC 3339 §5.6: full-date.
    let [y1, y2, y3, y4, b'-', m1, m2, b'-', d1, d2] = text.as_bytes() else { return false };
    let number = |digits: &[u8]| {
        digits.iter().try_fold(0i16, |sum, digit| {
            digit.is_ascii_digit().then(|| sum * 10 + i16::from(digit - b'0'))
        })
    };
    let (Some(year), Some(month), Some(day)) =
        (number(&[*y1, *y2, *y3, *y4]), number(&[*m1, *m2]), number(&[*d1, *d2]))
    else {
        return false;
    };
    let (Ok(month), Ok(day)) = (i8::try_from(month), i8::try_from(day)) else { return false };
    year >= 1 && jiff::civil::Date::new(year, month, day).is_ok()
}

#[cfg(test)]
mod tests {
    use super::is_date;

    #[test]
    fn is_date_accepts_existing_dates_only() {
        for good in ["2026-11-15", "2024-02-29", "0001-01-01", "9999-12-31"] {
            assert!(is_date(good), "{good}");
        }
        for bad in [
            "2026-02-29",
            "2026-13-01",
            "2026-00-10",
            "2026-1-1",
            "26-01-01",
            "0000-01-01",
            "2026-11-15T00:00:00Z",
            "2026/11/15",
            "٢٠٢٦-01-01",
            "",
        ] {
            assert!(!is_date(bad), "{bad}");
        }
    }
}
