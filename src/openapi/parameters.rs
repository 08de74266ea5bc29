//! Parameters of operations: in paths, queries and headers, as `intent` reads them.

use super::components::{ComponentKind, Components};
use super::enumerations::with_variant_names;
use super::examples;
use super::field_schema::id_schema;
use super::filter_parameters::{ESCAPED_VALUES, filter_parameter, query_parameter};
use super::related::{expand_description, expand_pattern, known_parameters};
use super::schemas::component;
use super::tree::JsonNode;
use super::viewer::Viewer;
use crate::intent::{
    Attribute, CHANGES_PARAMETERS, CONTROL_PARAMETERS, FilterOperator, FilterParameter,
    GROUP_PARAMETERS, ITEM_PARAMETERS, LIST_STREAM_PARAMETERS, PATHS_MAX, PathForm,
    STREAM_PARAMETERS, VisibleResource, WAIT_SECONDS_MAX, filter_parameters,
    related_filter_parameters,
};
use crate::model::Resource;
use crate::model::expr::Comparison;
use crate::value::{EventKind, IdKind};

/// The key in quotes, or a bare word.
const IDEMPOTENCY_KEY_PATTERN: &str =
    r#"^("([ !#-\[\]-~]|\\["\\]){1,255}"|[A-Za-z0-9!#$%&'*+.^_`|~:/-]{1,255})$"#;

const STREAMS_ONLY: &str = "Only with `Accept: text/event-stream`.";

/// The ids in the path of a collection, and of an item if it has one.
pub fn path_parameters(
    viewer: &Viewer<'_>,
    (resource, form): (&Resource, PathForm),
    is_item: bool,
) -> Vec<JsonNode> {
    let levels = viewer.model.lineage(resource.index).into_iter();
    let levels = levels.filter(|level| match level.index == resource.index {
        true => is_item,
        false => form == PathForm::Nested,
    });
    levels
        .map(|level| {
            object! {
                "name": format!("{}_id", level.name),
                "in": "path",
                "required": true,
                "description": format!("The id of the {}.", level.name),
                "schema": id_schema(level.id),
                "example": examples::id(level.id),
            }
        })
        .collect()
}

/// The parameter of a path that stands for one of a few values.
pub fn choice_parameter(name: &str, values: &[&str]) -> JsonNode {
    object! {
        "name": name,
        "in": "path",
        "required": true,
        "schema": object! { "type": "string", "enum": JsonNode::texts(values) },
    }
    .with_some("example", values.first().copied())
}

/// The parameters of a list, by their names in the query.
pub fn list_parameters(
    viewer: &Viewer<'_>,
    (resource, form): (&Resource, PathForm),
    components: &mut Components,
) -> Vec<JsonNode> {
    let known = VisibleResource { resource, hidden: viewer.hidden(resource.index), form };
    let own = [&CONTROL_PARAMETERS[..], &GROUP_PARAMETERS].concat();
    let names = known_parameters(viewer, resource, &own);
    let mut all =
        named_parameters(viewer, known, (&names, &LIST_STREAM_PARAMETERS[..]), components);
    // A filter that is named like a parameter of streams is described with its operator.
    let controls = [&own[..], &LIST_STREAM_PARAMETERS].concat();
    // The other operators of related items are described in the documents: they would be most of the parameters.
    let is_described = |one: &FilterParameter<'_>| {
        matches!(one.operator, FilterOperator::Compare(Comparison::Equal) | FilterOperator::Has)
    };
    let related = related_filter_parameters(viewer.model, known, viewer.caller);
    let related = related.into_iter().filter(is_described);
    for filter in filter_parameters(known, &controls).into_iter().chain(related) {
        let owner = match (&filter.attribute, resource.id) {
            (Attribute::Field(..) | Attribute::Ancestor(_), _) => component(resource),
            (Attribute::Id, IdKind::Uuid) => "server.uuid".to_owned(),
            (Attribute::Id, IdKind::Integer) => "server.integer".to_owned(),
            (Attribute::CreatedAt | Attribute::UpdatedAt, _) => "server".to_owned(),
        };
        let key = format!("{owner}.{}", filter.name.replace(':', "-"));
        let values_max = viewer.model.server.limits.filter_values_max;
        all.push(components.refer(ComponentKind::Parameters, key, |components| {
            filter_parameter(&filter, values_max, components)
        }));
    }
    all
}

