//! `object`: named fields inside a field, validated like those of an item.

use std::borrow::Cow;

use super::{FieldType, MandatoryKey};
use crate::json::Json;
use crate::model::{Field, StorageClass, nearest};
use crate::problem::{FaultCode, FaultCollector};
use crate::value::Value;

#[derive(Debug)]
pub struct ObjectType;

impl FieldType for ObjectType {
    fn name(&self) -> &'static str {
        "object"
    }

    fn about(&self) -> &'static str {
        "an object"
    }

    fn class(&self, _field: &Field) -> StorageClass {
        StorageClass::Json
    }

    fn keys(&self) -> &'static [&'static str] {
        &["fields"]
    }

    fn mandatory_keys(&self) -> &'static [MandatoryKey] {
        &[MandatoryKey {
            key: "fields",
            missing: "an object needs `fields`",
            help: "say what it is made of: fields = { street = { type = \"text\" } }",
        }]
    }

    fn implying_key(&self) -> Option<&'static str> {
        Some("fields")
    }

    fn expression_hint(&self) -> Option<&'static str> {
        Some("name a field inside it with a dot")
    }

    fn synonyms(&self) -> &'static [&'static str] {
        &["dict", "map"]
    }

    fn read(&self, field: &Field, json: &Json<'_>, faults: &mut FaultCollector) -> Option<Value> {
        let Json::Object(members) = json else {
            faults.add(FaultCode::Type, format!("expected an object, got {}", json.type_name()));
            return None;
        };
        read_fields(&field.rules.fields, members, faults).map(Value::Object)
    }
}

/// Parses the members of an object: collects all faults, fills in defaults, in the model's order.
///
/// A field without a value is left out if it is not nullable and `Null` if it is, as in responses. `None` if
/// there was a fault.
pub fn read_fields(
    fields: &[Field],
    members: &[(Cow<'_, str>, Json<'_>)],
    faults: &mut FaultCollector,
) -> Option<Vec<(Box<str>, Value)>> {
    let mut whole = true;
    for (name, _) in members {
        if !fields.iter().any(|field| *field.name == **name) {
            let mark = faults.enter(name);
            add_unknown(name, fields, faults);
            faults.leave(mark);
            whole = false;
        }
    }
    let mut values = Vec::with_capacity(fields.len());
    for field in fields {
        let value = match members.iter().find(|(name, _)| *field.name == **name) {
            Some((_, json)) => {
                let mark = faults.enter(&field.name);
                let value = super::read(field, json, faults);
                faults.leave(mark);
                value
            }
            None if field.required => {
                add_required(field, faults);
                None
            }
            None => Some(field.default.clone().unwrap_or(Value::Null)),
        };
        match value {
            None => whole = false,
            Some(Value::Null) if !field.nullable => {}
            Some(value) => values.push((field.name.clone(), value)),
        }
    }
    whole.then_some(values)
}

/// Adds the fault of an unknown member, with the nearest known name.
pub fn add_unknown<'f>(
    name: &str,
    fields: impl IntoIterator<Item = &'f Field>,
    faults: &mut FaultCollector,
) {
    // The search takes time, and a body may have a hundred thousand unknown names.
    if faults.is_full() {
        return;
    }
    let near = nearest(name, fields.into_iter().map(|field| &*field.name));
    let hint = near.map(|near| format!("; did you mean \"{near}\"?")).unwrap_or_default();
    faults.add(FaultCode::Unknown, format!("no such field{hint}"));
}

/// Adds the fault of a missing required field.
pub fn add_required(field: &Field, faults: &mut FaultCollector) {
    let detail = format!("expected {}, got nothing", field.kind.about());
    faults.add_at(&field.name, FaultCode::Required, detail);
}
