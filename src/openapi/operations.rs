//! Operations on collections and items.

use super::components::Components;
use super::examples;
use super::field_schema::{SchemaPurpose, deprecation_sentence};
use super::parameters::{
    RequestHeader, header_parameter, item_parameters, list_parameters, path_parameters,
};
use super::query_extension::query_extension;
use super::responses::{
    CONTENT_LOCATION, CONTENT_LOCATION_CANONICAL, DEPRECATION, DescribedBody, ETAG,
    IDEMPOTENT_REPLAYED, LAST_MODIFIED, LINK_CANONICAL, LINK_HISTORY, LINK_NEXT, LINK_SUCCESSOR,
    LOCATION, MEMENTO_DATETIME, Responses, SUNSET, media_type,
};
use super::schemas::{ResourceSchemas, schema_reference};
use super::tree::JsonNode;
use super::viewer::Viewer;
use super::wrappers::{Wrapped, Wrappers};
use crate::formats::PatchForm;
use crate::intent::{PathForm, RequestVerb, Route};
use crate::model::{GrantVerb, Resource};

type Headers = Vec<(&'static str, &'static str, &'static str)>;

/// The operations on one resource.
#[derive(Debug)]
pub struct ResourceOperations<'v, 'a> {
    pub viewer: &'v Viewer<'a>,
    pub resource: &'a Resource,
    pub form: PathForm,
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
        let a = indefinite_article(&singular);
        let (word, summary) = match (route.verb, is_item) {
            (RequestVerb::Get, false) => ("list", format!("List {plural}")),
            (RequestVerb::Get, true) => ("get", format!("Get {a} {singular}")),
            (RequestVerb::Query, _) => ("query", String::new()),
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
        let object = if ["list", "query"].contains(&word) {
            &self.resource.plural
        } else {
            &self.resource.name
        };
        // A model may declare a resource `server_user`.
        let id = match (self.resource.is_builtin, self.form) {
            (true, _) => format!("server_{word}_{object}"),
            (false, PathForm::Nested) => format!("{word}_{object}"),
            (false, PathForm::Flat) => format!("flat_{word}_{object}"),
        };
        if word == "query" {
            return Some(query_extension(self.viewer, id, components));
        }
        let summary = match (self.form, is_item) {
            (PathForm::Nested, _) => summary,
            (PathForm::Flat, false) => format!("{summary} of all parents"),
            (PathForm::Flat, true) => format!("{summary} by its id alone"),
        };
        let parameters = self.parameters(route.verb, is_item, components);
        let body = self.request_body(route.verb, components);
        let filters_max = self.viewer.model.server.limits.filter_terms_max;
        let about = (word == "list").then(|| {
            format!(
                "At most {filters_max} filters. The same query can be sent as JSON, with the method QUERY (RFC 10008): `x-query-method`."
            )
        });
        let deprecated = self.deprecated();
        let responses = self.responses(route, is_item, components);
        Some(
            object! { "operationId": id, "summary": summary }
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
        let mut all = path_parameters(self.viewer, (self.resource, self.form), is_item);
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
                all.extend(list_parameters(self.viewer, (self.resource, self.form), components));
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

    fn request_body(&self, verb: RequestVerb, components: &mut Components) -> Option<JsonNode> {
        let content = match verb {
            RequestVerb::Post => self.create_body(components)?,
            RequestVerb::Put => {
                let writable = self.schemas().writable(GrantVerb::Put)?;
                let example = self.schemas().body_example(SchemaPurpose::Replace, writable);
                let schema = self.wrappers().single(Wrapped::Replace, components);
                object! { "application/json": media_type(schema, self.wrappers().example(example)) }
            }
            RequestVerb::Patch(_) => self.patch_body(components)?,
            _ => return None,
        };
        Some(object! { "required": true, "content": content })
    }

    fn wrappers(&self) -> Wrappers<'a> {
        let items_max = self.viewer.model.server.limits.bulk_items_max;
        Wrappers { resource: self.resource, items_max }
    }

    fn create_body(&self, components: &mut Components) -> Option<JsonNode> {
        let schemas = self.schemas();
        let writable = schemas.writable(GrantVerb::Post)?;
        let example = schemas.body_example(SchemaPurpose::Create, writable);
        let schema = self.wrappers().create(components);
        let json = media_type(schema, self.wrappers().example(example.clone()));
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
                .with("x-item-schema", Wrapped::Create.reference(self.resource)),
            "text/csv": text(table, example.as_ref().and_then(examples::csv)),
        })
    }

    fn patch_body(&self, components: &mut Components) -> Option<JsonNode> {
        let schemas = self.schemas();
        let writable = schemas.writable(GrantVerb::Patch)?;
        let merge = schemas.body_example(SchemaPurpose::Patch, writable);
        let operation = examples::patched_field(self.resource, &writable).map(|(field, value)| {
            let path = format!("/{}/{field}", self.resource.name);
            JsonNode::List(vec![object! { "op": "add", "path": path, "value": value }])
        });
        let content = PatchForm::ALL.map(|(essence, form)| {
            let media = match form {
                PatchForm::MergePatch => {
                    let schema = self.wrappers().single(Wrapped::Patch, components);
                    media_type(schema, self.wrappers().example(merge.clone()))
                }
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
        let may_hide = self.viewer.may_hide_written(index);
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
                let (link, location) = match self.form {
                    PathForm::Nested => (LINK_HISTORY, CONTENT_LOCATION),
                    PathForm::Flat => (LINK_CANONICAL, CONTENT_LOCATION_CANONICAL),
                };
                let own = [ETAG, LAST_MODIFIED, link, MEMENTO_DATETIME, location];
                let body = self.item_body(components);
                responses.add(components, about, &with(&own), body);
                let unchanged = (304, "The client has the item already.");
                responses.add(components, unchanged, &with(&own), empty());
            }
            (RequestVerb::Get, false) => {
                let about = (200, "A page of the list, or all of it.");
                let body = self.list_body(components);
                responses.add(components, about, &with(&[ETAG, LINK_NEXT]), body);
                let unchanged = (304, "The client has the page already.");
                responses.add(components, unchanged, &with(&[ETAG]), empty());
            }
            (RequestVerb::Post, _) => {
                let headers = with(&[LOCATION, ETAG, IDEMPOTENT_REPLAYED]);
                let body = if shows_items { self.created_body(components) } else { empty() };
                responses.add(components, (201, "Created."), &headers, body);
            }
            (RequestVerb::Put | RequestVerb::Patch(_), _) => {
                let own: &[_] = match route.verb {
                    RequestVerb::Put => &[],
                    _ => &[ETAG, IDEMPOTENT_REPLAYED],
                };
                if shows_items {
                    let about = (200, "The item after the change.");
                    let body = self.written_body(components);
                    responses.add(components, about, &with(own), body);
                }
                if may_hide {
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

    fn item_body(&self, components: &mut Components) -> DescribedBody {
        let schema = self.wrappers().single(Wrapped::Selection, components);
        let example = self.wrappers().example(self.schemas().read_example());
        with_events(DescribedBody::json(schema, example))
    }

    fn written_body(&self, components: &mut Components) -> DescribedBody {
        let schema = self.wrappers().single(Wrapped::Item, components);
        DescribedBody::json(schema, self.wrappers().example(self.schemas().read_example()))
    }

    fn created_body(&self, components: &mut Components) -> DescribedBody {
        let schema = self.wrappers().created(components);
        let example = self.wrappers().example(self.schemas().read_example());
        let body = DescribedBody::json(schema, example);
        with_lines(body, Wrapped::Item.reference(self.resource))
    }

    fn list_body(&self, components: &mut Components) -> DescribedBody {
        let plural = &self.resource.plural;
        let schema = self.wrappers().page(components);
        let page = object! {
            "limit": self.viewer.model.server.limits.page_items_default,
            "next": JsonNode::Raw("null".into()),
        };
        let example = self.schemas().read_example().map(|item| {
            JsonNode::empty_object().with(plural.to_string(), vec![item]).with("page", page)
        });
        let body = with_lines(
            DescribedBody::json(schema, example),
            Wrapped::Selection.reference(self.resource),
        );
        with_events(body)
    }
}

fn join_sentences(one: Option<String>, other: Option<&str>) -> Option<String> {
    match (one, other) {
        (Some(one), Some(other)) => Some(format!("{one} {other}")),
        (one, other) => one.or(other.map(str::to_owned)),
    }
}

/// An order, but a user and a unit.
fn indefinite_article(word: &str) -> &'static str {
    let is_spoken_you = ["use", "uni", "uti"].iter().any(|start| word.starts_with(start));
    match word.starts_with(['a', 'e', 'i', 'o', 'u']) && !is_spoken_you {
        true => "an",
        false => "a",
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
