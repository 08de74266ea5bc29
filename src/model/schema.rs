//! The JSON Schema (2020-12) of the model file, for editors.
//!
//! Generated from the same tables that the reader uses, so that editors suggest what the reader accepts. It
//! describes words and structure only; rules that involve other parts of the file are left to the reader.

use crate::json::{self, Json};

use super::file::fits::{self, Place};
use super::file::keys::{self, Holds, Key};
use super::settings::LIMITS;
use super::types::{self, FieldType};

type Schema = Json<'static>;

/// The schema as indented JSON.
pub fn json_schema() -> String {
    let mut root = table("", keys::ROOT, &["title", "resources"]);
    if let Json::Object(members) = &mut root {
        let head = [
            ("$schema", text("https://json-schema.org/draft/2020-12/schema")),
            ("title", text("nouns model file")),
            (
                "description",
                text(
                    "Declares the resources of a service: their fields, relations, and who may do what.",
                ),
            ),
        ];
        members.splice(0..0, head.into_iter().map(|(key, value)| (key.into(), value)));
        members.push(("$defs".into(), definitions()));
    }
    let mut out = Vec::new();
    write(&mut out, &root, 0);
    out.push(b'\n');
    String::from_utf8(out).unwrap_or_default()
}

fn definitions() -> Schema {
    let limits = LIMITS.iter().map(|(name, default, about)| {
        let about = format!("{about}; default {default}");
        (
            *name,
            object([
                ("type", text("integer")),
                ("minimum", Json::Number("1")),
                ("description", owned(about)),
            ]),
        )
    });
    object([
        ("name", object([("type", text("string")), ("pattern", text("^[a-z][a-z0-9_]{0,39}$"))])),
        ("realm", table("a protection space", keys::REALM, &[])),
        ("resource", table("a noun", keys::RESOURCE, &[])),
        ("field", any_of(Place::Resource)),
        ("member", any_of(Place::Object { in_list: false })),
        ("element", any_of(Place::Element)),
        ("deprecated", table("marks something as going away", keys::DEPRECATED, &["since"])),
        ("role", role()),
        ("verbs", verbs()),
        ("server", table("settings of the server", keys::SERVER, &[])),
        ("limits", closed(limits, &[])),
        (
            "rate_limit",
            table("how often one caller may ask", keys::RATE_LIMIT, &["requests", "seconds"]),
        ),
    ])
}

fn role() -> Schema {
    let mut grant = table("verbs with conditions", keys::GRANT, &["verbs"]);
    if let Json::Object(members) = &mut grant
        && let Some((_, Json::Object(properties))) =
            members.iter_mut().find(|(key, _)| key == "properties")
        && let Some((_, holds)) = properties.iter_mut().find(|(key, _)| key == "verbs")
    {
        *holds = reference("verbs");
    }
    let choices = Json::List(vec![reference("verbs"), grant]);
    object([
        ("type", text("object")),
        ("description", text("grants by resource; \"*\" stands for every resource not named here")),
        ("properties", object(keys::SERVER_PATHS.map(|path| (path, get_alone())))),
        ("additionalProperties", object([("anyOf", choices)])),
    ])
}

/// The schema of a grant for a server path.
fn get_alone() -> Schema {
    object([
        ("description", text("reading a path of the server's own")),
        ("const", Json::List(vec![text("get")])),
    ])
}

fn verbs() -> Schema {
    object([(
        "anyOf",
        Json::List(vec![
            object([("const", text("*"))]),
            list_of(choice(&keys::words(keys::VERBS))),
        ]),
    )])
}

/// The schema of a field: one alternative for each type.
fn any_of(place: Place) -> Schema {
    let kinds = types::ALL.iter().copied().filter(|kind| fits::stands(place, *kind));
    let mut shapes: Vec<Schema> = kinds.clone().map(|kind| shape(place, kind, true)).collect();
    if place == Place::Element {
        let implied = kinds.filter(|kind| kind.implied_by().is_some());
        shapes.extend(implied.map(|kind| shape(place, kind, false)));
    }
    object([("anyOf", Json::List(shapes))])
}

