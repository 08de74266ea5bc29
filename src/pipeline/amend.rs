//! PATCH of a user, which may hold a password.
//!
//! The store never sees a clear-text password, and a patch needs the stored item. So this code reads the
//! user, applies the patch here, and replaces the user under optimistic concurrency control: if somebody
//! has changed it meanwhile, it retries.

use std::time::Instant;

use super::act::{self, SentBody};
use super::{App, Shared};
use crate::intent::Stop;
use crate::intent::conditions::Conditions;
use crate::plan::decide::require_of;
use crate::plan::{Action, Outcome, Read, Refusal, Write, patched};
use crate::problem::{self, Problem};
use crate::store::StoreError;

const TRIES_MAX: usize = 5;

/// Returns the store's result as it is; the caller maps errors to problems.
pub(super) async fn user(
    app: &App,
    until: Instant,
    write: &Write,
    body: SentBody<'_>,
) -> Result<Result<Outcome, StoreError>, Stop> {
    let Shared { model, auth, .. } = &*app.shared;
    let Action::Amend { id, patch } = &write.action else {
        return Err(Problem::new(&problem::INTERNAL).into());
    };
    if let Some(once) = &write.once {
        let read = Read::Kept(once.clone());
        match act::fetch(app, until, read).await {
            Err(StoreError::Refused(Refusal::Missing)) => {}
            said => return Ok(said),
        }
    }
    for _ in 0..TRIES_MAX {
        let read = Read::Item(write.collection.clone(), *id, None);
        let stored = match act::fetch(app, until, read).await {
            Ok(Outcome::Item(stored)) => stored,
            other => return Ok(other),
        };
        let made = require_of(model, &write.collection, &write.conditions, &stored)
            .and_then(|()| patched(model, &write.collection, patch, &stored));
        let draft = match made {
            Ok(draft) => draft,
            Err(refusal) => return Ok(Err(StoreError::Refused(refusal))),
        };
        let mut replace = Box::new(Write {
            action: Action::Replace { id: *id, draft },
            conditions: Conditions::version(stored.version),
            ..write.clone()
        });
        auth.conceal(&mut replace).await?;
        match act::store(app, until, replace, body).await {
            Ok(Outcome::Updated(item)) => return Ok(Ok(Outcome::Amended(item))),
            Err(StoreError::Refused(Refusal::Unmet(_))) => {}
            other => return Ok(other),
        }
    }
    Ok(Err(StoreError::Busy))
}
