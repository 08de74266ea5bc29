//! `object`: named fields inside a field, validated like those of an item.

use std::borrow::Cow;

use super::read::{add_required, add_unknown, read, refuse};
use crate::json::Json;
use crate::model::field::{Field, FieldType, MandatoryKey, StorageClass};
use crate::problem::{FaultCode, FaultCollector};
use crate::value::Value;

pub static OBJECT: FieldType = FieldType {
    keys: &["fields"],
    mandatory_keys: &[MandatoryKey {
        key: "fields",
        missing: "an object needs `fields`",
        help: "say what it is made of: fields = { street = { type = \"text\" } }",
    }],
    implying_key: Some("fields"),
    expression_hint: Some("name a field inside it with a dot"),
    synonyms: &["dict", "map"],
    ..FieldType::new("object", "an object", StorageClass::Json, |field, json, faults| match json {
        Json::Object(members) => {
            read_fields(&field.rules.fields, members, faults).map(Value::Object)
        }
        _ => refuse(faults, FaultCode::Type, "an object", json.type_name()),
    })
};

/// Parses the members of an object: collects all faults, fills in defaults, in the model's order.
///
/// A field without a value is left out if it is not nullable and `Null` if it is, as in responses. `None` if
/// there was a fault.
fn read_fields(
    fields: &[Field],
    members: &[(Cow<'_, str>, Json<'_>)],
    faults: &mut FaultCollector,
) -> Option<Vec<(Box<str>, Value)>> {
    let mut is_valid = true;
    for (name, _) in members {
        if !fields.iter().any(|field| *field.name == **name) {
            faults.within(name, |faults| add_unknown(name, fields, faults));
            is_valid = false;
        }
    }
    let mut values = Vec::with_capacity(fields.len());
    for field in fields {
        let value = match members.iter().find(|(name, _)| *field.name == **name) {
            Some((_, json)) => faults.within(&field.name, |faults| read(field, json, faults)),
            None if field.required => {
                add_required(field, faults);
                None
            }
            None => Some(field.default.clone().unwrap_or(Value::Null)),
        };
        match value {
            None => is_valid = false,
            Some(Value::Null) if !field.nullable => {}
            Some(value) => values.push((field.name.clone(), value)),
        }
    }
    is_valid.then_some(values)
}
