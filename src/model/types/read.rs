//! Parsing of one value: null, then the syntax of its type, then the declared rules.

use super::rules;
use crate::json::{self, Json, quote_for_message};
use crate::model::field::Field;
use crate::model::nearest::nearest;
use crate::problem::{FaultCode, FaultCollector};
use crate::value::{Value, truncate_for_message};

/// Parses one value of one field.
pub fn read(field: &Field, json: &Json<'_>, faults: &mut FaultCollector) -> Option<Value> {
    match json {
        Json::Null if field.nullable => Some(Value::Null),
        Json::Null => refuse(faults, FaultCode::Null, field.kind.about, "null"),
        json => {
            let value = (field.kind.read)(field, json, faults)?;
            rules::check(field, &value, faults).then_some(value)
        }
    }
}

/// Parses one value of a new item.
pub fn read_new(field: &Field, json: &Json<'_>, faults: &mut FaultCollector) -> Option<Value> {
    let value = read(field, json, faults)?;
    match (field.kind.refuse_new)(&value) {
        None => Some(value),
        Some(fault) => {
            faults.add(FaultCode::Format, fault);
            None
        }
    }
}

/// Adds the fault of a value that is not what is expected.
pub fn refuse<T>(
    faults: &mut FaultCollector,
    code: FaultCode,
    expected: &str,
    got: &str,
) -> Option<T> {
    faults.add(code, format!("expected {expected}, got {got}"));
    None
}

/// A JSON string without NUL, for all types whose values are texts.
pub fn expect_text<'j>(
    json: &'j Json<'_>,
    expected: &str,
    faults: &mut FaultCollector,
) -> Option<&'j str> {
    let Json::Text(text) = json else {
        return refuse(faults, FaultCode::Type, expected, json.type_name());
    };
    expect_no_nul(text, faults)
}

pub fn expect_no_nul<'t>(text: &'t str, faults: &mut FaultCollector) -> Option<&'t str> {
    if text.contains('\0') {
        faults.add(FaultCode::Format, "expected a text without the NUL character");
        return None;
    }
    Some(text)
}

/// A text with the form of its type.
pub fn expect_form(
    json: &Json<'_>,
    expected: &str,
    is_valid: fn(&str) -> bool,
    faults: &mut FaultCollector,
) -> Option<Value> {
    let text = expect_text(json, expected, faults)?;
    if is_valid(text) {
        return Some(Value::text(text));
    }
    refuse(faults, FaultCode::Format, expected, &quote_for_message(text))
}

/// A JSON number, as its text.
pub fn expect_number<'j>(
    json: &'j Json<'_>,
    expected: &str,
    faults: &mut FaultCollector,
) -> Option<&'j str> {
    match json {
        Json::Number(text) => Some(text),
        _ => refuse(faults, FaultCode::Type, expected, json.type_name()),
    }
}

/// A number that a double represents exactly.
pub fn expect_exact_number(text: &str, faults: &mut FaultCollector) -> Option<f64> {
    json::parse_exact_double(text).filter(|value| value.is_finite()).or_else(|| {
        let expected = "a number that a double holds without loss";
        refuse(faults, FaultCode::Range, expected, &truncate_for_message(text))
    })
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
    let detail = format!("expected {}, got nothing", field.kind.about);
    faults.add_at(&field.name, FaultCode::Required, detail);
}
