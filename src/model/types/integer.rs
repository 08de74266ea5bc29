//! `integer`: a whole number within ±(2^53−1), compared by value: `1.0` and `1e3` are integers.

use super::FieldType;
use crate::json::{self, Json};
use crate::model::{Field, StorageClass};
use crate::problem::{FaultCode, FaultCollector};
use crate::value::{Value, truncate_for_message};

#[derive(Debug)]
pub struct IntegerType;

impl FieldType for IntegerType {
    fn name(&self) -> &'static str {
        "integer"
    }

    fn about(&self) -> &'static str {
        "an integer"
    }

    fn class(&self, _field: &Field) -> StorageClass {
        StorageClass::Integer
    }

    fn keys(&self) -> &'static [&'static str] {
        &["min", "max", "one_of", "unique", "filter", "computed"]
    }

    fn synonyms(&self) -> &'static [&'static str] {
        &["int"]
    }

    fn read(&self, _field: &Field, json: &Json<'_>, faults: &mut FaultCollector) -> Option<Value> {
        let Json::Number(text) = json else {
            faults.add(FaultCode::Type, format!("expected an integer, got {}", json.type_name()));
            return None;
        };
        let value = json::integer(text);
        if value.is_none() {
            faults.add(
                FaultCode::Range,
                format!(
                    "expected an integer within ±9007199254740991, got {}",
                    truncate_for_message(text)
                ),
            );
        }
        value.map(Value::Integer)
    }
}
