//! The shape of a model: the `[resources]` table as canonical TOML, which the database stores.
//!
//! Written from the checked resources, so that comments, the order of keys and omitted defaults make no
//! difference. Realms, roles and settings do not affect data and are left out.

use std::fmt::Write;

use super::field_keys::{self, DERIVED_VERSION_KEY, FieldPosition};
use super::keys;
use crate::json::{self, Json};
use crate::model::{
    AuditedUser, ChangeLogDetail, Deprecated, Field, ItemCheck, OnDelete, Resource, ResourceIndex,
    StateMachine, TextOrder, UniqueRule, UniqueScope,
};
use crate::value::{IdKind, Value};

/// The maximum nesting depth: more levels than any default has.
const DEPTH_MAX: usize = 128;

pub fn write(resources: &[Resource]) -> String {
    let mut out = String::new();
    for resource in resources {
        if !out.is_empty() {
            out.push('\n');
        }
        let pairs = resource_pairs(resource, resources);
        let _infallible = writeln!(out, "[resources.{}]", resource.name);
        pairs.write_lines(&mut out);
        let _infallible = writeln!(out, "\n[resources.{}.fields]", resource.name);
        let declared =
            resource.fields.iter().enumerate().filter(|(_, field)| field.audit.is_none());
        for (index, field) in declared {
            let unique = resource.unique.iter().find(|unique| unique.fields == [index]);
            let pairs = field_pairs(field, unique, resources);
            let _infallible = writeln!(out, "{} = {}", field.name, pairs.to_inline_table());
        }
    }
    out
}

/// Keys with their values as TOML text, in output order.
#[derive(Debug, Default)]
struct TomlPairs(Vec<(String, String)>);

impl TomlPairs {
    fn push_pair(&mut self, key: &str, value: impl Into<String>) {
        self.0.push((key.to_owned(), value.into()));
    }

    fn push_text(&mut self, key: &str, text: Option<&str>) {
        if let Some(text) = text {
            self.push_pair(key, toml_string(text));
        }
    }

    fn push_flag(&mut self, key: &str, flag: bool) {
        if flag {
            self.push_pair(key, "true");
        }
    }

    fn push_number(&mut self, key: &str, number: Option<impl ToString>) {
        if let Some(number) = number {
            self.push_pair(key, number.to_string());
        }
    }

