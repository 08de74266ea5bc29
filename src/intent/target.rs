//! The targets of paths, as data: what exists under `/` and `/-/`, and which methods each target allows.
//!
//! One table for routing and for the OpenAPI document: `find_target` looks a path up in it, and
//! `route_templates` lists everything that can be found. A segment that cannot be an id does not make a path
//! unknown: the target exists and the item does not.

use std::borrow::Cow;

use http::HeaderValue;
use percent_encoding::percent_decode_str;

use crate::fault::OrBug;
use crate::formats::{Asset, BodyForm, PatchForm};
use crate::model::{Model, RealmIndex, Resource, ResourceIndex};
use crate::problem::{self, ProblemKind};
use crate::value::Id;

/// The target of a path.
#[derive(Debug, Clone, PartialEq)]
pub enum RouteTarget {
    Home,
    Health,
    Ready,
    Metrics,
    /// The change log.
    Changes,
    /// The OpenAPI document.
    OpenApi,
    /// The JSON Schema of a resource.
    Schema(ResourceIndex),
    /// The API reference of a resource, or its first page.
    Docs(Option<ResourceIndex>),
    /// The path at which a browser drops its stored credentials for a realm.
    Logout(RealmIndex),
    ProblemPage(&'static ProblemKind),
    /// A file that the pages load.
    Asset(Asset),
    /// `OPTIONS *`: the server as a whole.
    Server,
    Collection(ResourcePath),
    Item(ResourcePath),
}

/// Whether a path names the ancestors of its items.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PathForm {
    /// `/customers/:customer_id/orders`; a top-level resource has no ancestors.
    #[default]
    Nested,
    /// `/orders`: the items of all parents, which can only be read here.
    Flat,
}

/// The path of a collection or an item in the tree of resources.
#[derive(Debug, Clone, PartialEq)]
pub struct ResourcePath {
    pub resource: ResourceIndex,
    pub form: PathForm,
    /// `None` when a segment cannot be an id.
    pub ids: Option<PathIds>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct PathIds {
    /// The ids of the items in the path, the top-level one first; none in a flat path.
    pub ancestors: Vec<Id>,
    pub item: Option<Id>,
}

impl ResourcePath {
    /// The path with names of the model alone, without ids.
    pub fn of_resource(resource: ResourceIndex, form: PathForm) -> Self {
        Self { resource, form, ids: None }
    }

    pub fn nested(resource: ResourceIndex, ids: PathIds) -> Self {
        Self { resource, form: PathForm::Nested, ids: Some(ids) }
    }

    /// The path of the collection, also of that which an item is in; `None` if a parent in it cannot exist.
    pub fn collection_path(&self, model: &Model) -> Option<String> {
        let has_parents =
            self.form == PathForm::Nested && model.resource(self.resource).parent.is_some();
        let ancestors = match &self.ids {
            Some(ids) => &*ids.ancestors,
            None if has_parents => return None,
            None => &[],
        };
        Some(format_collection_path(model, self.resource, (self.form, ancestors)))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestVerb {
    Get,
    Head,
    /// A GET or HEAD that is answered with an event stream.
    Watch {
        last_event_id: Option<i64>,
    },
    /// A GET of a list whose query is the body (RFC 10008).
    Query,
    Post,
    /// A POST of items without a wrapper.
    PostItems(BodyForm),
    Put,
    Patch(PatchForm),
    Delete,
    Options,
}

const GET: (&str, RequestVerb) = ("GET", RequestVerb::Get);
const HEAD: (&str, RequestVerb) = ("HEAD", RequestVerb::Head);
const QUERY: (&str, RequestVerb) = ("QUERY", RequestVerb::Query);
const POST: (&str, RequestVerb) = ("POST", RequestVerb::Post);
const PUT: (&str, RequestVerb) = ("PUT", RequestVerb::Put);
const PATCH: (&str, RequestVerb) = ("PATCH", RequestVerb::Patch(PatchForm::MergePatch));
const DELETE: (&str, RequestVerb) = ("DELETE", RequestVerb::Delete);
const OPTIONS: (&str, RequestVerb) = ("OPTIONS", RequestVerb::Options);

/// All methods that any target allows.
const ALL_VERBS: &[(&str, RequestVerb)] = &[GET, HEAD, QUERY, POST, PUT, PATCH, DELETE, OPTIONS];

pub(super) fn allowed_verbs(
    model: &Model,
    place: &RouteTarget,
) -> &'static [(&'static str, RequestVerb)] {
    match place {
        RouteTarget::Home
        | RouteTarget::Health
        | RouteTarget::Ready
        | RouteTarget::Metrics
        | RouteTarget::Changes
        | RouteTarget::OpenApi
        | RouteTarget::Schema(_)
        | RouteTarget::Docs(_)
        | RouteTarget::Logout(_)
        | RouteTarget::ProblemPage(_)
        | RouteTarget::Asset(_) => &[GET, HEAD, OPTIONS],
        RouteTarget::Server => &[OPTIONS],
        RouteTarget::Item(path) if path.form == PathForm::Flat => &[GET, HEAD, OPTIONS],
        RouteTarget::Collection(path)
            if path.form == PathForm::Flat || model.resource(path.resource).is_server_made =>
        {
            &[GET, HEAD, QUERY, OPTIONS]
        }
        RouteTarget::Item(path) if model.resource(path.resource).is_server_made => {
            &[GET, HEAD, PATCH, DELETE, OPTIONS]
        }
        RouteTarget::Collection(_) => &[GET, HEAD, QUERY, POST, OPTIONS],
        RouteTarget::Item(_) => &[GET, HEAD, PUT, PATCH, DELETE, OPTIONS],
    }
}

/// The value of `Allow` for a target.
pub fn allow_header(model: &Model, place: &RouteTarget) -> HeaderValue {
    // RFC 9110 §9.3.7: `OPTIONS *` applies to the server as a whole.
    let verbs = if *place == RouteTarget::Server { ALL_VERBS } else { allowed_verbs(model, place) };
    let names: Vec<&str> = verbs.iter().map(|(name, _)| *name).collect();
    HeaderValue::try_from(names.join(", ")).or_bug("the names of methods are ASCII")
}

/// A path of the server's own, under `/-/`.
struct ServerPath {
    /// The segment after `/-/`.
    name: &'static str,
    /// The name of the segment after it in templates, where one may follow.
    parameter: &'static str,
    /// Every target of the path, with the segments after its name.
    targets: for<'m> fn(&'m Model) -> Vec<ServerTarget<'m>>,
}

