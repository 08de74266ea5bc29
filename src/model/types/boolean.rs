//! `boolean`: true or false.

use super::FieldType;
use crate::json::Json;
use crate::model::{Field, StorageClass};
use crate::problem::{FaultCode, FaultCollector};
use crate::value::Value;

#[derive(Debug)]
pub struct BooleanType;

impl FieldType for BooleanType {
    fn name(&self) -> &'static str {
        "boolean"
    }

    fn about(&self) -> &'static str {
        "true or false"
    }

    fn class(&self, _field: &Field) -> StorageClass {
        StorageClass::Boolean
    }

    fn keys(&self) -> &'static [&'static str] {
        &["filter", "computed"]
    }

    fn synonyms(&self) -> &'static [&'static str] {
        &["bool"]
    }

    fn read(&self, _field: &Field, json: &Json<'_>, faults: &mut FaultCollector) -> Option<Value> {
        let Json::Boolean(value) = json else {
            faults
                .add(FaultCode::Type, format!("expected true or false, got {}", json.type_name()));
            return None;
        };
        Some(Value::Boolean(*value))
    }
}
