//! `text`: any characters but NUL. Lengths count characters, not bytes.

use super::{FieldType, expect_text};
use crate::json::Json;
use crate::model::{Field, StorageClass};
use crate::problem::FaultCollector;
use crate::value::Value;

#[derive(Debug)]
pub struct TextType;

impl FieldType for TextType {
    fn name(&self) -> &'static str {
        "text"
    }

    fn about(&self) -> &'static str {
        "a text"
    }

    fn class(&self, _field: &Field) -> StorageClass {
        StorageClass::Text
    }

    fn is_searchable_text(&self) -> bool {
        true
    }

    fn keys(&self) -> &'static [&'static str] {
        &["min_length", "max_length", "pattern", "one_of", "unique", "filter"]
    }

    fn synonyms(&self) -> &'static [&'static str] {
        &["string"]
    }

    fn read(&self, _field: &Field, json: &Json<'_>, faults: &mut FaultCollector) -> Option<Value> {
        expect_text(json, self.about(), faults).map(Value::text)
    }
}
