//! `uuid`: 32 hex digits with hyphens (RFC 9562), stored in lower case.

use uuid::fmt::Hyphenated;

use super::{FieldType, expect_text};
use crate::json::{Json, quote_for_message};
use crate::model::{Field, StorageClass};
use crate::problem::{FaultCode, FaultCollector};
use crate::value::Value;

#[derive(Debug)]
pub struct UuidType;

impl FieldType for UuidType {
    fn name(&self) -> &'static str {
        "uuid"
    }

    fn about(&self) -> &'static str {
        "a UUID"
    }

    fn class(&self, _field: &Field) -> StorageClass {
        StorageClass::Text
    }

    fn chars_max(&self) -> Option<usize> {
        Some(Hyphenated::LENGTH)
    }

    fn keys(&self) -> &'static [&'static str] {
        &["one_of", "unique", "filter"]
    }

    fn read(&self, _field: &Field, json: &Json<'_>, faults: &mut FaultCollector) -> Option<Value> {
        let text = expect_text(json, self.about(), faults)?;
        let uuid = canonical(text);
        if uuid.is_none() {
            let detail = "expected a UUID such as \"01890a5d-ac96-774b-bcce-b302099a8057\"";
            faults.add(FaultCode::Format, format!("{detail}, got {}", quote_for_message(text)));
        }
        uuid
    }
}

/// The canonical spelling of a UUID; braces, the URN form and missing hyphens are refused.
pub fn canonical(text: &str) -> Option<Value> {
    if text.len() != Hyphenated::LENGTH {
        return None;
    }
    let uuid = uuid::Uuid::try_parse(text).ok()?;
    Some(Value::text(uuid.hyphenated().encode_lower(&mut [0; Hyphenated::LENGTH])))
}
