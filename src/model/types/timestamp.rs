//! `timestamp`: a point in time in RFC 3339, stored in UTC with microseconds.

use super::{FieldType, expect_text};
use crate::json::{Json, quote_for_message};
use crate::model::{Field, StorageClass};
use crate::problem::{FaultCode, FaultCollector};
use crate::value::{Moment, Value};

#[derive(Debug)]
pub struct TimestampType;

impl FieldType for TimestampType {
    fn name(&self) -> &'static str {
        "timestamp"
    }

    fn about(&self) -> &'static str {
        "a timestamp such as \"2026-11-15T02:28:14Z\""
    }

    fn class(&self, _field: &Field) -> StorageClass {
        StorageClass::Moment
    }

    fn keys(&self) -> &'static [&'static str] {
        &["min", "max", "one_of", "unique", "filter"]
    }

    fn synonyms(&self) -> &'static [&'static str] {
        &["datetime", "time"]
    }

    fn read(&self, _field: &Field, json: &Json<'_>, faults: &mut FaultCollector) -> Option<Value> {
        let text = expect_text(json, self.about(), faults)?;
        let moment = Moment::parse(text);
        if moment.is_none() {
            let detail =
                "expected a timestamp such as \"2026-11-15T02:28:14Z\" with at most 6 decimals";
            faults.add(FaultCode::Format, format!("{detail}, got {}", quote_for_message(text)));
        }
        moment.map(Value::Moment)
    }
}
