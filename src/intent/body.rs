//! Bodies: strips the wrapper, or parses new items without one: NDJSON (one JSON object a line) or CSV.
//!
//! The result of NDJSON and CSV is the same list as that of a JSON body under the plural, so that no later
//! stage differs. CSV is converted to NDJSON in a buffer first, since the parsed JSON borrows from its text.

use std::borrow::Cow;

use super::route::Route;
use super::target::RequestVerb;
use crate::formats::{BodyForm, ItemView, PatchForm, csv_input};
use crate::json::{self, Json};
use crate::model::settings::ServerLimits;
use crate::model::{Model, Resource};
use crate::problem::{self, Problem};

/// Nesting depth; the outermost value is at depth 1.
const DEPTH_MAX: usize = 32;

/// The nesting levels of the wrapper and the list, which the body leaves out.
const WRAPPER_LEVELS: usize = 2;

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

/// Parses the body of a create: one item under the singular or the plural, or a list under the plural.
pub(super) fn read_create_body<'a>(
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

pub(super) fn read_body<'a>(
    resource: &'a Resource,
    body: &'a [u8],
) -> Result<ItemBody<'a>, Problem> {
    match strip_wrapper(resource, body)? {
        (wrapper, Json::Object(members)) => Ok(ItemBody { wrapper, members }),
        (wrapper, other) => {
            Err(bad_wrapper(format!("{wrapper}: expected an object, got {}", other.type_name())))
        }
    }
}

pub(super) fn read_patch(
    resource: &Resource,
    form: PatchForm,
    body: &[u8],
) -> Result<Patch, Problem> {
    match form {
        PatchForm::MergePatch => read_body(resource, body).map(|_| Patch::MergePatch(body.into())),
        PatchForm::JsonPatch => {
            let malformed = |detail| Problem::new(&problem::BAD_PATCH).detail(detail);
            json::patch::parse_operations(parse(body)?).map_err(malformed)?;
            Ok(Patch::JsonPatch(body.into()))
        }
    }
}

pub(super) fn parse(body: &[u8]) -> Result<Json<'_>, Problem> {
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

/// Step 8 of the order of checks: the body as the JSON text that `read` parses. A field that is hidden from
/// the caller is treated like an unknown name.
pub fn body_as_json_lines<'a>(
    model: &Model,
    route: &Route,
    (body, hidden): (&'a [u8], &[usize]),
) -> Result<Cow<'a, [u8]>, Problem> {
    match (route.verb, route.resource()) {
        (RequestVerb::PostItems(BodyForm::Csv), Some(resource)) => {
            let items_max = model.server.limits.bulk_items_max;
            let view = ItemView { hidden, ..ItemView::all_fields(model.resource(resource)) };
            csv_input::to_json_lines(view, body, items_max).map(Cow::Owned)
        }
        _ => Ok(Cow::Borrowed(body)),
    }
}

/// Parses one item from each line; empty lines are skipped.
pub(super) fn read_unwrapped<'a>(
    resource: &'a Resource,
    limits: &ServerLimits,
    body: &'a [u8],
) -> Result<CreateBody<'a>, Problem> {
    let mut items = Vec::new();
    for (index, line) in body.split(|byte| *byte == b'\n').enumerate() {
        if line.trim_ascii().is_empty() {
            continue;
        }
        if items.len() == limits.bulk_items_max {
            return Err(csv_input::too_many_items(limits.bulk_items_max));
        }
        items.push(parse_item(line).map_err(|words| csv_input::bad_line(index + 1, &words))?);
    }
    Ok(CreateBody::Many(&resource.plural, items))
}

/// Parses an item without a wrapper.
pub fn parse_item(line: &[u8]) -> Result<JsonMembers<'_>, String> {
    match json::parse(line, DEPTH_MAX - WRAPPER_LEVELS) {
        Ok(Json::Object(members)) => Ok(members),
        Ok(other) => Err(format!("expected an object, got {}", other.type_name())),
        Err(error) => Err(format!("column {}: {}", error.column, error.message)),
    }
}
