//! Which entries of the change log a request selects.

use super::logged_change::{ItemPath, LoggedChange};
use crate::value::{EventKind, Moment};

/// The filters of `/-/changes`, combined by AND; an empty list of values selects all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogFilter {
    /// The names of resources in the log (`Resource::label`).
    pub resources: Vec<Box<str>>,
    pub subject: Option<ItemPath>,
    /// As the reader sees them.
    pub kinds: Vec<EventKind>,
    pub actors: Vec<Box<str>>,
    /// The first and the last moment, both included.
    pub from: Option<Moment>,
    pub until: Option<Moment>,
}

impl LogFilter {
    /// Whether a change is selected. Its kind depends on the reader: `selects_kind`.
    pub fn selects(&self, logged: &LoggedChange) -> bool {
        let change = &logged.change;
        let is_among =
            |all: &[Box<str>], one: &str| all.is_empty() || all.iter().any(|known| **known == *one);
        is_among(&self.resources, &change.resource)
            && is_among(&self.actors, &change.actor)
            && self.subject.as_ref().is_none_or(|path| logged.path.as_ref() == Some(path))
            && self.from.is_none_or(|from| change.time >= from)
            && self.until.is_none_or(|until| change.time <= until)
    }

    pub fn selects_kind(&self, kind: EventKind) -> bool {
        self.kinds.is_empty() || self.kinds.contains(&kind)
    }
}
