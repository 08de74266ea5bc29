//! `number`: a finite double. A text that a double cannot represent exactly is refused, so that a client gets
//! back what it sent.

use super::read::{expect_exact_number, expect_number};
use crate::model::field::{FieldType, StorageClass};
use crate::value::Value;

pub static NUMBER: FieldType = FieldType {
    keys: &["min", "max", "one_of", "unique", "filter", "computed"],
    synonyms: &["double", "float"],
    ..FieldType::new("number", "a number", StorageClass::Real, |_, json, faults| {
        let text = expect_number(json, "a number", faults)?;
        // Turns -0.0 into 0.0.
        expect_exact_number(text, faults).map(|value| Value::Number(value + 0.0))
    })
};
