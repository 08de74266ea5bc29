//! Parsing and planning of a request once its body is there; a blocking thread does it for large bodies.

use std::sync::Arc;

use bytes::Bytes;

use super::{ASIDE_BODY_BYTES, App, Shared, aside};
use crate::gate::Room;
use crate::intent::{self, Route};
use crate::json;
use crate::model::Model;
use crate::permit::{self, Caller};
use crate::plan::{self, By, Plan};
use crate::problem::{self, Problem};
use crate::wire::BodyMemory;

/// Values in one body, of any size. A body of one item, which has at most 1 MiB, cannot have more.
const VALUES_MAX: usize = 512 << 10;
/// What a parsed value takes up at most, on average: `[0]` is two values and 176 bytes.
const VALUE_BYTES: usize = 96;

/// Plans on this thread, or on a blocking thread if the body is large enough to delay other connections.
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
    plan_text(model, route, (query, &text), caller, by)
}

fn plan_text(
    model: &Model,
    route: Route,
    (query, text): (Option<&str>, &[u8]),
    caller: &Caller,
    by: impl FnOnce() -> By,
) -> Result<Plan, Problem> {
    let query = (query, permit::hidden(caller, &route));
    plan::make(model, intent::read(model, route, query, text)?, caller, by)
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
        let Shared { model, gate, .. } = &*shared;
        let hidden = permit::hidden(&caller, &route);
        let text = intent::text(model, &route, (&bytes, hidden))?;
        let values = gate.room();
        reserve_values(&text, &values)?;
        plan_text(model, route, (query.as_deref(), &text), &caller, || by)
    };
    aside(work).await?
}

/// Reserves memory for the values of a body before it is parsed: a list of `[0]` takes up fifty times its
/// text.
fn reserve_values(text: &[u8], memory: &Room<'_>) -> Result<(), Problem> {
    let values = json::count_values(text);
    if values > VALUES_MAX {
        let detail = format!("expected at most {VALUES_MAX} values of JSON, got {values}");
        return Err(Problem::new(&problem::TOO_LARGE).detail(detail));
    }
    match memory.take(values * VALUE_BYTES) {
        true => Ok(()),
        false => Err(Problem::new(&problem::BUSY).detail("too many large bodies at once")),
    }
}

impl BodyMemory for Room<'_> {
    fn take(&self, bytes: usize) -> bool {
        self.take(bytes)
    }

    fn is_hurried(&self) -> bool {
        self.is_hurried()
    }

    fn is_exhausted(&self) -> bool {
        self.is_exhausted()
    }
}
