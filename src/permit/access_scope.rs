//! The access scope of one request: its caller's row filters and hidden fields, carried along with the plan.
//!
//! The item itself is checked for the request's own verb, but the ancestors in its path, and the items it
//! references, are checked for GET.

use std::sync::{Arc, LazyLock};

use sha2::{Digest as _, Sha256};

use super::access::Access;
use super::caller::Caller;
use super::related_facts::{FactReader, StoredRow};
use crate::model::expr::UserValues;
use crate::model::{Expr, GrantVerb, Model, Resource, ResourceIndex};
use crate::value::{Item, hash_u32};

/// The fields of one item that GET does not show to the caller. A write may still be granted for them, and
/// must not reveal their values.
#[derive(Debug, Clone, Copy)]
pub enum UnreadableFields<'a> {
    /// Some fields, by index.
    Fields(&'a [usize]),
    /// The whole item: GET is not granted, or not for this row.
    All,
}

impl UnreadableFields<'_> {
    pub fn contains(self, field: usize) -> bool {
        match self {
            Self::Fields(fields) => fields.contains(&field),
            Self::All => true,
        }
    }

    /// Whether the whole item is unreadable, not only some fields.
    pub fn is_whole_item(self) -> bool {
        matches!(self, Self::All)
    }
}

/// Unrestricted access, or the access granted to a caller for one verb. One pointer, since it is cloned
/// often.
#[derive(Debug, Clone, Default)]
pub struct AccessScope(Option<Arc<RestrictedScope>>);

#[derive(Debug)]
struct RestrictedScope {
    caller: Caller,
    verb: GrantVerb,
}

impl RestrictedScope {
    /// A verb that is not granted reaches no rows, so that a forgotten check fails closed.
    fn access(&self, resource: ResourceIndex, verb: GrantVerb) -> &Access {
        static NO_ACCESS: LazyLock<Access> = LazyLock::new(Access::none);
        self.caller.rights().access(resource, verb).unwrap_or_else(|| &NO_ACCESS)
    }
}

impl PartialEq for AccessScope {
    /// Scopes are equal if they have the same rights, verb and user.
    fn eq(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (None, None) => true,
            (Some(one), Some(other)) => {
                one.verb == other.verb
                    && one.caller.user_values() == other.caller.user_values()
                    && one.caller.rights().key() == other.caller.rights().key()
            }
            (None, Some(_)) | (Some(_), None) => false,
        }
    }
}

impl Eq for AccessScope {}

impl AccessScope {
    pub fn new(caller: &Caller, verb: GrantVerb) -> Self {
        let is_limited = !caller.is_unrestricted();
        Self(is_limited.then(|| Arc::new(RestrictedScope { caller: caller.clone(), verb })))
    }

    pub fn is_unrestricted(&self) -> bool {
        self.0.is_none()
    }

    /// The access of the request's own verb. The access of GET decides which fields a response shows.
    pub fn access(&self, resource: ResourceIndex) -> &Access {
        match &self.0 {
            None => Access::unrestricted(),
            Some(limited) => limited.access(resource, limited.verb),
        }
    }

    /// The access of GET, for any verb of the request.
    pub fn read_access(&self, resource: ResourceIndex) -> &Access {
        match &self.0 {
            None => Access::unrestricted(),
            Some(limited) => limited.access(resource, GrantVerb::Get),
        }
    }

    /// Whether GET is granted for the resource.
    pub fn can_read(&self, resource: ResourceIndex) -> bool {
        self.0.as_ref().is_none_or(|limited| {
            limited.caller.rights().access(resource, GrantVerb::Get).is_some()
        })
    }

    /// Whether the caller may read `/-/changes`.
    pub fn can_read_changes(&self) -> bool {
        self.0.as_ref().is_none_or(|limited| limited.caller.rights().can_read_changes())
    }

    /// Whether the caller may use any verb on the resource.
    pub fn has_any_grant(&self, resource: ResourceIndex) -> bool {
        self.0.as_ref().is_none_or(|limited| limited.caller.rights().has_any_grant(resource))
    }

    /// The same caller's scope for GET, for items that the request reads but does not change.
    pub fn for_reading(&self) -> Self {
        match &self.0 {
            Some(limited) if limited.verb != GrantVerb::Get => {
                Self::new(&limited.caller, GrantVerb::Get)
            }
            None | Some(_) => self.clone(),
        }
    }

