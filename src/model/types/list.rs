//! `list`: an ordered list of values of one type. Elements are never null.

use super::{FieldType, MandatoryKey};
use crate::json::Json;
use crate::model::{Field, StorageClass};
use crate::problem::{FaultCode, FaultCollector};
use crate::value::Value;

#[derive(Debug)]
pub struct ListType;

impl FieldType for ListType {
    fn name(&self) -> &'static str {
        "list"
    }

    fn about(&self) -> &'static str {
        "a list"
    }

    fn class(&self, _field: &Field) -> StorageClass {
        StorageClass::Json
    }

    fn keys(&self) -> &'static [&'static str] {
        &["of", "min_items", "max_items"]
    }

    fn mandatory_keys(&self) -> &'static [MandatoryKey] {
        &[MandatoryKey {
            key: "of",
            missing: "a list needs `of`",
            help: "say what it is made of: of = { type = \"text\" }",
        }]
    }

    fn expression_hint(&self) -> Option<&'static str> {
        Some("use `sum(list, expression)` or `count(list)`")
    }

    fn synonyms(&self) -> &'static [&'static str] {
        &["array"]
    }

    fn read(&self, field: &Field, json: &Json<'_>, faults: &mut FaultCollector) -> Option<Value> {
        let Json::List(elements) = json else {
            faults.add(FaultCode::Type, format!("expected a list, got {}", json.type_name()));
            return None;
        };
        let of = field.rules.element.as_deref()?;
        let mut values = Vec::with_capacity(elements.len());
        for (index, element) in elements.iter().enumerate() {
            let mark = faults.enter(&index.to_string());
            values.extend(super::read(of, element, faults));
            faults.leave(mark);
        }
        (values.len() == elements.len()).then_some(Value::List(values))
    }
}
