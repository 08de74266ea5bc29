//! `number`: a finite double. A text that a double cannot represent exactly is refused, so that a client gets
//! back what it sent.

use super::FieldType;
use crate::json::{self, Json};
use crate::model::{Field, StorageClass};
use crate::problem::{FaultCode, FaultCollector};
use crate::value::{Value, truncate_for_message};

#[derive(Debug)]
pub struct NumberType;

impl FieldType for NumberType {
    fn name(&self) -> &'static str {
        "number"
    }

    fn about(&self) -> &'static str {
        "a number"
    }

    fn class(&self, _field: &Field) -> StorageClass {
        StorageClass::Real
    }

    fn keys(&self) -> &'static [&'static str] {
        &["min", "max", "one_of", "unique", "filter", "computed"]
    }

    fn synonyms(&self) -> &'static [&'static str] {
        &["double", "float"]
    }

    fn read(&self, _field: &Field, json: &Json<'_>, faults: &mut FaultCollector) -> Option<Value> {
        let Json::Number(text) = json else {
            faults.add(FaultCode::Type, format!("expected a number, got {}", json.type_name()));
            return None;
        };
        let value = json::number_exact(text).filter(|value| value.is_finite());
        if value.is_none() {
            faults.add(
                FaultCode::Range,
                format!(
                    "expected a number that a double holds without loss, got {}",
                    truncate_for_message(text)
                ),
            );
        }
        // Turns -0.0 into 0.0.
        value.map(|value| Value::Number(value + 0.0))
    }
}
