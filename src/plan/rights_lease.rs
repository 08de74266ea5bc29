//! A time-limited lease on the rights of a write's user, checked again if the write waited longer.
//!
//! Pure: `auth` implements the check and supplies the time.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use crate::value::Item;

/// An authenticated user whose rights a write uses.
pub trait RightsHolder: fmt::Debug + Send + Sync {
    fn name(&self) -> &str;

    /// Whether the stored user of this name is still the same user, with the same password and roles, and not
    /// disabled.
    fn is_still_valid(&self, stored: Option<&Item>) -> bool;
}

/// The user whose rights permitted a write, and until when these rights need not be checked again.
#[derive(Debug, Clone)]
pub struct RightsLease {
    pub user: Arc<dyn RightsHolder>,
    pub valid_until: Instant,
}
