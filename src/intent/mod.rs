//! Stage 1, parse: the request as an `Intent`, in terms of the model.
//!
//! No I/O. It parses the query and strips the body's outer key (`{"task": …}`), and needs no stored data.
//! Field values stay JSON here; `plan` validates them against the model.

pub mod preconditions;
pub mod cursor;
mod unwrapped_items;
mod idempotency_key;
mod list;
mod query;
mod route;

pub use idempotency_key::idempotency_key;
pub use list::{Attribute, Filter, FilterTest, ListQuery, SortKey, sort_prefix};
pub use route::{
    PathIds, RequestVerb, ResourcePath, Route, RouteError, RouteTarget, allow_header,
    find_nested_by_plural, format_path, preflight_methods, push_unprefixed_path, route,
};
pub use unwrapped_items::body_as_json_lines;

use std::borrow::Cow;
use std::sync::Arc;

use crate::formats::PatchForm;
use crate::json::{self, Json};
use crate::model::settings::ServerLimits;
use crate::model::{Model, Resource};
use crate::problem::{self, Problem, ProblemKind};

/// Nesting depth; the outermost value is at depth 1.
const DEPTH_MAX: usize = 32;

/// The operation that the client asks for.
#[derive(Debug)]
pub enum Intent<'a> {
    /// The list of resources.
    Home,
    Health,
    Ready,
    Metrics,
    ExplainProblem(&'static ProblemKind),
    /// The methods that a target allows.
    Options(RouteTarget),
    /// With a list query if only some of the members are selected.
    Get(ResourcePath, Option<Arc<ListQuery>>),
    List(ResourcePath, Arc<ListQuery>),
    Create(ResourcePath, CreateBody<'a>),
    Replace(ResourcePath, ItemBody<'a>),
    Patch(ResourcePath, Patch),
    Remove(ResourcePath),
}

/// The fields of one item, and the wrapper key around them: JSON pointers in problems begin with the key.
#[derive(Debug)]
pub struct ItemBody<'a> {
    pub wrapper: &'a str,
    pub members: JsonMembers<'a>,
}

pub type JsonMember<'a> = (Cow<'a, str>, Json<'a>);
pub type JsonMembers<'a> = Vec<JsonMember<'a>>;

/// A well-formed patch, still as bytes: the store applies it once the item is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Patch {
    /// An object under a wrapper.
    MergePatch(Box<[u8]>),
    JsonPatch(Box<[u8]>),
}

#[derive(Debug)]
pub enum CreateBody<'a> {
    One(ItemBody<'a>),
    Many(&'a str, Vec<JsonMembers<'a>>),
}

/// Steps 8 (400) and 9 of the order of checks: the body's syntax and wrapper, then the query. Fields that are
/// `hidden` from the caller are unknown in the query.
pub fn read<'a>(
    model: &'a Model,
    route: Route,
    (query, hidden): (Option<&str>, &[usize]),
    body: &'a [u8],
) -> Result<Intent<'a>, Problem> {
    crate::fault::point("intent");
    let limits = &model.server.limits;
    let intent = match (route.verb, route.target) {
        // Public; query parameters are ignored.
        (RequestVerb::Options, place) => return Ok(Intent::Options(place)),
        (_, RouteTarget::Health) => return Ok(Intent::Health),
        (_, RouteTarget::Ready) => return Ok(Intent::Ready),
        (_, RouteTarget::ProblemPage(kind)) => return Ok(Intent::ExplainProblem(kind)),
        // `pipeline` has responded to a logout before this stage.
        (_, place @ (RouteTarget::Server | RouteTarget::Logout(_))) => {
            return Ok(Intent::Options(place));
        }
        (_, RouteTarget::Home) => Intent::Home,
        (_, RouteTarget::Metrics) => Intent::Metrics,
        (RequestVerb::Post, RouteTarget::Collection(address)) => {
            let bodies = read_create_body(model.resource(address.resource), limits, body)?;
            Intent::Create(address, bodies)
        }
        (RequestVerb::PostItems(_), RouteTarget::Collection(address)) => {
            let bodies = unwrapped_items::read(model.resource(address.resource), limits, body)?;
            Intent::Create(address, bodies)
        }
        (_, RouteTarget::Collection(address)) => {
            let list = list::read(model, &address, (query, hidden))?;
            return Ok(Intent::List(address, Arc::new(list)));
        }
        (RequestVerb::Put, RouteTarget::Item(address)) => {
            let body = read_body(model.resource(address.resource), body)?;
            Intent::Replace(address, body)
        }
        (RequestVerb::Patch(form), RouteTarget::Item(address)) => {
            let patch = read_patch(model.resource(address.resource), form, body)?;
            Intent::Patch(address, patch)
        }
        (RequestVerb::Delete, RouteTarget::Item(address)) => Intent::Remove(address),
        (_, RouteTarget::Item(address)) => {
            let list = list::read_selection(model, &address, (query, hidden))?;
            return Ok(Intent::Get(address, list.map(Arc::new)));
        }
    };
    refuse_parameters(query)?;
    Ok(intent)
}

