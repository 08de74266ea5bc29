//! `list`: an ordered list of values of one type. Elements are never null.

use super::read::{read, refuse};
use crate::json::Json;
use crate::model::field::{FieldType, MandatoryKey, StorageClass};
use crate::problem::FaultCode;
use crate::value::Value;

pub static LIST: FieldType = FieldType {
    keys: &["of", "min_items", "max_items", "filter"],
    mandatory_keys: &[MandatoryKey {
        key: "of",
        missing: "a list needs `of`",
        help: "say what it is made of: of = { type = \"text\" }",
    }],
    expression_hint: Some("use `sum(list, expression)` or `count(list)`"),
    synonyms: &["array"],
    ..FieldType::new("list", "a list", StorageClass::Json, |field, json, faults| {
        let Json::List(elements) = json else {
            return refuse(faults, FaultCode::Type, "a list", json.type_name());
        };
        let of = field.rules.element.as_deref()?;
        let mut values = Vec::with_capacity(elements.len());
        for (index, element) in elements.iter().enumerate() {
            faults.within(&index.to_string(), |faults| values.extend(read(of, element, faults)));
        }
        (values.len() == elements.len()).then_some(Value::List(values))
    })
};
