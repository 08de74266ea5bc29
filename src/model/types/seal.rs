//! Lists and objects as their canonical JSON text, and back.
//!
//! `unseal` reads text that this server wrote, so it looks at form alone: rules may have changed
//! since, and a stored value is not refused for that.

use crate::json::{self, Json};
use crate::model::{Class, Field};
use crate::value::{Decimal, Moment, Value};

/// Deeper text was never written: bodies are read to 32 levels.
const DEPTH_MAX: usize = 64;

/// Turns a list or an object into its canonical JSON text; other values stay as they are.
pub fn seal(value: Value) -> Value {
    match value {
        Value::List(_) | Value::Object(_) => {
            let mut text = Vec::new();
            json::write_value(&mut text, &value);
            // Written by us from str and numbers: always UTF-8.
            Value::Json(String::from_utf8(text).unwrap_or_default().into())
        }
        value => value,
    }
}

/// The reverse of `seal` for a stored value of `field`; a `json` field stays text.
pub fn unseal(field: &Field, value: Value) -> Value {
    let Value::Json(text) = &value else { return value };
    if field.rules.of.is_none() && field.rules.fields.is_empty() {
        return value;
    }
    match json::parse(text.as_bytes(), DEPTH_MAX) {
        Ok(json) => open(field, &json),
        Err(_) => Value::Null,
    }
}

fn open(field: &Field, json: &Json<'_>) -> Value {
    match (field.kind.class(field), json) {
        (Class::Json, json) => open_json(field, json),
        (Class::Text, Json::Text(text)) => Value::text(text),
        (Class::Moment, Json::Text(text)) => Moment::parse(text).map_or(Value::Null, Value::Moment),
        (Class::Boolean, Json::Boolean(value)) => Value::Boolean(*value),
        (Class::Integer, Json::Number(text)) => {
            json::integer(text).map_or(Value::Null, Value::Integer)
        }
        (Class::Real, Json::Number(text)) => text.parse().map_or(Value::Null, Value::Number),
        (Class::Decimal, Json::Text(text)) => {
            let scale = field.rules.scale;
            json::decimal_units(text, scale)
                .map_or(Value::Null, |units| Value::Decimal(Decimal { units, scale }))
        }
        _ => Value::Null,
    }
}

fn open_json(field: &Field, json: &Json<'_>) -> Value {
    match (json, &field.rules.of) {
        (Json::Null, _) => Value::Null,
        (Json::List(elements), Some(of)) => {
            Value::List(elements.iter().map(|element| open(of, element)).collect())
        }
        (Json::Object(members), None) if !field.rules.fields.is_empty() => {
            let member = |inner: &Field| {
                let (_, json) = members.iter().find(|(name, _)| *inner.name == **name)?;
                Some((inner.name.clone(), open(inner, json)))
            };
            Value::Object(field.rules.fields.iter().filter_map(member).collect())
        }
        (json, _) => {
            let mut text = Vec::new();
            json::write(&mut text, json);
            Value::Json(String::from_utf8(text).unwrap_or_default().into())
        }
    }
}
