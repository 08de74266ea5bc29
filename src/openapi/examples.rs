//! Examples made from the model: the same ones each time, and valid by the rules that requests are checked with.

use super::pattern;
use super::tree::JsonNode;
use super::viewer::WritableFields;
use crate::json;
use crate::model::expr::{evaluate, fails};
use crate::model::{Field, Resource, StorageClass, types};
use crate::problem::FaultCollector;
use crate::value::{IdKind, Moment, Value};

const EXAMPLE_ID: &str = "01890a5d-ac96-774b-bcce-b302099a8057";
const EXAMPLE_TIME: &str = "2026-11-15T02:28:14.000000Z";
const JSON_DEPTH_MAX: usize = 64;

/// An id, as JSON.
pub fn id(kind: IdKind) -> JsonNode {
    match kind {
        IdKind::Uuid => EXAMPLE_ID.into(),
        IdKind::Integer => 1_i64.into(),
    }
}

/// A timestamp, as JSON.
pub fn time() -> JsonNode {
    EXAMPLE_TIME.into()
}

/// A value that is valid for a field; `None` where the rules are too intricate to make one.
pub fn field_value(field: &Field) -> Option<Value> {
    candidates(field).into_iter().find_map(|value| checked(field, &value))
}

/// The value as the server reads it, if it is valid.
fn checked(field: &Field, value: &Value) -> Option<Value> {
    let text = json::value_to_text(value);
    let parsed = json::parse(text.as_bytes(), JSON_DEPTH_MAX).ok()?;
    let mut faults = FaultCollector::at_root(String::new());
    let value = types::read_new(field, &parsed, &mut faults)?;
    faults.into_list().is_empty().then_some(value)
}

fn candidates(field: &Field) -> Vec<Value> {
    let rules = &field.rules;
    let mut all: Vec<Value> =
        field.default.iter().filter(|value| !value.is_null()).cloned().collect();
    all.extend(rules.one_of.first().cloned());
    match field.storage_class() {
        StorageClass::Text => all.extend(texts(field)),
        StorageClass::Moment => all.extend(Moment::parse(EXAMPLE_TIME).map(Value::Moment)),
        StorageClass::Boolean => all.push(Value::Boolean(true)),
        StorageClass::Integer => all.push(Value::Integer(1)),
        StorageClass::Real => all.push(Value::Number(1.5)),
        StorageClass::Decimal => all.push(Value::Integer(1)),
        StorageClass::Json => all.extend(structure(field)),
    }
    all.extend(rules.min.clone());
    all.extend(rules.max.clone());
    all
}

fn texts(field: &Field) -> Vec<Value> {
    let rules = &field.rules;
    if rules.reference.is_some() {
        return vec![Value::text(EXAMPLE_ID)];
    }
    if field.audit.is_some() {
        return vec![Value::text("ann")];
    }
    let state = rules.states.iter().map(|states| states.initial.to_string());
    let kind = field.kind.example.iter().map(|text| (*text).to_owned());
    let own = rules.pattern.as_ref().and_then(|own| pattern::example(own.as_str()));
    // The name of the field, with the length that the rules ask for.
    let mut words = field.name.replace('_', " ");
    let length_min = rules.min_length.unwrap_or(0);
    while words.chars().count() < length_min {
        words.push_str(" and more");
    }
    let chars_max = rules.max_length.unwrap_or(usize::MAX);
    let words: String = words.chars().take(chars_max.min(length_min.max(40))).collect();
    let words = [words.trim_end().to_owned(), words];
    // Other texts may be refused by rules that are not those of the type.
    let words = words.into_iter().filter(|_| field.kind.example.is_none());
    let all = state.chain(kind).chain(own).chain(words);
    all.map(|text| Value::text(&text)).collect()
}

