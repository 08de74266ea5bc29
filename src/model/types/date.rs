//! `date`: a calendar date, `YYYY-MM-DD`, years 0001 to 9999.

use super::read::expect_form;
use crate::model::field::{DefaultSource, FieldType, StorageClass};
use crate::value::Moment;

const ABOUT: &str = "a date such as \"2026-11-15\"";

pub static DATE: FieldType = FieldType {
    chars_max: Some(10),
    default_sources: &[DefaultSource::Now],
    keys: &["min", "max", "one_of", "unique", "filter"],
    json_format: Some("date"),
    example: Some("2026-11-15"),
    ..FieldType::new("date", ABOUT, StorageClass::Text, |_, json, faults| {
        expect_form(json, ABOUT, is_date, faults)
    })
};

/// Whether `text` is an existing date. Text order is date order.
pub fn is_date(text: &str) -> bool {
    // RFC 3339 §5.6: a full-date is the beginning of a date-time.
    Moment::from_canonical(format!("{text}T00:00:00.000000Z").as_bytes()).is_some()
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