    fn to_inline_table(&self) -> String {
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

fn resource_pairs(resource: &Resource, all: &[Resource]) -> TomlPairs {
    let mut pairs = TomlPairs::default();
    pairs.push_text("plural", Some(&resource.plural));
    pairs.push_text("parent", resource.parent.and_then(|parent| resource_name(parent, all)));
    pairs.push_text("on_delete", on_delete_word(resource.on_delete));
    pairs.push_text("id", (resource.id == IdKind::Integer).then_some("integer"));
    let groups: Vec<String> = resource
        .unique
        .iter()
        .filter(|unique| unique.fields.len() > 1)
        .map(|unique| unique_group(unique, resource))
        .collect();
    if !groups.is_empty() {
        pairs.push_pair("unique", format!("[{}]", groups.join(", ")));
    }
    let checks: Vec<String> = resource.checks.iter().map(check_table).collect();
    if !checks.is_empty() {
        pairs.push_pair("check", format!("[{}]", checks.join(", ")));
    }
    for user in AuditedUser::ALL {
        let mut fields = resource.fields.iter();
        pairs.push_flag(user.name(), fields.any(|field| field.audit == Some(user)));
    }
    pairs.push_flag("require_if_match", resource.require_if_match);
    pairs.push_text("changes", (resource.changes == ChangeLogDetail::Ids).then_some("ids"));
    push_deprecated(&mut pairs, resource.deprecated.as_ref());
    pairs
}

fn resource_name(index: ResourceIndex, all: &[Resource]) -> Option<&str> {
    all.get(index.0).map(|resource| &*resource.name)
}

fn on_delete_word(on_delete: OnDelete) -> Option<&'static str> {
    match on_delete {
        // `DeleteLater` is for built-in resources, which have no shape.
        OnDelete::Restrict | OnDelete::DeleteLater => None,
        OnDelete::Cascade => Some("cascade"),
        OnDelete::Clear => Some("clear"),
    }
}

fn unique_group(unique: &UniqueRule, resource: &Resource) -> String {
    let names = unique.fields.iter().filter_map(|index| resource.fields.get(*index));
    format!("[{}]", names.map(|field| toml_string(&field.name)).collect::<Vec<_>>().join(", "))
}

fn check_table(check: &ItemCheck) -> String {
    let mut pairs = TomlPairs::default();
    pairs.push_text("that", Some(&check.that.text));
    pairs.push_text("message", Some(&check.message));
    pairs.to_inline_table()
}

fn push_deprecated(pairs: &mut TomlPairs, deprecated: Option<&Deprecated>) {
    let Some(deprecated) = deprecated else { return };
    let mut inner = TomlPairs::default();
    inner.push_text("since", Some(&deprecated.since));
    inner.push_text("sunset", deprecated.sunset.as_deref());
    inner.push_text("use", deprecated.use_instead.as_deref());
    pairs.push_pair("deprecated", inner.to_inline_table());
}

fn field_pairs(field: &Field, unique: Option<&UniqueRule>, all: &[Resource]) -> TomlPairs {
    let mut pairs = TomlPairs::default();
    let rules = &field.rules;
    pairs.push_text("type", Some(field.kind.name));
    pairs.push_flag("required", field.required);
    pairs.push_flag("nullable", field.nullable);
    // Keys that a type does not allow are set by the server itself.
    let takes = |key: &str| field_keys::is_key_allowed(FieldPosition::Resource, field.kind, key);
    if let Some(default) = field.default.as_ref().filter(|_| takes("default")) {
        pairs.push_pair("default", toml_value(default));
    }
    // A shape has no users, so that a default from a field of them is left out.
    let source =
        keys::DEFAULT_SOURCES.iter().find(|(_, one)| Some(one) == field.default_from.as_ref());
    if let Some((word, _)) = source {
        let mut from = TomlPairs::default();
        from.push_text("from", Some(word));
        pairs.push_pair("default", from.to_inline_table());
    }
    if let Some(states) = &rules.states {
        pairs.push_text("initial", Some(&states.initial));
        pairs.push_pair("next", transition_pairs(states).to_inline_table());
    }
    pairs.push_flag("filter", field.filter && takes("filter"));
    pairs.push_flag("match", field.is_matched);
    pairs.push_text("order", (field.order == TextOrder::Unicode).then_some("unicode"));
    let has_derived = field.derivations().next().is_some();
    pairs.push_number(DERIVED_VERSION_KEY, has_derived.then_some(field.derived_version));
    match unique.map(|unique| unique.scope) {
        Some(UniqueScope::Resource) => pairs.push_flag("unique", true),
        Some(UniqueScope::Parent) => pairs.push_text("unique", Some("parent")),
        None => {}
    }
    pairs.push_text("computed", field.computed.as_ref().map(|expression| &*expression.text));
    pairs.push_number("scale", takes("scale").then_some(rules.scale));
    let target = rules.reference.or(field.many_references());
    pairs.push_text("to", target.and_then(|to| resource_name(to.resource, all)));
    let word = target.and_then(|to| on_delete_word(to.on_delete));
    let word =
        if rules.reference.is_none() && word == Some("clear") { Some("remove") } else { word };
    pairs.push_text("on_delete", word);
    push_limits(&mut pairs, field);
    if let Some(of) = rules.element.as_ref().filter(|_| takes("of")) {
        pairs.push_pair("of", field_pairs(of, None, all).to_inline_table());
    }
    if !rules.fields.is_empty() {
        let mut fields = TomlPairs::default();
        for field in &rules.fields {
            fields.push_pair(&field.name, field_pairs(field, None, all).to_inline_table());
        }
        pairs.push_pair("fields", fields.to_inline_table());
    }
    push_deprecated(&mut pairs, field.deprecated.as_ref());
    pairs
}

fn transition_pairs(states: &StateMachine) -> TomlPairs {
    let mut next = TomlPairs::default();
    for (state, following) in &states.next {
        let following: Vec<String> = following.iter().map(|state| toml_string(state)).collect();
        next.push_pair(state, format!("[{}]", following.join(", ")));
    }
    next
}

fn push_limits(pairs: &mut TomlPairs, field: &Field) {
    let rules = &field.rules;
    for (key, bound) in [("min", &rules.min), ("max", &rules.max)] {
        if let Some(bound) = bound {
            pairs.push_pair(key, toml_value(bound));
        }
    }
    pairs.push_number("min_length", rules.min_length);
    pairs.push_number("max_length", rules.max_length);
    pairs.push_text("pattern", rules.pattern.as_ref().map(regex::Regex::as_str));
    pairs.push_number("min_items", rules.min_items);
    pairs.push_number("max_items", rules.max_items);
    if !rules.one_of.is_empty() {
        let values: Vec<String> = rules.one_of.iter().map(toml_value).collect();
        pairs.push_pair("one_of", format!("[{}]", values.join(", ")));
    }
}

/// A value as TOML. There are no nulls, since TOML has none.
fn toml_value(of: &Value) -> String {
    match of {
        Value::Null | Value::ClearText(_) => toml_string(""),
        Value::Boolean(value) => value.to_string(),
        Value::Integer(value) => value.to_string(),
        Value::Number(value) => format!("{value:?}"),
        Value::Decimal(value) => toml_string(&value.to_string()),
        Value::Text(value) => toml_string(value),
        Value::Moment(value) => toml_string(&value.to_string()),
        Value::Json(text) => json::parse(text.as_bytes(), DEPTH_MAX)
            .map_or_else(|_| toml_string(text), |json| toml_from_json(&json)),
        Value::List(values) => {
            format!("[{}]", values.iter().map(toml_value).collect::<Vec<_>>().join(", "))
        }
        Value::Object(members) => {
            let mut pairs = TomlPairs::default();
            for (name, member) in members.iter().filter(|(_, member)| !member.is_null()) {
                pairs.push_pair(name, toml_value(member));
            }
            pairs.to_inline_table()
        }
    }
}

fn toml_from_json(json: &Json<'_>) -> String {
    match json {
        Json::Null => toml_string(""),
        Json::Boolean(value) => value.to_string(),
        Json::Number(text) => (*text).to_owned(),
        Json::Text(text) => toml_string(text),
        Json::List(elements) => {
            format!("[{}]", elements.iter().map(toml_from_json).collect::<Vec<_>>().join(", "))
        }
        Json::Object(members) => {
            let mut pairs = TomlPairs::default();
            for (name, member) in members {
                pairs.push_pair(&toml_string(name), toml_from_json(member));
            }
            pairs.to_inline_table()
        }
    }
}

/// A TOML basic string.
pub fn toml_string(text: &str) -> String {
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
