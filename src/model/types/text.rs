//! `text`: any characters but NUL. Lengths count characters, not bytes.

use super::read::expect_text;
use crate::model::field::{DefaultSource, FieldType, StorageClass};
use crate::value::Value;

pub static TEXT: FieldType = FieldType {
    is_searchable_text: true,
    default_sources: &[DefaultSource::User, DefaultSource::Uuid],
    keys: &[
        "min_length",
        "max_length",
        "pattern",
        "one_of",
        "unique",
        "filter",
        "match",
        "order",
        "computed",
    ],
    synonyms: &["string"],
    ..FieldType::new("text", "a text", StorageClass::Text, |_, json, faults| {
        expect_text(json, "a text", faults).map(Value::text)
    })
};
