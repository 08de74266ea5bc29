//! Routing: from a method and a path to a target.
//!
//! `target` has the table of what exists. A segment that cannot be an id leads to a target all the same, and a
//! later step of the order of checks answers 404, as for any missing item.

use http::{HeaderMap, HeaderValue, Method, header};

use super::target::{
    PathForm, RequestVerb, RouteTarget, allow_header, allowed_verbs, decode_segment, find_target,
};
use crate::formats::{self, BodyForm, ResponseOffer};
use crate::model::settings::ServerLimits;
use crate::model::{Model, Resource, ResourceIndex};
use crate::problem::{self, Problem};

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
            (_, RouteTarget::OpenApi) => ResponseOffer::OpenApi,
            (_, RouteTarget::Schema(_)) => ResponseOffer::Schema,
            (_, RouteTarget::Docs(_)) => ResponseOffer::OpenApiOrPage,
            (_, RouteTarget::Asset(asset)) => ResponseOffer::Asset(*asset),
            (
                RequestVerb::Get | RequestVerb::Head,
                RouteTarget::Home | RouteTarget::ProblemPage(_),
            ) => ResponseOffer::DataOrPage,
            (
                RequestVerb::Get | RequestVerb::Head,
                RouteTarget::Collection(_) | RouteTarget::Changes,
            ) => ResponseOffer::ListOrEvents,
            (RequestVerb::Get | RequestVerb::Head, RouteTarget::Item(_)) => {
                ResponseOffer::DataOrEvents
            }
            // Items without a wrapper are a list, and so is the response.
            (RequestVerb::PostItems(_) | RequestVerb::Query, _) => ResponseOffer::List,
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
            RequestVerb::Query => formats::check_query_type(headers).map(|()| self),
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
            | RouteTarget::OpenApi
            | RouteTarget::Schema(_)
            | RouteTarget::Docs(_)
            | RouteTarget::Logout(_)
            | RouteTarget::ProblemPage(_)
            | RouteTarget::Asset(_)
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
    let known =
        ["GET", "HEAD", "QUERY", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"];
    known.contains(&method.as_str())
}

/// The methods of a path for a CORS preflight; all of them for an unknown path, so that the preflight
/// succeeds and the page can read the 404 of its actual request.
pub fn preflight_methods(model: &Model, path: &str) -> HeaderValue {
    let place = find_target(model, path).or_else(|| find_target(model, path.strip_suffix('/')?));
    allow_header(model, &place.unwrap_or(RouteTarget::Server))
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

/// The resource of a flat path, and whether the path is that of an item.
pub fn find_flat<'a>(model: &'a Model, path: &str) -> Option<(&'a Resource, bool)> {
    let target = find_target(model, path)?;
    let is_item = matches!(target, RouteTarget::Item(_));
    match target {
        RouteTarget::Collection(path) | RouteTarget::Item(path) if path.form == PathForm::Flat => {
            Some((model.resource(path.resource), is_item))
        }
        _ => None,
    }
}

/// The nested resource that a path without its parents names, such as `/orders`.
pub fn find_nested_by_plural<'a>(model: &'a Model, path: &str) -> Option<&'a Resource> {
    let prefix = model.server.base_path.as_deref().unwrap_or("");
    let first = path.strip_prefix(prefix)?.strip_prefix('/')?.split('/').next()?;
    let first = decode_segment(first)?;
    let mut nested = model.usable().filter(|one| !one.is_builtin && one.parent.is_some());
    nested.find(|resource| *resource.plural == *first)
}

#[cfg(test)]
mod tests;
