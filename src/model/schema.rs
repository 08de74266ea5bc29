//! The JSON Schema (2020-12) of the model file, for editors.
//!
//! Generated from the same tables that the reader uses, so that editors suggest what the reader accepts. It
//! describes words and structure only; rules that involve other parts of the file are left to the reader.

use crate::json::{self, Json};

use super::field::FieldType;
use super::file::field_keys::{self, FieldPosition};
use super::file::keys::{self, KeyForm, KeySpec, OtherForm, TableKeys};
use super::settings::LIMITS;
use super::types;

type JsonSchema = Json<'static>;

/// A JSON object with these members.
macro_rules! object {
    ($($key:literal: $value:expr),* $(,)?) => {
        Json::Object(vec![$(($key.into(), JsonSchema::from($value)),)*])
    };
}

/// The schema as indented JSON.
pub fn json_schema() -> String {
    let mut root = object! {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "nouns model file",
        "description":
            "Declares the resources of a service: their fields, relations, and who may do what.",
    };
    extend(&mut root, table_schema(&keys::ROOT, &["title", "resources"]));
    extend(&mut root, object! { "$defs": definitions() });
    let mut out = Vec::new();
    json::write_indented(&mut out, &root, (0, 0));
    out.push(b'\n');
    json::into_text(out)
}

fn definitions() -> JsonSchema {
    let limits = LIMITS.iter().map(|(name, default, about)| {
        let about = format!("{about}; default {default}");
        (*name, described(object! { "type": "integer", "minimum": Json::Number("1") }, about))
    });
    object! {
        "name": object! { "type": "string", "pattern": "^[a-z][a-z0-9_]{0,39}$" },
        "realm": described_table("a protection space", &keys::REALM, &[]),
        "resource": described_table("a noun", &keys::RESOURCE, &[]),
        "field": field_schema(FieldPosition::Resource),
        "member": field_schema(FieldPosition::Object { in_list: false }),
        "element": field_schema(FieldPosition::Element),
        "check": described_table(
            "a rule that the values of an item satisfy together",
            &keys::CHECK,
            &["that", "message"],
        ),
        "transition": described_table(
            "states that may follow, for some roles",
            &keys::TRANSITION,
            &["to", "roles"],
        ),
        "deprecated":
            described_table("marks something as going away", &keys::DEPRECATED, &["since"]),
        "role": role_schema(),
        "verbs": any_of(vec![object! { "const": "*" }, list_of(choice(keys::words(keys::GRANT_VERBS)))]),
        "server": described_table("settings of the server", &keys::SERVER, &[]),
        "users": described_table("the users", &keys::USERS, &[]),
        "limits": closed_object(limits, &[]),
        "rate_limit": described_table(
            "how often one caller may ask",
            &keys::RATE_LIMIT,
            &["requests", "seconds"],
        ),
    }
}

fn role_schema() -> JsonSchema {
    let get_only = || {
        object! { "description": "reading a path of the server's own", "const": vec!["get".into()] }
    };
    let grant = |path: &'static str| match path {
        keys::WEBHOOKS_PATH => described(reference("verbs"), "webhooks and their deliveries"),
        _ => get_only(),
    };
    let paths = keys::SERVER_PATHS.iter().map(|path| ((*path).into(), grant(path))).collect();
    let grant = described_table("verbs with conditions", &keys::GRANT, &["verbs"]);
    object! {
        "type": "object",
        "description": "grants by resource; \"*\" stands for every resource not named here",
        "properties": Json::Object(paths),
        "additionalProperties": any_of(vec![reference("verbs"), grant.clone(), list_of(grant)]),
    }
}

/// The schema of a field: one alternative for each type.
fn field_schema(position: FieldPosition) -> JsonSchema {
    let kinds =
        types::ALL.iter().copied().filter(|kind| field_keys::is_type_allowed(position, kind));
    let mut shapes: Vec<JsonSchema> =
        kinds.clone().map(|kind| typed_field_schema(position, kind, true)).collect();
    if position == FieldPosition::Element {
        let implied = kinds.filter(|kind| kind.implying_key.is_some());
        shapes.extend(implied.map(|kind| typed_field_schema(position, kind, false)));
    }
    any_of(shapes)
}

fn typed_field_schema(
    position: FieldPosition,
    kind: &'static FieldType,
    says_type: bool,
) -> JsonSchema {
    let properties = keys::FIELD
        .keys
        .iter()
        .filter(|key| field_keys::is_key_allowed(position, kind, key.name))
        .filter(|key| says_type || key.name != "type");
    let is_list = kind.name == types::REFERENCES.name;
    let properties = properties.map(|key| match key.name {
        "type" => ("type", described(object! { "const": kind.name }, kind.about)),
        name if is_list && name == "on_delete" => {
            (name, described(choice(keys::words(keys::REFERENCES_ON_DELETE)), key.about))
        }
        name => (name, key_schema(key)),
    });
    let needed = kind.mandatory_keys.iter().map(|need| need.key);
    let required: Vec<&'static str> =
        says_type.then_some("type").into_iter().chain(needed).collect();
    closed_object(properties, &required)
}

