//! New items without a wrapper: NDJSON (one JSON object a line) or CSV.
//!
//! The result is the same list as that of a JSON body under the plural, so that no later stage differs. CSV
//! is converted to NDJSON in a buffer first, since the parsed JSON borrows from its text.

use std::borrow::Cow;

use super::{CreateBody, DEPTH_MAX, JsonMembers, RequestVerb, Route};
use crate::formats::{BodyForm, ItemView, csv_input};
use crate::json::{self, Json};
use crate::model::settings::ServerLimits;
use crate::model::{Model, Resource};
use crate::problem::Problem;

/// The nesting levels of the wrapper and the list, which the body leaves out.
const WRAPPER_LEVELS: usize = 2;

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
            let view =
                ItemView { resource: model.resource(resource), hidden, selected_members: None };
            csv_input::to_json_lines(view, body, items_max).map(Cow::Owned)
        }
        _ => Ok(Cow::Borrowed(body)),
    }
}

/// Parses one item from each line; empty lines are skipped.
pub(super) fn read<'a>(
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

fn parse_item(line: &[u8]) -> Result<JsonMembers<'_>, String> {
    match json::parse(line, DEPTH_MAX - WRAPPER_LEVELS) {
        Ok(Json::Object(members)) => Ok(members),
        Ok(other) => Err(format!("expected an object, got {}", other.type_name())),
        Err(error) => Err(format!("column {}: {}", error.column, error.message)),
    }
}
