//! Stage 1, parse: the request as an `Intent`, in terms of the model.
//!
//! Pure. It parses the query and the body's wrapper, and needs no stored data. Field values stay JSON here;
//! `plan` validates them against the model.

pub mod conditions;
pub mod cursor;
mod items;
mod key;
mod list;
mod query;
mod route;

pub use items::text;
pub use key::key;
pub use list::{Aspect, Key, List, Term, Test, start};
pub use route::{
    Address, Ids, Place, Route, Stop, Verb, allow, methods, misplaced, path, push_subject, route,
};

use std::borrow::Cow;
use std::sync::Arc;

use crate::formats::PatchForm;
use crate::json::{self, Json};
use crate::model::settings::Limits;
use crate::model::{Model, Resource};
use crate::problem::{self, Kind, Problem};

/// Nesting depth; the outermost value is at depth 1.
const DEPTH_MAX: usize = 32;

/// What the client asks for.
#[derive(Debug)]
pub enum Intent<'a> {
    /// The list of resources.
    Home,
    Health,
    Ready,
    Metrics,
    Explain(&'static Kind),
    /// The methods that a target allows.
    Options(Place),
    /// With a list query if only some of the members are selected.
    Show(Address, Option<Arc<List>>),
    List(Address, Arc<List>),
    Create(Address, Bodies<'a>),
    Replace(Address, Body<'a>),
    Amend(Address, Patch),
    Remove(Address),
}

/// The fields of one item, and the wrapper key it came under: JSON pointers in problems begin with the key.
#[derive(Debug)]
pub struct Body<'a> {
    pub wrapper: &'a str,
    pub members: Members<'a>,
}

pub type Member<'a> = (Cow<'a, str>, Json<'a>);
pub type Members<'a> = Vec<Member<'a>>;

/// A well-formed patch, still as bytes: the store applies it once the item is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Patch {
    /// An object under a wrapper.
    Merge(Box<[u8]>),
    Operations(Box<[u8]>),
}

#[derive(Debug)]
pub enum Bodies<'a> {
    One(Body<'a>),
    Many(&'a str, Vec<Members<'a>>),
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
    let intent = match (route.verb, route.place) {
        // Public; query parameters are ignored.
        (Verb::Options, place) => return Ok(Intent::Options(place)),
        (_, Place::Health) => return Ok(Intent::Health),
        (_, Place::Ready) => return Ok(Intent::Ready),
        (_, Place::Explanation(kind)) => return Ok(Intent::Explain(kind)),
        // `pipeline` has answered a logout before.
        (_, place @ (Place::Server | Place::Logout(_))) => return Ok(Intent::Options(place)),
        (_, Place::Home) => Intent::Home,
        (_, Place::Metrics) => Intent::Metrics,
        (Verb::Post, Place::Collection(address)) => {
            let bodies = read_bodies(model.resource(address.resource), limits, body)?;
            Intent::Create(address, bodies)
        }
        (Verb::PostItems(_), Place::Collection(address)) => {
            let bodies = items::read(model.resource(address.resource), limits, body)?;
            Intent::Create(address, bodies)
        }
        (_, Place::Collection(address)) => {
            let list = list::read(model, &address, (query, hidden))?;
            return Ok(Intent::List(address, Arc::new(list)));
        }
        (Verb::Put, Place::Item(address)) => {
            let body = read_body(model.resource(address.resource), body)?;
            Intent::Replace(address, body)
        }
        (Verb::Patch(form), Place::Item(address)) => {
            let patch = read_patch(model.resource(address.resource), form, body)?;
            Intent::Amend(address, patch)
        }
        (Verb::Delete, Place::Item(address)) => Intent::Remove(address),
        (_, Place::Item(address)) => {
            let list = list::read_selection(model, &address, (query, hidden))?;
            return Ok(Intent::Show(address, list.map(Arc::new)));
        }
    };
    refuse_parameters(query)?;
    Ok(intent)
}

/// Parses the body of a create: one item under the singular or the plural, or a list under the plural.
fn read_bodies<'a>(
    resource: &'a Resource,
    limits: &Limits,
    body: &'a [u8],
) -> Result<Bodies<'a>, Problem> {
    let too_large = body.len() > limits.body_bytes_max;
    let wrapped = match unwrap(resource, body) {
        Err(_) if too_large => return Err(one_too_large(limits)),
        wrapped => wrapped?,
    };
    match wrapped {
        (wrapper, Json::Object(_)) if too_large => Err(one_too_large(limits)
            .detail(format!("one {wrapper} may have {} bytes", limits.body_bytes_max))),
        (wrapper, Json::Object(members)) => Ok(Bodies::One(Body { wrapper, members })),
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
                    other.kind()
                ))),
            });
            Ok(Bodies::Many(wrapper, items.collect::<Result<_, _>>()?))
        }
        (wrapper, other) => {
            Err(bad_wrapper(format!("{wrapper}: expected an object, got {}", other.kind())))
        }
    }
}

fn read_body<'a>(resource: &'a Resource, body: &'a [u8]) -> Result<Body<'a>, Problem> {
    match unwrap(resource, body)? {
        (wrapper, Json::Object(members)) => Ok(Body { wrapper, members }),
        (wrapper, other) => {
            Err(bad_wrapper(format!("{wrapper}: expected an object, got {}", other.kind())))
        }
    }
}

fn read_patch(resource: &Resource, form: PatchForm, body: &[u8]) -> Result<Patch, Problem> {
    match form {
        PatchForm::Merge => read_body(resource, body).map(|_| Patch::Merge(body.into())),
        PatchForm::Operations => {
            let malformed = |detail| Problem::new(&problem::BAD_PATCH).detail(detail);
            json::patch::operations(parse(body)?).map_err(malformed)?;
            Ok(Patch::Operations(body.into()))
        }
    }
}

fn parse(body: &[u8]) -> Result<Json<'_>, Problem> {
    json::parse(body, DEPTH_MAX)
        .map_err(|error| Problem::new(&problem::BAD_JSON).detail(error.to_string()))
}

fn one_too_large(limits: &Limits) -> Problem {
    Problem::new(&problem::TOO_LARGE)
        .detail(format!("a body that is not a list may have {} bytes", limits.body_bytes_max))
}

fn bad_wrapper(detail: String) -> Problem {
    Problem::new(&problem::BAD_WRAPPER).detail(detail)
}

/// Strips the wrapper key. The name it returns is borrowed from the model.
fn unwrap<'a>(resource: &'a Resource, body: &'a [u8]) -> Result<(&'a str, Json<'a>), Problem> {
    let (singular, plural) = (&*resource.name, &*resource.plural);
    let members = match parse(body)? {
        Json::Object(members) => members,
        other => {
            return Err(bad_wrapper(format!(
                r#"expected an object with the key "{singular}", got {}"#,
                other.kind()
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
            json::quoted(&key)
        ))),
        (_, count) => Err(bad_wrapper(format!(
            r#"expected one key, "{singular}" or "{plural}", got {count} keys"#
        ))),
    }
}

fn refuse_parameters(query: Option<&str>) -> Result<(), Problem> {
    match split(query)?.first() {
        None => Ok(()),
        Some((name, _)) => Err(bad_query(list::no_such_parameter(name, &[]))),
    }
}

fn split(query: Option<&str>) -> Result<Vec<query::Parameter<'_>>, Problem> {
    query::split(query.unwrap_or("")).map_err(|error| bad_query(error.to_string()))
}

fn bad_query(detail: String) -> Problem {
    Problem::new(&problem::BAD_QUERY).detail(detail)
}
