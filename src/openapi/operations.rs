//! Operations on collections and items.

use super::components::Components;
use super::examples;
use super::field_schema::{SchemaPurpose, deprecation_sentence};
use super::parameters::{
    RequestHeader, header_parameter, item_parameters, list_parameters, path_parameters,
};
use super::responses::{
    CONTENT_LOCATION, DEPRECATION, DescribedBody, ETAG, IDEMPOTENT_REPLAYED, LAST_MODIFIED,
    LINK_HISTORY, LINK_NEXT, LINK_SUCCESSOR, LOCATION, MEMENTO_DATETIME, Responses, SUNSET,
    media_type,
};
use super::schemas::{ResourceSchemas, schema_reference};
use super::tree::JsonNode;
use super::viewer::Viewer;
use crate::formats::PatchForm;
use crate::intent::{RequestVerb, Route};
use crate::model::{GrantVerb, Resource};

type Headers = Vec<(&'static str, &'static str, &'static str)>;

/// The operations on one resource.
#[derive(Debug)]
pub struct ResourceOperations<'v, 'a> {
    pub viewer: &'v Viewer<'a>,
    pub resource: &'a Resource,
}

impl<'v, 'a> ResourceOperations<'v, 'a> {
    fn schemas(&self) -> ResourceSchemas<'v, 'a> {
        ResourceSchemas { viewer: self.viewer, resource: self.resource }
    }

    /// One operation. `None` for methods that every path has.
    pub fn operation(
        &self,
        route: &Route,
        is_item: bool,
        components: &mut Components,
    ) -> Option<JsonNode> {
        let (singular, plural) = (spaced(&self.resource.name), spaced(&self.resource.plural));
        let a = match singular.starts_with(['a', 'e', 'i', 'o', 'u']) {
            true => "an",
            false => "a",
        };
        let (word, summary) = match (route.verb, is_item) {
            (RequestVerb::Get, false) => ("list", format!("List {plural}")),
            (RequestVerb::Get, true) => ("get", format!("Get {a} {singular}")),
            (RequestVerb::Post, _) => {
                ("create", format!("Create {a} {singular}, or several {plural}"))
            }
            (RequestVerb::Put, _) => ("replace", format!("Replace {a} {singular}")),
            (RequestVerb::Patch(_), _) => ("update", format!("Update a part of {a} {singular}")),
            (RequestVerb::Delete, _) => ("delete", format!("Delete {a} {singular}")),
            (
                RequestVerb::Head
                | RequestVerb::Watch { .. }
                | RequestVerb::PostItems(_)
                | RequestVerb::Options,
                _,
            ) => return None,
        };
        let owner = match self.resource.is_builtin {
            true => format!("server_{}", self.resource.name),
            false => self.resource.name.to_string(),
        };
        let parameters = self.parameters(route.verb, is_item, components);
        let body = self.request_body(route.verb);
        let filters_max = self.viewer.model.server.limits.filter_terms_max;
        let about = (word == "list").then(|| format!("At most {filters_max} filters."));
        let deprecated = self.deprecated();
        let responses = self.responses(route, is_item, components);
        Some(
            object! { "operationId": format!("{word}_{owner}"), "summary": summary }
                .with_some("description", join_sentences(about, deprecated.as_deref()))
                .with("tags", JsonNode::texts([tag(self.resource)]))
                .with_some("deprecated", deprecated.is_some().then_some(true))
                .with_some("parameters", (!parameters.is_empty()).then_some(parameters))
                .with_some("requestBody", body)
                .with("responses", responses),
        )
    }

    /// A resource is deprecated with its ancestors.
    fn deprecated(&self) -> Option<String> {
        let lineage = self.viewer.model.lineage(self.resource.index);
        let deprecated = lineage.iter().rev().find_map(|level| level.deprecated.as_ref())?;
        Some(deprecation_sentence(deprecated, self.viewer.successor(deprecated)))
    }

    fn parameters(
        &self,
        verb: RequestVerb,
        is_item: bool,
        components: &mut Components,
    ) -> Vec<JsonNode> {
        use RequestHeader::{
            IdempotencyKey, IfMatch, IfModifiedSince, IfNoneMatch, IfUnmodifiedSince, LastEventId,
            RequiredIfMatch,
        };
        let mut all = path_parameters(self.viewer, self.resource, is_item);
        let if_match = match self.resource.require_if_match {
            true => RequiredIfMatch,
            false => IfMatch,
        };
        let headers: &[RequestHeader] = match (verb, is_item) {
            (RequestVerb::Get, true) => {
                all.extend(item_parameters(self.viewer, self.resource, components));
                &[IfNoneMatch, IfModifiedSince, IfMatch, IfUnmodifiedSince, LastEventId]
            }
            (RequestVerb::Get, false) => {
                all.extend(list_parameters(self.viewer, self.resource, components));
                &[IfNoneMatch, LastEventId]
            }
            (RequestVerb::Post, _) => &[IdempotencyKey],
            (RequestVerb::Patch(_), _) => &[if_match, IfUnmodifiedSince, IdempotencyKey],
            (RequestVerb::Put | RequestVerb::Delete, _) => &[if_match, IfUnmodifiedSince],
            _ => &[],
        };
        all.extend(headers.iter().map(|header| header_parameter(*header, components)));
        all
    }

    fn request_body(&self, verb: RequestVerb) -> Option<JsonNode> {
        let content = match verb {
            RequestVerb::Post => self.create_body()?,
            RequestVerb::Put => {
                let writable = self.schemas().writable(GrantVerb::Put)?;
                let example = self.schemas().body_example(SchemaPurpose::Replace, writable);
                object! { "application/json": self.wrapped_body("replace", example) }
            }
            RequestVerb::Patch(_) => self.patch_body()?,
            _ => return None,
        };
        Some(object! { "required": true, "content": content })
    }

    /// One item under the singular.
    fn wrapped_body(&self, suffix: &str, example: Option<JsonNode>) -> JsonNode {
        let name = &self.resource.name;
        let schema = schema_reference(&format!("{}.{suffix}", self.schemas().component()));
        let wrap = |inner: JsonNode| JsonNode::empty_object().with(name.to_string(), inner);
        media_type(wrapper(&[(name, schema)], true), example.map(wrap))
    }

    fn create_body(&self) -> Option<JsonNode> {
        let (name, plural) = (&self.resource.name, &self.resource.plural);
        let schemas = self.schemas();
        let writable = schemas.writable(GrantVerb::Post)?;
        let create = || schema_reference(&format!("{}.create", schemas.component()));
        let many = object! {
            "type": "array", "minItems": 1_i64,
            "maxItems": self.viewer.model.server.limits.bulk_items_max,
            "items": create(),
        };
        let one_or_many =
            vec![wrapper(&[(name, create())], true), wrapper(&[(plural, many)], true)];
        let example = schemas.body_example(SchemaPurpose::Create, writable);
        let wrap = |item: JsonNode| JsonNode::empty_object().with(name.to_string(), item);
        let json = media_type(object! { "oneOf": one_or_many }, example.clone().map(wrap));
        let text = |about: &str, example: Option<String>| {
            let schema = object! { "type": "string", "description": about };
            media_type(schema, example.map(JsonNode::from))
        };
        let lines = "One JSON object a line, each as in a list of new items.";
        let table =
            "A line with the names of the fields, then one line for each new item (RFC 4180).";
        Some(object! {
            "application/json": json,
            "application/x-ndjson": text(lines, example.as_ref().map(examples::ndjson))
                .with("x-item-schema", create()),
            "text/csv": text(table, example.as_ref().and_then(examples::csv)),
        })
    }

    fn patch_body(&self) -> Option<JsonNode> {
        let schemas = self.schemas();
        let writable = schemas.writable(GrantVerb::Patch)?;
        let merge = schemas.body_example(SchemaPurpose::Patch, writable);
        let operation = examples::patched_field(self.resource, &writable).map(|(field, value)| {
            let path = format!("/{}/{field}", self.resource.name);
            JsonNode::List(vec![object! { "op": "add", "path": path, "value": value }])
        });
        let content = PatchForm::ALL.map(|(essence, form)| {
            let media = match form {
                PatchForm::MergePatch => self.wrapped_body("patch", merge.clone()),
                PatchForm::JsonPatch => {
                    media_type(schema_reference("server.json-patch"), operation.clone())
                }
            };
            (essence.into(), media)
        });
        Some(JsonNode::Object(content.into()))
    }

    fn responses(&self, route: &Route, is_item: bool, components: &mut Components) -> JsonNode {
        let mut responses = Responses::new(self.viewer);
        let index = self.resource.index;
        let shows_items = self.viewer.can_read(index);
        let may_miss = self.viewer.may_miss_rows(index);
        let deprecation = self.deprecation_headers();
        let with = |own: &[(&'static str, &'static str, &'static str)]| -> Headers {
            // A response has one description of `Link`.
            let is_told =
                |header: &&(&str, _, _)| deprecation.iter().all(|(name, ..)| *name != header.0);
            own.iter().filter(is_told).chain(&deprecation).copied().collect()
        };
        let empty = DescribedBody::default;
        match (route.verb, is_item) {
            (RequestVerb::Get, true) => {
                let about = (200, "The item.");
                let own = [ETAG, LAST_MODIFIED, LINK_HISTORY, MEMENTO_DATETIME, CONTENT_LOCATION];
                responses.add(components, about, &with(&own), self.item_body());
                let unchanged = (304, "The client has the item already.");
                responses.add(components, unchanged, &with(&own), empty());
            }
            (RequestVerb::Get, false) => {
                let about = (200, "A page of the list, or all of it.");
                responses.add(components, about, &with(&[ETAG, LINK_NEXT]), self.list_body());
                let unchanged = (304, "The client has the page already.");
                responses.add(components, unchanged, &with(&[ETAG]), empty());
            }
            (RequestVerb::Post, _) => {
                let headers = with(&[LOCATION, ETAG, IDEMPOTENT_REPLAYED]);
                let body = if shows_items { self.created_body() } else { empty() };
                responses.add(components, (201, "Created."), &headers, body);
            }
            (RequestVerb::Put | RequestVerb::Patch(_), _) => {
                let own: &[_] = match route.verb {
                    RequestVerb::Put => &[],
                    _ => &[ETAG, IDEMPOTENT_REPLAYED],
                };
                if shows_items {
                    let about = (200, "The item after the change.");
                    responses.add(components, about, &with(own), self.written_body());
                }
                if may_miss {
                    let about = (204, "Changed; your roles do not show the item.");
                    responses.add(components, about, &with(&[]), empty());
                }
            }
            (RequestVerb::Delete, _) => {
                responses.add(components, (204, "Deleted."), &with(&[]), empty());
            }
            _ => {}
        }
        responses.finish(route, components)
    }

    /// The headers of responses that may involve something deprecated.
    fn deprecation_headers(&self) -> Headers {
        let hidden = self.viewer.hidden(self.resource.index);
        let fields = self.resource.fields.iter().enumerate();
        // A caller without GET may write them.
        let mut fields =
            fields.filter(|(at, field)| !hidden.contains(at) && field.deprecated.is_some());
        let is_deprecated = self.deprecated().is_some() || fields.next().is_some();
        let mut headers = if is_deprecated { vec![DEPRECATION, SUNSET] } else { Vec::new() };
        let lineage = self.viewer.model.lineage(self.resource.index);
        let mut deprecated = lineage.iter().filter_map(|level| level.deprecated.as_ref());
        if deprecated.any(|deprecated| self.viewer.successor(deprecated).is_some()) {
            headers.push(LINK_SUCCESSOR);
        }
        headers
    }

    fn item_body(&self) -> DescribedBody {
        let name = &self.resource.name;
        let component = self.schemas().component();
        let schema = wrapper(&[(name, schema_reference(&format!("{component}.selection")))], false);
        let example = self.schemas().read_example();
        let wrap = |item: JsonNode| JsonNode::empty_object().with(name.to_string(), item);
        with_events(DescribedBody::json(schema, example.map(wrap)))
    }

    fn written_body(&self) -> DescribedBody {
        let name = &self.resource.name;
        let schema = wrapper(&[(name, schema_reference(&self.schemas().component()))], false);
        let example = self.schemas().read_example();
        let wrap = |item: JsonNode| JsonNode::empty_object().with(name.to_string(), item);
        DescribedBody::json(schema, example.map(wrap))
    }

    fn created_body(&self) -> DescribedBody {
        let (name, plural) = (&self.resource.name, &self.resource.plural);
        let item = || schema_reference(&self.schemas().component());
        let many = object! { "type": "array", "items": item() };
        let one_or_many =
            vec![wrapper(&[(name, item())], false), wrapper(&[(plural, many)], false)];
        let example = self.schemas().read_example();
        let wrap = |item: JsonNode| JsonNode::empty_object().with(name.to_string(), item);
        let body = DescribedBody::json(object! { "oneOf": one_or_many }, example.map(wrap));
        with_lines(body, item())
    }

    fn list_body(&self) -> DescribedBody {
        let plural = &self.resource.plural;
        let component = format!("{}.selection", self.schemas().component());
        let items = object! { "type": "array", "items": schema_reference(&component) };
        let schema = wrapper(&[(plural, items), ("page", schema_reference("server.page"))], false);
        let page = object! {
            "limit": self.viewer.model.server.limits.page_items_default,
            "next": JsonNode::Raw("null".into()),
        };
        let example = self.schemas().read_example().map(|item| {
            JsonNode::empty_object().with(plural.to_string(), vec![item]).with("page", page)
        });
        let body = with_lines(DescribedBody::json(schema, example), schema_reference(&component));
        with_events(body)
    }
}

fn join_sentences(one: Option<String>, other: Option<&str>) -> Option<String> {
    match (one, other) {
        (Some(one), Some(other)) => Some(format!("{one} {other}")),
        (one, other) => one.or(other.map(str::to_owned)),
    }
}

/// A name of the model as words.
fn spaced(name: &str) -> String {
    name.replace('_', " ")
}

/// The tag of a resource's operations. Names of resources have no capitals.
pub fn tag(resource: &Resource) -> String {
    match resource.is_builtin {
        true => format!("Server: {}", resource.plural),
        false => resource.plural.to_string(),
    }
}

/// An object with these required members.
fn wrapper(members: &[(&str, JsonNode)], is_closed: bool) -> JsonNode {
    let mut properties = JsonNode::empty_object();
    for (name, schema) in members {
        properties.add((*name).to_owned(), schema.clone());
    }
    object! {
        "type": "object",
        "required": JsonNode::texts(members.iter().map(|(name, _)| name)),
        "properties": properties,
    }
    .with_some("additionalProperties", is_closed.then_some(false))
}

/// The formats with one item after the other.
fn with_lines(body: DescribedBody, item: JsonNode) -> DescribedBody {
    body.and_items("application/x-ndjson", "One item a line, as JSON.", Some(item)).and_items(
        "text/csv",
        "A line with the names of the members, then one line for each item (RFC 4180).",
        None,
    )
}

/// An event stream.
fn with_events(body: DescribedBody) -> DescribedBody {
    body.and_items(
        "text/event-stream",
        "An event for each change, without an end (Server-Sent Events). Its data is a CloudEvents 1.0 event.",
        Some(schema_reference("server.event")),
    )
}
