//! Routing: from a method and a path to a target.
//!
//! Routes are data: a path is matched segment by segment against the model's tree of resources. A segment
//! that cannot be an id does not make the path unknown: the target exists and the item does not, and a later
//! step of the order of checks answers 404, as for any missing item.

use std::borrow::Cow;

use http::{HeaderMap, HeaderValue, Method, header};
use percent_encoding::percent_decode_str;

use crate::formats::{self, BodyForm, Offer, PatchForm};
use crate::model::settings::Limits;
use crate::model::{Model, Resource, ResourceIndex};
use crate::problem::{self, Kind, Problem};
use crate::value::Id;

/// What a path names.
#[derive(Debug, Clone, PartialEq)]
pub enum Place {
    Home,
    Health,
    Ready,
    Metrics,
    /// Where a browser drops its stored credentials for a realm, by the realm's index.
    Logout(usize),
    Explanation(&'static Kind),
    /// `OPTIONS *`: the server as a whole.
    Server,
    Collection(Address),
    Item(Address),
}

/// The path of a collection or an item in the tree of resources.
#[derive(Debug, Clone, PartialEq)]
pub struct Address {
    pub resource: ResourceIndex,
    /// `None` when a segment cannot be an id.
    pub ids: Option<Ids>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Ids {
    /// The ids of the items in the path, the top-level one first.
    pub ancestors: Vec<Id>,
    pub item: Option<Id>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    Get,
    Head,
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
    pub verb: Verb,
    pub place: Place,
}

impl Route {
    /// The kinds of response a success can have (for HEAD: whose headers), once it is known how the body is
    /// parsed.
    pub fn offer(&self) -> Offer {
        match (self.verb, &self.place) {
            (Verb::Delete | Verb::Options, _) => Offer::Nothing,
            (_, Place::Metrics) => Offer::Metrics,
            (Verb::Get | Verb::Head, Place::Collection(_)) => Offer::List,
            // Items without a wrapper are a list, and so is the response.
            (Verb::PostItems(_), _) => Offer::List,
            (Verb::Get | Verb::Head | Verb::Post | Verb::Put | Verb::Patch(_), _) => Offer::Data,
        }
    }

    /// Step 7 of the order of checks: 415, and 400 for a partial PUT. The content type decides how a patch or
    /// a list is parsed.
    pub fn check_readable(self, headers: &HeaderMap) -> Result<Self, Problem> {
        match self.verb {
            Verb::Patch(_) => {
                Ok(Self { verb: Verb::Patch(formats::check_patch(headers)?), ..self })
            }
            Verb::Post => Ok(match formats::check_readable(headers)? {
                BodyForm::Wrapped => self,
                form => Self { verb: Verb::PostItems(form), ..self },
            }),
            Verb::Put => {
                formats::check_json(headers)?;
                // RFC 9110 §14.5: a server without support for partial PUT would store the part as the whole.
                match headers.contains_key(header::CONTENT_RANGE) {
                    true => Err(Problem::new(&problem::PARTIAL_PUT)),
                    false => Ok(self),
                }
            }
            Verb::PostItems(_) | Verb::Get | Verb::Head | Verb::Delete | Verb::Options => Ok(self),
        }
    }

    /// The resource of the target, if any.
    pub fn resource(&self) -> Option<ResourceIndex> {
        match &self.place {
            Place::Collection(address) | Place::Item(address) => Some(address.resource),
            Place::Home
            | Place::Health
            | Place::Ready
            | Place::Metrics
            | Place::Logout(_)
            | Place::Explanation(_)
            | Place::Server => None,
        }
    }

