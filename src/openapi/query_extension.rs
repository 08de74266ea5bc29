//! `x-query-method`: the method QUERY (RFC 10008) of a collection, for which a path item of OpenAPI 3.1 has no operation.

use super::components::{ComponentKind, Components};
use super::schemas::schema_reference;
use super::tree::JsonNode;
use super::viewer::Viewer;
use crate::fault;
use crate::intent::QUERY_MEMBERS;

/// The name of the extension in a path item.
pub const X_QUERY: &str = "x-query-method";

/// What the extension has: that of an operation, without what is equal to the operation `get`.
pub fn query_extension(
    viewer: &Viewer<'_>,
    operation_id: String,
    components: &mut Components,
) -> JsonNode {
    let body = components.refer(ComponentKind::Schemas, "server.query", |components| {
        components.refer(ComponentKind::Schemas, "server.filter", |_| filter_schema());
        query_schema(viewer)
    });
    let about = "The method QUERY (RFC 10008), with the parameters of `get` as JSON. Path, headers and responses are those \
                 of `get`; `Content-Location` is the address of the same list.";
    object! {
        "operationId": operation_id,
        "description": about,
        "requestBody": object! {
            "required": true,
            "content": object! { "application/json": object! { "schema": body } },
        },
    }
}

fn query_schema(viewer: &Viewer<'_>) -> JsonNode {
    let limits = &viewer.model.server.limits;
    let names = |about: &str| {
        object! {
            "type": "array", "items": object! { "type": "string" }, "description": about,
        }
    };
    let member = |name: &str| match name {
        "filter" => schema_reference("server.filter"),
        "sort" => names("The fields to sort by; `-` sorts in descending order."),
        "limit" => object! {
            "type": "integer", "minimum": 1_i64, "maximum": limits.page_items_max,
            "default": limits.page_items_default,
        },
        "cursor" => object! { "type": JsonNode::texts(["string", "null"]) },
        "fields" => names("The members to show."),
        "count" => object! { "type": "string", "enum": JsonNode::texts(["exact"]) },
        "expand" => names("The related items to show."),
        _ => fault::bug("each member of the body has a schema"),
    };
    let mut properties = JsonNode::empty_object();
    for name in QUERY_MEMBERS {
        properties.add(name, member(name));
    }
    object! {
        "type": "object",
        "description": "The body of QUERY. Its members mean what the parameters of GET mean.",
        "properties": properties,
        "additionalProperties": false,
    }
}

/// A tree of filters. The names and operators of fields are those of the parameters of GET.
fn filter_schema() -> JsonNode {
    let filter = || schema_reference("server.filter");
    let list = |about: &str| {
        object! { "type": "array", "minItems": 1_i64, "items": filter(), "description": about }
    };
    object! {
        "type": "object",
        "description":
            "Filters that all hold: fields with a value (`{\"status\": \"paid\"}`), or with operators and their values \
             (`{\"total\": {\"gt\": 100, \"lt\": 200}}`), and groups of filters.",
        "properties": object! {
            "any": list("At least one of them holds."),
            "all": list("All of them hold."),
            "not": filter(),
        },
        "additionalProperties": true,
        "examples": vec![object! {
            "any": vec![
                object! { "id": object! { "exists": true } },
                object! { "not": object! { "created_at": object! { "gte": "2026-01-01T00:00:00Z" } } },
            ],
        }],
    }
}
