//! Steps 10 to 13: execution of the plan, and the reply to its outcome.
//!
//! All writes go to the store through `write`, with an `Idempotency-Key` (`idempotency`) or without.

use std::sync::Arc;
use std::time::Instant;

use super::{App, Asked, Shared, amend, aside, identity};
use crate::formats::Format;
use crate::gate::Room;
use crate::intent::conditions::Conditions;
use crate::intent::{List, Stop};
use crate::log::Stages;
use crate::plan::{Collection, Outcome, Read, Write};
use crate::problem::{self, Problem};
use crate::reply::Reply;
use crate::store::{StoreError, WriteOptions};
use crate::value::Item;

/// The size of a write's body, and the memory reservation that holds it until the write has ended.
#[derive(Clone, Copy)]
pub(super) struct SentBody<'a> {
    bytes: usize,
    room: &'a Room<'a>,
}

impl<'a> SentBody<'a> {
    pub(super) fn new(bytes: &[u8], room: &'a Room<'a>) -> Self {
        Self { bytes: bytes.len(), room }
    }
}

/// Reads, then refuses if the caller's rights have changed since the read was planned.
pub(super) async fn read(
    app: &App,
    asked: &Asked<'_>,
    read: Read,
    stages: &mut Stages,
) -> Result<Result<Outcome, StoreError>, Stop> {
    let done = fetch(app, asked.until, read).await;
    stages.mark("store");
    identity::require_unchanged(app, asked, stages.now()).await?;
    Ok(done)
}

/// Reads as soon as there is a place for it.
pub(super) async fn fetch(app: &App, deadline: Instant, read: Read) -> Result<Outcome, StoreError> {
    let place = Some(app.shared.gate.place(deadline).await?);
    app.store.read_in(place, read).await
}

pub(super) async fn write(
    app: &App,
    asked: &Asked<'_>,
    mut write: Box<Write>,
    body: SentBody<'_>,
    stages: &mut Stages,
) -> Result<Result<Outcome, StoreError>, Stop> {
    let Shared { model, auth, .. } = &*app.shared;
    write.mandate = asked.known().and_then(|known| known.mandate(asked.checked.get()));
    let is_user = write.collection.resource == model.users;
    let done = if write.is_patch_of(model.users) {
        Box::pin(amend::user(app, asked.until, &write, body)).await?
    } else {
        if write.has_clear(model) {
            Box::pin(auth.conceal(&mut write)).await?;
        }
        store(app, asked.until, write, body).await
    };
    stages.mark("store");
    if is_user {
        auth.forget();
    }
    if matches!(done, Err(StoreError::RightsChanged)) {
        Box::pin(identity::refuse_changed(app, asked)).await?;
    }
    Ok(done)
}

/// Submits a write to the store once admission control grants a queue slot.
pub(super) async fn store(
    app: &App,
    deadline: Instant,
    write: Box<Write>,
    SentBody { bytes, room }: SentBody<'_>,
) -> Result<Outcome, StoreError> {
    let place = Some(app.shared.gate.place(deadline).await?);
    let options = WriteOptions { bytes, deadline, memory: room.share(), place };
    app.store.write(write, options).await
}

/// The subject of a request: a collection, maybe a list of it, and the conditions.
pub(super) type About = (Option<Collection>, Option<Arc<List>>, Conditions);

/// Builds the reply to an outcome; a blocking thread serializes a large one.
pub(super) async fn say(
    app: &App,
    (about, list, conditions): About,
    format: &'static Format,
    done: Result<Outcome, StoreError>,
) -> Result<Reply, Problem> {
    let Shared { model, replies, gate, .. } = &*app.shared;
    let failed = |error| replies.failure(model, (about.as_ref(), list.as_deref()), format, error);
    let outcome = done.map_err(failed)?;
    if !outcome.is_large() {
        return replies.outcome(model, (about, list.as_deref(), &conditions), format, &outcome);
    }
    // Reserved while it waits for a thread: hundreds may wait, each with a page of the maximum size.
    let room = gate.room();
    let has_room = room.take(outcome.items().iter().map(Item::bytes).sum());
    // The outcome of a write must be reported; a read can be repeated.
    if !has_room && matches!(outcome, Outcome::Item(_) | Outcome::Page(_)) {
        return Err(Problem::new(&problem::BUSY).detail("too many large answers at once"));
    }
    let (shared, memory) = (Arc::clone(&app.shared), room.share());
    let say = move || {
        let _held = memory;
        let asked = (about, list.as_deref(), &conditions);
        shared.replies.outcome(&shared.model, asked, format, &outcome)
    };
    Box::pin(aside(say)).await?
}
