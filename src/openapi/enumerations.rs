//! Enumerations: the texts that a field may have, as a component that the schemas and filters of a resource share.
//!
//! Generators of clients make one type of it, instead of another one for each place. Only fields of an item
//! that are not null have one; the JSON Schema of a resource stands alone and has none.

use std::collections::BTreeSet;

use super::components::{ComponentKind, Components};
use super::schemas::component;
use super::tree::JsonNode;
use crate::model::Resource;

/// The ends of the names of other schemas, which fields may have as names too.
const OTHER_SCHEMAS: [&str; 7] =
    ["selection", "create", "created", "replace", "patch", "body", "list"];

/// A text that has one of a field's values.
pub fn enumeration(
    resource: &Resource,
    field: &str,
    values: JsonNode,
    components: &mut Components,
) -> JsonNode {
    let schema = object! { "type": "string", "enum": values };
    match OTHER_SCHEMAS.contains(&field) {
        true => schema,
        false => {
            let name = format!("{}.{field}", component(resource));
            components.refer(ComponentKind::Schemas, name, |_| schema)
        }
    }
}

/// Refers to the enumerations of an item in all schemas of its resource. A schema that allows fewer values, such
/// as the state of a new item, keeps its own.
pub fn name_enumerations(
    resource: &Resource,
    schemas: &mut [(String, JsonNode)],
    components: &mut Components,
) {
    let own = component(resource);
    let Some((_, item)) = schemas.iter().find(|(name, _)| *name == own) else { return };
    let known: Vec<(String, JsonNode)> = properties(item)
        .filter_map(|(name, schema)| Some((name.to_owned(), values(schema)?.clone())))
        .collect();
    for (_, schema) in schemas {
        let Some(JsonNode::Object(members)) = schema.member_mut("properties") else { continue };
        for (name, property) in members {
            let mut all = known.iter();
            let Some((name, values)) =
                all.find(|(field, own)| *field == *name && values(property) == Some(own))
            else {
                continue;
            };
            let named = enumeration(resource, name, values.clone(), components);
            property.replace_members(&["type", "enum"], named);
        }
    }
}

/// A text with one of these values, which are not valid identifiers, and the names that clients
/// have for them.
pub fn with_variant_names(values: Vec<(String, String)>) -> JsonNode {
    let (values, variants): (Vec<String>, Vec<String>) = values.into_iter().unzip();
    let distinct: BTreeSet<&String> = variants.iter().collect();
    let is_unambiguous = distinct.len() == variants.len();
    object! { "type": "string", "enum": JsonNode::texts(&values) }
        .with_some("x-enum-varnames", is_unambiguous.then(|| JsonNode::texts(&variants)))
}

fn properties(schema: &JsonNode) -> impl Iterator<Item = (&str, &JsonNode)> {
    let members = match schema.member("properties") {
        Some(JsonNode::Object(members)) => members.as_slice(),
        _ => &[],
    };
    members.iter().map(|(name, schema)| (&**name, schema))
}

/// The values of a text that is never null.
fn values(schema: &JsonNode) -> Option<&JsonNode> {
    let is_text = schema.member("type").is_some_and(|kind| *kind == JsonNode::from("string"));
    schema.member("enum").filter(|_| is_text)
}
