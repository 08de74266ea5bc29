//! Tests that the schema and the documentation have every word that the reader knows.

use super::*;

const DOCUMENT: &str = include_str!("../../../docs/reference/model.md");
const SETTINGS: &str = include_str!("../../../docs/reference/settings.md");

fn schema() -> serde_json::Value {
    serde_json::from_str(&json_schema()).unwrap()
}

#[test]
fn schema_has_every_type_and_key() {
    let schema = schema();
    let fields = schema["$defs"]["field"]["anyOf"].as_array().unwrap();
    let names: Vec<&str> =
        fields.iter().map(|field| field["properties"]["type"]["const"].as_str().unwrap()).collect();
    assert_eq!(names, types::ALL.iter().map(|kind| kind.name).collect::<Vec<_>>());
    for key in keys::FIELD.keys {
        let used = fields.iter().any(|field| field["properties"].get(key.name).is_some());
        assert!(used, "{} is a key of no type", key.name);
    }
}

#[test]
fn schema_omits_reserved_keys() {
    let text = json_schema();
    assert!(!text.contains("\"search\""), "{text}");
}

#[test]
fn schema_references_resolve() {
    fn walk(node: &serde_json::Value, definitions: &serde_json::Value) {
        if let Some(reference) = node.get("$ref").and_then(|reference| reference.as_str()) {
            let name = reference.strip_prefix("#/$defs/").unwrap();
            assert!(definitions.get(name).is_some(), "{reference}");
        }
        match node {
            serde_json::Value::Array(list) => {
                list.iter().for_each(|node| walk(node, definitions));
            }
            serde_json::Value::Object(map) => {
                map.values().for_each(|node| walk(node, definitions));
            }
            _ => {}
        }
    }
    let schema = schema();
    walk(&schema, &schema["$defs"]);
}

#[test]
fn schema_of_fields_depends_on_their_position() {
    let schema = schema();
    let keys = |place: &str, kind: &str| -> Vec<String> {
        let shapes = schema["$defs"][place]["anyOf"].as_array().unwrap();
        let shape = shapes.iter().find(|shape| shape["properties"]["type"]["const"] == kind);
        shape
            .map(|shape| shape["properties"].as_object().unwrap().keys().cloned().collect())
            .unwrap_or_default()
    };
    assert!(keys("field", "text").contains(&"unique".to_owned()));
    assert!(!keys("member", "text").contains(&"unique".to_owned()));
    assert_eq!(keys("element", "text"), ["type", "min_length", "max_length", "pattern", "one_of"]);
    assert!(keys("member", "ref").is_empty());
    let keys = keys("field", "state");
    assert_eq!(keys, ["type", "initial", "next", "moved_to", "deprecated", "renamed_from"]);
}

/// The part of the document under a heading.
fn section(document: &'static str, heading: &str) -> &'static str {
    let (_, below) = document
        .split_once(&format!("\n{heading}\n"))
        .unwrap_or_else(|| panic!("no heading {heading}"));
    let level = heading.split(' ').next().unwrap();
    below.split_once(&format!("\n{level} ")).map_or(below, |(section, _)| section)
}

/// The words in backticks.
fn words(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// The cells of the rows of all tables.
fn rows(text: &str) -> Vec<Vec<&str>> {
    let lines = text.lines().filter(|line| line.starts_with('|'));
    lines.map(|line| line.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

#[test]
fn document_has_every_key_and_choice() {
    for (document, heading, keys) in [
        (DOCUMENT, "## Top level", &keys::ROOT),
        (DOCUMENT, "## Resources", &keys::RESOURCE),
        (DOCUMENT, "## Fields", &keys::FIELD),
        (DOCUMENT, "## Realms", &keys::REALM),
        (DOCUMENT, "## Roles", &keys::GRANT),
        (DOCUMENT, "## Deprecation", &keys::DEPRECATED),
        (SETTINGS, "## Settings", &keys::SERVER),
    ] {
        // Being listed among a type's keys is not an explanation.
        let lines =
            section(document, heading).lines().filter(|line| line.matches('|').count() != 4);
        let section = lines.collect::<Vec<_>>().join("\n");
        for KeySpec { name, form, .. } in keys.keys {
            assert!(words(&section).contains(name), "{heading} does not explain `{name}`");
            let (KeyForm::Choice(choices) | KeyForm::Choices(_, choices)) = form else { continue };
            for choice in choices() {
                assert!(section.contains(choice), "{heading}, {name}: {choice} is missing");
            }
        }
    }
}

#[test]
fn document_has_every_type_with_its_keys() {
    let rows = rows(section(DOCUMENT, "## Fields"));
    for kind in types::ALL {
        let row = rows.iter().find(|row| words(row[0]) == [kind.name] && row.len() == 3);
        let row = row.unwrap_or_else(|| panic!("no row for `{}`", kind.name));
        assert_eq!(words(row[2]), kind.keys, "{}", kind.name);
    }
}

#[test]
fn document_has_every_limit_with_its_default() {
    let rows = rows(section(SETTINGS, "## Limits"));
    for (name, default, about) in LIMITS {
        let row = rows.iter().find(|row| words(row[0]) == [*name]);
        let row = row.unwrap_or_else(|| panic!("no row for `{name}`"));
        assert_eq!(row[1..3], [default.to_string().as_str(), *about], "{name}");
    }
}

#[test]
fn schema_of_references_has_the_words_of_each_type() {
    let schema = schema();
    let words = |kind: &str| {
        let shapes = schema["$defs"]["field"]["anyOf"].as_array().unwrap();
        let shape = shapes.iter().find(|shape| shape["properties"]["type"]["const"] == kind);
        shape.unwrap()["properties"]["on_delete"]["enum"].clone()
    };
    assert_eq!(words("ref"), serde_json::json!(["restrict", "cascade", "clear"]));
    assert_eq!(words("refs"), serde_json::json!(["restrict", "remove"]));
}
