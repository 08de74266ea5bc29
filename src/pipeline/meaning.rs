//! What a request means, once its body is there: from bytes to a plan, beside the thread that serves where
//! that takes long.

use std::sync::Arc;

use bytes::Bytes;

use super::{App, aside};
use crate::gate::Room;
use crate::intent::{self, Route};
use crate::model::Model;
use crate::permit::{self, Caller};
use crate::plan::{self, By, Plan};
use crate::problem::Problem;

pub(super) fn plan(
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

/// What a large body means takes long enough to find out to be noticed by others.
pub(super) async fn plan_aside(
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
        plan(&shared.model, route, (query.as_deref(), &bytes), &caller, || by)
    };
    aside(work).await?
}