    /// Whether a row filter of the resource or of one of its ancestors applies.
    pub fn has_row_filter(&self, model: &Model, resource: ResourceIndex) -> bool {
        let is_filtered = |level: &Resource| match level.index == resource {
            true => !self.access(resource).row_filters.is_empty(),
            false => !self.read_access(level.index).row_filters.is_empty(),
        };
        !self.is_unrestricted() && model.lineage(resource).into_iter().any(is_filtered)
    }

    /// Whether GET would show the item, perhaps with hidden fields. Does not check the item's ancestors.
    pub fn can_read_item(&self, resource: &Resource, item: &Item, facts: &FactReader<'_>) -> bool {
        let access = self.read_access(resource.index);
        access.allows_row(resource, StoredRow::of(item), self.user(), facts)
    }

    /// Whether other items than the item itself decide whether the caller may read or write it, or change its limited
    /// fields.
    pub fn reads_related(&self, resource: ResourceIndex) -> bool {
        let access = self.access(resource);
        access.reads_related()
            || access.limited_fields_read_related()
            || self.read_access(resource).reads_related()
    }

    /// Whether only a read after a write tells whether GET shows what was written. A write of an item changes no
    /// other one, so the ancestors, which were visible before, stay visible unless their row filters read items of
    /// this resource. The item's own row filters, if they read other items, are answered by the decision of the write
    /// where they are the same for its verb.
    pub fn needs_read_check(&self, model: &Model, resource: ResourceIndex) -> bool {
        let reads_written = |level: &Resource| {
            let mut filters = self.read_access(level.index).row_filters.iter();
            filters.any(|filter| filter.root.reads_items_of(resource))
        };
        let (own, read) = (self.access(resource), self.read_access(resource));
        !self.is_unrestricted()
            && ((read.reads_related() && !read.covers_rows_of(own))
                || model.lineage(resource).into_iter().any(reads_written))
    }

    /// The fields of an item that GET does not show.
    pub fn unreadable(
        &self,
        resource: &Resource,
        item: &Item,
        facts: &FactReader<'_>,
    ) -> UnreadableFields<'_> {
        match self.can_read_item(resource, item, facts) {
            true => UnreadableFields::Fields(&self.read_access(resource.index).hidden),
            false => UnreadableFields::All,
        }
    }

    /// A hash of the read access to the resource and its ancestors, with the fields of the user that decide it; zero
    /// for unrestricted access. Equal hashes mean equal read access, as far as no other item decides it.
    pub fn read_access_hash(&self, model: &Model, resource: ResourceIndex) -> u32 {
        let Some(limited) = &self.0 else { return 0 };
        let mut hash = Sha256::new();
        let mut is_all = true;
        for level in model.lineage(resource) {
            let access = limited.access(level.index, GrantVerb::Get);
            is_all &= access.row_filters.is_empty() && access.hidden_hash == 0;
            hash.update(format!("{:?} {};", access.row_filters, access.hidden_hash));
            for (at, value) in self.user().fields.iter().enumerate() {
                if access.row_filters.iter().any(|filter| filter.root.uses_user_field(at)) {
                    hash.update(format!("{at} {value:?};"));
                }
            }
        }
        if is_all {
            return 0;
        }
        hash_u32(hash)
    }

    /// Equal for equal scopes within one model, except for the user's name.
    pub fn rights_key(&self) -> Option<(u128, GrantVerb)> {
        self.0.as_ref().map(|limited| (limited.caller.rights().key(), limited.verb))
    }

    /// The user, if the name or a declared field decides which items of these resources GET shows.
    pub fn deciding_user<'r>(
        &self,
        mut resources: impl Iterator<Item = &'r Resource>,
    ) -> Option<UserValues<'_>> {
        let is_by_user = |level: &Resource| {
            self.read_access(level.index).row_filters.iter().any(Expr::uses_user)
        };
        resources.any(is_by_user).then(|| self.user())
    }

    /// The values of `$user` in expressions.
    pub fn user(&self) -> UserValues<'_> {
        self.0.as_ref().map(|limited| limited.caller.user_values()).unwrap_or_default()
    }

    /// Whether GET is granted for all ancestors of the resource.
    pub fn can_read_ancestors(&self, model: &Model, resource: ResourceIndex) -> bool {
        let is_self = |index| index == resource;
        self.is_unrestricted()
            || model
                .lineage(resource)
                .iter()
                .all(|above| is_self(above.index) || self.can_read(above.index))
    }
}
