//! The secrets of webhooks: sealed before the store sees them, and shown once, in the response to the request that
//! sets them.
//!
//! The response that is stored for a retry has the secret too, so that a client whose connection broke gets it. So
//! that response is sealed as well.

use std::sync::Arc;

use super::context::{RequestContext, SharedState};
use crate::auth::Authenticator;
use crate::model::builtin::webhook::SECRET;
use crate::plan::{Outcome, WritePlan};
use crate::problem::Problem;
use crate::value::{ClearText, Item, Value};

/// Seals the secrets of a write to the webhooks. Returns whether there were any.
pub(super) fn seal(request: &RequestContext<'_>, write: &mut WritePlan) -> Result<bool, Problem> {
    let shared = &request.app.shared;
    let SharedState { auth, .. } = &**shared;
    let is_sealed = auth.seal_webhook_secrets(write)?;
    if let Some(once) = write.idempotency.as_mut().filter(|_| is_sealed) {
        let (shared, render) = (Arc::clone(shared), Arc::clone(&once.render));
        once.render = Arc::new(move |done| {
            let text = render(done.map(|outcome| reveal(&shared.auth, outcome)))?;
            shared.auth.seal_response(&text)
        });
    }
    Ok(is_sealed)
}

/// Opens the secrets that the request has set, in the items of its outcome.
pub(super) fn reveal(auth: &Authenticator, mut outcome: Outcome) -> Outcome {
    let items: &mut [Item] = match &mut outcome {
        Outcome::Created(item) | Outcome::Updated(item) | Outcome::Patched(item) => {
            std::slice::from_mut(item)
        }
        Outcome::CreatedMany(items) => items,
        _ => &mut [],
    };
    for value in items.iter_mut().filter_map(|item| item.values.get_mut(SECRET)) {
        let Value::Text(sealed) = &*value else { continue };
        if let Some(secret) = auth.open_webhook_secret(sealed) {
            *value = Value::ClearText(ClearText::new(secret.clear_text().into()));
        }
    }
    outcome
}
