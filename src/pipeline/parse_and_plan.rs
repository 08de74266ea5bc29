//! Parsing and planning of a request once its body has arrived; a blocking thread does it for large bodies.

use std::sync::Arc;

use super::context::{BLOCKING_BODY_BYTES_MIN, RequestContext, SharedState, run_blocking};
use super::write::BodyReservation;
use crate::admission::MemoryReservation;
use crate::intent::{self, Route};
use crate::json;
use crate::model::Model;
use crate::permit::{self, Caller};
use crate::plan::{self, ChangeAuthor, Plan};
use crate::problem::{self, Problem};
use crate::wire::RequestId;

/// The maximum memory of a parsed value, on average: `[0]` is two values and 176 bytes.
const VALUE_BYTES: usize = 96;

/// Plans on this thread, or on a blocking thread if the body is large enough to delay other connections.
pub(super) async fn plan(
    request: &RequestContext<'_>,
    route: Route,
    body: BodyReservation<'_>,
    caller: &Caller,
) -> Result<Plan, Problem> {
    let job = PlanJob { route, query: request.parts.uri.query(), caller, id: request.id };
    if body.bytes.len() < BLOCKING_BODY_BYTES_MIN {
        return job.plan(&request.app.shared.model, body.bytes);
    }
    Box::pin(plan_blocking(request, job, body)).await
}

/// A request without its body.
struct PlanJob<'a> {
    route: Route,
    query: Option<&'a str>,
    caller: &'a Caller,
    id: RequestId,
}

impl PlanJob<'_> {
    fn plan(self, model: &Model, body: &[u8]) -> Result<Plan, Problem> {
        let Self { route, query, caller, id } = self;
        let hidden = permit::hidden_fields(caller, &route);
        let text = intent::body_as_json_lines(model, &route, (body, hidden))?;
        let intent = intent::read(model, route, (query, caller), &text)?;
        let author = || ChangeAuthor::of_caller(caller, id.as_str());
        plan::make(model, intent, caller, author)
    }
}

async fn plan_blocking(
    request: &RequestContext<'_>,
    PlanJob { route, query, caller, id }: PlanJob<'_>,
    BodyReservation { bytes, memory }: BodyReservation<'_>,
) -> Result<Plan, Problem> {
    let (shared, query) = (Arc::clone(&request.app.shared), query.map(str::to_owned));
    let (caller, bytes, body_memory) = (caller.clone(), bytes.clone(), memory.share());
    let work = move || {
        let SharedState { model, admission, .. } = &*shared;
        let parsed = admission.reserve_memory();
        let values = if route.has_csv_body() {
            // The JSON is a copy. The cells are parsed while it is made, so they are counted before.
            reserve(&parsed, 2 * bytes.len())?;
            count_csv_values(&bytes)
        } else {
            json::count_values(&bytes)
        };
        reserve_values(&parsed, values, model.server.limits.memory_bytes_max)?;
        let job = PlanJob { route, query: query.as_deref(), caller: &caller, id };
        let plan = job.plan(model, &bytes)?;
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
