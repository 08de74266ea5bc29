//! The access scope of one request: its caller's row filters and hidden fields, carried along with the plan.
//!
//! What may surprise: the item itself is checked for the request's own verb, but the ancestors in its path,
//! and the items it references, are checked for GET.

use std::sync::{Arc, LazyLock};

use sha2::{Digest, Sha256};

use super::{Access, Caller};
use crate::model::{Expr, Model, Resource, ResourceIndex, Verb, types};
use crate::value::{Item, Value};

/// The fields of one item that GET does not show to the caller. A write may still be granted for them, and
/// must not reveal their values.
#[derive(Debug, Clone, Copy)]
pub enum Unseen<'a> {
    /// Some fields, by index.
    Fields(&'a [usize]),
    /// The whole item: GET is not granted, or not for this row.
    All,
}

impl Unseen<'_> {
    pub fn contains(self, field: usize) -> bool {
        match self {
            Self::Fields(fields) => fields.contains(&field),
            Self::All => true,
        }
    }

    /// Whether GET does not show the item at all.
    pub fn is_all(self) -> bool {
        matches!(self, Self::All)
    }
}

/// Unrestricted access, or what a caller's rights grant to one verb. One pointer, since it is cloned often.
#[derive(Debug, Clone, Default)]
pub struct Reach(Option<Arc<Limited>>);

#[derive(Debug)]
struct Limited {
    caller: Caller,
    verb: Verb,
}

impl Limited {
    /// A verb that is not granted reaches no rows, so that a forgotten check fails closed.
    fn access(&self, resource: ResourceIndex, verb: Verb) -> &Access {
        static NOTHING: LazyLock<Access> = LazyLock::new(Access::nothing);
        self.caller.rights().access(resource, verb).unwrap_or_else(|| &NOTHING)
    }
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
        Self(is_limited.then(|| Arc::new(Limited { caller: caller.clone(), verb })))
    }

    pub fn is_all(&self) -> bool {
        self.0.is_none()
    }

    /// What the request's own verb may do. `None`: everything.
    pub fn access(&self, resource: ResourceIndex) -> Option<&Access> {
        self.0.as_ref().map(|limited| limited.access(resource, limited.verb))
    }

    /// What GET may do, whatever the request's own verb is. `None`: everything.
    pub fn read_access(&self, resource: ResourceIndex) -> Option<&Access> {
        self.0.as_ref().map(|limited| limited.access(resource, Verb::Get))
    }

    /// Whether GET is granted for the resource.
    pub fn sees(&self, resource: ResourceIndex) -> bool {
        self.0
            .as_ref()
            .is_none_or(|limited| limited.caller.rights().access(resource, Verb::Get).is_some())
    }

    /// Whether the caller may use any verb on the resource.
    pub fn knows(&self, resource: ResourceIndex) -> bool {
        self.0.as_ref().is_none_or(|limited| limited.caller.rights().knows(resource))
    }

    /// The same caller's scope for GET, for items that the request reads but does not change.
    pub fn seen(&self) -> Self {
        match &self.0 {
            Some(limited) if limited.verb != Verb::Get => Self::of(&limited.caller, Verb::Get),
            None | Some(_) => self.clone(),
        }
    }

    /// The row filters for the request's own verb: a row is accessible if one of them holds; an empty list
    /// allows all rows.
    pub fn rows(&self, resource: ResourceIndex) -> &[Expr] {
        self.access(resource).map_or(&[], |access| &access.only)
    }

    /// The row filters for GET.
    pub fn seen_rows(&self, resource: ResourceIndex) -> &[Expr] {
        self.read_access(resource).map_or(&[], |access| &access.only)
    }

    /// Whether a row filter of the resource or of one of its ancestors applies.
    pub fn is_part(&self, model: &Model, resource: ResourceIndex) -> bool {
        if self.is_all() {
            return false;
        }
        let above = model.lineage(resource);
        let above = above.iter().filter(|above| above.index != resource);
        !self.rows(resource).is_empty()
            || above.into_iter().any(|above| !self.seen_rows(above.index).is_empty())
    }

    /// Field indices, in order, that GET hides in every item.
    pub fn unseen_fields(&self, resource: ResourceIndex) -> &[usize] {
        self.read_access(resource).map_or(&[], |access| &access.hidden)
    }

    /// Whether GET would show the item, perhaps with hidden fields. Does not check the item's ancestors.
    pub fn shows(&self, resource: &Resource, item: &Item) -> bool {
        let Some(limited) = &self.0 else { return true };
        let access = limited.access(resource.index, Verb::Get);
        if access.only.is_empty() {
            return true;
        }
        let values = resource.fields.iter().zip(&item.values);
        let open: Vec<Value> =
            values.map(|(field, value)| types::unseal(field, value.clone())).collect();
        access.holds(&open, limited.caller.user_name())
    }

    /// The fields of an item that GET does not show.
    pub fn unseen(&self, resource: &Resource, item: &Item) -> Unseen<'_> {
        match self.shows(resource, item) {
            true => Unseen::Fields(self.unseen_fields(resource.index)),
            false => Unseen::All,
        }
    }

    /// A hash of what GET shows of the resource and of its ancestors; zero for unrestricted access. Equal
    /// hashes mean equal read access.
    pub fn read_mark(&self, model: &Model, resource: ResourceIndex) -> u32 {
        let Some(limited) = &self.0 else { return 0 };
        let mut hash = Sha256::new();
        let mut is_all = true;
        for level in model.lineage(resource) {
            let access = limited.access(level.index, Verb::Get);
            is_all &= access.only.is_empty() && access.mark == 0;
            hash.update(format!("{:?} {};", access.only, access.mark));
        }
        if is_all {
            return 0;
        }
        let bytes = hash.finalize();
        bytes.first_chunk::<4>().map_or(1, |bytes| u32::from_be_bytes(*bytes)).max(1)
    }

    /// Equal for equal scopes within one model, except for the user's name.
    pub fn key(&self) -> Option<(u128, Verb)> {
        self.0.as_ref().map(|limited| (limited.caller.rights().key(), limited.verb))
    }

    /// Field indices, in order, that are hidden from the request's own verb. What a response shows depends on
    /// GET.
    pub fn hidden(&self, resource: ResourceIndex) -> &[usize] {
        self.access(resource).map_or(&[], |access| &access.hidden)
    }

    /// The value of `$user` in expressions.
    pub fn user(&self) -> Option<&str> {
        self.0.as_ref()?.caller.user_name()
    }

    /// Whether GET is granted for all ancestors of the resource.
    pub fn leads_to(&self, model: &Model, resource: ResourceIndex) -> bool {
        let is_self = |index| index == resource;
        self.is_all()
            || model
                .lineage(resource)
                .iter()
                .all(|above| is_self(above.index) || self.sees(above.index))
    }
}
