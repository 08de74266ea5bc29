//! The JSON Schema (2020-12) of the model file, for editors.
//!
//! Generated from the same tables that the reader uses, so that editors suggest what the reader accepts. It
//! describes words and structure only; rules that involve other parts of the file are left to the reader.

use crate::json::{self, Json};

use super::field::FieldType;
use super::file::field_keys::{self, FieldPosition};
use super::file::keys::{self, KeySpec, KeyValue};
use super::settings::LIMITS;
use super::types;

type JsonSchema = Json<'static>;

/// The schema as indented JSON.
pub fn json_schema() -> String {
    let mut root = table_schema("", keys::ROOT, &["title", "resources"]);
    if let Json::Object(members) = &mut root {
        let head = [
            ("$schema", json_text("https://json-schema.org/draft/2020-12/schema")),
            ("title", json_text("nouns model file")),
            (
                "description",
                json_text(
                    "Declares the resources of a service: their fields, relations, and who may do what.",
                ),
            ),
        ];
        members.splice(0..0, head.into_iter().map(|(key, value)| (key.into(), value)));
        members.push(("$defs".into(), definitions()));
    }
    let mut out = Vec::new();
    write_indented(&mut out, &root, 0);
    out.push(b'\n');
    String::from_utf8(out).unwrap_or_default()
}

fn definitions() -> JsonSchema {
    let limits = LIMITS.iter().map(|(name, default, about)| {
        let about = format!("{about}; default {default}");
        (
            *name,
            json_object([
                ("type", json_text("integer")),
                ("minimum", Json::Number("1")),
                ("description", json_string(about)),
            ]),
        )
    });
    json_object([
        (
            "name",
            json_object([
                ("type", json_text("string")),
                ("pattern", json_text("^[a-z][a-z0-9_]{0,39}$")),
            ]),
        ),
        ("realm", table_schema("a protection space", keys::REALM, &[])),
        ("resource", table_schema("a noun", keys::RESOURCE, &[])),
        ("field", field_schema(FieldPosition::Resource)),
        ("member", field_schema(FieldPosition::Object { in_list: false })),
        ("element", field_schema(FieldPosition::Element)),
        ("deprecated", table_schema("marks something as going away", keys::DEPRECATED, &["since"])),
        ("role", role_schema()),
        ("verbs", verbs_schema()),
        ("server", table_schema("settings of the server", keys::SERVER, &[])),
        ("limits", closed_object(limits, &[])),
        (
            "rate_limit",
            table_schema(
                "how often one caller may ask",
                keys::RATE_LIMIT,
                &["requests", "seconds"],
            ),
        ),
    ])
}

fn role_schema() -> JsonSchema {
    let mut grant = table_schema("verbs with conditions", keys::GRANT, &["verbs"]);
    if let Json::Object(members) = &mut grant
        && let Some((_, Json::Object(properties))) =
            members.iter_mut().find(|(key, _)| key == "properties")
        && let Some((_, holds)) = properties.iter_mut().find(|(key, _)| key == "verbs")
    {
        *holds = reference("verbs");
    }
    let choices = Json::List(vec![reference("verbs"), grant]);
    json_object([
        ("type", json_text("object")),
        (
            "description",
            json_text("grants by resource; \"*\" stands for every resource not named here"),
        ),
        ("properties", json_object(keys::SERVER_PATHS.map(|path| (path, get_only_grant())))),
        ("additionalProperties", json_object([("anyOf", choices)])),
    ])
}

/// The schema of a grant for a server path.
fn get_only_grant() -> JsonSchema {
    json_object([
        ("description", json_text("reading a path of the server's own")),
        ("const", Json::List(vec![json_text("get")])),
    ])
}

fn verbs_schema() -> JsonSchema {
    json_object([(
        "anyOf",
        Json::List(vec![
            json_object([("const", json_text("*"))]),
            list_of(choice(&keys::words(keys::VERBS))),
        ]),
    )])
}

/// The schema of a field: one alternative for each type.
fn field_schema(place: FieldPosition) -> JsonSchema {
    let kinds = types::ALL.iter().copied().filter(|kind| field_keys::is_type_allowed(place, kind));
    let mut shapes: Vec<JsonSchema> =
        kinds.clone().map(|kind| typed_field_schema(place, kind, true)).collect();
    if place == FieldPosition::Element {
        let implied = kinds.filter(|kind| kind.implying_key.is_some());
        shapes.extend(implied.map(|kind| typed_field_schema(place, kind, false)));
    }
    json_object([("anyOf", Json::List(shapes))])
}

fn typed_field_schema(
    place: FieldPosition,
    kind: &'static FieldType,
    says_type: bool,
) -> JsonSchema {
    let properties = keys::FIELD
        .iter()
        .filter(|key| field_keys::is_key_allowed(place, kind, key.name))
        .filter(|key| says_type || key.name != "type");
    let properties = properties.map(|key| match key.name {
        "type" => (
            "type",
            json_object([("const", json_text(kind.name)), ("description", json_text(kind.about))]),
        ),
        name => (name, key_schema(key)),
    });
    let needed = kind.mandatory_keys.iter().map(|need| need.key);
    let required: Vec<&'static str> =
        says_type.then_some("type").into_iter().chain(needed).collect();
    closed_object(properties, &required)
}

