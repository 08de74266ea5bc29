//! Steps 10 to 13: what is planned is done, and what was asked for is said.
//!
//! What is written goes to the store by one way, under a key (`once`) or without.

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

/// What was sent for a write: so many bytes, which take up this room until the write has ended.
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

/// Reads, and shows it only to somebody who still has the rights it was read with.
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

/// Hands a write to the store, as soon as there is a place for it.
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

/// What a request was about: a collection, maybe a list of it, and what had to be true.
pub(super) type About = (Option<Collection>, Option<Arc<List>>, Conditions);

/// Says what came of it; a large answer beside the thread that serves.
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
    // Counted while it waits for its turn: hundreds may wait, each with as much as a page may have.
    let room = gate.room();
    let has_room = room.take(outcome.items().iter().map(Item::bytes).sum());
    // What was done must be told; what was only looked at can be looked at again.
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
