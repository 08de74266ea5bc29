//! Idempotent requests (`Idempotency-Key`): how a retry is recognized, and how the response is stored.
//!
//! Pure, and free of HTTP: a function that comes with the request renders the response, so that the store can
//! keep it together with the change. What may surprise: that function runs inside the transaction, which
//! makes the response part of it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::{Outcome, Refusal};

/// Renders the result of a write as the text to store. `None`: the response cannot be stored.
pub type Says = Arc<dyn Fn(Result<Outcome, Refusal>) -> Option<String> + Send + Sync>;

/// How the retry of a write is recognized.
#[derive(Clone)]
pub struct Once {
    /// A digest of caller, method, path and key.
    pub scope: Box<str>,
    /// The scope as a number, for advisory locks; two scopes may share one.
    pub number: i64,
    /// Fingerprints that tell this request from others of the same scope. The store keeps the first one; the
    /// others are made with older server keys, and recognize requests from before a key change.
    pub prints: Vec<Box<str>>,
    /// How long to wait for a concurrent request of the same scope.
    pub wait: Duration,
    /// Whether refusals are stored as well.
    pub keeps_refusals: bool,
    pub says: Says,
}

/// Omits the scope and the fingerprints, which are derived from what the client sent.
impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Once").field("wait", &self.wait).finish_non_exhaustive()
    }
}

impl Once {
    /// Whether a request with this fingerprint is a retry of this one.
    pub fn is(&self, print: &str) -> bool {
        self.prints.iter().any(|known| **known == *print)
    }

    /// Whether a refusal is stored as the final response. Not one that other rights or other headers would
    /// change.
    pub fn keeps(&self, refusal: &Refusal) -> bool {
        self.keeps_refusals
            && match refusal {
                Refusal::Missing
                | Refusal::Unmet(_)
                | Refusal::Patch(_)
                | Refusal::Invalid(_)
                | Refusal::Transition { .. }
                | Refusal::UnseenTransition { .. }
                | Refusal::Taken(_)
                | Refusal::Referenced(_)
                | Refusal::TooMany { .. }
                | Refusal::LastAdmin => true,
                Refusal::Unconditional
                | Refusal::ReadOnly(_)
                | Refusal::Outside(_)
                | Refusal::KeyUsed
                | Refusal::KeyUnderWay => false,
            }
    }
}

/// A response that was stored before, or has just been stored.
#[derive(Debug, PartialEq, Eq)]
pub struct Said {
    pub text: String,
    /// Whether it is a replay of an earlier response.
    pub is_again: bool,
}