/// The parameters of a single item.
pub fn item_parameters(
    viewer: &Viewer<'_>,
    resource: &Resource,
    components: &mut Components,
) -> Vec<JsonNode> {
    let (hidden, form) = (viewer.hidden(resource.index), PathForm::Nested);
    let known = VisibleResource { resource, hidden, form };
    let names = known_parameters(viewer, resource, &ITEM_PARAMETERS);
    named_parameters(viewer, known, (&names, &STREAM_PARAMETERS[..]), components)
}

/// The parameters with fixed names: those of every request, then those of event streams.
fn named_parameters(
    viewer: &Viewer<'_>,
    known: VisibleResource<'_>,
    (controls, streams): (&[&'static str], &[&'static str]),
    components: &mut Components,
) -> Vec<JsonNode> {
    let mut all = Vec::new();
    for name in controls {
        let (owner, parameter) = control_parameter(viewer, known, name);
        let key = format!("{owner}.{name}");
        all.push(components.refer(ComponentKind::Parameters, key, |_| parameter));
    }
    for name in streams {
        all.push(stream_parameter(name, components));
    }
    all
}

/// A parameter that is no filter, and the owner of its component.
fn control_parameter(
    viewer: &Viewer<'_>,
    known: VisibleResource<'_>,
    name: &str,
) -> (String, JsonNode) {
    let limits = &viewer.model.server.limits;
    let resource = known.resource;
    let list = |item: JsonNode, values_max: Option<usize>| {
        object! { "type": "array", "minItems": 1_i64, "uniqueItems": true, "items": item }
            .with_some("maxItems", values_max)
    };
    let parameter = |about: &str, schema| query_parameter(name, about, schema);
    let with_commas = |parameter: JsonNode| parameter.with("style", "form").with("explode", false);
    match name {
        "sort" => {
            let names: Vec<String> = known.names().collect();
            let values = names.iter().flat_map(|name| {
                let variant = name.to_ascii_uppercase().replace('.', "__");
                let descending = format!("{variant}_DESCENDING");
                [(name.clone(), variant), (format!("-{name}"), descending)]
            });
            let about = "The fields to sort by, each once; `-` sorts in descending order. Without it, by `id`.";
            let schema = list(with_variant_names(values.collect()), Some(limits.sort_keys_max));
            (component(resource), with_commas(parameter(about, schema)))
        }
        "fields" => {
            let own = ["created_at", "updated_at", "version"];
            let parent = resource.parent_key.as_deref();
            let fields = known.fields().map(|(_, field)| &*field.name);
            let values = ["id"].into_iter().chain(parent).chain(fields).chain(own);
            let about = "The members to show; `id` is always shown.";
            let member = object! { "type": "string", "enum": JsonNode::texts(values) };
            let schema = list(member, None);
            (component(resource), with_commas(parameter(about, schema)))
        }
        "expand" => {
            let path = object! { "type": "string", "pattern": expand_pattern(viewer, resource) };
            let schema = list(path, Some(PATHS_MAX));
            (component(resource), with_commas(parameter(&expand_description(), schema)))
        }
        name => {
            let (about, schema) = shared_control(viewer, name);
            ("server".to_owned(), query_parameter(name, about, schema))
        }
    }
}

