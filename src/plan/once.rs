//! A write that may be sent again: the name it is kept under, and how its answer is kept.
//!
//! Pure, and it knows no HTTP: what will be said is made by a function that comes with the request, so
//! that it can be stored together with what was done.
//! The one surprising thing: that function runs inside the transaction, which makes the answer part of it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::{Outcome, Refusal};

/// Turns what was done, or why nothing was, into the text that is kept. Nothing: it cannot be kept.
pub type Says = Arc<dyn Fn(Result<Outcome, Refusal>) -> Option<String> + Send + Sync>;

/// How a write is recognised when it comes again.
#[derive(Clone)]
pub struct Once {
    /// Stands for caller, method, path and key.
    pub scope: Box<str>,
    /// Stands for the scope where a number is wanted; two scopes may share one.
    pub number: i64,
    /// Tell this request from others of the same scope. The first one is kept; a request that was made
    /// before the server's key changed is known by one of the others.
    pub prints: Vec<Box<str>>,
    /// How long another one of the same scope is waited for.
    pub wait: Duration,
    /// Whether a refusal is kept too.
    pub keeps_refusals: bool,
    pub says: Says,
}

/// The name and the marks of a request are nobody's business.
impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Once").field("wait", &self.wait).finish_non_exhaustive()
    }
}

impl Once {
    /// Whether a request with this mark is this one.
    pub fn is(&self, print: &str) -> bool {
        self.prints.iter().any(|known| **known == *print)
    }

    /// Whether a refusal is an answer for good. Not one that other rights or other headers would change.
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

/// What was kept, or is kept from now on.
#[derive(Debug, PartialEq, Eq)]
pub struct Said {
    pub text: String,
    /// It was said before.
    pub is_again: bool,
}
