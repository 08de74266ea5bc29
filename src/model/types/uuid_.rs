//! `uuid`: 32 hex digits with hyphens (RFC 9562), stored in lower case.

use uuid::fmt::Hyphenated;

use super::{FieldType, expect_text};
use crate::json::{Json, quoted};
use crate::model::{Class, Field};
use crate::problem::{Code, Faults};
use crate::value::Value;

#[derive(Debug)]
pub(super) struct Uuid;

impl FieldType for Uuid {
    fn name(&self) -> &'static str {
        "uuid"
    }

    fn about(&self) -> &'static str {
        "a UUID"
    }

    fn class(&self, _field: &Field) -> Class {
        Class::Text
    }

    fn chars_max(&self) -> Option<usize> {
        Some(Hyphenated::LENGTH)
    }

    fn keys(&self) -> &'static [&'static str] {
        &["one_of", "unique", "filter"]
    }

    fn read(&self, _field: &Field, json: &Json<'_>, faults: &mut Faults) -> Option<Value> {
        let text = expect_text(json, self.about(), faults)?;
        let uuid = canonical(text);
        if uuid.is_none() {
            let detail = "expected a UUID such as \"01890a5d-ac96-774b-bcce-b302099a8057\"";
            faults.add(Code::Format, format!("{detail}, got {}", quoted(text)));
        }
        uuid
    }
}

/// The canonical spelling of a UUID; braces, the URN form and missing hyphens are refused.
pub(super) fn canonical(text: &str) -> Option<Value> {
    if text.len() != Hyphenated::LENGTH {
        return None;
    }
    let uuid = uuid::Uuid::try_parse(text).ok()?;
    Some(Value::text(uuid.hyphenated().encode_lower(&mut [0; Hyphenated::LENGTH])))
}
