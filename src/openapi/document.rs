//! The document as a whole.

use sha2::{Digest as _, Sha256};

use super::components::Components;
use super::enumerations::name_enumerations;
use super::field_schema::SchemaPurpose;
use super::operations::{ResourceOperations, tag};
use super::query_extension::X_QUERY;
use super::schemas::ResourceSchemas;
use super::security::SecuritySchemes;
use super::server_operations::{self, TAG, shared_schemas};
use super::tree::JsonNode;
use super::viewer::Viewer;
use crate::intent::{RequestVerb, Route, RouteTarget, RouteTemplate, route_templates};
use crate::json;
use crate::model::{GrantVerb, Model, Resource, ResourceIndex};
use crate::permit::Caller;
use crate::value::hash_u32;

/// A part of the document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DocumentPart {
    Whole,
    /// The paths and the schemas of one resource.
    Resource(ResourceIndex),
    /// The server's own paths.
    Server,
}

impl DocumentPart {
    fn has_path(self, target: &RouteTarget) -> bool {
        match (self, target) {
            (Self::Whole, _) => true,
            (Self::Resource(index), RouteTarget::Collection(path) | RouteTarget::Item(path)) => {
                path.resource == index
            }
            (Self::Resource(_), _) => false,
            (Self::Server, target) => is_server_path(target),
        }
    }

    /// The server's part has the tags of all resources: it is their table of contents.
    fn has_tag_of(self, resource: &Resource) -> bool {
        match self {
            Self::Whole | Self::Server => true,
            Self::Resource(index) => resource.index == index,
        }
    }

    fn has_schemas_of(self, resource: &Resource) -> bool {
        match self {
            Self::Whole => true,
            Self::Resource(index) => resource.index == index,
            Self::Server => false,
        }
    }
}

/// The OpenAPI document of what a caller may use, as JSON.
pub fn document(model: &Model, caller: &Caller) -> Vec<u8> {
    document_part(model, caller, DocumentPart::Whole)
}

/// A part of the document, which is a document too.
pub fn document_part(model: &Model, caller: &Caller, part: DocumentPart) -> Vec<u8> {
    let viewer = Viewer::new(model, caller);
    let (mut components, mut security) = (Components::default(), SecuritySchemes::default());
    let mut paths = JsonNode::empty_object();
    let mut has_server_paths = false;
    let templates = route_templates(model).into_iter();
    for template in templates.filter(|template| part.has_path(&template.target)) {
        let item = path_item(&viewer, &template, &mut components, &mut security);
        if !item.is_empty() {
            has_server_paths |= is_server_path(&template.target);
            paths.add(template.path, item);
        }
    }
    let mut schemas = JsonNode::empty_object();
    for resource in model.resources.iter().filter(|resource| part.has_schemas_of(resource)) {
        let mut of_resource = ResourceSchemas { viewer: &viewer, resource }.all();
        name_enumerations(resource, &mut of_resource, &mut components);
        for (name, schema) in of_resource {
            schemas.add(name, schema);
        }
    }
    for (name, schema) in shared_schemas() {
        schemas.add(name, schema);
    }
    let mut all = components.into_json(schemas);
    let schemes = security.into_json();
    if !schemes.is_empty() {
        all.add("securitySchemes", schemes);
    }
    let content = object! {
        "tags": tags(&viewer, part, has_server_paths),
        "paths": paths,
        "components": all,
    };
    let mut text = Vec::new();
    content.write(&mut text);
    // A version of what the caller sees, and of nothing else.
    let version = format!("{:08x}", hash_u32(Sha256::new_with_prefix(&text)));
    let root = object! {
        "openapi": "3.1.0",
        "info": object! {
            "title": &*model.title,
            "version": version,
            "description": DESCRIPTION,
        },
        "servers": vec![object! { "url": server_url(model) }],
    };
    let mut out = Vec::with_capacity(text.len() + 1024);
    root.with_all(content).write(&mut out);
    out
}

const DESCRIPTION: &str = "\
What you may use of this server. Every path also answers HEAD, as GET without a body, and OPTIONS, with its \
methods. Texts have no NUL characters. An unknown query parameter or field is refused. Errors are problem \
details (RFC 9457).";

