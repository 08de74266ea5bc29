//! PATCH of a user, which may hold a password.
//!
//! The store never sees a clear-text password, and a patch needs the stored item. So this code reads the
//! user, applies the patch here, and replaces the user under optimistic concurrency control: if another
//! request has changed the user meanwhile, it retries.

use std::time::Instant;

use super::execute::{self, BodyReservation};
use super::{App, SharedState};
use crate::intent::RouteError;
use crate::intent::preconditions::Preconditions;
use crate::plan::decide::check_item_preconditions;
use crate::plan::{Outcome, ReadPlan, RequestRefusal, WriteAction, WritePlan, apply_patch};
use crate::problem::{self, Problem};
use crate::store::StoreError;

const ATTEMPTS_MAX: usize = 5;

/// Returns the store's result as it is; the caller maps errors to problems.
pub(super) async fn patch_user(
    app: &App,
    until: Instant,
    write: &WritePlan,
    body: BodyReservation<'_>,
) -> Result<Result<Outcome, StoreError>, RouteError> {
    let SharedState { model, auth, .. } = &*app.shared;
    let WriteAction::Patch { id, patch } = &write.action else {
        return Err(Problem::new(&problem::INTERNAL).into());
    };
    if let Some(once) = &write.idempotency {
        let read = ReadPlan::IdempotentResponse(once.clone());
        match execute::fetch(app, until, read).await {
            Err(StoreError::Refused(RequestRefusal::Missing)) => {}
            done => return Ok(done),
        }
    }
    for _ in 0..ATTEMPTS_MAX {
        let read = ReadPlan::Item(write.collection.clone(), *id, None);
        let stored = match execute::fetch(app, until, read).await {
            Ok(Outcome::Item(stored)) => stored,
            other => return Ok(other),
        };
        let made =
            check_item_preconditions(model, &write.collection, &write.preconditions, &stored)
                .and_then(|()| apply_patch(model, &write.collection, patch, &stored));
        let draft = match made {
            Ok(draft) => draft,
            Err(refusal) => return Ok(Err(StoreError::Refused(refusal))),
        };
        let mut replace = Box::new(WritePlan {
            action: WriteAction::Replace { id: *id, draft },
            preconditions: Preconditions::if_version(stored.version),
            ..write.clone()
        });
        auth.hash_passwords(&mut replace).await?;
        match execute::submit_write(app, until, replace, body).await {
            Ok(Outcome::Updated(item)) => return Ok(Ok(Outcome::Patched(item))),
            Err(StoreError::Refused(RequestRefusal::PreconditionFailed(_))) => {}
            other => return Ok(other),
        }
    }
    Ok(Err(StoreError::Busy))
}
