//! `integer`: a whole number within ±(2^53−1), compared by value: `1.0` and `1e3` are integers.

use super::read::{expect_number, refuse};
use crate::json;
use crate::model::field::{FieldType, StorageClass};
use crate::problem::FaultCode;
use crate::value::{Value, truncate_for_message};

pub static INTEGER: FieldType = FieldType {
    keys: &["min", "max", "one_of", "unique", "filter", "computed"],
    synonyms: &["int"],
    ..FieldType::new("integer", "an integer", StorageClass::Integer, |_, json, faults| {
        let text = expect_number(json, "an integer", faults)?;
        json::parse_integer(text).map(Value::Integer).or_else(|| {
            let expected = "an integer within ±9007199254740991";
            refuse(faults, FaultCode::Range, expected, &truncate_for_message(text))
        })
    })
};
