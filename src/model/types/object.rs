//! `object`: named fields inside a field, read by the same rules as an item's own.

use std::borrow::Cow;

use super::{FieldType, Need};
use crate::json::Json;
use crate::model::{Class, Field, nearest};
use crate::problem::{Code, Faults};
use crate::value::Value;

#[derive(Debug)]
pub(super) struct Object;

impl FieldType for Object {
    fn name(&self) -> &'static str {
        "object"
    }

    fn about(&self) -> &'static str {
        "an object"
    }

    fn class(&self, _field: &Field) -> Class {
        Class::Json
    }

    fn keys(&self) -> &'static [&'static str] {
        &["fields"]
    }

    fn needs(&self) -> &'static [Need] {
        &[Need {
            key: "fields",
            missing: "an object needs `fields`",
            help: "say what it is made of: fields = { street = { type = \"text\" } }",
        }]
    }

    fn implied_by(&self) -> Option<&'static str> {
        Some("fields")
    }

    fn in_expressions(&self) -> Option<&'static str> {
        Some("name a field inside it with a dot")
    }

    fn synonyms(&self) -> &'static [&'static str] {
        &["dict", "map"]
    }

    fn read(&self, field: &Field, json: &Json<'_>, faults: &mut Faults) -> Option<Value> {
        let Json::Object(members) = json else {
            faults.add(Code::Type, format!("expected an object, got {}", json.kind()));
            return None;
        };
        read_fields(&field.rules.fields, members, faults).map(Value::Object)
    }
}

/// Reads the members of an object: all faults at once, defaults filled in, in the order of the model.
///
/// A field without a value is left out when it is not nullable and `Null` when it is, as the wire
/// shows it. `None` when there was a fault.
pub fn read_fields(
    fields: &[Field],
    members: &[(Cow<'_, str>, Json<'_>)],
    faults: &mut Faults,
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

/// The fault of a member that no field has, with the nearest name there is.
pub fn add_unknown<'f>(
    name: &str,
    fields: impl IntoIterator<Item = &'f Field>,
    faults: &mut Faults,
) {
    // The search costs time, and a body may hold a hundred thousand wrong names.
    if faults.is_full() {
        return;
    }
    let near = nearest(name, fields.into_iter().map(|field| &*field.name));
    let hint = near.map(|near| format!("; did you mean \"{near}\"?")).unwrap_or_default();
    faults.add(Code::Unknown, format!("no such field{hint}"));
}

/// The fault of a required field that was left out.
pub fn add_required(field: &Field, faults: &mut Faults) {
    let detail = format!("expected {}, got nothing", field.kind.about());
    faults.add_at(&field.name, Code::Required, detail);
}
