//! Parsing and planning of a request once its body has arrived; a blocking thread does it for large bodies.

use std::sync::Arc;

use bytes::Bytes;

use super::context::{App, BLOCKING_BODY_BYTES_MIN, SharedState, run_blocking};
use crate::admission::MemoryReservation;
use crate::intent::{self, Route};
use crate::json;
use crate::model::Model;
use crate::permit::{self, Caller};
use crate::plan::{self, ChangeAuthor, Plan};
use crate::problem::{self, Problem};

/// The maximum memory of a parsed value, on average: `[0]` is two values and 176 bytes.
const VALUE_BYTES: usize = 96;

/// Plans on this thread, or on a blocking thread if the body is large enough to delay other connections.
pub(super) async fn plan(
    app: &App,
    route: Route,
    (query, bytes, memory): (Option<&str>, &Bytes, &MemoryReservation<'_>),
    caller: &Caller,
    by: impl FnOnce() -> ChangeAuthor,
) -> Result<Plan, Problem> {
    if bytes.len() < BLOCKING_BODY_BYTES_MIN {
        return plan_inline(&app.shared.model, route, (query, bytes), caller, by);
    }
    let sent = (query, bytes.clone(), memory);
    Box::pin(plan_blocking(app, route, sent, caller.clone(), by())).await
}

fn plan_inline(
    model: &Model,
    route: Route,
    (query, body): (Option<&str>, &[u8]),
    caller: &Caller,
    by: impl FnOnce() -> ChangeAuthor,
) -> Result<Plan, Problem> {
    let hidden = permit::hidden_fields(caller, &route);
    let text = intent::body_as_json_lines(model, &route, (body, hidden))?;
    plan_text(model, route, (query, &text), caller, by)
}

fn plan_text(
    model: &Model,
    route: Route,
    (query, text): (Option<&str>, &[u8]),
    caller: &Caller,
    by: impl FnOnce() -> ChangeAuthor,
) -> Result<Plan, Problem> {
    let query = (query, permit::hidden_fields(caller, &route));
    plan::make(model, intent::read(model, route, query, text)?, caller, by)
}

async fn plan_blocking(
    app: &App,
    route: Route,
    (query, bytes, memory): (Option<&str>, Bytes, &MemoryReservation<'_>),
    caller: Caller,
    by: ChangeAuthor,
) -> Result<Plan, Problem> {
    let (shared, query) = (Arc::clone(&app.shared), query.map(str::to_owned));
    let body_memory = memory.share();
    let work = move || {
        let SharedState { model, admission, .. } = &*shared;
        let hidden = permit::hidden_fields(&caller, &route);
        let parsed = admission.reserve_memory();
        let values = if route.has_csv_body() {
            // The JSON is a copy. The cells are parsed while it is made, so they are counted before.
            reserve(&parsed, 2 * bytes.len())?;
            count_csv_values(&bytes)
        } else {
            json::count_values(&bytes)
        };
        reserve_values(&parsed, values, model.server.limits.memory_bytes_max)?;
        let text = intent::body_as_json_lines(model, &route, (&bytes, hidden))?;
        let plan = plan_text(model, route, (query.as_deref(), &text), &caller, || by)?;
        // The transaction parses a patch again. The stored item that it parses too is not counted: only the
        // threads that execute transactions do that, one item at a time.
        if let (true, Some(body_memory)) = (plan.is_patch(), &body_memory) {
            parsed.move_to(body_memory);
        }
        Ok(plan)
    };
    run_blocking(work).await?
}

/// Reserves memory for the values of a body before it is parsed: a list of `[0]` takes up fifty times its
/// text.
fn reserve_values(
    memory: &MemoryReservation<'_>,
    values: usize,
    memory_bytes_max: usize,
) -> Result<(), Problem> {
    // One body may take half of the memory, so that there is room for another.
    let values_max = memory_bytes_max / 2 / VALUE_BYTES;
    if values > values_max {
        let detail = format!(
            "expected at most {values_max} JSON values in one body (half of memory_bytes_max), got {values}; \
             send it in parts"
        );
        return Err(Problem::new(&problem::TOO_LARGE).detail(detail));
    }
    reserve(memory, values * VALUE_BYTES)
}

/// An upper bound of the number of values in the cells of a CSV body. Quotes in a cell are doubled, so that
/// texts cannot be distinguished from the rest without parsing, and every separator counts.
fn count_csv_values(body: &[u8]) -> usize {
    body.iter().filter(|byte| matches!(byte, b',' | b'[' | b'{' | b'\n')).count()
}

fn reserve(memory: &MemoryReservation<'_>, bytes: usize) -> Result<(), Problem> {
    match memory.grow(bytes) {
        true => Ok(()),
        false => Err(Problem::new(&problem::BUSY).detail("too many large bodies at once")),
    }
}
