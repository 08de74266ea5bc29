//! `uuid`: 32 hex digits with hyphens (RFC 9562), stored in lower case.

use uuid::fmt::Hyphenated;

use super::read::{expect_text, refuse};
use crate::json::quote_for_message;
use crate::model::field::{DefaultSource, FieldType, StorageClass};
use crate::problem::FaultCode;
use crate::value::Value;

pub static UUID: FieldType = FieldType {
    chars_max: Some(Hyphenated::LENGTH),
    default_sources: &[DefaultSource::Uuid],
    keys: &["one_of", "unique", "filter"],
    json_format: Some("uuid"),
    example: Some("01890a5d-ac96-774b-bcce-b302099a8057"),
    ..FieldType::new("uuid", "a UUID", StorageClass::Text, |_, json, faults| {
        let text = expect_text(json, "a UUID", faults)?;
        canonical(text).or_else(|| {
            let expected = "a UUID such as \"01890a5d-ac96-774b-bcce-b302099a8057\"";
            refuse(faults, FaultCode::Format, expected, &quote_for_message(text))
        })
    })
};

/// The canonical spelling of a UUID; braces, the URN form and missing hyphens are refused.
pub fn canonical(text: &str) -> Option<Value> {
    if text.len() != Hyphenated::LENGTH {
        return None;
    }
    let uuid = uuid::Uuid::try_parse(text).ok()?;
    Some(Value::text(uuid.hyphenated().encode_lower(&mut [0; Hyphenated::LENGTH])))
}
