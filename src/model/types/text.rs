//! `text`: any characters but NUL. Lengths count characters, not bytes.

use super::{FieldType, expect_text};
use crate::json::Json;
use crate::model::{Class, Field};
use crate::problem::Faults;
use crate::value::Value;

#[derive(Debug)]
pub(super) struct Text;

impl FieldType for Text {
    fn name(&self) -> &'static str {
        "text"
    }

    fn about(&self) -> &'static str {
        "a text"
    }

    fn class(&self, _field: &Field) -> Class {
        Class::Text
    }

    fn is_words(&self) -> bool {
        true
    }

    fn keys(&self) -> &'static [&'static str] {
        &["min_length", "max_length", "pattern", "one_of", "unique", "filter"]
    }

    fn synonyms(&self) -> &'static [&'static str] {
        &["string"]
    }

    fn read(&self, _field: &Field, json: &Json<'_>, faults: &mut Faults) -> Option<Value> {
        expect_text(json, self.about(), faults).map(Value::text)
    }
}
