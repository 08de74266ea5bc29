//! New items without a wrapper: NDJSON (one JSON object a line) or CSV.
//!
//! The result is the same list as that of a JSON body under the plural, so that no later stage differs. What
//! may surprise: CSV is converted to NDJSON in a buffer first, since the parsed JSON borrows from its text.

use std::borrow::Cow;

use super::{Bodies, DEPTH_MAX, Members, Route, Verb};
use crate::formats::{BodyForm, View, table};
use crate::json::{self, Json};
use crate::model::settings::Limits;
use crate::model::{Model, Resource};
use crate::problem::Problem;

/// The nesting levels of the wrapper and the list, which the body leaves out.
const LEVELS_LEFT_OUT: usize = 2;

/// Step 8 of the order of checks: the body as the JSON text that `read` parses. A field that is hidden from
/// the caller is treated like an unknown name.
pub fn text<'a>(
    model: &Model,
    route: &Route,
    (body, hidden): (&'a [u8], &[usize]),
) -> Result<Cow<'a, [u8]>, Problem> {
    match (route.verb, route.resource()) {
        (Verb::PostItems(BodyForm::Table), Some(resource)) => {
            let items_max = model.server.limits.bulk_items_max;
            let view = View { resource: model.resource(resource), hidden, chosen: None };
            table::lines(view, body, items_max).map(Cow::Owned)
        }
        _ => Ok(Cow::Borrowed(body)),
    }
}

/// Parses one item from each line; empty lines are skipped.
pub(super) fn read<'a>(
    resource: &'a Resource,
    limits: &Limits,
    body: &'a [u8],
) -> Result<Bodies<'a>, Problem> {
    let mut items = Vec::new();
    for (index, line) in body.split(|byte| *byte == b'\n').enumerate() {
        if line.trim_ascii().is_empty() {
            continue;
        }
        if items.len() == limits.bulk_items_max {
            return Err(table::too_many(limits.bulk_items_max));
        }
        items.push(item(line).map_err(|words| table::bad(index + 1, &words))?);
    }
    Ok(Bodies::Many(&resource.plural, items))
}

fn item(line: &[u8]) -> Result<Members<'_>, String> {
    match json::parse(line, DEPTH_MAX - LEVELS_LEFT_OUT) {
        Ok(Json::Object(members)) => Ok(members),
        Ok(other) => Err(format!("expected an object, got {}", other.kind())),
        Err(error) => Err(format!("column {}: {}", error.column, error.message)),
    }
}
