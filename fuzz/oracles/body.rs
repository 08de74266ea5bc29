//! Fuzz target: a JSON body, parsed by our parser and by serde_json, and planned for each resource.
//!
//! Properties: no panic; both parsers return the same value, and a text that only one accepts has a known
//! reason; a valid item, written as JSON, validates as the same item again.

use uuid::Uuid;

use super::MODELS;
use crate::formats::{self, ItemView};
use crate::intent::{self, PathIds, RequestVerb, ResourcePath, Route, RouteTarget};
use crate::model::{Model, Resource};
use crate::permit::Caller;
use crate::plan::{self, ChangeAuthor, DraftValues, Plan, WriteAction};
use crate::value::{Id, IdKind, Item, Moment};

pub fn body(data: &[u8]) {
    let compared = super::json_comparison::compare(data);
    assert_eq!(compared, Ok(()));
    for model in MODELS.iter() {
        for resource in model.declared() {
            for values in created_items(model, resource, RequestVerb::Post, data) {
                check_put_round_trip(model, resource, values);
            }
            let _ = plan_request(model, resource, RequestVerb::Put, data);
        }
    }
}

fn any_id(kind: IdKind) -> Id {
    match kind {
        IdKind::Integer => Id::Integer(7),
        IdKind::Uuid => Id::Uuid(Uuid::from_u128(0x0189_0a5d_ac96_774b_bcce_b302_099a_8057)),
    }
}

fn plan_request(
    model: &Model,
    resource: &Resource,
    verb: RequestVerb,
    body: &[u8],
) -> Option<Plan> {
    let mut ancestors: Vec<Id> =
        model.lineage(resource.index).iter().map(|ancestor| any_id(ancestor.id)).collect();
    let own = ancestors.pop();
    let address = |item| ResourcePath::nested(resource.index, PathIds { ancestors, item });
    let place = match verb {
        RequestVerb::Post | RequestVerb::PostItems(_) => RouteTarget::Collection(address(None)),
        _ => RouteTarget::Item(address(own)),
    };
    let route = Route { verb, target: place };
    let text = intent::body_as_json_lines(model, &route, (body, &[])).ok()?;
    let intent = intent::read(model, route, (None, &intent::AllReadable), &text).ok()?;
    plan::make(model, intent, &Caller::open(model), || ChangeAuthor::without_user("-", "-")).ok()
}

/// The items that a POST of this body would create, as far as the body determines them.
pub(super) fn created_items(
    model: &Model,
    resource: &Resource,
    verb: RequestVerb,
    body: &[u8],
) -> Vec<Vec<crate::value::Value>> {
    match plan_request(model, resource, verb, body) {
        Some(Plan::Write(write)) => {
            let WriteAction::Create { drafts, .. } = write.action else { return Vec::new() };
            let values = drafts.into_iter().filter_map(|draft| match draft.values {
                DraftValues::Complete(values) => Some(values),
                DraftValues::Partial(_) => None,
            });
            values.collect()
        }
        _ => Vec::new(),
    }
}

/// A client can PUT what it got from GET, and nothing changes.
pub(super) fn check_put_round_trip(
    model: &Model,
    resource: &Resource,
    values: Vec<crate::value::Value>,
) {
    let lineage = model.lineage(resource.index);
    let parent = lineage.iter().rev().nth(1).map(|parent| any_id(parent.id));
    let now = Moment::parse("2026-11-15T02:28:14.000000Z");
    let Some(now) = now else { return };
    let item = Item {
        id: any_id(resource.id),
        parent,
        created_at: now,
        updated_at: now,
        version: 1,
        values,
    };
    let mut text = Vec::new();
    (formats::json::FORMAT.item)(&mut text, ItemView::all_fields(resource), &item);
    let shown = String::from_utf8_lossy(&text).into_owned();
    match &plan_request(model, resource, RequestVerb::Put, &text) {
        Some(Plan::Write(write)) if let WriteAction::Replace { draft, .. } = &write.action => {
            assert_eq!(draft.values, DraftValues::Complete(item.values), "{shown}");
        }
        other => unreachable!("{shown}: {other:?}"),
    }
}
