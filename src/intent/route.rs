//! Routing: from a method and a path to a target.
//!
//! Routes are data: a path is matched segment by segment against the model's tree of resources. A segment
//! that cannot be an id does not make the path unknown: the target exists and the item does not, and a later
//! step of the order of checks answers 404, as for any missing item.

use std::borrow::Cow;

use http::{HeaderMap, HeaderValue, Method, header};
use percent_encoding::percent_decode_str;

use crate::fault::OrBug;
use crate::formats::{self, BodyForm, PatchForm, ResponseOffer};
use crate::model::settings::ServerLimits;
use crate::model::{Model, RealmIndex, Resource, ResourceIndex};
use crate::problem::{self, Problem, ProblemKind};
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
    /// The path at which a browser drops its stored credentials for a realm.
    Logout(RealmIndex),
    ProblemPage(&'static ProblemKind),
    /// `OPTIONS *`: the server as a whole.
    Server,
    Collection(ResourcePath),
    Item(ResourcePath),
}

/// The path of a collection or an item in the tree of resources.
#[derive(Debug, Clone, PartialEq)]
pub struct ResourcePath {
    pub resource: ResourceIndex,
    /// `None` when a segment cannot be an id.
    pub ids: Option<PathIds>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct PathIds {
    /// The ids of the items in the path, the top-level one first.
    pub ancestors: Vec<Id>,
    pub item: Option<Id>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestVerb {
    Get,
    Head,
    /// A GET or HEAD that is answered with an event stream.
    Watch {
        last_event_id: Option<i64>,
    },
    Post,
    /// A POST of items without a wrapper.
    PostItems(BodyForm),
    Put,
    Patch(PatchForm),
    Delete,
    Options,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Route {
    pub verb: RequestVerb,
    pub target: RouteTarget,
}

impl Route {
    /// The kinds of body that a successful response can have (for HEAD: that its headers describe), once it
    /// is known how the request body is parsed.
    pub fn response_offer(&self) -> ResponseOffer {
        match (self.verb, &self.target) {
            (RequestVerb::Delete | RequestVerb::Options, _) => ResponseOffer::NoBody,
            (_, RouteTarget::Metrics) => ResponseOffer::Metrics,
            (
                RequestVerb::Get | RequestVerb::Head,
                RouteTarget::Collection(_) | RouteTarget::Changes,
            ) => ResponseOffer::ListOrEvents,
            (RequestVerb::Get | RequestVerb::Head, RouteTarget::Item(_)) => {
                ResponseOffer::DataOrEvents
            }
            // Items without a wrapper are a list, and so is the response.
            (RequestVerb::PostItems(_), _) => ResponseOffer::List,
            (
                RequestVerb::Get
                | RequestVerb::Head
                | RequestVerb::Watch { .. }
                | RequestVerb::Post
                | RequestVerb::Put
                | RequestVerb::Patch(_),
                _,
            ) => ResponseOffer::Data,
        }
    }

    /// Step 7 of the order of checks: 415, and 400 for a partial PUT. The content type decides how a patch or
    /// a list is parsed.
    pub fn check_readable(self, headers: &HeaderMap) -> Result<Self, Problem> {
        match self.verb {
            RequestVerb::Patch(_) => {
                Ok(Self { verb: RequestVerb::Patch(formats::check_patch_type(headers)?), ..self })
            }
            RequestVerb::Post => Ok(match formats::check_body_type(headers)? {
                BodyForm::Wrapped => self,
                form => Self { verb: RequestVerb::PostItems(form), ..self },
            }),
            RequestVerb::Put => {
                formats::check_json_type(headers)?;
                // RFC 9110 §14.5: a server without support for partial PUT would store the part as the whole.
                match headers.contains_key(header::CONTENT_RANGE) {
                    true => Err(Problem::new(&problem::PARTIAL_PUT)),
                    false => Ok(self),
                }
            }
            RequestVerb::PostItems(_)
            | RequestVerb::Watch { .. }
            | RequestVerb::Get
            | RequestVerb::Head
            | RequestVerb::Delete
            | RequestVerb::Options => Ok(self),
        }
    }

    /// The resource of the target, if any.
    pub fn resource(&self) -> Option<ResourceIndex> {
        match &self.target {
            RouteTarget::Collection(address) | RouteTarget::Item(address) => Some(address.resource),
            RouteTarget::Home
            | RouteTarget::Health
            | RouteTarget::Ready
            | RouteTarget::Metrics
            | RouteTarget::Changes
            | RouteTarget::Logout(_)
            | RouteTarget::ProblemPage(_)
            | RouteTarget::Server => None,
        }
    }

    pub fn has_csv_body(&self) -> bool {
        matches!(self.verb, RequestVerb::PostItems(BodyForm::Csv))
    }

    /// The maximum size of the body: a list of new items may be larger than one item.
    pub fn body_bytes_max(&self, limits: &ServerLimits) -> usize {
        match (self.verb, &self.target) {
            (RequestVerb::Post | RequestVerb::PostItems(_), RouteTarget::Collection(_)) => {
                limits.bulk_bytes_max
            }
            _ => limits.body_bytes_max,
        }
    }
}

/// Why routing ends the request.
#[derive(Debug)]
pub enum RouteError {
    /// The path has one slash too many: 308 to this URL.
    Redirect(String),
    Problem(Problem),
}

impl From<Problem> for RouteError {
    fn from(problem: Problem) -> Self {
        Self::Problem(problem)
    }
}

/// Step 2 of the order of checks: 501, 404, 308, 405.
pub fn route(
    model: &Model,
    method: &Method,
    path: &str,
    query: Option<&str>,
) -> Result<Route, RouteError> {
    crate::fault::point("route");
    if !is_known(method) {
        return Err(Problem::new(&problem::UNKNOWN_METHOD).into());
    }
    let place = match find_target(model, path) {
        Some(place) => place,
        None => return Err(redirect_or_not_found(model, path, query)),
    };
    let allowed = allowed_verbs(model, &place);
    match allowed.iter().find(|(name, _)| *name == method.as_str()) {
        Some((_, verb)) => Ok(Route { verb: *verb, target: place }),
        None => Err(Problem::new(&problem::METHOD_NOT_ALLOWED)
            .header(header::ALLOW, allow_header(model, &place))
            .into()),
    }
}

/// RFC 9110 §9.1: an unknown method is 501, a known one that the target does not allow is 405.
fn is_known(method: &Method) -> bool {
    let known = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"];
    known.contains(&method.as_str())
}

const GET: (&str, RequestVerb) = ("GET", RequestVerb::Get);
const HEAD: (&str, RequestVerb) = ("HEAD", RequestVerb::Head);
const POST: (&str, RequestVerb) = ("POST", RequestVerb::Post);
const PUT: (&str, RequestVerb) = ("PUT", RequestVerb::Put);
const PATCH: (&str, RequestVerb) = ("PATCH", RequestVerb::Patch(PatchForm::MergePatch));
const DELETE: (&str, RequestVerb) = ("DELETE", RequestVerb::Delete);
const OPTIONS: (&str, RequestVerb) = ("OPTIONS", RequestVerb::Options);

/// All methods that any target allows.
const ALL_VERBS: &[(&str, RequestVerb)] = &[GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS];

fn allowed_verbs(model: &Model, place: &RouteTarget) -> &'static [(&'static str, RequestVerb)] {
    match place {
        RouteTarget::Home
        | RouteTarget::Health
        | RouteTarget::Ready
        | RouteTarget::Metrics
        | RouteTarget::Changes
        | RouteTarget::Logout(_)
        | RouteTarget::ProblemPage(_) => &[GET, HEAD, OPTIONS],
        RouteTarget::Server => &[OPTIONS],
        RouteTarget::Collection(path) if model.resource(path.resource).is_server_made => {
            &[GET, HEAD, OPTIONS]
        }
        RouteTarget::Item(path) if model.resource(path.resource).is_server_made => {
            &[GET, HEAD, PATCH, DELETE, OPTIONS]
        }
        RouteTarget::Collection(_) => &[GET, HEAD, POST, OPTIONS],
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

/// The methods of a path for a CORS preflight; all of them for an unknown path, so that the preflight
/// succeeds and the page can read the 404 of its actual request.
pub fn preflight_methods(model: &Model, path: &str) -> HeaderValue {
    let place = find_target(model, path).or_else(|| find_target(model, path.strip_suffix('/')?));
    allow_header(model, &place.unwrap_or(RouteTarget::Server))
}

fn find_target(model: &Model, path: &str) -> Option<RouteTarget> {
    // RFC 9112 §3.2.3: only CONNECT has a target without a path.
    if matches!(path, "*" | "") {
        return Some(RouteTarget::Server);
    }
    let prefix = model.server.base_path.as_deref().unwrap_or("");
    let path = path
        .strip_prefix(prefix)
        .filter(|rest| !rest.is_empty())
        .or((path == prefix).then_some("/"))?;
    find_unprefixed_target(model, path)
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
    let place = match &*name {
        "health" => RouteTarget::Health,
        "ready" => RouteTarget::Ready,
        "metrics" => RouteTarget::Metrics,
        "changes" => RouteTarget::Changes,
        "logout" => RouteTarget::Logout(match segments.next() {
            None => model.server_realm(),
            Some(segment) => model.find_realm(&decode_segment(segment)?)?,
        }),
        "problems" => {
            RouteTarget::ProblemPage(problem::find_by_slug(&decode_segment(segments.next()?)?)?)
        }
        plural => return find_resource(model, find_top_level(model, plural, true)?, segments),
    };
    segments.next().is_none().then_some(place)
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
            return Some(RouteTarget::Collection(ResourcePath { resource: resource.index, ids }));
        };
        let segment = decode_segment(segment)?;
        if segment.is_empty() {
            return None;
        }
        let id = resource.id.parse(&segment);
        let Some(child) = segments.next() else {
            let ids =
                ancestors.zip(id).map(|(ancestors, id)| PathIds { ancestors, item: Some(id) });
            return Some(RouteTarget::Item(ResourcePath { resource: resource.index, ids }));
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
fn decode_segment(segment: &str) -> Option<Cow<'_, str>> {
    if !segment.as_bytes().contains(&b'%') {
        return Some(Cow::Borrowed(segment));
    }
    percent_decode_str(segment).decode_utf8().ok()
}

/// Redirects a known path with one trailing slash too many; every other path is 404.
fn redirect_or_not_found(model: &Model, path: &str, query: Option<&str>) -> RouteError {
    let shorter =
        path.strip_suffix('/').filter(|shorter| !path.contains("//") && !shorter.is_empty());
    match shorter.filter(|shorter| find_target(model, shorter).is_some()) {
        Some(shorter) => RouteError::Redirect(match query {
            Some(query) => format!("{shorter}?{query}"),
            None => shorter.to_owned(),
        }),
        None => Problem::new(&problem::NO_SUCH_PATH).into(),
    }
}

/// The nested resource that a path without its parents names, such as `/orders`.
pub fn find_nested_by_plural<'a>(model: &'a Model, path: &str) -> Option<&'a Resource> {
    let prefix = model.server.base_path.as_deref().unwrap_or("");
    let first = path.strip_prefix(prefix)?.strip_prefix('/')?.split('/').next()?;
    let first = decode_segment(first)?;
    model.declared().find(|resource| resource.parent.is_some() && *resource.plural == *first)
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

#[cfg(test)]
mod tests;
