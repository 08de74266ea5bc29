//! New items without a wrapper: one JSON object a line (NDJSON), or a table.
//!
//! What comes of them is the same list as that under a plural, so that everything after this is the same
//! too. The one surprising thing: a table is turned into lines of JSON first, in a text of its own, since
//! what is read points into the text.

use std::borrow::Cow;

use super::{Bodies, DEPTH_MAX, Members, Route, Verb};
use crate::formats::{BodyForm, View, table};
use crate::json::{self, Json};
use crate::model::settings::Limits;
use crate::model::{Model, Resource};
use crate::problem::Problem;

/// The wrapper and the list, which are not there.
const LEVELS_LEFT_OUT: usize = 2;

/// Step 8 of the order of checks: the body as the text that `read` reads. A field that is hidden from the
/// caller is like any name that there is not.
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

/// An item a line; lines without anything are skipped.
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