/// A parameter that is the same for every list.
fn shared_control(viewer: &Viewer<'_>, name: &str) -> (&'static str, JsonNode) {
    let limits = &viewer.model.server.limits;
    match name {
        "limit" => (
            "The largest number of items on a page.",
            object! {
                "type": "integer", "minimum": 1_i64, "maximum": limits.page_items_max,
                "default": limits.page_items_default,
            },
        ),
        "cursor" => (
            "Where the page begins: `page.next` of the page before it. It belongs to the filters and the order.",
            object! { "type": "string" },
        ),
        "count" => (
            "`exact` adds `page.total`, the number of items on all pages. Only with JSON.",
            object! { "type": "string", "enum": JsonNode::texts(["exact"]) },
        ),
        "any" => (
            "At least one of the filters in parentheses holds; `;` is between them. Each is written as in the query, or is a group: `any(…)`, `all(…)` or `not(…)`. A `;`, `(`, `)` or `\\` in a value has a `\\` before it.",
            group_schema(),
        ),
        "not" => (
            "The filters in parentheses do not all hold. They are written as those of `any`.",
            group_schema(),
        ),
        "version" => (
            "The item as it was in this version. Not with `as_of`.",
            object! { "type": "integer", "format": "int64", "minimum": 1_i64 },
        ),
        "as_of" => (
            "The item as it was at this time. Not with `version`.",
            object! { "type": "string", "format": "date-time" },
        ),
        "since" => (
            "The number of a change: only changes after it. `0` is everything that is kept.",
            object! { "type": "integer", "format": "int64", "minimum": 0_i64 },
        ),
        "snapshot" => (
            "`true` begins the stream with all items as they are.",
            object! { "type": "string", "enum": JsonNode::texts(["true"]) },
        ),
        _ => ("", object! { "type": "string" }),
    }
}

/// Groups of filters; each holds.
fn group_schema() -> JsonNode {
    object! {
        "type": "array", "minItems": 1_i64,
        "items": object! { "type": "string", "pattern": r"^\(.+\)$" },
    }
}

fn stream_parameter(name: &str, components: &mut Components) -> JsonNode {
    components.refer(ComponentKind::Parameters, format!("server.stream.{name}"), |_| {
        let (about, schema) = match name {
            "since" => (
                "The position after which the stream begins; `0` is everything that is kept. Without it, it begins now.",
                object! { "type": "integer", "format": "int64", "minimum": 0_i64 },
            ),
            _ => (
                "`true` begins the stream with all items as they are.",
                object! { "type": "string", "enum": JsonNode::texts(["true"]) },
            ),
        };
        query_parameter(name, &format!("{about} {STREAMS_ONLY}"), schema)
    })
}

/// The parameters of the change log.
pub fn changes_parameters(viewer: &Viewer<'_>, components: &mut Components) -> Vec<JsonNode> {
    let mut all = Vec::new();
    for (name, operators) in CHANGES_PARAMETERS {
        if operators.is_empty() {
            let key = match name {
                "limit" | "cursor" => format!("server.{name}"),
                name => format!("server.changes.{name}"),
            };
            all.push(
                components.refer(ComponentKind::Parameters, key, |_| changes_control(viewer, name)),
            );
            continue;
        }
        for operator in operators {
            let spelled =
                if *operator == "eq" { name.to_owned() } else { format!("{name}:{operator}") };
            let key = format!("server.changes.{}", spelled.replace(':', "-"));
            all.push(components.refer(ComponentKind::Parameters, key, |_| {
                changes_filter(viewer, (name, operator), &spelled)
            }));
        }
    }
    all
}

fn changes_control(viewer: &Viewer<'_>, name: &str) -> JsonNode {
    match name {
        "sort" => query_parameter(
            name,
            "The order; the oldest change is first unless it is `-sequence`.",
            with_variant_names(vec![
                ("sequence".to_owned(), "SEQUENCE".to_owned()),
                ("-sequence".to_owned(), "SEQUENCE_DESCENDING".to_owned()),
            ]),
        ),
        "wait" => query_parameter(
            name,
            "The number of seconds to wait for a change, if there is none (long polling). Not with `sort=-sequence`, nor with `time:lt` and `time:lte`.",
            object! { "type": "integer", "minimum": 0_i64, "maximum": WAIT_SECONDS_MAX },
        ),
        "subject" => query_parameter(
            name,
            "The path of an item: only its changes.",
            object! { "type": "string", "format": "uri-reference" },
        ),
        name => {
            let (about, schema) = shared_control(viewer, name);
            query_parameter(name, about, schema)
        }
    }
}

