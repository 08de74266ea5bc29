//! `integer`: a whole number within ±(2^53−1), compared by value: `1.0` and `1e3` are integers.

use super::FieldType;
use crate::json::{self, Json};
use crate::model::{Class, Field};
use crate::problem::{Code, Faults};
use crate::value::{Value, cut};

#[derive(Debug)]
pub(super) struct Integer;

impl FieldType for Integer {
    fn name(&self) -> &'static str {
        "integer"
    }

    fn about(&self) -> &'static str {
        "an integer"
    }

    fn class(&self, _field: &Field) -> Class {
        Class::Integer
    }

    fn keys(&self) -> &'static [&'static str] {
        &["min", "max", "one_of", "unique", "filter", "computed"]
    }

    fn synonyms(&self) -> &'static [&'static str] {
        &["int"]
    }

    fn read(&self, _field: &Field, json: &Json<'_>, faults: &mut Faults) -> Option<Value> {
        let Json::Number(text) = json else {
            faults.add(Code::Type, format!("expected an integer, got {}", json.kind()));
            return None;
        };
        let value = json::integer(text);
        if value.is_none() {
            faults.add(
                Code::Range,
                format!("expected an integer within ±9007199254740991, got {}", cut(text)),
            );
        }
        value.map(Value::Integer)
    }
}
