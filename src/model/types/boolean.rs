//! `boolean`: true or false.

use super::FieldType;
use crate::json::Json;
use crate::model::{Class, Field};
use crate::problem::{Code, Faults};
use crate::value::Value;

#[derive(Debug)]
pub(super) struct Boolean;

impl FieldType for Boolean {
    fn name(&self) -> &'static str {
        "boolean"
    }

    fn about(&self) -> &'static str {
        "true or false"
    }

    fn class(&self, _field: &Field) -> Class {
        Class::Boolean
    }

    fn keys(&self) -> &'static [&'static str] {
        &["filter", "computed"]
    }

    fn synonyms(&self) -> &'static [&'static str] {
        &["bool"]
    }

    fn read(&self, _field: &Field, json: &Json<'_>, faults: &mut Faults) -> Option<Value> {
        let Json::Boolean(value) = json else {
            faults.add(Code::Type, format!("expected true or false, got {}", json.kind()));
            return None;
        };
        Some(Value::Boolean(*value))
    }
}
