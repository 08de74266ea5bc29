//! The shape of a model: the `[resources]` table as canonical TOML, which the database stores.
//!
//! Written from the checked resources, so that comments, the order of keys and omitted defaults make no
//! difference. Realms, roles and settings do not affect data and are left out.

use std::fmt::Write;

use super::fits::{self, Place};
use crate::json::{self, Json};
use crate::model::{
    ChangesKept, Deprecated, Field, OnDelete, Resource, ResourceIndex, States, Unique, UniqueScope,
};
use crate::value::{IdKind, Value};

/// More levels than any default has.
const DEPTH_MAX: usize = 128;

pub(super) fn write(resources: &[Resource]) -> String {
    let mut out = String::new();
    for resource in resources {
        if !out.is_empty() {
            out.push('\n');
        }
        let pairs = resource_pairs(resource, resources);
        let _infallible = writeln!(out, "[resources.{}]", resource.name);
        pairs.write_lines(&mut out);
        let _infallible = writeln!(out, "\n[resources.{}.fields]", resource.name);
        for (index, field) in resource.fields.iter().enumerate() {
            let unique = resource.unique.iter().find(|unique| unique.fields == [index]);
            let pairs = field_pairs(field, unique, resources);
            let _infallible = writeln!(out, "{} = {}", field.name, pairs.inline());
        }
    }
    out
}

/// Keys with their values as TOML text, in output order.
#[derive(Debug, Default)]
struct Pairs(Vec<(String, String)>);

impl Pairs {
    fn put(&mut self, key: &str, value: impl Into<String>) {
        self.0.push((key.to_owned(), value.into()));
    }

    fn text(&mut self, key: &str, text: Option<&str>) {
        if let Some(text) = text {
            self.put(key, quoted(text));
        }
    }

    fn flag(&mut self, key: &str, flag: bool) {
        if flag {
            self.put(key, "true");
        }
    }

    fn number(&mut self, key: &str, number: Option<impl ToString>) {
        if let Some(number) = number {
            self.put(key, number.to_string());
        }
    }

    fn inline(&self) -> String {
        let pairs: Vec<String> =
            self.0.iter().map(|(key, value)| format!("{key} = {value}")).collect();
        format!("{{ {} }}", pairs.join(", "))
    }

    fn write_lines(&self, out: &mut String) {
        for (key, value) in &self.0 {
            let _infallible = writeln!(out, "{key} = {value}");
        }
    }
}

fn resource_pairs(resource: &Resource, all: &[Resource]) -> Pairs {
    let mut pairs = Pairs::default();
    pairs.text("plural", Some(&resource.plural));
    pairs.text("parent", resource.parent.and_then(|parent| name_of(parent, all)));
    pairs.text("on_delete", cascade(resource.on_delete));
    pairs.text("id", (resource.id == IdKind::Integer).then_some("integer"));
    let groups: Vec<String> = resource
        .unique
        .iter()
        .filter(|unique| unique.fields.len() > 1)
        .map(|unique| group(unique, resource))
        .collect();
    if !groups.is_empty() {
        pairs.put("unique", format!("[{}]", groups.join(", ")));
    }
    pairs.flag("require_if_match", resource.require_if_match);
    pairs.text("changes", (resource.changes == ChangesKept::Ids).then_some("ids"));
    deprecated(&mut pairs, resource.deprecated.as_ref());
    pairs
}

fn name_of(index: ResourceIndex, all: &[Resource]) -> Option<&str> {
    all.get(index.0).map(|resource| &*resource.name)
}

fn cascade(on_delete: OnDelete) -> Option<&'static str> {
    match on_delete {
        OnDelete::Restrict => None,
        OnDelete::Cascade => Some("cascade"),
    }
}

fn group(unique: &Unique, resource: &Resource) -> String {
    let names = unique.fields.iter().filter_map(|index| resource.fields.get(*index));
    format!("[{}]", names.map(|field| quoted(&field.name)).collect::<Vec<_>>().join(", "))
}

fn deprecated(pairs: &mut Pairs, deprecated: Option<&Deprecated>) {
    let Some(deprecated) = deprecated else { return };
    let mut inner = Pairs::default();
    inner.text("since", Some(&deprecated.since));
    inner.text("sunset", deprecated.sunset.as_deref());
    inner.text("use", deprecated.use_instead.as_deref());
    pairs.put("deprecated", inner.inline());
}