    /// A list of new items may be larger than one item.
    pub fn body_bytes_max(&self, limits: &Limits) -> usize {
        match (self.verb, &self.place) {
            (Verb::Post | Verb::PostItems(_), Place::Collection(_)) => limits.bulk_bytes_max,
            _ => limits.body_bytes_max,
        }
    }
}

/// Why routing ends the request.
#[derive(Debug)]
pub enum Stop {
    /// The path has one slash too many: 308 to this URL.
    Moved(String),
    Problem(Problem),
}

impl From<Problem> for Stop {
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
) -> Result<Route, Stop> {
    crate::fault::point("route");
    if !is_known(method) {
        return Err(Problem::new(&problem::UNKNOWN_METHOD).into());
    }
    let place = match find(model, path) {
        Some(place) => place,
        None => return Err(moved(model, path, query)),
    };
    let allowed = verbs(&place);
    match allowed.iter().find(|(name, _)| *name == method.as_str()) {
        Some((_, verb)) => Ok(Route { verb: *verb, place }),
        None => Err(Problem::new(&problem::METHOD_NOT_ALLOWED)
            .header(header::ALLOW, allow(&place))
            .into()),
    }
}

/// RFC 9110 §9.1: an unknown method is 501, a known one that the target does not allow is 405.
fn is_known(method: &Method) -> bool {
    let known = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"];
    known.contains(&method.as_str())
}

const GET: (&str, Verb) = ("GET", Verb::Get);
const HEAD: (&str, Verb) = ("HEAD", Verb::Head);
const POST: (&str, Verb) = ("POST", Verb::Post);
const PUT: (&str, Verb) = ("PUT", Verb::Put);
const PATCH: (&str, Verb) = ("PATCH", Verb::Patch(PatchForm::Merge));
const DELETE: (&str, Verb) = ("DELETE", Verb::Delete);
const OPTIONS: (&str, Verb) = ("OPTIONS", Verb::Options);

/// All methods that any target allows.
const EVERYWHERE: &[(&str, Verb)] = &[GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS];

fn verbs(place: &Place) -> &'static [(&'static str, Verb)] {
    match place {
        Place::Home
        | Place::Health
        | Place::Ready
        | Place::Metrics
        | Place::Logout(_)
        | Place::Explanation(_) => &[GET, HEAD, OPTIONS],
        Place::Server => &[OPTIONS],
        Place::Collection(_) => &[GET, HEAD, POST, OPTIONS],
        Place::Item(_) => &[GET, HEAD, PUT, PATCH, DELETE, OPTIONS],
    }
}

/// The value of `Allow` for a target.
pub fn allow(place: &Place) -> HeaderValue {
    // RFC 9110 §9.3.7: `OPTIONS *` applies to the server as a whole.
    let verbs = if *place == Place::Server { EVERYWHERE } else { verbs(place) };
    let names: Vec<&str> = verbs.iter().map(|(name, _)| *name).collect();
    HeaderValue::try_from(names.join(", ")).unwrap_or(HeaderValue::from_static("OPTIONS"))
}

/// The methods of a path for a CORS preflight; all of them for an unknown path, so that the preflight
/// succeeds and the page can read the 404 of its actual request.
pub fn methods(model: &Model, path: &str) -> HeaderValue {
    let place = find(model, path).or_else(|| find(model, path.strip_suffix('/')?));
    allow(&place.unwrap_or(Place::Server))
}

fn find(model: &Model, path: &str) -> Option<Place> {
    // RFC 9112 §3.2.3: only CONNECT has a target without a path.
    if matches!(path, "*" | "") {
        return Some(Place::Server);
    }
    let prefix = model.server.base_path.as_deref().unwrap_or("");
    let path = path
        .strip_prefix(prefix)
        .filter(|rest| !rest.is_empty())
        .or((path == prefix).then_some("/"))?;
    let mut segments = path.strip_prefix('/')?.split('/');
    let first = decode(segments.next()?)?;
    match &*first {
        "" => segments.next().is_none().then_some(Place::Home),
        "-" => find_own(model, segments),
        first => find_resource(model, top(model, first, false)?, segments),
    }
}

fn find_own<'a>(model: &'a Model, mut segments: impl Iterator<Item = &'a str>) -> Option<Place> {
    let name = decode(segments.next()?)?;
    let place = match &*name {
        "health" => Place::Health,
        "ready" => Place::Ready,
        "metrics" => Place::Metrics,
        "logout" => Place::Logout(match segments.next() {
            None => model.server_realm(),
            Some(segment) => {
                let name = decode(segment)?;
                model.realms.iter().position(|realm| *realm.name == *name)?
            }
        }),
        "problems" => Place::Explanation(problem::by_slug(&decode(segments.next()?)?)?),
        plural => return find_resource(model, top(model, plural, true)?, segments),
    };
    segments.next().is_none().then_some(place)
}

