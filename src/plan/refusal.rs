//! Refusals: why the store rejects a write or finds nothing, as data and without HTTP.

use crate::intent::preconditions::Validators;
use crate::model::ResourceIndex;
use crate::problem::FieldFault;

/// Why nothing was done: the stored data, or the data sent, does not allow it.
#[derive(Debug, PartialEq, Eq)]
pub enum RequestRefusal {
    /// The item or one of its ancestors does not exist.
    Missing,
    /// The resource requires `If-Match`, and the client sent none.
    PreconditionRequired,
    /// The preconditions fail for the current version; a list has no validators.
    PreconditionFailed(Option<Validators>),
    /// The patch does not fit the stored item.
    Patch(String),
    Invalid(Vec<FieldFault>),
    Transition {
        from: Option<Box<str>>,
        to: Box<str>,
        allowed: Vec<Box<str>>,
    },
    /// A transition that is not allowed, for a caller who may not see the state.
    HiddenTransition {
        to: Box<str>,
    },
    /// Fields that the caller may not change.
    ReadOnly(Vec<FieldFault>),
    /// The item would be outside the caller's row filter, or violates a unique rule together with an item
    /// outside the filter. Has the fields that were sent and violate the filter; none where naming them would
    /// distinguish the two cases.
    OutsideRowFilter(Vec<FieldFault>),
    /// Values that violate a unique rule; only fields that the caller can see.
    NotUnique(Vec<FieldFault>),
    /// Items of this resource reference the item; `None` where the model does not declare the reference.
    Referenced(Option<ResourceIndex>),
    TooManyDependents {
        dependents_max: usize,
    },
    /// No enabled user would have the role `admin`.
    LastAdmin,
    /// Another request was sent with the same idempotency key.
    IdempotencyKeyReused,
    /// A request with the same idempotency key is in flight.
    IdempotencyKeyInFlight,
}
