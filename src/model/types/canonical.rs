//! Canonical JSON text of lists and objects, and its parser.
//!
//! `parse_canonical` parses text that this server wrote, so it checks only the structure: the rules may have
//! changed since, and stored values stay valid.

use crate::json::{self, Json};
use crate::model::field::{Field, StorageClass};
use crate::value::{Decimal, Moment, Value};

/// Stored text is never deeper: bodies have at most 32 levels.
const DEPTH_MAX: usize = 64;

/// Converts a list or an object to canonical JSON text; other values are unchanged.
pub fn canonicalize(value: Value) -> Value {
    match value {
        Value::List(_) | Value::Object(_) => Value::Json(json::value_to_text(&value).into()),
        value => value,
    }
}

/// The inverse of `canonicalize` for a stored value of `field`; the value of a `json` field stays text.
pub fn parse_canonical(field: &Field, value: Value) -> Value {
    let Value::Json(text) = &value else { return value };
    if field.rules.element.is_none() && field.rules.fields.is_empty() {
        return value;
    }
    match json::parse(text.as_bytes(), DEPTH_MAX) {
        Ok(json) => value_from_json(field, &json),
        Err(_) => Value::Null,
    }
}

fn value_from_json(field: &Field, json: &Json<'_>) -> Value {
    match (field.storage_class(), json) {
        (StorageClass::Json, json) => value_from_field_json(field, json),
        (StorageClass::Text, Json::Text(text)) => Value::text(text),
        (StorageClass::Moment, Json::Text(text)) => {
            Moment::parse(text).map_or(Value::Null, Value::Moment)
        }
        (StorageClass::Boolean, Json::Boolean(value)) => Value::Boolean(*value),
        (StorageClass::Integer, Json::Number(text)) => {
            json::integer(text).map_or(Value::Null, Value::Integer)
        }
        (StorageClass::Real, Json::Number(text)) => text.parse().map_or(Value::Null, Value::Number),
        (StorageClass::Decimal, Json::Text(text)) => {
            let scale = field.rules.scale;
            json::decimal_units(text, scale)
                .map_or(Value::Null, |units| Value::Decimal(Decimal { units, scale }))
        }
        _ => Value::Null,
    }
}

fn value_from_field_json(field: &Field, json: &Json<'_>) -> Value {
    match (json, &field.rules.element) {
        (Json::Null, _) => Value::Null,
        (Json::List(elements), Some(of)) => {
            Value::List(elements.iter().map(|element| value_from_json(of, element)).collect())
        }
        (Json::Object(members), None) if !field.rules.fields.is_empty() => {
            let member = |inner: &Field| {
                let (_, json) = members.iter().find(|(name, _)| *inner.name == **name)?;
                Some((inner.name.clone(), value_from_json(inner, json)))
            };
            Value::Object(field.rules.fields.iter().filter_map(member).collect())
        }
        (json, _) => Value::Json(json::to_text(json).into()),
    }
}