fn structure(field: &Field) -> Vec<Value> {
    let rules = &field.rules;
    if field.many_references().is_some() {
        return vec![Value::List(Vec::new())];
    }
    if let Some(element) = &rules.element {
        let count = rules.min_items.unwrap_or(0).max(1).min(rules.max_items.unwrap_or(usize::MAX));
        let element = field_value(element);
        let full = element.map(|element| Value::List(vec![element; count]));
        return full.into_iter().chain([Value::List(Vec::new())]).collect();
    }
    if rules.fields.is_empty() {
        return vec![Value::Json(r#"{"any":["JSON",1,true]}"#.into())];
    }
    let members = rules
        .fields
        .iter()
        .filter_map(|inner| field_value(inner).map(|value| (inner.name.clone(), value)));
    vec![Value::Object(members.collect())]
}

/// The members of a body with a new item, or with one that replaces another; `None` if a required field has no
/// example, or if the examples together break a check of the model. Limited fields are left out, since
/// what is sent may be refused.
pub fn written_item(resource: &Resource, writable: &WritableFields<'_>) -> Option<JsonNode> {
    let is_sent = |at: usize, field: &Field| {
        let is_left_out = field.rules.states.is_some()
            || field.rules.reference.is_some()
            || resource.checks.iter().any(|check| check.that.reads_field(at));
        !writable.is_limited(at) && (!is_left_out || field.required)
    };
    let mut item = JsonNode::empty_object();
    let mut values: Vec<Value> = resource.fields.iter().map(default_value).collect();
    for (at, field) in writable.fields(resource).filter(|(at, field)| is_sent(*at, field)) {
        match field_value(field) {
            Some(value) => {
                item.add(field.name.to_string(), &value);
                set(&mut values, at, value);
            }
            None if field.required => return None,
            None => {}
        }
    }
    compute(resource, &mut values);
    let is_broken = resource.checks.iter().any(|check| fails(&check.that, &values));
    (!is_broken).then_some(item)
}

fn default_value(field: &Field) -> Value {
    field.default.clone().unwrap_or(Value::Null)
}

/// Sets the computed fields.
fn compute(resource: &Resource, values: &mut [Value]) {
    let computed = resource.fields.iter().enumerate().filter_map(|(at, field)| {
        let value = evaluate(field.computed.as_ref()?, values).ok()?;
        Some((at, value))
    });
    for (at, value) in computed.collect::<Vec<_>>() {
        set(values, at, value);
    }
}

fn set(values: &mut [Value], at: usize, value: Value) {
    if let Some(place) = values.get_mut(at) {
        *place = value;
    }
}

/// The JSON of a new item with its required fields alone, without limited ones; `None` if one of them has no example.
pub fn required_item_text(resource: &Resource, writable: &WritableFields<'_>) -> Option<String> {
    let mut item = JsonNode::empty_object();
    let is_sent = |(at, field): &(usize, &Field)| field.required && !writable.is_limited(*at);
    for (_, field) in writable.fields(resource).filter(is_sent) {
        item.add(field.name.to_string(), &field_value(field)?);
    }
    Some(item.text())
}

/// The JSON of a merge patch of one field.
pub fn patch_text(resource: &Resource, writable: &WritableFields<'_>) -> Option<String> {
    let (name, value) = patched_field(resource, writable)?;
    let mut patch = JsonNode::empty_object();
    patch.add(name.to_owned(), value);
    Some(patch.text())
}

/// The field that the example of a patch changes, and its value.
pub fn patched_field<'r>(
    resource: &'r Resource,
    writable: &WritableFields<'_>,
) -> Option<(&'r str, JsonNode)> {
    writable.fields(resource).find_map(|(at, field)| {
        let is_plain = field.rules.states.is_none()
            && field.rules.reference.is_none()
            && !writable.is_limited(at)
            && !field.fixed
            && !field.secret
            && !resource.unique.iter().any(|rule| rule.fields.contains(&at))
            && !resource.checks.iter().any(|check| check.that.reads_field(at));
        let value = field_value(field).filter(|_| is_plain)?;
        Some((&*field.name, JsonNode::from(&value)))
    })
}

/// An item as GET shows it, with the fields of these indices.
pub fn read_item(resource: &Resource, parent: Option<IdKind>, shown: &[usize]) -> Option<JsonNode> {
    let mut values: Vec<Value> = resource
        .fields
        .iter()
        .map(|field| field_value(field).filter(|_| field.computed.is_none()).unwrap_or(Value::Null))
        .collect();
    compute(resource, &mut values);
    let mut item = object! { "id": id(resource.id) };
    if let (Some(key), Some(kind)) = (&resource.parent_key, parent) {
        item.add(key.to_string(), id(kind));
    }
    for (at, (field, value)) in resource.fields.iter().zip(&values).enumerate() {
        if !shown.contains(&at) {
            continue;
        }
        if value.is_null() && field.required && !field.nullable {
            return None;
        }
        if !value.is_null() || field.nullable {
            item.add(field.name.to_string(), value);
        }
    }
    Some(item.with_all(object! { "created_at": time(), "updated_at": time(), "version": 1_i64 }))
}

/// A table of one new item: the names of the fields, then the values (RFC 4180).
pub fn csv(item: &JsonNode) -> Option<String> {
    let JsonNode::Object(members) = item else { return None };
    let cell = |node: &JsonNode| {
        let text = match node {
            JsonNode::Raw(text) => plain_text(text),
            node => {
                let mut out = Vec::new();
                node.write(&mut out);
                json::into_text(out)
            }
        };
        match text.contains([',', '"', '\n', '\r']) || text.is_empty() {
            true => format!("\"{}\"", text.replace('"', "\"\"")),
            false => text,
        }
    };
    let names: Vec<&str> = members.iter().map(|(name, _)| &**name).collect();
    let cells: Vec<String> = members.iter().map(|(_, node)| cell(node)).collect();
    (!names.is_empty()).then(|| format!("{}\r\n{}\r\n", names.join(","), cells.join(",")))
}

/// The text of a JSON string; other JSON stays as it is.
fn plain_text(text: &str) -> String {
    match json::parse(text.as_bytes(), JSON_DEPTH_MAX) {
        Ok(json::Json::Text(text)) => text.into_owned(),
        _ => text.to_owned(),
    }
}

/// One line of NDJSON.
pub fn ndjson(item: &JsonNode) -> String {
    let mut line = item.text();
    line.push('\n');
    line
}
