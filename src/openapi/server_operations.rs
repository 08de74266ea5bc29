//! Operations on the server's own paths, and their schemas.

use super::components::{ComponentKind, Components};
use super::examples;
use super::parameters::{RequestHeader, changes_parameters, choice_parameter, header_parameter};
use super::responses::{
    CHANGES_OLDEST, CHANGES_POSITION, DescribedBody, ETAG, LINK_NEXT, Responses, problem_schema,
};
use super::schemas::schema_reference;
use super::tree::JsonNode;
use super::viewer::Viewer;
use crate::intent::{RequestVerb, Route, RouteTarget, RouteTemplate};
use crate::value::EventKind;

/// The tag of these operations. Names of resources have no capitals.
pub const TAG: &str = "Server";

/// A GET of one of the server's own paths; `None` for other methods, and for targets that are no such path.
pub fn operation(
    viewer: &Viewer<'_>,
    template: &RouteTemplate<'_>,
    verb: RequestVerb,
    components: &mut Components,
) -> Option<JsonNode> {
    if verb != RequestVerb::Get {
        return None;
    }
    let (id, summary) = match template.target {
        RouteTarget::Home => ("resources", "List the resources"),
        RouteTarget::OpenApi => ("openapi", "Get this document"),
        RouteTarget::Docs(None) => ("docs", "Get the API reference of the server's own paths"),
        RouteTarget::Docs(Some(_)) if template.choice.is_some() => {
            ("docs_resource", "Get the API reference of a resource")
        }
        RouteTarget::Docs(Some(resource)) => {
            let resource = viewer.model.resource(resource);
            let (id, summary) = (
                format!("docs_{}", resource.name),
                format!("Get the API reference of {}", resource.plural),
            );
            return Some(build((viewer, template), &id, &summary, components));
        }
        RouteTarget::Schema(_) if template.choice.is_some() => {
            ("schema", "Get the JSON Schema of a resource")
        }
        RouteTarget::Schema(resource) => {
            let resource = viewer.model.resource(resource);
            let (id, summary) = (
                format!("schema_{}", resource.name),
                format!("Get the JSON Schema of {}", resource.plural),
            );
            return Some(build((viewer, template), &id, &summary, components));
        }
        RouteTarget::Changes => ("changes", "List the changes of all items"),
        RouteTarget::ProblemPage(_) => ("problem", "Get the explanation of a problem"),
        RouteTarget::Logout(_) if template.choice.is_some() => {
            ("logout_realm", "Make a browser forget its credentials for a realm")
        }
        RouteTarget::Logout(_) => ("logout", "Make a browser forget its credentials"),
        RouteTarget::Health => ("health", "Check that the server is running"),
        RouteTarget::Ready => ("ready", "Check that the server can serve requests"),
        RouteTarget::Metrics => ("metrics", "Get the metrics, in the text format of Prometheus"),
        RouteTarget::Asset(_) => ("asset", "Get a file that the pages load"),
        RouteTarget::Server | RouteTarget::Collection(_) | RouteTarget::Item(_) => return None,
    };
    Some(build((viewer, template), id, summary, components))
}

fn build(
    (viewer, template): (&Viewer<'_>, &RouteTemplate<'_>),
    id: &str,
    summary: &str,
    components: &mut Components,
) -> JsonNode {
    let route = Route { verb: RequestVerb::Get, target: template.target.clone() };
    let choice = template.choice.as_ref();
    let mut parameters: Vec<JsonNode> = choice
        .map(|(name, values)| {
            choice_parameter(name, &known_values(viewer, &template.target, values))
        })
        .into_iter()
        .collect();
    match template.target {
        RouteTarget::Changes => {
            parameters.extend(changes_parameters(viewer, components));
            parameters.push(header_parameter(RequestHeader::LastEventId, components));
        }
        RouteTarget::OpenApi
        | RouteTarget::Docs(_)
        | RouteTarget::Schema(_)
        | RouteTarget::Asset(_) => {
            parameters.push(header_parameter(RequestHeader::IfNoneMatch, components));
        }
        _ => {}
    }
    let responses = responses(viewer, &route, components);
    object! { "operationId": format!("server_{id}"), "summary": summary }
        .with("tags", JsonNode::texts([TAG]))
        .with_some("parameters", (!parameters.is_empty()).then_some(parameters))
        .with("responses", responses)
}