fn field_pairs(field: &Field, unique: Option<&Unique>, all: &[Resource]) -> Pairs {
    let mut pairs = Pairs::default();
    let rules = &field.rules;
    pairs.text("type", Some(field.kind.name()));
    pairs.flag("required", field.required);
    pairs.flag("nullable", field.nullable);
    // Keys that a type does not allow are set by the server itself.
    let takes = |key: &str| fits::takes(Place::Resource, field.kind, key);
    if let Some(default) = field.default.as_ref().filter(|_| takes("default")) {
        pairs.put("default", value(default));
    }
    if let Some(states) = &rules.states {
        pairs.text("initial", Some(&states.initial));
        pairs.put("next", transitions(states).inline());
    }
    pairs.flag("filter", field.filter && takes("filter"));
    match unique.map(|unique| unique.scope) {
        Some(UniqueScope::Resource) => pairs.flag("unique", true),
        Some(UniqueScope::Parent) => pairs.text("unique", Some("parent")),
        None => {}
    }
    pairs.text("computed", field.computed.as_ref().map(|expression| &*expression.text));
    pairs.number("scale", takes("scale").then_some(rules.scale));
    pairs.text("to", rules.to.and_then(|to| name_of(to.resource, all)));
    pairs.text("on_delete", rules.to.and_then(|to| cascade(to.on_delete)));
    limits(&mut pairs, field);
    if let Some(of) = &rules.of {
        pairs.put("of", field_pairs(of, None, all).inline());
    }
    if !rules.fields.is_empty() {
        let mut fields = Pairs::default();
        for field in &rules.fields {
            fields.put(&field.name, field_pairs(field, None, all).inline());
        }
        pairs.put("fields", fields.inline());
    }
    deprecated(&mut pairs, field.deprecated.as_ref());
    pairs
}

fn transitions(states: &States) -> Pairs {
    let mut next = Pairs::default();
    for (state, following) in &states.next {
        let following: Vec<String> = following.iter().map(|state| quoted(state)).collect();
        next.put(state, format!("[{}]", following.join(", ")));
    }
    next
}

fn limits(pairs: &mut Pairs, field: &Field) {
    let rules = &field.rules;
    for (key, bound) in [("min", &rules.min), ("max", &rules.max)] {
        if let Some(bound) = bound {
            pairs.put(key, value(&bound.value()));
        }
    }
    pairs.number("min_length", rules.min_length);
    pairs.number("max_length", rules.max_length);
    pairs.text("pattern", rules.pattern.as_ref().map(regex::Regex::as_str));
    pairs.number("min_items", rules.min_items);
    pairs.number("max_items", rules.max_items);
    if !rules.one_of.is_empty() {
        let values: Vec<String> = rules.one_of.iter().map(value).collect();
        pairs.put("one_of", format!("[{}]", values.join(", ")));
    }
}

/// A value as TOML. There are no nulls, since TOML has none.
fn value(of: &Value) -> String {
    match of {
        Value::Null | Value::Clear(_) => quoted(""),
        Value::Boolean(value) => value.to_string(),
        Value::Integer(value) => value.to_string(),
        Value::Number(value) => format!("{value:?}"),
        Value::Decimal(value) => quoted(&value.to_string()),
        Value::Text(value) => quoted(value),
        Value::Moment(value) => quoted(&value.to_string()),
        Value::Json(text) => json::parse(text.as_bytes(), DEPTH_MAX)
            .map_or_else(|_| quoted(text), |json| from_json(&json)),
        Value::List(values) => {
            format!("[{}]", values.iter().map(value).collect::<Vec<_>>().join(", "))
        }
        Value::Object(members) => {
            let mut pairs = Pairs::default();
            for (name, member) in members.iter().filter(|(_, member)| !member.is_null()) {
                pairs.put(name, value(member));
            }
            pairs.inline()
        }
    }
}

fn from_json(json: &Json<'_>) -> String {
    match json {
        Json::Null => quoted(""),
        Json::Boolean(value) => value.to_string(),
        Json::Number(text) => (*text).to_owned(),
        Json::Text(text) => quoted(text),
        Json::List(elements) => {
            format!("[{}]", elements.iter().map(from_json).collect::<Vec<_>>().join(", "))
        }
        Json::Object(members) => {
            let mut pairs = Pairs::default();
            for (name, member) in members {
                pairs.put(&quoted(name), from_json(member));
            }
            pairs.inline()
        }
    }
}

/// A TOML basic string.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if c.is_control() => {
                let _infallible = write!(out, "\\u{:04X}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}