/// Where the paths begin. The request's own host is never trusted.
fn server_url(model: &Model) -> String {
    let base_path = model.server.base_path.as_deref().unwrap_or("");
    match &model.server.base_url {
        Some(base_url) => format!("{base_url}{base_path}"),
        None if base_path.is_empty() => "/".to_owned(),
        None => base_path.to_owned(),
    }
}

fn is_server_path(target: &RouteTarget) -> bool {
    !matches!(target, RouteTarget::Collection(_) | RouteTarget::Item(_))
}

/// The operations of one path that the caller may use.
fn path_item(
    viewer: &Viewer<'_>,
    template: &RouteTemplate<'_>,
    components: &mut Components,
    security: &mut SecuritySchemes,
) -> JsonNode {
    let mut item = JsonNode::empty_object();
    for (method, verb) in template.verbs {
        if !viewer.may_use(template, *verb) {
            continue;
        }
        let operation = operation(viewer, template, *verb, components);
        let Some(operation) = operation else { continue };
        if *verb == RequestVerb::Query {
            item.add(X_QUERY, operation);
            continue;
        }
        let requirements = security.requirements(viewer, template, *verb);
        item.add(method.to_ascii_lowercase(), operation.with("security", requirements));
    }
    item
}

fn operation(
    viewer: &Viewer<'_>,
    template: &RouteTemplate<'_>,
    verb: RequestVerb,
    components: &mut Components,
) -> Option<JsonNode> {
    let (RouteTarget::Collection(path) | RouteTarget::Item(path)) = &template.target else {
        return server_operations::operation(viewer, template, verb, components);
    };
    let route = Route { verb, target: template.target.clone() };
    let resource = viewer.model.resource(path.resource);
    let is_item = matches!(template.target, RouteTarget::Item(_));
    let form = path.form;
    ResourceOperations { viewer, resource, form }.operation(&route, is_item, components)
}

/// One tag for each resource, and one for the server's own paths.
fn tags(viewer: &Viewer<'_>, part: DocumentPart, has_server_paths: bool) -> JsonNode {
    let resources = viewer.model.resources.iter().filter(|resource| part.has_tag_of(resource));
    let known = resources.filter(|resource| viewer.knows(resource.index)).map(|resource| {
        let about = match resource.parent.map(|parent| viewer.model.resource(parent)) {
            Some(parent) => format!("The {} of each {}.", resource.plural, parent.name),
            None => format!("All {}.", resource.plural),
        };
        object! { "name": tag(resource), "description": about.replace('_', " ") }
    });
    let server = has_server_paths.then(|| {
        object! { "name": TAG, "description": "The server itself: what it offers and how it is." }
    });
    known.chain(server).collect::<Vec<_>>().into()
}

/// An example of the body that creates an item, if the caller may create one.
pub fn create_example(model: &Model, caller: &Caller, resource: &Resource) -> Option<String> {
    let viewer = Viewer::new(model, caller);
    let schemas = ResourceSchemas { viewer: &viewer, resource };
    let writable = schemas.writable(GrantVerb::Post)?;
    let item = schemas.body_example(SchemaPurpose::Create, writable)?;
    let mut out = Vec::new();
    JsonNode::empty_object().with(resource.name.to_string(), item).write(&mut out);
    Some(json::into_text(out))
}

/// The JSON Schema of the items of a resource, as a caller reads and writes them.
pub fn resource_schema(model: &Model, caller: &Caller, index: ResourceIndex) -> Vec<u8> {
    let viewer = Viewer::new(model, caller);
    let resource = model.resource(index);
    let schemas = ResourceSchemas { viewer: &viewer, resource };
    let base_path = model.server.base_path.as_deref().unwrap_or("");
    let base_url = model.server.base_url.as_deref().unwrap_or("");
    let mut root = object! {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": format!("{base_url}{base_path}/-/schemas/{}", resource.label),
        "title": resource.name.replace('_', " "),
    };
    let own = schemas.component();
    let mut definitions = JsonNode::empty_object();
    for (name, schema) in schemas.all() {
        match name.strip_prefix(&*own) {
            Some("") => root = root.with_all(schema),
            Some(".selection") | None => {}
            Some(suffix) => definitions.add(suffix.trim_start_matches('.').to_owned(), schema),
        }
    }
    if !definitions.is_empty() {
        root.add("$defs", definitions);
    }
    let mut out = Vec::new();
    root.write(&mut out);
    out
}
