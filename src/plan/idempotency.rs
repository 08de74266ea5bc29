//! Idempotent requests (`Idempotency-Key`): how a retry is recognized, and how the response is stored.
//!
//! Pure, and free of HTTP: a function passed with the request renders the response, so that the store can
//! keep it together with the change. That function runs inside the transaction, which makes the response part
//! of it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::outcome::{Outcome, RequestRefusal};

/// Renders the result of a write as the text to store. `None`: the response cannot be stored.
pub type RenderResponse =
    Arc<dyn Fn(Result<Outcome, RequestRefusal>) -> Option<String> + Send + Sync>;

/// How the retry of a write is recognized.
#[derive(Clone)]
pub struct IdempotentRequest {
    /// A digest of caller, method, path and key.
    pub scope: Box<str>,
    /// The scope as a number, for advisory locks; two scopes may share one.
    pub lock_number: i64,
    /// Fingerprints that distinguish this request from others of the same scope. The store keeps the first
    /// one; the others are made with older server keys, and recognize requests from before a key change.
    pub fingerprints: Vec<Box<str>>,
    /// How long to wait for a concurrent request of the same scope.
    pub wait_max: Duration,
    /// Whether refusals are stored as well.
    pub can_store_refusals: bool,
    pub render: RenderResponse,
}

/// Omits the scope and the fingerprints, which are derived from data of the client.
impl fmt::Debug for IdempotentRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotentRequest").field("wait", &self.wait_max).finish_non_exhaustive()
    }
}

impl IdempotentRequest {
    /// Whether a request with this fingerprint is a retry of this one.
    pub fn matches(&self, print: &str) -> bool {
        self.fingerprints.iter().any(|known| **known == *print)
    }

    /// Whether a refusal is stored as the final response. A refusal that other rights or other headers would
    /// change is not stored.
    pub fn can_store_refusal(&self, refusal: &RequestRefusal) -> bool {
        self.can_store_refusals
            && match refusal {
                RequestRefusal::Missing
                | RequestRefusal::PreconditionFailed(_)
                | RequestRefusal::Patch(_)
                | RequestRefusal::Invalid(_)
                | RequestRefusal::Transition { .. }
                | RequestRefusal::HiddenTransition { .. }
                | RequestRefusal::NotUnique(_)
                | RequestRefusal::Referenced(_)
                | RequestRefusal::TooManyReferences { .. }
                | RequestRefusal::TooManyDependents { .. }
                | RequestRefusal::LastAdmin
                | RequestRefusal::TooManyWebhooks { .. } => true,
                RequestRefusal::PreconditionRequired
                | RequestRefusal::ReadOnly(_)
                | RequestRefusal::TransitionNotGranted { .. }
                | RequestRefusal::OutsideRowFilter(_)
                | RequestRefusal::PositionGone { .. }
                | RequestRefusal::History(_)
                | RequestRefusal::PositionNotReached { .. }
                | RequestRefusal::IdempotencyKeyReused
                | RequestRefusal::TooManyRelated(_)
                | RequestRefusal::IdempotencyKeyInFlight => false,
            }
    }
}
