//! 3, done: what became of a plan, or why nothing did.

use super::Said;
use crate::intent::conditions::Validators;
use crate::model::ResourceIndex;
use crate::problem::Fault;
use crate::value::{Item, Page};

/// What was done or found.
#[derive(Debug, PartialEq)]
pub enum Outcome {
    Ready,
    Positions(Positions),
    User(Option<Item>),
    Stamp(i64),
    Item(Item),
    Page(Page),
    Created(Item),
    CreatedMany(Vec<Item>),
    Updated(Item),
    Amended(Item),
    Removed,
    /// Of a write that may be sent again: the answer itself.
    Said(Said),
}

/// The first and the last entry of the change log, by number; none when it is empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Positions {
    pub oldest: Option<i64>,
    pub newest: Option<i64>,
}

/// More than this in an answer takes long enough to write to be noticed by others.
const LARGE_BYTES: usize = 256 << 10;

impl Outcome {
    /// Whether it is better written beside the thread that serves.
    pub fn is_large(&self) -> bool {
        self.items().iter().map(Item::bytes).sum::<usize>() >= LARGE_BYTES
    }

    /// The items it speaks of.
    pub fn items(&self) -> &[Item] {
        match self {
            Self::Item(item) | Self::Created(item) | Self::Updated(item) | Self::Amended(item) => {
                std::slice::from_ref(item)
            }
            Self::Page(page) => &page.items,
            Self::CreatedMany(items) => items,
            Self::Ready | Self::Positions(_) | Self::Removed | Self::Said(_) => &[],
            // Not for clients.
            Self::User(_) | Self::Stamp(_) => &[],
        }
    }
}

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
    /// The item would be out of the caller's reach, or clashes with one that is. What was sent and breaks
    /// the rule, where that tells the two apart from nobody.
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
