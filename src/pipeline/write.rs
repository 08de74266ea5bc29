//! Writes: all of them go to the store through `write`, with an `Idempotency-Key` (`idempotency`) or without.

use bytes::Bytes;

use super::context::{App, RequestContext, RequestFacts, SharedState};
use super::identity::{self, ChangedRights};
use super::webhook_secrets;
use crate::admission::MemoryReservation;
use crate::clock;
use crate::fault;
use crate::intent::RouteError;
use crate::intent::preconditions::Preconditions;
use crate::log::StageTimes;
use crate::permit::FactReader;
use crate::plan::decide::check_item_preconditions;
use crate::plan::{Outcome, ReadPlan, RequestRefusal, WriteAction, WritePlan, apply_patch};
use crate::store::{StoreError, WriteOptions};

/// How often a patch of a user or a webhook is retried.
const ATTEMPTS_MAX: usize = 5;

/// The body of a request, and the memory reservation that holds it until the work on it has ended.
#[derive(Clone, Copy)]
pub(super) struct BodyReservation<'a> {
    pub(super) bytes: &'a Bytes,
    pub(super) memory: &'a MemoryReservation<'a>,
}

/// Reads as soon as admission control grants a permit.
pub(super) async fn fetch(
    request: &RequestContext<'_>,
    read: ReadPlan,
) -> Result<Outcome, StoreError> {
    let App { shared, store, .. } = request.app;
    let permit = Some(shared.admission.admit(request.deadline).await?);
    store.read_in(permit, read).await
}

/// Reads, and refuses the result if the caller's rights have changed meanwhile.
pub(super) async fn fetch_with_rights(
    request: &RequestContext<'_>,
    read: ReadPlan,
    facts: &mut RequestFacts,
) -> Result<Result<Outcome, StoreError>, RouteError> {
    let done = fetch(request, read).await;
    identity::confirm_rights(request, facts, clock::now(), ChangedRights::Refuse).await?;
    Ok(done)
}

pub(super) async fn write(
    request: &RequestContext<'_>,
    mut write: Box<WritePlan>,
    body: BodyReservation<'_>,
    facts: &mut RequestFacts,
    stages: &mut StageTimes,
) -> Result<Result<Outcome, StoreError>, RouteError> {
    let SharedState { model, auth, .. } = &*request.app.shared;
    write.rights_lease = facts.rights_lease();
    let is_user = write.collection.resource == model.users;
    let done = if write.is_patch_with_secret(model) {
        Box::pin(patch_with_secret(request, &write, body, facts)).await?
    } else if write.has_clear_text(model) {
        Box::pin(submit_with_secret(request, write, body)).await?
    } else {
        submit_write(request, write, body).await
    };
    stages.mark("store");
    if is_user {
        auth.invalidate_users();
    }
    if matches!(done, Err(StoreError::RightsChanged)) {
        Box::pin(identity::recheck_rights(request, facts, ChangedRights::Refuse)).await?;
    }
    Ok(done)
}

/// Submits a write to the store once admission control grants a queue slot.
async fn submit_write(
    request: &RequestContext<'_>,
    write: Box<WritePlan>,
    BodyReservation { bytes, memory }: BodyReservation<'_>,
) -> Result<Outcome, StoreError> {
    let (App { shared, store, .. }, deadline) = (request.app, request.deadline);
    let place = Some(shared.admission.admit(deadline).await?);
    let options = WriteOptions { bytes: bytes.len(), deadline, memory: memory.share(), place };
    store.write(write, options).await
}

/// Submits a write that may hold secrets in clear text, which the store never sees.
async fn submit_with_secret(
    request: &RequestContext<'_>,
    mut write: Box<WritePlan>,
    body: BodyReservation<'_>,
) -> Result<Result<Outcome, StoreError>, RouteError> {
    let SharedState { model, auth, .. } = &*request.app.shared;
    if write.collection.resource == model.webhooks {
        let is_set = webhook_secrets::seal(request, &mut write)?;
        let done = submit_write(request, write, body).await;
        return Ok(match is_set {
            true => done.map(|outcome| webhook_secrets::reveal(auth, outcome)),
            false => done,
        });
    }
    auth.hash_passwords(&mut write, request.deadline).await?;
    Ok(submit_write(request, write, body).await)
}

/// PATCH of a user or a webhook, which may hold a secret. The store never sees a secret in clear text, and a patch
/// needs the stored item. So this code reads the item, applies the patch here, and replaces the item under
/// optimistic concurrency control: if another request has changed the item meanwhile, it retries.
async fn patch_with_secret(
    request: &RequestContext<'_>,
    write: &WritePlan,
    body: BodyReservation<'_>,
    facts: &mut RequestFacts,
) -> Result<Result<Outcome, StoreError>, RouteError> {
    let SharedState { model, .. } = &*request.app.shared;
    let WriteAction::Patch { id, patch } = &write.action else {
        fault::bug("the write is a patch");
    };
    if let Some(once) = &write.idempotency {
        let read = ReadPlan::IdempotentResponse(once.clone());
        match fetch_with_rights(request, read, facts).await? {
            Err(StoreError::Refused(RequestRefusal::Missing)) => {}
            done => return Ok(done),
        }
    }
    for _ in 0..ATTEMPTS_MAX {
        let read = ReadPlan::Item(write.collection.clone(), *id, None);
        let stored = match fetch_with_rights(request, read, facts).await? {
            Ok(Outcome::Item(stored)) => stored,
            other => return Ok(other),
        };
        // The rights to users and webhooks depend on no other items.
        let no_facts = FactReader::without_facts(model);
        let (collection, conditions) = (&write.collection, &write.preconditions);
        let made = check_item_preconditions(collection, conditions, &stored, &no_facts)
            .and_then(|()| apply_patch(&no_facts, collection, patch, &stored));
        let draft = match made {
            Ok(draft) => draft,
            Err(refusal) => return Ok(Err(StoreError::Refused(refusal))),
        };
        let replace = Box::new(WritePlan {
            action: WriteAction::Replace { id: *id, draft },
            preconditions: Preconditions::if_version(stored.version),
            ..write.clone()
        });
        match submit_with_secret(request, replace, body).await? {
            Ok(Outcome::Updated(item)) => return Ok(Ok(Outcome::Patched(item))),
            Err(StoreError::Refused(RequestRefusal::PreconditionFailed(_))) => {}
            other => return Ok(other),
        }
    }
    Ok(Err(StoreError::Busy))
}
