//! Related items: the parameter `expand`, and the members that it adds to an item.

use super::tree::JsonNode;
use super::viewer::Viewer;
use crate::formats::RelatedMember;
use crate::intent::{CHILDREN_MAX, Relation, relations};
use crate::model::Resource;

/// The parameters with fixed names that the caller can use.
pub fn known_parameters(
    viewer: &Viewer<'_>,
    resource: &Resource,
    all: &[&'static str],
) -> Vec<&'static str> {
    let has_relations = !relations(viewer.model, resource, viewer.caller).is_empty();
    all.iter().filter(|name| has_relations || **name != "expand").copied().collect()
}

/// A regular expression of the paths: a relation of the resource, and maybe one of the related resource. Children may
/// have options in parentheses.
pub fn expand_pattern(viewer: &Viewer<'_>, resource: &Resource) -> String {
    let (model, caller) = (viewer.model, viewer.caller);
    let segment = |one: &Relation, resource: &Resource| match one.member {
        RelatedMember::Children => format!(r"{}(\(.+\))?", one.name(model, resource)),
        RelatedMember::Parent | RelatedMember::Field(_) => one.name(model, resource).to_owned(),
    };
    let paths = relations(model, resource, caller).into_iter().map(|one| {
        let target = model.resource(one.target);
        let inner = relations(model, target, caller);
        let inner: Vec<String> = inner.iter().map(|inner| segment(inner, target)).collect();
        let first = segment(&one, resource);
        match &*inner {
            [] => first,
            inner => format!(r"{first}(\.({}))?", inner.join("|")),
        }
    });
    format!("^({})$", paths.collect::<Vec<_>>().join("|"))
}

pub fn expand_description() -> String {
    format!(
        "The related items to show with each item: at most {CHILDREN_MAX} children, the parent, or an item that a field \
         refers to in place of its id. A dot leads to a second level. Children can have filters, `sort`, `fields` and \
         `limit` in parentheses, as in `name(sort=-id;limit=5)`. Not with CSV, event streams, `version` or `as_of`."
    )
}

/// The members of an item, and those that `expand` adds. Their schemas are not those of the related items, which could
/// refer to each other without end.
pub fn with_related(
    viewer: &Viewer<'_>,
    resource: &Resource,
    mut properties: JsonNode,
) -> JsonNode {
    let model = viewer.model;
    for relation in relations(model, resource, viewer.caller) {
        let (name, target) = (relation.name(model, resource), model.resource(relation.target));
        let item = || {
            let about = format!("With `expand`: the `{}`, as GET shows it.", target.name);
            object! { "type": "object", "readOnly": true, "description": about }
        };
        match relation.member {
            RelatedMember::Field(at) => {
                let ids = properties.member_mut(name);
                let is_list =
                    resource.fields.get(at).is_some_and(|one| one.many_references().is_some());
                let id = match is_list {
                    true => ids.and_then(|list| list.member_mut("items")),
                    false => ids,
                };
                if let Some(id) = id {
                    *id = object! { "anyOf": vec![id.clone(), item()] };
                }
            }
            RelatedMember::Parent => properties.add(name.to_owned(), item()),
            RelatedMember::Children => {
                let list = object! {
                    "type": "array", "items": item(), "maxItems": CHILDREN_MAX, "readOnly": true,
                };
                let next = object! {
                    "type": "string", "format": "uri-reference", "readOnly": true,
                    "description": format!("With `expand`: the address of more `{name}`, if there are more."),
                };
                properties.add(name.to_owned(), list);
                properties.add(format!("{name}_next"), next);
            }
        }
    }
    properties
}