fn described_table(
    about: &'static str,
    table: &'static TableKeys,
    required: &[&'static str],
) -> JsonSchema {
    let mut schema = object! { "description": about };
    extend(&mut schema, table_schema(table, required));
    schema
}

fn table_schema(table: &'static TableKeys, required: &[&'static str]) -> JsonSchema {
    closed_object(table.keys.iter().map(|key| (key.name, key_schema(key))), required)
}

fn closed_object(
    properties: impl Iterator<Item = (&'static str, JsonSchema)>,
    required: &[&'static str],
) -> JsonSchema {
    let mut schema = object! { "type": "object", "additionalProperties": false };
    if !required.is_empty() {
        let required: Vec<JsonSchema> = required.iter().map(|name| (*name).into()).collect();
        extend(&mut schema, object! { "required": required });
    }
    let properties = properties.map(|(name, schema)| (name.into(), schema)).collect();
    extend(&mut schema, object! { "properties": Json::Object(properties) });
    schema
}

fn key_schema(key: &'static KeySpec) -> JsonSchema {
    let schema = form_schema(&key.form);
    match key.form {
        KeyForm::Other(OtherForm::Verbs) => schema,
        _ => described(schema, key.about),
    }
}

fn form_schema(form: &KeyForm) -> JsonSchema {
    match form {
        KeyForm::Text | KeyForm::Checked(_) | KeyForm::Other(OtherForm::Date) => text(),
        KeyForm::Name => reference("name"),
        KeyForm::Flag => object! { "type": "boolean" },
        KeyForm::Count(range) => {
            let minimum = if range.start == 0 { "0" } else { "1" };
            object! { "type": "integer", "minimum": Json::Number(minimum) }
        }
        KeyForm::Choice(words) => choice(words()),
        KeyForm::Names => list_of(reference("name")),
        KeyForm::Choices(_, words) => list_of(choice(words())),
        KeyForm::Texts(_) => any_of(vec![text(), list_of(text())]),
        KeyForm::Table(name) => reference(name),
        KeyForm::Tables("realm") => {
            object! { "type": "object", "additionalProperties": reference("realm") }
        }
        KeyForm::Tables(name) => tables(reference(name)),
        KeyForm::Other(OtherForm::Value) => object! {},
        KeyForm::Other(OtherForm::Values) => {
            object! { "type": "array", "minItems": Json::Number("1") }
        }
        KeyForm::Other(OtherForm::Unique) => {
            object! { "enum": vec![true.into(), false.into(), "parent".into()] }
        }
        KeyForm::Other(OtherForm::UniqueGroups) => {
            let mut group = list_of(reference("name"));
            extend(&mut group, object! { "minItems": Json::Number("2") });
            list_of(group)
        }
        KeyForm::Other(OtherForm::Checks) => list_of(reference("check")),
        KeyForm::Other(OtherForm::Flat) => {
            any_of(vec![object! { "type": "boolean" }, reference("name")])
        }
        KeyForm::Other(OtherForm::Transitions) => {
            let some = || reference("transition");
            tables(any_of(vec![list_of(any_of(vec![reference("name"), some()])), some()]))
        }
        KeyForm::Other(OtherForm::StateMoves) => tables(reference("name")),
        KeyForm::Other(OtherForm::Verbs) => reference("verbs"),
    }
}

/// A table whose keys are names that the author chooses.
fn tables(of: JsonSchema) -> JsonSchema {
    object! { "type": "object", "propertyNames": reference("name"), "additionalProperties": of }
}

fn text() -> JsonSchema {
    object! { "type": "string" }
}

fn any_of(schemas: Vec<JsonSchema>) -> JsonSchema {
    object! { "anyOf": schemas }
}

fn list_of(items: JsonSchema) -> JsonSchema {
    object! { "type": "array", "items": items }
}

fn choice(words: Vec<&'static str>) -> JsonSchema {
    object! { "enum": words.into_iter().map(JsonSchema::from).collect::<Vec<_>>() }
}

fn reference(name: &str) -> JsonSchema {
    object! { "$ref": format!("#/$defs/{name}") }
}

fn described(mut schema: JsonSchema, about: impl Into<JsonSchema>) -> JsonSchema {
    extend(&mut schema, object! { "description": about.into() });
    schema
}

/// Appends the members of another object.
fn extend(schema: &mut JsonSchema, other: JsonSchema) {
    if let (Json::Object(members), Json::Object(more)) = (schema, other) {
        members.extend(more);
    }
}

#[cfg(test)]
mod tests;
