//! Steps 10 to 13: execution of the plan, and the reply to its outcome.
//!
//! All writes go to the store through `write`, with an `Idempotency-Key` (`idempotency`) or without.

use std::sync::Arc;
use std::time::Instant;

use super::{App, RequestContext, SharedState, identity, patch_user, run_blocking};
use crate::admission::MemoryReservation;
use crate::formats::Format;
use crate::intent::preconditions::Preconditions;
use crate::intent::{ListQuery, RouteError};
use crate::log::StageTimes;
use crate::plan::{Collection, Outcome, ReadPlan, WritePlan};
use crate::problem::{self, Problem};
use crate::reply::Reply;
use crate::store::{StoreError, WriteOptions};
use crate::value::Item;

/// The size of a write's body, and the memory reservation that holds it until the write has ended.
#[derive(Clone, Copy)]
pub(super) struct BodyReservation<'a> {
    bytes: usize,
    reservation: &'a MemoryReservation<'a>,
}

impl<'a> BodyReservation<'a> {
    pub(super) fn new(bytes: &[u8], reservation: &'a MemoryReservation<'a>) -> Self {
        Self { bytes: bytes.len(), reservation }
    }
}

/// Reads, then refuses if the caller's rights have changed since the read was planned.
pub(super) async fn read(
    app: &App,
    asked: &RequestContext<'_>,
    read: ReadPlan,
    stages: &mut StageTimes,
) -> Result<Result<Outcome, StoreError>, RouteError> {
    let done = fetch(app, asked.deadline, read).await;
    stages.mark("store");
    identity::require_unchanged_rights(app, asked, stages.now()).await?;
    Ok(done)
}

/// Reads as soon as admission control grants a permit.
pub(super) async fn fetch(
    app: &App,
    deadline: Instant,
    read: ReadPlan,
) -> Result<Outcome, StoreError> {
    let permit = Some(app.shared.admission.admit(deadline).await?);
    app.store.read_in(permit, read).await
}

pub(super) async fn write(
    app: &App,
    asked: &RequestContext<'_>,
    mut write: Box<WritePlan>,
    body: BodyReservation<'_>,
    stages: &mut StageTimes,
) -> Result<Result<Outcome, StoreError>, RouteError> {
    let SharedState { model, auth, .. } = &*app.shared;
    write.rights_lease =
        asked.latest_identified().and_then(|known| known.mandate(asked.rights_checked_at.get()));
    let is_user = write.collection.resource == model.users;
    let done = if write.is_patch_of(model.users) {
        Box::pin(patch_user::patch_user(app, asked.deadline, &write, body)).await?
    } else {
        if write.has_clear_text(model) {
            Box::pin(auth.hash_passwords(&mut write)).await?;
        }
        submit_write(app, asked.deadline, write, body).await
    };
    stages.mark("store");
    if is_user {
        auth.invalidate_users();
    }
    if matches!(done, Err(StoreError::RightsChanged)) {
        Box::pin(identity::refuse_changed_rights(app, asked)).await?;
    }
    Ok(done)
}

/// Submits a write to the store once admission control grants a queue slot.
pub(super) async fn submit_write(
    app: &App,
    deadline: Instant,
    write: Box<WritePlan>,
    BodyReservation { bytes, reservation }: BodyReservation<'_>,
) -> Result<Outcome, StoreError> {
    let permit = Some(app.shared.admission.admit(deadline).await?);
    let options = WriteOptions { bytes, deadline, memory: reservation.share(), place: permit };
    app.store.write(write, options).await
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
