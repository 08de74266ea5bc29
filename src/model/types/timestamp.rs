//! `timestamp`: a point in time in RFC 3339, stored in UTC with microseconds.

use super::read::{expect_text, refuse};
use crate::json::quote_for_message;
use crate::model::field::{DefaultSource, FieldType, StorageClass};
use crate::problem::FaultCode;
use crate::value::{Moment, Value};

const ABOUT: &str = "a timestamp such as \"2026-11-15T02:28:14Z\"";

pub static TIMESTAMP: FieldType = FieldType {
    default_sources: &[DefaultSource::Now],
    keys: &["min", "max", "one_of", "unique", "filter"],
    synonyms: &["datetime", "time"],
    json_format: Some("date-time"),
    example: Some("2026-11-15T02:28:14Z"),
    ..FieldType::new("timestamp", ABOUT, StorageClass::Moment, |_, json, faults| {
        let text = expect_text(json, ABOUT, faults)?;
        Moment::parse(text).map(Value::Moment).or_else(|| {
            let expected = format!("{ABOUT} with at most 6 decimals");
            refuse(faults, FaultCode::Format, &expected, &quote_for_message(text))
        })
    })
};