fn table_schema(
    about: &'static str,
    keys: &'static [KeySpec],
    required: &[&'static str],
) -> JsonSchema {
    let mut schema = closed_object(keys.iter().map(|key| (key.name, key_schema(key))), required);
    if let Json::Object(members) = &mut schema
        && !about.is_empty()
    {
        members.insert(0, ("description".into(), json_text(about)));
    }
    schema
}

fn closed_object(
    properties: impl Iterator<Item = (&'static str, JsonSchema)>,
    required: &[&'static str],
) -> JsonSchema {
    let mut members =
        vec![("type", json_text("object")), ("additionalProperties", Json::Boolean(false))];
    if !required.is_empty() {
        members
            .push(("required", Json::List(required.iter().map(|name| json_text(name)).collect())));
    }
    members.push(("properties", json_object(properties)));
    json_object(members)
}

fn key_schema(key: &'static KeySpec) -> JsonSchema {
    let mut schema = value_schema(key.value);
    if let Json::Object(members) = &mut schema {
        members.push(("description".into(), json_text(key.about)));
    }
    schema
}

fn value_schema(holds: KeyValue) -> JsonSchema {
    match holds {
        KeyValue::Text => json_object([("type", json_text("string"))]),
        KeyValue::Name => reference("name"),
        KeyValue::Flag => json_object([("type", json_text("boolean"))]),
        KeyValue::Count(0) => {
            json_object([("type", json_text("integer")), ("minimum", Json::Number("0"))])
        }
        KeyValue::Count(_) => {
            json_object([("type", json_text("integer")), ("minimum", Json::Number("1"))])
        }
        KeyValue::Choice(words) => choice(&words()),
        KeyValue::Names => list_of(reference("name")),
        KeyValue::Choices(words) => list_of(choice(&words())),
        KeyValue::Value => json_object([]),
        KeyValue::Values => {
            json_object([("type", json_text("array")), ("minItems", Json::Number("1"))])
        }
        KeyValue::Texts => json_object([(
            "anyOf",
            Json::List(vec![
                json_object([("type", json_text("string"))]),
                list_of(json_object([("type", json_text("string"))])),
            ]),
        )]),
        KeyValue::Table(name) => reference(name),
        KeyValue::Tables("realm") => json_object([
            ("type", json_text("object")),
            ("additionalProperties", reference("realm")),
        ]),
        KeyValue::Tables(name) => json_object([
            ("type", json_text("object")),
            ("propertyNames", reference("name")),
            ("additionalProperties", reference(name)),
        ]),
        KeyValue::Unique => json_object([(
            "enum",
            Json::List(vec![Json::Boolean(true), Json::Boolean(false), json_text("parent")]),
        )]),
        KeyValue::UniqueGroups => {
            let mut group = list_of(reference("name"));
            if let Json::Object(members) = &mut group {
                members.push(("minItems".into(), Json::Number("2")));
            }
            json_object([("type", json_text("array")), ("items", group)])
        }
        KeyValue::Transitions => json_object([
            ("type", json_text("object")),
            ("propertyNames", reference("name")),
            (
                "additionalProperties",
                json_object([("type", json_text("array")), ("items", reference("name"))]),
            ),
        ]),
    }
}

fn list_of(items: JsonSchema) -> JsonSchema {
    json_object([("type", json_text("array")), ("items", items)])
}

fn choice(choices: &[&'static str]) -> JsonSchema {
    json_object([("enum", Json::List(choices.iter().map(|choice| json_text(choice)).collect()))])
}

fn reference(name: &str) -> JsonSchema {
    json_object([("$ref", json_string(format!("#/$defs/{name}")))])
}

fn json_text(text: &'static str) -> JsonSchema {
    Json::Text(text.into())
}

fn json_string(text: String) -> JsonSchema {
    Json::Text(text.into())
}

fn json_object(members: impl IntoIterator<Item = (&'static str, JsonSchema)>) -> JsonSchema {
    Json::Object(members.into_iter().map(|(key, value)| (key.into(), value)).collect())
}

fn write_indented(out: &mut Vec<u8>, json: &Json<'_>, level: usize) {
    let line = |out: &mut Vec<u8>, level: usize| {
        out.push(b'\n');
        out.extend(std::iter::repeat_n(b' ', level * 2));
    };
    match json {
        Json::List(elements) if !elements.is_empty() => {
            out.push(b'[');
            for (index, element) in elements.iter().enumerate() {
                out.extend_from_slice(if index == 0 { b"" } else { b"," });
                line(out, level + 1);
                write_indented(out, element, level + 1);
            }
            line(out, level);
            out.push(b']');
        }
        Json::Object(members) if !members.is_empty() => {
            out.push(b'{');
            for (index, (key, member)) in members.iter().enumerate() {
                out.extend_from_slice(if index == 0 { b"" } else { b"," });
                line(out, level + 1);
                json::write_text(out, key);
                out.extend_from_slice(b": ");
                write_indented(out, member, level + 1);
            }
            line(out, level);
            out.push(b'}');
        }
        Json::Null
        | Json::Boolean(_)
        | Json::Number(_)
        | Json::Text(_)
        | Json::List(_)
        | Json::Object(_) => json::write(out, json),
    }
}

#[cfg(test)]
mod tests;
