//! Conversion of values to another field type, through their JSON text, which field types parse and validate.

use std::borrow::Cow;

use super::field::Field;
use super::types;
use crate::json::{self, Json};
use crate::problem::{FaultCode, FaultCollector};
use crate::value::{IdKind, Moment, Value, truncate_for_message};

/// Deeper than any stored value.
const DEPTH_MAX: usize = 256;

const NUMERIC: [&str; 3] = ["integer", "number", "decimal"];
/// The types whose values have a text form.
const SCALAR: [&str; 12] = [
    "text",
    "email",
    "url",
    "integer",
    "number",
    "decimal",
    "boolean",
    "date",
    "timestamp",
    "uuid",
    "ref",
    "state",
];

/// Whether values of one field can become values of another one. Each value is validated when it is converted.
pub fn can_convert(from: &Field, to: &Field) -> bool {
    let is_scalar = |name: &str| SCALAR.contains(&name);
    match (from.kind.name, to.kind.name) {
        (was, is) if was == is => true,
        ("json", _) | (_, "json") => true,
        ("list" | "refs", "list" | "refs") => {
            let elements = (&from.rules.element, &to.rules.element);
            matches!(elements, (Some(was), Some(is)) if can_convert(was, is))
        }
        ("ref", "refs") => true,
        ("refs", _) | (_, "refs") => false,
        (was, "list") => {
            was != "object" && to.rules.element.as_deref().is_some_and(|of| can_convert(from, of))
        }
        ("text", is) => is_scalar(is),
        (was, "text") => is_scalar(was),
        (was, is) if NUMERIC.contains(&was) && NUMERIC.contains(&is) => true,
        ("date", "timestamp") => true,
        ("uuid" | "integer", "ref") | ("ref", "uuid" | "integer") => {
            let target = from.rules.reference.or(to.rules.reference);
            let id_type = match target.map(|target| target.id) {
                Some(IdKind::Integer) => "integer",
                _ => "uuid",
            };
            [from.kind.name, to.kind.name].contains(&id_type)
        }
        _ => false,
    }
}

pub fn expected(to: &Field, got: &str) -> String {
    format!("expected {}, got {}", to.kind.about, truncate_for_message(got))
}

/// Converts a value that is not null.
pub fn convert(
    from: &Field,
    to: &Field,
    value: &Value,
    faults: &mut FaultCollector,
) -> Option<Value> {
    let text = json::value_to_text(value);
    let parsed = json::parse(text.as_bytes(), DEPTH_MAX).ok();
    let mut out = Vec::with_capacity(text.len() + 2);
    let is_converted = parsed.is_some_and(|json| write_converted(&mut out, (from, to), &json));
    let json = json::parse(&out, DEPTH_MAX).ok().filter(|_| is_converted);
    let Some(json) = json else {
        faults.add(FaultCode::Type, expected(to, &text));
        return None;
    };
    types::read(to, &json, faults)
}

/// Writes the JSON of a value of another field. False if it has no such form.
fn write_converted(out: &mut Vec<u8>, (from, to): (&Field, &Field), json: &Json<'_>) -> bool {
    match (from.kind.name, to.kind.name, json) {
        (_, _, Json::Null) | ("json", _, _) | (_, "json", _) => json::write(out, json),
        ("list" | "refs", "list" | "refs", Json::List(elements)) => {
            let (Some(was), Some(is)) = (&from.rules.element, &to.rules.element) else {
                return false;
            };
            out.push(b'[');
            for (at, element) in elements.iter().enumerate() {
                if at > 0 {
                    out.push(b',');
                }
                if !write_converted(out, (was, is), element) {
                    return false;
                }
            }
            out.push(b']');
        }
        ("object", "object", Json::Object(members)) => {
            return write_members(out, (&from.rules.fields, &to.rules.fields), members);
        }
        (was, "list" | "refs", _) if !["list", "refs"].contains(&was) => {
            let Some(of) = &to.rules.element else { return false };
            out.push(b'[');
            let is_converted = write_converted(out, (from, of), json);
            out.push(b']');
            return is_converted;
        }
        ("state", "state", Json::Text(state)) => {
            let moves = to.rules.states.iter().flat_map(|states| &states.moved_to);
            let mut moved = moves.filter(|(removed, _)| **removed == **state).map(|(_, to)| &**to);
            json::write_text(out, moved.next().unwrap_or(state));
        }
        (_, _, json) => return write_scalar(out, to, json),
    }
    true
}

fn write_members(
    out: &mut Vec<u8>,
    (before, after): (&[Field], &[Field]),
    members: &[(Cow<'_, str>, Json<'_>)],
) -> bool {
    out.push(b'{');
    let mut is_first = true;
    for to in after {
        let from = to.find_former(before).map(|(_, from)| from);
        let sent = from.and_then(|from| {
            members.iter().find(|(name, _)| **name == *from.name).map(|(_, json)| (from, json))
        });
        let is_absent = sent.is_none_or(|(_, json)| *json == Json::Null);
        let fill = to.fill.as_ref().filter(|_| is_absent && needs_fill(from, to));
        if sent.is_none() && fill.is_none() {
            continue;
        }
        if !is_first {
            out.push(b',');
        }
        is_first = false;
        json::write_text(out, &to.name);
        out.push(b':');
        match (fill, sent) {
            (Some(fill), _) => json::write_value(out, fill),
            (None, Some((from, json))) if !write_converted(out, (from, to), json) => return false,
            _ => {}
        }
    }
    out.push(b'}');
    true
}

/// Whether existing items get the fill of a field: if it is new, or if it becomes required. An item without a value
/// keeps none otherwise.
pub fn needs_fill(from: Option<&Field>, to: &Field) -> bool {
    let is_required = |field: &Field| field.required && !field.nullable;
    from.is_none_or(|from| is_required(to) && !is_required(from))
}

/// Writes a value of a type without parts in the JSON form of another such type.
fn write_scalar(out: &mut Vec<u8>, to: &Field, json: &Json<'_>) -> bool {
    let is_number = NUMERIC.contains(&to.kind.name)
        || to.rules.reference.is_some_and(|to| to.id == IdKind::Integer);
    match (to.kind.name, json) {
        // A decimal is a text in JSON.
        (_, Json::Text(text)) if is_number => {
            let text = text.trim();
            if !json::is_number(text) {
                return false;
            }
            out.extend_from_slice(text.as_bytes());
        }
        ("boolean", Json::Text(text)) => match &**text {
            "true" | "false" => out.extend_from_slice(text.as_bytes()),
            _ => return false,
        },
        ("text", Json::Number(text)) => json::write_text(out, text),
        ("text", Json::Boolean(boolean)) => {
            json::write_text(out, if *boolean { "true" } else { "false" });
        }
        ("timestamp", Json::Text(text)) if Moment::parse(text).is_none() => {
            json::write_text(out, &format!("{text}T00:00:00Z"));
        }
        (_, json) => json::write(out, json),
    }
    true
}

#[cfg(test)]
mod tests;