fn shape(place: Place, kind: &'static dyn FieldType, says_type: bool) -> Schema {
    let properties = keys::FIELD
        .iter()
        .filter(|key| fits::takes(place, kind, key.name))
        .filter(|key| says_type || key.name != "type");
    let properties = properties.map(|key| match key.name {
        "type" => {
            ("type", object([("const", text(kind.name())), ("description", text(kind.about()))]))
        }
        name => (name, described(key)),
    });
    let needed = kind.needs().iter().map(|need| need.key);
    let required: Vec<&'static str> =
        says_type.then_some("type").into_iter().chain(needed).collect();
    closed(properties, &required)
}

fn table(about: &'static str, keys: &'static [Key], required: &[&'static str]) -> Schema {
    let mut schema = closed(keys.iter().map(|key| (key.name, described(key))), required);
    if let Json::Object(members) = &mut schema
        && !about.is_empty()
    {
        members.insert(0, ("description".into(), text(about)));
    }
    schema
}

fn closed(
    properties: impl Iterator<Item = (&'static str, Schema)>,
    required: &[&'static str],
) -> Schema {
    let mut members =
        vec![("type", text("object")), ("additionalProperties", Json::Boolean(false))];
    if !required.is_empty() {
        members.push(("required", Json::List(required.iter().map(|name| text(name)).collect())));
    }
    members.push(("properties", object(properties)));
    object(members)
}

fn described(key: &'static Key) -> Schema {
    let mut schema = holds(key.holds);
    if let Json::Object(members) = &mut schema {
        members.push(("description".into(), text(key.about)));
    }
    schema
}

fn holds(holds: Holds) -> Schema {
    match holds {
        Holds::Text => object([("type", text("string"))]),
        Holds::Name => reference("name"),
        Holds::Flag => object([("type", text("boolean"))]),
        Holds::Count(0) => object([("type", text("integer")), ("minimum", Json::Number("0"))]),
        Holds::Count(_) => object([("type", text("integer")), ("minimum", Json::Number("1"))]),
        Holds::Choice(words) => choice(&words()),
        Holds::Names => list_of(reference("name")),
        Holds::Choices(words) => list_of(choice(&words())),
        Holds::Value => object([]),
        Holds::Values => object([("type", text("array")), ("minItems", Json::Number("1"))]),
        Holds::Texts => object([(
            "anyOf",
            Json::List(vec![
                object([("type", text("string"))]),
                list_of(object([("type", text("string"))])),
            ]),
        )]),
        Holds::Table(name) => reference(name),
        Holds::Tables("realm") => {
            object([("type", text("object")), ("additionalProperties", reference("realm"))])
        }
        Holds::Tables(name) => object([
            ("type", text("object")),
            ("propertyNames", reference("name")),
            ("additionalProperties", reference(name)),
        ]),
        Holds::Unique => object([(
            "enum",
            Json::List(vec![Json::Boolean(true), Json::Boolean(false), text("parent")]),
        )]),
        Holds::UniqueGroups => {
            let mut group = list_of(reference("name"));
            if let Json::Object(members) = &mut group {
                members.push(("minItems".into(), Json::Number("2")));
            }
            object([("type", text("array")), ("items", group)])
        }
        Holds::Transitions => object([
            ("type", text("object")),
            ("propertyNames", reference("name")),
            (
                "additionalProperties",
                object([("type", text("array")), ("items", reference("name"))]),
            ),
        ]),
    }
}

fn list_of(items: Schema) -> Schema {
    object([("type", text("array")), ("items", items)])
}

fn choice(choices: &[&'static str]) -> Schema {
    object([("enum", Json::List(choices.iter().map(|choice| text(choice)).collect()))])
}

fn reference(name: &str) -> Schema {
    object([("$ref", owned(format!("#/$defs/{name}")))])
}

fn text(text: &'static str) -> Schema {
    Json::Text(text.into())
}

fn owned(text: String) -> Schema {
    Json::Text(text.into())
}

fn object(members: impl IntoIterator<Item = (&'static str, Schema)>) -> Schema {
    Json::Object(members.into_iter().map(|(key, value)| (key.into(), value)).collect())
}

fn write(out: &mut Vec<u8>, json: &Json<'_>, level: usize) {
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
                write(out, element, level + 1);
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
                write(out, member, level + 1);
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