/// The segments after the name of a path, and what they lead to.
type ServerTarget<'m> = (Vec<&'m str>, RouteTarget);

/// The paths under `/-/`, apart from those of the built-in resources.
const SERVER_PATHS: &[ServerPath] = &[
    ServerPath { name: "openapi.json", parameter: "", targets: |_| alone(RouteTarget::OpenApi) },
    ServerPath { name: "docs", parameter: "resource", targets: docs_targets },
    ServerPath { name: "schemas", parameter: "resource", targets: schema_targets },
    ServerPath { name: "changes", parameter: "", targets: |_| alone(RouteTarget::Changes) },
    ServerPath { name: "problems", parameter: "slug", targets: problem_targets },
    ServerPath { name: "logout", parameter: "realm", targets: logout_targets },
    ServerPath { name: "health", parameter: "", targets: |_| alone(RouteTarget::Health) },
    ServerPath { name: "ready", parameter: "", targets: |_| alone(RouteTarget::Ready) },
    ServerPath { name: "metrics", parameter: "", targets: |_| alone(RouteTarget::Metrics) },
    ServerPath { name: "assets", parameter: "file", targets: asset_targets },
];

fn alone<'m>(target: RouteTarget) -> Vec<ServerTarget<'m>> {
    vec![(Vec::new(), target)]
}

/// A built-in resource has its label, as in the change log: `/-/schemas/-/user`.
fn schema_targets(model: &Model) -> Vec<ServerTarget<'_>> {
    let targets = model
        .usable()
        .map(|resource| (resource.label.split('/').collect(), RouteTarget::Schema(resource.index)));
    targets.collect()
}

/// As `schema_targets`.
fn docs_targets(model: &Model) -> Vec<ServerTarget<'_>> {
    let targets = model.usable().map(|resource| {
        (resource.label.split('/').collect(), RouteTarget::Docs(Some(resource.index)))
    });
    alone(RouteTarget::Docs(None)).into_iter().chain(targets).collect()
}

fn problem_targets(_: &Model) -> Vec<ServerTarget<'_>> {
    problem::ALL.iter().map(|kind| (vec![kind.slug], RouteTarget::ProblemPage(kind))).collect()
}

fn asset_targets(_: &Model) -> Vec<ServerTarget<'_>> {
    Asset::ALL.map(|asset| (vec![asset.file_name()], RouteTarget::Asset(asset))).to_vec()
}

fn logout_targets(model: &Model) -> Vec<ServerTarget<'_>> {
    let mut targets = alone(RouteTarget::Logout(model.server_realm()));
    let realms = model.realms_with_index();
    targets.extend(realms.map(|(at, realm)| (vec![&*realm.name], RouteTarget::Logout(at))));
    targets
}

/// Paths with the same form and the same methods, without the deployment's prefix.
#[derive(Debug)]
pub struct RouteTemplate<'m> {
    /// With names in braces in place of ids and other values (RFC 6570).
    pub path: String,
    /// A target of this form; its ids are unknown.
    pub target: RouteTarget,
    /// The methods with their verbs.
    pub verbs: &'static [(&'static str, RequestVerb)],
    /// The parameter that stands for one of a few known values, and these values.
    pub choice: Option<(&'static str, Vec<&'m str>)>,
}