/// Parses the body of a create: one item under the singular or the plural, or a list under the plural.
fn read_create_body<'a>(
    resource: &'a Resource,
    limits: &ServerLimits,
    body: &'a [u8],
) -> Result<CreateBody<'a>, Problem> {
    let too_large = body.len() > limits.body_bytes_max;
    let wrapped = match strip_wrapper(resource, body) {
        Err(_) if too_large => return Err(item_too_large(limits)),
        wrapped => wrapped?,
    };
    match wrapped {
        (wrapper, Json::Object(_)) if too_large => Err(item_too_large(limits)
            .detail(format!("one {wrapper} may have {} bytes", limits.body_bytes_max))),
        (wrapper, Json::Object(members)) => Ok(CreateBody::One(ItemBody { wrapper, members })),
        (wrapper, Json::List(list)) if wrapper == &*resource.plural => {
            if list.len() > limits.bulk_items_max {
                let detail =
                    format!("at most {} items at once, got {}", limits.bulk_items_max, list.len());
                return Err(Problem::new(&problem::TOO_LARGE).detail(detail));
            }
            let items = list.into_iter().enumerate().map(|(index, json)| match json {
                Json::Object(members) => Ok(members),
                other => Err(bad_wrapper(format!(
                    "{wrapper}[{index}]: expected an object, got {}",
                    other.type_name()
                ))),
            });
            Ok(CreateBody::Many(wrapper, items.collect::<Result<_, _>>()?))
        }
        (wrapper, other) => {
            Err(bad_wrapper(format!("{wrapper}: expected an object, got {}", other.type_name())))
        }
    }
}

fn read_body<'a>(resource: &'a Resource, body: &'a [u8]) -> Result<ItemBody<'a>, Problem> {
    match strip_wrapper(resource, body)? {
        (wrapper, Json::Object(members)) => Ok(ItemBody { wrapper, members }),
        (wrapper, other) => {
            Err(bad_wrapper(format!("{wrapper}: expected an object, got {}", other.type_name())))
        }
    }
}

fn read_patch(resource: &Resource, form: PatchForm, body: &[u8]) -> Result<Patch, Problem> {
    match form {
        PatchForm::MergePatch => read_body(resource, body).map(|_| Patch::MergePatch(body.into())),
        PatchForm::JsonPatch => {
            let malformed = |detail| Problem::new(&problem::BAD_PATCH).detail(detail);
            json::patch::parse_operations(parse(body)?).map_err(malformed)?;
            Ok(Patch::JsonPatch(body.into()))
        }
    }
}

fn parse(body: &[u8]) -> Result<Json<'_>, Problem> {
    json::parse(body, DEPTH_MAX)
        .map_err(|error| Problem::new(&problem::BAD_JSON).detail(error.to_string()))
}

fn item_too_large(limits: &ServerLimits) -> Problem {
    Problem::new(&problem::TOO_LARGE)
        .detail(format!("a body that is not a list may have {} bytes", limits.body_bytes_max))
}

fn bad_wrapper(detail: String) -> Problem {
    Problem::new(&problem::BAD_WRAPPER).detail(detail)
}

/// Strips the wrapper key. The name it returns is borrowed from the model.
fn strip_wrapper<'a>(
    resource: &'a Resource,
    body: &'a [u8],
) -> Result<(&'a str, Json<'a>), Problem> {
    let (singular, plural) = (&*resource.name, &*resource.plural);
    let members = match parse(body)? {
        Json::Object(members) => members,
        other => {
            return Err(bad_wrapper(format!(
                r#"expected an object with the key "{singular}", got {}"#,
                other.type_name()
            )));
        }
    };
    let count = members.len();
    let mut members = members.into_iter();
    match (members.next(), count) {
        (Some((key, json)), 1) if key == singular => Ok((singular, json)),
        (Some((key, json)), 1) if key == plural => Ok((plural, json)),
        (Some((key, _)), 1) => Err(bad_wrapper(format!(
            r#"expected the key "{singular}" or "{plural}", got {}"#,
            json::quote_for_message(&key)
        ))),
        (_, count) => Err(bad_wrapper(format!(
            r#"expected one key, "{singular}" or "{plural}", got {count} keys"#
        ))),
    }
}

fn refuse_parameters(query: Option<&str>) -> Result<(), Problem> {
    match split_query(query)?.first() {
        None => Ok(()),
        Some((name, _)) => Err(bad_query(list::no_such_parameter_message(name, &[]))),
    }
}

fn split_query(query: Option<&str>) -> Result<Vec<query::QueryParameter<'_>>, Problem> {
    query::split(query.unwrap_or("")).map_err(|error| bad_query(error.to_string()))
}

fn bad_query(detail: String) -> Problem {
    Problem::new(&problem::BAD_QUERY).detail(detail)
}
