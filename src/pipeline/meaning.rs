//! What a request means, once its body is there: from bytes to a plan, beside the thread that serves where
//! that takes long.

use std::sync::Arc;

use bytes::Bytes;

use super::{ASIDE_BODY_BYTES, App, aside};
use crate::gate::Room;
use crate::intent::{self, Route};
use crate::model::Model;
use crate::permit::{self, Caller};
use crate::plan::{self, By, Plan};
use crate::problem::Problem;

/// What a large body means takes long enough to find out to be noticed by others.
pub(super) async fn plan(
    app: &App,
    route: Route,
    (query, bytes, room): (Option<&str>, &Bytes, &Room<'_>),
    caller: &Caller,
    by: impl FnOnce() -> By,
) -> Result<Plan, Problem> {
    if bytes.len() < ASIDE_BODY_BYTES {
        return plan_here(&app.shared.model, route, (query, bytes), caller, by);
    }
    let sent = (query, bytes.clone(), room);
    Box::pin(plan_aside(app, route, sent, caller.clone(), by())).await
}

fn plan_here(
    model: &Model,
    route: Route,
    (query, body): (Option<&str>, &[u8]),
    caller: &Caller,
    by: impl FnOnce() -> By,
) -> Result<Plan, Problem> {
    let hidden = permit::hidden(caller, &route);
    let text = intent::text(model, &route, (body, hidden))?;
    let query = (query, hidden);
    plan::make(model, intent::read(model, route, query, &text)?, caller, by)
}

async fn plan_aside(
    app: &App,
    route: Route,
    (query, bytes, room): (Option<&str>, Bytes, &Room<'_>),
    caller: Caller,
    by: By,
) -> Result<Plan, Problem> {
    let (shared, query) = (Arc::clone(&app.shared), query.map(str::to_owned));
    let memory = room.share();
    let work = move || {
        let _held = memory;
        plan_here(&shared.model, route, (query.as_deref(), &bytes), &caller, || by)
    };
    aside(work).await?
}