/// Every path that routing finds, in a stable order: the model's resources, the built-in ones, the server's
/// own paths.
pub fn route_templates(model: &Model) -> Vec<RouteTemplate<'_>> {
    let plain = |path: String, target| {
        let verbs = allowed_verbs(model, &target);
        RouteTemplate { path, target, verbs, choice: None }
    };
    let mut all = vec![plain("/".to_owned(), RouteTarget::Home)];
    for resource in model.usable() {
        let address = ResourcePath::of_resource(resource.index, PathForm::Nested);
        let (collection, item) = template_paths(model, resource);
        all.push(plain(collection, RouteTarget::Collection(address.clone())));
        all.push(plain(item, RouteTarget::Item(address)));
        if let Some(segment) = &resource.flat {
            let address = ResourcePath::of_resource(resource.index, PathForm::Flat);
            let item = format!("/{segment}/{{{}_id}}", resource.name);
            all.push(plain(format!("/{segment}"), RouteTarget::Collection(address.clone())));
            all.push(plain(item, RouteTarget::Item(address)));
        }
    }
    for ServerPath { name, parameter, targets } in SERVER_PATHS {
        let mut choices: Vec<(&str, RouteTarget)> = Vec::new();
        for (segments, target) in targets(model) {
            match *segments {
                [] => all.push(plain(format!("/-/{name}"), target)),
                [value] => choices.push((value, target)),
                _ => all.push(plain(format!("/-/{name}/{}", segments.join("/")), target)),
            }
        }
        if let Some((_, target)) = choices.first() {
            let target = target.clone();
            let values = choices.iter().map(|(value, _)| *value).collect();
            let path = format!("/-/{name}/{{{parameter}}}");
            all.push(RouteTemplate { choice: Some((parameter, values)), ..plain(path, target) });
        }
    }
    all
}

/// The templates of a collection and of its items: `/customers/{customer_id}/orders/{order_id}`.
fn template_paths(model: &Model, resource: &Resource) -> (String, String) {
    let mut path = String::new();
    if resource.is_builtin {
        path.push_str("/-");
    }
    let mut collection = String::new();
    for level in model.lineage(resource.index) {
        path.push('/');
        path.push_str(&level.plural);
        path.clone_into(&mut collection);
        path.push_str(&format!("/{{{}_id}}", level.name));
    }
    (collection, path)
}

pub(super) fn find_target(model: &Model, path: &str) -> Option<RouteTarget> {
    // RFC 9112 §3.2.3: only CONNECT has a target without a path.
    if matches!(path, "*" | "") {
        return Some(RouteTarget::Server);
    }
    let prefix = model.server.base_path.as_deref().unwrap_or("");
    let path = path
        .strip_prefix(prefix)
        .filter(|rest| !rest.is_empty())
        .or((path == prefix).then_some("/"))?;
    // Nobody can use a retained resource; the change log still has its paths.
    let nested = find_unprefixed_target(model, path).filter(|target| match target {
        RouteTarget::Collection(address) | RouteTarget::Item(address) => {
            !model.resource(address.resource).is_retained
        }
        _ => true,
    });
    nested.or_else(|| find_flat_target(model, path))
}

/// The flat collection of a nested resource, or an item by its id alone.
fn find_flat_target(model: &Model, path: &str) -> Option<RouteTarget> {
    let mut segments = path.strip_prefix('/')?.split('/');
    let first = decode_segment(segments.next()?)?;
    let resource = model.usable().find(|resource| resource.flat.as_deref() == Some(&*first))?;
    let address = |item| ResourcePath {
        resource: resource.index,
        form: PathForm::Flat,
        ids: Some(PathIds { ancestors: Vec::new(), item }),
    };
    let Some(id) = segments.next() else { return Some(RouteTarget::Collection(address(None))) };
    let id = decode_segment(id).filter(|id| !id.is_empty())?;
    if segments.next().is_some() {
        return None;
    }
    Some(RouteTarget::Item(match resource.id.parse(&id) {
        Some(id) => address(Some(id)),
        None => ResourcePath::of_resource(resource.index, PathForm::Flat),
    }))
}

/// The target of a path without the deployment's prefix, as the change log records it.
pub(super) fn find_unprefixed_target(model: &Model, path: &str) -> Option<RouteTarget> {
    let mut segments = path.strip_prefix('/')?.split('/');
    let first = decode_segment(segments.next()?)?;
    match &*first {
        "" => segments.next().is_none().then_some(RouteTarget::Home),
        "-" => find_server_target(model, segments),
        first => find_resource(model, find_top_level(model, first, false)?, segments),
    }
}

