//! Whose rights a write uses, to be looked at again where it has waited.
//!
//! Pure: who the users are is known elsewhere, and so is the time.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use crate::value::Item;

/// A user as they were let in.
pub trait Grantee: fmt::Debug + Send + Sync {
    fn name(&self) -> &str;

    /// Whether the stored user of this name is still that user, with the same password and roles, and not
    /// disabled.
    fn is_still(&self, stored: Option<&Item>) -> bool;
}

/// The rights that a write was permitted by, and until when they need no second look.
#[derive(Debug, Clone)]
pub struct Mandate {
    pub user: Arc<dyn Grantee>,
    pub good_until: Instant,
}
