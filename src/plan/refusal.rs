//! Why a write does not happen, or a read finds nothing: reasons as data, without the words of HTTP.

use crate::intent::conditions::Validators;
use crate::model::ResourceIndex;
use crate::problem::Fault;

/// Why nothing was done: the state of the data, or the data sent, does not allow it.
#[derive(Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The item or one of its ancestors is not there.
    Missing,
    /// The client has to say which version it saw.
    Unconditional,
    /// The conditions do not hold for what is there now; a list has nothing to be compared by.
    Unmet(Option<Validators>),
    /// A patch that does not fit what is stored.
    Patch(String),
    Invalid(Vec<Fault>),
    Transition {
        from: Option<Box<str>>,
        to: Box<str>,
        allowed: Vec<Box<str>>,
    },
    /// The same, for a caller who may not see the state.
    UnseenTransition {
        to: Box<str>,
    },
    /// The caller may not change these.
    ReadOnly(Vec<Fault>),
    /// The item would be out of the caller's reach, or clashes with one that is. The fields that were sent
    /// and break the rule; none where naming them would tell a clash from a broken rule.
    Outside(Vec<Fault>),
    /// By other items; those fields that the caller knows.
    Taken(Vec<Fault>),
    /// By items of this resource; of none where the model does not know who refers to it.
    Referenced(Option<ResourceIndex>),
    TooMany {
        dependents_max: usize,
    },
    /// No enabled user would have the role `admin`.
    LastAdmin,
    /// Another request was sent under the same key.
    KeyUsed,
    /// The same key is being used at this moment.
    KeyUnderWay,
}