fn changes_filter(viewer: &Viewer<'_>, (name, operator): (&str, &str), spelled: &str) -> JsonNode {
    let text = || object! { "type": "string" };
    let about = match (name, operator) {
        ("resource", _) => "Changes of items of this resource.",
        ("kind", _) => "Changes of this kind.",
        ("actor", _) => "Changes that this user has made.",
        (_, "gt") => "Changes after this time.",
        (_, "gte") => "Changes at this time or after it.",
        (_, "lt") => "Changes before this time.",
        _ => "Changes at this time or before it.",
    };
    let value = match name {
        "resource" => {
            let readable = viewer.model.resources.iter();
            let readable = readable.filter(|resource| viewer.can_read(resource.index));
            let named = readable.map(|resource| {
                let variant = component(resource).replace(['.', '-'], "__").to_ascii_uppercase();
                (resource.label.to_string(), variant)
            });
            with_variant_names(named.collect())
        }
        "kind" => text().with("enum", JsonNode::texts(EventKind::ALL.map(EventKind::as_str))),
        "time" => text().with("format", "date-time"),
        _ => text(),
    };
    match operator {
        "in" if name == "actor" => {
            query_parameter(spelled, about, value.with("pattern", ESCAPED_VALUES))
        }
        "in" => {
            let values_max = viewer.model.server.limits.filter_values_max;
            let list = object! {
                "type": "array", "minItems": 1_i64, "maxItems": values_max, "items": value
            };
            let parameter = query_parameter(spelled, about, list);
            parameter.with("style", "form").with("explode", false)
        }
        _ => query_parameter(spelled, about, value),
    }
}

/// A header of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestHeader {
    IfMatch,
    RequiredIfMatch,
    IfNoneMatch,
    IfModifiedSince,
    IfUnmodifiedSince,
    IdempotencyKey,
    LastEventId,
}

/// A header parameter.
pub fn header_parameter(header: RequestHeader, components: &mut Components) -> JsonNode {
    let text = || object! { "type": "string" };
    let (key, name, about, schema) = match header {
        RequestHeader::IfMatch | RequestHeader::RequiredIfMatch => (
            if header == RequestHeader::IfMatch { "if-match" } else { "if-match-required" },
            "If-Match",
            "The `ETag` or the version in quotes that the item must still have, else 412.",
            text(),
        ),
        RequestHeader::IfNoneMatch => (
            "if-none-match",
            "If-None-Match",
            "The `ETag` of a response that the client has: 304 if it is still the same.",
            text(),
        ),
        RequestHeader::IfModifiedSince => (
            "if-modified-since",
            "If-Modified-Since",
            "304 if the item was not changed after this HTTP date.",
            text(),
        ),
        RequestHeader::IfUnmodifiedSince => (
            "if-unmodified-since",
            "If-Unmodified-Since",
            "412 if the item was changed after this HTTP date.",
            text(),
        ),
        RequestHeader::IdempotencyKey => (
            "idempotency-key",
            "Idempotency-Key",
            "A new name for the request: if it is sent again with the same key, it is not executed again, and the first response is repeated.",
            text().with("pattern", IDEMPOTENCY_KEY_PATTERN),
        ),
        RequestHeader::LastEventId => (
            "last-event-id",
            "Last-Event-ID",
            "The position at which an event stream continues; browsers send it by themselves. Only with `Accept: text/event-stream`.",
            text(),
        ),
    };
    let is_required = header == RequestHeader::RequiredIfMatch;
    components.refer(ComponentKind::Parameters, format!("server.{key}"), |_| {
        object! { "name": name, "in": "header", "description": about }
            .with_some("required", is_required.then_some(true))
            .with("schema", schema)
    })
}
