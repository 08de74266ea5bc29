//! Canonical JSON text of lists and objects, and its parser.
//!
//! `parse_canonical` parses text that this server wrote, so it checks only the structure: the rules may have
//! changed since, and stored values stay valid. Another program may have damaged the text; then there is no
//! value, not even null, which a change of another field would store.

use crate::fault::OrBug as _;
use crate::json::{self, Json};
use crate::model::field::{Field, StorageClass};
use crate::value::{Decimal, Moment, Value};

/// Stored text is never deeper: bodies have at most 32 levels, and defaults in a model file 128.
const DEPTH_MAX: usize = 256;

/// A stored text of a list or an object that this server cannot have written.
#[derive(Debug, PartialEq, Eq)]
pub struct DamagedValue;

/// Converts a list or an object to canonical JSON text; other values are unchanged.
pub fn canonicalize(value: Value) -> Value {
    match value {
        Value::List(_) | Value::Object(_) => Value::Json(json::value_to_text(&value).into()),
        value => value,
    }
}

/// The inverse of `canonicalize` for a value of `field` that is new or that the store has checked.
pub fn parse_canonical(field: &Field, value: Value) -> Value {
    try_parse_canonical(field, value).or_bug("the store checks the lists and objects that it reads")
}

/// The inverse of `canonicalize` for a stored value of `field`; the value of a `json` field stays text. A field of
/// another class has no JSON text, except one that the change log has from an older model.
pub fn try_parse_canonical(field: &Field, value: Value) -> Result<Value, DamagedValue> {
    let Value::Json(text) = &value else { return Ok(value) };
    if field.storage_class() != StorageClass::Json {
        return Err(DamagedValue);
    }
    if field.rules.element.is_none() && field.rules.fields.is_empty() {
        return Ok(value);
    }
    let json = json::parse(text.as_bytes(), DEPTH_MAX).map_err(|_| DamagedValue)?;
    value_from_json(field, &json).ok_or(DamagedValue)
}

/// Whether a stored text is JSON at all.
pub fn is_valid_json(text: &str) -> bool {
    json::parse(text.as_bytes(), DEPTH_MAX).is_ok()
}

/// Parses JSON that this server wrote for a value of `field`, with lists and objects parsed.
pub fn value_from_json(field: &Field, json: &Json<'_>) -> Option<Value> {
    Some(match (field.storage_class(), json) {
        (_, Json::Null) => Value::Null,
        (StorageClass::Json, json) => composite_from_json(field, json)?,
        (StorageClass::Text, Json::Text(text)) => Value::text(text),
        (StorageClass::Moment, Json::Text(text)) => Value::Moment(Moment::parse(text)?),
        (StorageClass::Boolean, Json::Boolean(value)) => Value::Boolean(*value),
        (StorageClass::Integer, Json::Number(text)) => Value::Integer(json::parse_integer(text)?),
        (StorageClass::Real, Json::Number(text)) => Value::Number(text.parse().ok()?),
        (StorageClass::Decimal, Json::Text(text)) => {
            let scale = field.rules.scale;
            Value::Decimal(Decimal { units: json::parse_decimal_units(text, scale)?, scale })
        }
        _ => return None,
    })
}

/// The value of a list, of an object, or of a `json` field.
fn composite_from_json(field: &Field, json: &Json<'_>) -> Option<Value> {
    let rules = &field.rules;
    Some(match (json, &rules.element) {
        (Json::List(elements), Some(of)) => {
            let values = elements.iter().map(|element| value_from_json(of, element));
            Value::List(values.collect::<Option<_>>()?)
        }
        (Json::Object(members), None) if !rules.fields.is_empty() => {
            let member = |inner: &Field| {
                let (_, json) = members.iter().find(|(name, _)| *inner.name == **name)?;
                Some(value_from_json(inner, json).map(|value| (inner.name.clone(), value)))
            };
            Value::Object(rules.fields.iter().filter_map(member).collect::<Option<_>>()?)
        }
        (json, None) if rules.fields.is_empty() => Value::Json(json::to_text(json).into()),
        _ => return None,
    })
}
