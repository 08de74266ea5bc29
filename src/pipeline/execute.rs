//! Steps 10 to 13: execution of the plan, and the reply to its outcome.

use std::sync::Arc;

use super::context::{App, RequestContext, SharedState, run_blocking};
use super::{identity, write};
use crate::formats::Format;
use crate::intent::preconditions::Preconditions;
use crate::intent::{ListQuery, RouteError};
use crate::log::StageTimes;
use crate::plan::{Collection, Outcome, ReadPlan};
use crate::problem::{self, Problem};
use crate::reply::Reply;
use crate::store::StoreError;
use crate::value::Item;

/// Reads, then refuses if the caller's rights have changed since the read was planned.
pub(super) async fn read(
    app: &App,
    asked: &RequestContext<'_>,
    read: ReadPlan,
    stages: &mut StageTimes,
) -> Result<Result<Outcome, StoreError>, RouteError> {
    let done = write::fetch(app, asked.deadline, read).await;
    stages.mark("store");
    identity::require_unchanged_rights(app, asked, stages.now()).await?;
    Ok(done)
}

/// The subject of a request: a collection, maybe a list of it, and the conditions.
pub(super) type RequestSubject = (Option<Collection>, Option<Arc<ListQuery>>, Preconditions);

/// Builds the reply to an outcome; a blocking thread serializes a large one.
pub(super) async fn build_reply(
    app: &App,
    (about, list, conditions): RequestSubject,
    format: &'static Format,
    done: Result<Outcome, StoreError>,
) -> Result<Reply, Problem> {
    let SharedState { model, replies, admission, .. } = &*app.shared;
    let failed = |error| replies.failure(model, (about.as_ref(), list.as_deref()), format, error);
    let outcome = done.map_err(failed)?;
    if !outcome.is_large() {
        return replies.outcome(model, (about, list.as_deref(), &conditions), format, &outcome);
    }
    // Reserves memory while the outcome waits for a thread: hundreds may wait, each with a full page.
    let reservation = admission.reserve_memory();
    let has_room = reservation.grow(outcome.items().iter().map(Item::approximate_bytes).sum());
    // The outcome of a write must be reported; a read can be repeated.
    if !has_room && matches!(outcome, Outcome::Item(_) | Outcome::Page(_)) {
        return Err(Problem::new(&problem::BUSY).detail("too many large responses in memory"));
    }
    let (shared, memory) = (Arc::clone(&app.shared), reservation.share());
    let build = move || {
        let _held = memory;
        let asked = (about, list.as_deref(), &conditions);
        shared.replies.outcome(&shared.model, asked, format, &outcome)
    };
    Box::pin(run_blocking(build)).await?
}