fn find_server_target<'a>(
    model: &'a Model,
    mut segments: impl Iterator<Item = &'a str>,
) -> Option<RouteTarget> {
    let name = decode_segment(segments.next()?)?;
    let Some(path) = SERVER_PATHS.iter().find(|path| *path.name == *name) else {
        return find_resource(model, find_top_level(model, &name, true)?, segments);
    };
    let rest: Vec<Cow<'_, str>> = segments.map(decode_segment).collect::<Option<_>>()?;
    let is_rest = |known: &[&str]| rest.iter().map(|segment| &**segment).eq(known.iter().copied());
    let mut targets = (path.targets)(model).into_iter();
    targets.find(|(known, _)| is_rest(known)).map(|(_, target)| target)
}

fn find_resource<'a>(
    model: &'a Model,
    mut resource: &'a Resource,
    mut segments: impl Iterator<Item = &'a str>,
) -> Option<RouteTarget> {
    let mut ancestors = Some(Vec::new());
    loop {
        let Some(segment) = segments.next() else {
            let ids = ancestors.map(|ancestors| PathIds { ancestors, item: None });
            let (resource, form) = (resource.index, PathForm::Nested);
            return Some(RouteTarget::Collection(ResourcePath { resource, form, ids }));
        };
        let segment = decode_segment(segment)?;
        if segment.is_empty() {
            return None;
        }
        let id = resource.id.parse(&segment);
        let Some(child) = segments.next() else {
            let ids =
                ancestors.zip(id).map(|(ancestors, id)| PathIds { ancestors, item: Some(id) });
            let (resource, form) = (resource.index, PathForm::Nested);
            return Some(RouteTarget::Item(ResourcePath { resource, form, ids }));
        };
        ancestors = ancestors.zip(id).map(|(mut ancestors, id)| {
            ancestors.push(id);
            ancestors
        });
        let child = decode_segment(child)?;
        resource = resource
            .children
            .iter()
            .map(|index| model.resource(*index))
            .find(|resource| *resource.plural == *child)?;
    }
}

fn find_top_level<'a>(model: &'a Model, plural: &str, is_own: bool) -> Option<&'a Resource> {
    let mut tops = model.resources.iter().filter(|resource| resource.parent.is_none());
    tops.find(|resource| resource.is_builtin == is_own && &*resource.plural == plural)
}

/// RFC 3986 §6.2.2.2: `%63ustomers` is `customers`.
pub(super) fn decode_segment(segment: &str) -> Option<Cow<'_, str>> {
    if !segment.as_bytes().contains(&b'%') {
        return Some(Cow::Borrowed(segment));
    }
    percent_decode_str(segment).decode_utf8().ok()
}

/// The path of a collection or an item, as in `Location` and `Link`.
pub fn format_path(
    model: &Model,
    resource: ResourceIndex,
    ancestors: &[Id],
    item: Option<Id>,
) -> String {
    let mut path = String::with_capacity(64);
    path.push_str(model.server.base_path.as_deref().unwrap_or(""));
    push_unprefixed_path(&mut path, model, resource, (ancestors, item));
    path
}

/// The path of a flat collection, or of an item in it; `None` if the resource has none.
pub fn format_flat_path(model: &Model, resource: &Resource, item: Option<Id>) -> Option<String> {
    let base_path = model.server.base_path.as_deref().unwrap_or("");
    let collection = format!("{base_path}/{}", resource.flat.as_deref()?);
    Some(match item {
        Some(id) => format!("{collection}/{id}"),
        None => collection,
    })
}

/// The path of a collection, nested or flat.
pub fn format_collection_path(
    model: &Model,
    resource: ResourceIndex,
    (form, ancestors): (PathForm, &[Id]),
) -> String {
    match form {
        PathForm::Nested => format_path(model, resource, ancestors, None),
        PathForm::Flat => format_flat_path(model, model.resource(resource), None)
            .or_bug("routing finds a flat path only where there is one"),
    }
}

/// Appends the path of an item as the change log records it: without the deployment's prefix.
pub fn push_unprefixed_path(
    path: &mut String,
    model: &Model,
    resource: ResourceIndex,
    (ancestors, item): (&[Id], Option<Id>),
) {
    let resource = model.resource(resource);
    match (resource.parent, ancestors.split_last()) {
        (None, _) if resource.is_builtin => path.push_str("/-"),
        (None, _) => {}
        (Some(parent), Some((id, above))) => {
            push_unprefixed_path(path, model, parent, (above, Some(*id)));
        }
        (Some(parent), None) => push_unprefixed_path(path, model, parent, (&[], None)),
    }
    path.push('/');
    path.push_str(&resource.plural);
    if let Some(id) = item {
        path.push('/');
        id.with_text(|text| path.push_str(text));
    }
}