fn find_resource<'a>(
    model: &'a Model,
    mut resource: &'a Resource,
    mut segments: impl Iterator<Item = &'a str>,
) -> Option<Place> {
    let mut ancestors = Some(Vec::new());
    loop {
        let Some(segment) = segments.next() else {
            let ids = ancestors.map(|ancestors| Ids { ancestors, item: None });
            return Some(Place::Collection(Address { resource: resource.index, ids }));
        };
        let segment = decode(segment)?;
        if segment.is_empty() {
            return None;
        }
        let id = resource.id.parse(&segment);
        let Some(child) = segments.next() else {
            let ids = ancestors.zip(id).map(|(ancestors, id)| Ids { ancestors, item: Some(id) });
            return Some(Place::Item(Address { resource: resource.index, ids }));
        };
        ancestors = ancestors.zip(id).map(|(mut ancestors, id)| {
            ancestors.push(id);
            ancestors
        });
        let child = decode(child)?;
        resource = resource
            .children
            .iter()
            .map(|index| model.resource(*index))
            .find(|resource| *resource.plural == *child)?;
    }
}

fn top<'a>(model: &'a Model, plural: &str, is_own: bool) -> Option<&'a Resource> {
    let mut tops = model.resources.iter().filter(|resource| resource.parent.is_none());
    tops.find(|resource| resource.is_own == is_own && &*resource.plural == plural)
}

/// RFC 3986 §6.2.2.2: `%63ustomers` is `customers`.
fn decode(segment: &str) -> Option<Cow<'_, str>> {
    if !segment.as_bytes().contains(&b'%') {
        return Some(Cow::Borrowed(segment));
    }
    percent_decode_str(segment).decode_utf8().ok()
}

/// Redirects a known path with one trailing slash too many; every other path is 404.
fn moved(model: &Model, path: &str, query: Option<&str>) -> Stop {
    let shorter =
        path.strip_suffix('/').filter(|shorter| !path.contains("//") && !shorter.is_empty());
    match shorter.filter(|shorter| find(model, shorter).is_some()) {
        Some(shorter) => Stop::Moved(match query {
            Some(query) => format!("{shorter}?{query}"),
            None => shorter.to_owned(),
        }),
        None => Problem::new(&problem::NO_SUCH_PATH).into(),
    }
}

/// The nested resource that a path without its parents names, such as `/orders`.
pub fn misplaced<'a>(model: &'a Model, path: &str) -> Option<&'a Resource> {
    let prefix = model.server.base_path.as_deref().unwrap_or("");
    let first = path.strip_prefix(prefix)?.strip_prefix('/')?.split('/').next()?;
    let first = decode(first)?;
    model.declared().find(|resource| resource.parent.is_some() && *resource.plural == *first)
}

/// The path of a collection or an item, as in `Location` and `Link`.
pub fn path(model: &Model, resource: ResourceIndex, ancestors: &[Id], item: Option<Id>) -> String {
    let mut path = String::with_capacity(64);
    path.push_str(model.server.base_path.as_deref().unwrap_or(""));
    push_subject(&mut path, model, resource, (ancestors, item));
    path
}

/// Appends the path of an item as the change log records it: without the deployment's prefix.
pub fn push_subject(
    path: &mut String,
    model: &Model,
    resource: ResourceIndex,
    (ancestors, item): (&[Id], Option<Id>),
) {
    let resource = model.resource(resource);
    match (resource.parent, ancestors.split_last()) {
        (None, _) if resource.is_own => path.push_str("/-"),
        (None, _) => {}
        (Some(parent), Some((id, above))) => push_subject(path, model, parent, (above, Some(*id))),
        (Some(parent), None) => push_subject(path, model, parent, (&[], None)),
    }
    path.push('/');
    path.push_str(&resource.plural);
    if let Some(id) = item {
        path.push('/');
        id.push_to(path);
    }
}

#[cfg(test)]
mod tests;