/// The values of a path parameter that the caller may use.
fn known_values<'m>(viewer: &Viewer<'_>, target: &RouteTarget, values: &[&'m str]) -> Vec<&'m str> {
    let is_known = |value: &&&str| match target {
        RouteTarget::Schema(_) | RouteTarget::Docs(_) => {
            let mut resources = viewer.model.declared();
            resources.any(|resource| *resource.name == ***value && viewer.knows(resource.index))
        }
        RouteTarget::Logout(_) => {
            let realm = viewer.model.find_realm(value);
            let mut resources = viewer.model.resources.iter();
            realm == Some(viewer.model.server_realm())
                || resources
                    .any(|resource| Some(resource.realm) == realm && viewer.knows(resource.index))
        }
        _ => true,
    };
    values.iter().filter(is_known).copied().collect()
}

fn responses(viewer: &Viewer<'_>, route: &Route, components: &mut Components) -> JsonNode {
    let mut responses = Responses::new(viewer);
    let not_modified = (304, "The client has the document already.");
    let mut named = |name: &str, make: fn() -> JsonNode| {
        components.refer(ComponentKind::Schemas, name, |_| make())
    };
    let (about, headers, body): (&str, &[_], _) = match route.target {
        RouteTarget::Home => {
            let schema = named("server.resources", home_schema);
            ("The resources that you may use.", &[], DescribedBody::json(schema, None))
        }
        RouteTarget::OpenApi | RouteTarget::Docs(_) | RouteTarget::Schema(_) => {
            responses.add(components, not_modified, &[ETAG], DescribedBody::default());
            let (about, body) = document_body(&route.target);
            (about, &[ETAG], body)
        }
        RouteTarget::Changes => (
            "A page of the change log.",
            &[LINK_NEXT, CHANGES_POSITION, CHANGES_OLDEST],
            changes_body(named("server.change.list", changes_schema)),
        ),
        RouteTarget::ProblemPage(_) => {
            let schema = named("server.problem.page", problem_page_schema);
            ("The explanation.", &[], DescribedBody::json(schema, None))
        }
        RouteTarget::Health => {
            let schema = named("server.health", || status_schema("ok"));
            ("It is running.", &[], DescribedBody::json(schema, None))
        }
        RouteTarget::Ready => {
            let schema = named("server.ready", || status_schema("ready"));
            ("It can serve requests.", &[], DescribedBody::json(schema, None))
        }
        RouteTarget::Metrics => {
            ("The metrics.", &[], DescribedBody::default().and("text/plain", text(), None))
        }
        RouteTarget::Asset(_) => {
            let not_modified = (304, "The client has the file already.");
            responses.add(components, not_modified, &[ETAG], DescribedBody::default());
            let body = DescribedBody::default().and("text/css", text(), None).and(
                "text/javascript",
                text(),
                None,
            );
            ("The stylesheet or the script.", &[ETAG], body)
        }
        // The answer is a problem, so that browsers drop the credentials.
        _ => return responses.finish(route, components),
    };
    responses.add(components, (200, about), headers, body);
    responses.finish(route, components)
}

fn changes_body(page: JsonNode) -> DescribedBody {
    DescribedBody::json(page, None)
        .and_items(
            "application/x-ndjson",
            "One change a line, as JSON.",
            Some(schema_reference("server.change")),
        )
        .and_items(
            "text/csv",
            "A line with the names of the members, then one line for each change (RFC 4180).",
            None,
        )
        .and_items(
            "text/event-stream",
            "An event for each change, without an end (Server-Sent Events).",
            Some(schema_reference("server.event")),
        )
}

/// A document that describes the interface.
fn document_body(target: &RouteTarget) -> (&'static str, DescribedBody) {
    let schema = || object! { "type": "object" };
    let body = DescribedBody::json(schema(), None);
    match target {
        RouteTarget::OpenApi => (
            "What you may use, as OpenAPI 3.1.",
            body.and("application/openapi+json", schema(), None),
        ),
        RouteTarget::Docs(_) => (
            "A part of this document, or a page with its content.",
            body.and("application/openapi+json", schema(), None).and("text/html", text(), None),
        ),
        _ => (
            "The schema of the items (JSON Schema 2020-12).",
            body.and("application/schema+json", schema(), None),
        ),
    }
}

fn required_object(properties: JsonNode) -> JsonNode {
    let names = match &properties {
        JsonNode::Object(members) => JsonNode::texts(members.iter().map(|(name, _)| name)),
        _ => JsonNode::List(Vec::new()),
    };
    object! { "type": "object", "required": names, "properties": properties }
}

fn text() -> JsonNode {
    object! { "type": "string" }
}

fn home_schema() -> JsonNode {
    let resource = required_object(object! {
        "name": text(),
        "plural": text(),
        "path": text().with("description", "The path of the collection, a URI template (RFC 6570)."),
    });
    required_object(object! {
        "title": text(),
        "resources": object! { "type": "array", "items": resource },
    })
}

fn status_schema(word: &str) -> JsonNode {
    required_object(object! { "status": text().with("enum", JsonNode::texts([word])) })
}

fn problem_page_schema() -> JsonNode {
    let mut problem = required_object(object! {
        "slug": text(),
        "status": object! { "type": "integer" },
        "title": text(),
        "help": text(),
    });
    if let JsonNode::Object(members) = &mut problem
        && let Some((_, properties)) = members.iter_mut().find(|(name, _)| name == "properties")
    {
        let codes = object! {
            "type": "object",
            "description": "The codes of `errors`, with their meaning.",
            "additionalProperties": text(),
        };
        properties.add("codes", codes);
    }
    required_object(object! { "problem": problem })
}

fn changes_schema() -> JsonNode {
    let number = || object! { "type": "integer", "format": "int64" };
    let nullable = |kind: &str| object! { "type": JsonNode::texts([kind, "null"]) };
    let page = required_object(object! {
        "limit": number(),
        "next": nullable("string").with("description", "The cursor of the next page."),
        "oldest": nullable("integer").with("description", "The number of the oldest change that is kept."),
        "position": number().with("description", "The number of a change up to which the page is complete."),
    });
    required_object(object! {
        "changes": object! { "type": "array", "items": schema_reference("server.change") },
        "page": page,
    })
}

/// The schemas that the operations on all resources share.
pub fn shared_schemas() -> Vec<(&'static str, JsonNode)> {
    vec![
        ("server.problem", problem_schema()),
        ("server.page", page_schema()),
        ("server.json-patch", json_patch_schema()),
        ("server.change", change_schema()),
        ("server.event", event_schema()),
    ]
}

fn page_schema() -> JsonNode {
    let number = |about: &str| object! { "type": "integer", "description": about };
    object! {
        "type": "object",
        "required": JsonNode::texts(["limit", "next"]),
        "properties": object! {
            "limit": number("The largest number of items on the page."),
            "next": object! {
                "type": JsonNode::texts(["string", "null"]),
                "description": "The cursor of the next page, or null on the last one.",
            },
            "total": number("The number of items on all pages, with `count=exact`."),
        },
    }
}

fn json_patch_schema() -> JsonNode {
    let pointer = || {
        let about = "A JSON pointer (RFC 6901), which begins with the wrapper.";
        text().with("description", about).with("pattern", "^(/([^/~]|~[01])*)*$")
    };
    let operation = |words: &[&str], member: Option<(&'static str, JsonNode)>| {
        let names = ["op", "path"].into_iter().chain(member.as_ref().map(|(name, _)| *name));
        let required = JsonNode::texts(names);
        let mut properties = object! {
            "op": text().with("enum", JsonNode::texts(words)),
            "path": pointer(),
        };
        if let Some((name, schema)) = member {
            properties.add(name, schema);
        }
        object! { "type": "object", "required": required, "properties": properties }
    };
    let with_value = operation(&["add", "replace", "test"], Some(("value", object! {})));
    let with_source = operation(&["move", "copy"], Some(("from", pointer())));
    object! {
        "type": "array",
        "description": "A JSON Patch (RFC 6902) of the document that GET shows, with its wrapper.",
        "maxItems": crate::json::patch::OPERATIONS_MAX,
        "items": object! { "oneOf": vec![with_value, with_source, operation(&["remove"], None)] },
    }
}

fn item_id() -> JsonNode {
    object! { "type": JsonNode::texts(["string", "integer"]) }
}

fn kinds() -> JsonNode {
    text().with("enum", JsonNode::texts(EventKind::ALL.map(EventKind::as_str)))
}

fn change_schema() -> JsonNode {
    let time = text().with("format", "date-time");
    let object_or_null = |about: &str| {
        object! { "type": JsonNode::texts(["object", "null"]), "description": about }
    };
    required_object(object! {
        "sequence": object! { "type": "integer", "format": "int64" },
        "resource": text(),
        "id": item_id(),
        "subject": text().with("description", "The path of the item."),
        "kind": kinds(),
        "time": time,
        "actor": text().with("description", "The user who made the change."),
        "request_id": text(),
        "changed": object! {
            "type": JsonNode::texts(["array", "null"]),
            "items": text(),
            "description": "The names of the changed fields.",
        },
        "before": object_or_null("The item before the change."),
        "after": object_or_null("The item after the change."),
    })
}

/// A CloudEvents 1.0 event.
fn event_schema() -> JsonNode {
    object! {
        "type": "object",
        "description": "The data of one event of an event stream (CloudEvents 1.0).",
        "required": JsonNode::texts(
            ["specversion", "id", "source", "type", "subject", "time", "datacontenttype", "data"]
        ),
        "properties": object! {
            "specversion": text().with("enum", JsonNode::texts(["1.0"])),
            "id": text(),
            "source": text().with("format", "uri-reference"),
            "type": text().with("description", "`nouns.RESOURCE.KIND`"),
            "subject": text().with("description", "The path of the item."),
            "time": text().with("format", "date-time"),
            "datacontenttype": text(),
            "sequence": text().with("description", "The number of the change, with leading zeros."),
            "actor": text(),
            "requestid": text(),
            "data": object! {
                "type": "object",
                "properties": object! {
                    "id": item_id(),
                    "changed": object! { "type": JsonNode::texts(["array", "null"]), "items": text() },
                    "before": object! { "type": JsonNode::texts(["object", "null"]) },
                    "after": object! { "type": JsonNode::texts(["object", "null"]) },
                },
            },
        },
        "examples": vec![object! {
            "specversion": "1.0",
            "id": "7",
            "source": "/",
            "type": "nouns.item.deleted",
            "subject": "/items/1",
            "time": examples::time(),
            "datacontenttype": "application/json",
            "sequence": "0000000000000000007",
            "data": object! { "id": 1_i64 },
        }],
    }
}
