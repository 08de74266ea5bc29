//! How far one caller reaches with one request: what travels with a plan.
//!
//! The one surprising thing: the item itself is within reach of the request's own verb, but the
//! items its path runs through, and those it refers to, must be within reach of GET.

use std::ptr;

use super::{Access, Caller};
use crate::model::{Model, ResourceIndex, Verb};

/// Everything, or what the rights of a caller grant to a verb.
#[derive(Debug, Clone, Default)]
pub struct Reach(Option<Limited>);

#[derive(Debug, Clone)]
struct Limited {
    caller: Caller,
    verb: Verb,
}

impl PartialEq for Reach {
    /// The same rights for the same verb and user.
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (None, None) => true,
            (Some(one), Some(other)) => {
                one.verb == other.verb
                    && one.caller.user_name() == other.caller.user_name()
                    && one.caller.rights().key() == other.caller.rights().key()
            }
            (None, Some(_)) | (Some(_), None) => false,
        }
    }
}

impl Eq for Reach {}

impl Reach {
    pub fn of(caller: &Caller, verb: Verb) -> Self {
        let is_limited = !caller.is_all();
        Self(is_limited.then(|| Limited { caller: caller.clone(), verb }))
    }

    pub fn is_all(&self) -> bool {
        self.0.is_none()
    }

    /// What the request's own verb may do. `None`: everything, or (which `check` has refused before)
    /// nothing.
    pub fn access(&self, resource: ResourceIndex) -> Option<&Access> {
        let limited = self.0.as_ref()?;
        limited.caller.rights().access(resource, limited.verb)
    }

    /// Whether items of a resource can be seen at all.
    pub fn sees(&self, resource: ResourceIndex) -> bool {
        self.0
            .as_ref()
            .is_none_or(|limited| limited.caller.rights().access(resource, Verb::Get).is_some())
    }

    /// Whether the caller knows that a resource is there.
    pub fn knows(&self, resource: ResourceIndex) -> bool {
        self.0.as_ref().is_none_or(|limited| limited.caller.rights().knows(resource))
    }

    /// Field indices that are not shown, in order.
    pub fn hidden(&self, resource: ResourceIndex) -> &[usize] {
        self.access(resource).map_or(&[], |access| &access.hidden)
    }

    /// What `$user` stands for.
    pub fn user(&self) -> Option<&str> {
        self.0.as_ref()?.caller.user_name()
    }

    /// Whether every item that a path to the resource runs through could be seen.
    pub fn leads_to(&self, model: &Model, resource: ResourceIndex) -> bool {
        let is_self = |index| index == resource;
        self.is_all()
            || model
                .lineage(resource)
                .iter()
                .all(|above| is_self(above.index) || self.sees(above.index))
    }
}
