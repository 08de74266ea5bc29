//! The access scope of one request: its caller's row filters and hidden fields, carried along with the plan.
//!
//! The item itself is checked for the request's own verb, but the ancestors in its path, and the items it
//! references, are checked for GET.

use std::sync::{Arc, LazyLock};

use sha2::{Digest, Sha256};

use super::{Access, Caller};
use crate::model::{Expr, GrantVerb, Model, Resource, ResourceIndex, types};
use crate::value::{Item, Value};

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
                    && one.caller.user_name() == other.caller.user_name()
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

    /// The access of the request's own verb. `None`: unrestricted.
    pub fn access(&self, resource: ResourceIndex) -> Option<&Access> {
        self.0.as_ref().map(|limited| limited.access(resource, limited.verb))
    }

    /// The access of GET, for any verb of the request. `None`: unrestricted.
    pub fn read_access(&self, resource: ResourceIndex) -> Option<&Access> {
        self.0.as_ref().map(|limited| limited.access(resource, GrantVerb::Get))
    }

    /// Whether GET is granted for the resource.
    pub fn can_read(&self, resource: ResourceIndex) -> bool {
        self.0.as_ref().is_none_or(|limited| {
            limited.caller.rights().access(resource, GrantVerb::Get).is_some()
        })
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

    /// The row filters for the request's own verb: a row is accessible if one of them holds; an empty list
    /// allows all rows.
    pub fn row_filters(&self, resource: ResourceIndex) -> &[Expr] {
        self.access(resource).map_or(&[], |access| &access.row_filters)
    }

    /// The row filters for GET.
    pub fn read_row_filters(&self, resource: ResourceIndex) -> &[Expr] {
        self.read_access(resource).map_or(&[], |access| &access.row_filters)
    }

    /// Whether a row filter of the resource or of one of its ancestors applies.
    pub fn has_row_filter(&self, model: &Model, resource: ResourceIndex) -> bool {
        if self.is_unrestricted() {
            return false;
        }
        let above = model.lineage(resource);
        let above = above.iter().filter(|above| above.index != resource);
        !self.row_filters(resource).is_empty()
            || above.into_iter().any(|above| !self.read_row_filters(above.index).is_empty())
    }

    /// Field indices, in order, that GET hides in every item.
    pub fn unreadable_fields(&self, resource: ResourceIndex) -> &[usize] {
        self.read_access(resource).map_or(&[], |access| &access.hidden)
    }

    /// Whether GET would show the item, perhaps with hidden fields. Does not check the item's ancestors.
    pub fn can_read_item(&self, resource: &Resource, item: &Item) -> bool {
        let Some(limited) = &self.0 else { return true };
        let access = limited.access(resource.index, GrantVerb::Get);
        if access.row_filters.is_empty() {
            return true;
        }
        let values = resource.fields.iter().zip(&item.values);
        let open: Vec<Value> =
            values.map(|(field, value)| types::parse_canonical(field, value.clone())).collect();
        access.allows_row(&open, limited.caller.user_name())
    }

    /// The fields of an item that GET does not show.
    pub fn unreadable(&self, resource: &Resource, item: &Item) -> UnreadableFields<'_> {
        match self.can_read_item(resource, item) {
            true => UnreadableFields::Fields(self.unreadable_fields(resource.index)),
            false => UnreadableFields::All,
        }
    }

    /// A hash of the read access to the resource and its ancestors; zero for unrestricted access. Equal
    /// hashes mean equal read access.
    pub fn read_access_hash(&self, model: &Model, resource: ResourceIndex) -> u32 {
        let Some(limited) = &self.0 else { return 0 };
        let mut hash = Sha256::new();
        let mut is_all = true;
        for level in model.lineage(resource) {
            let access = limited.access(level.index, GrantVerb::Get);
            is_all &= access.row_filters.is_empty() && access.hidden_hash == 0;
            hash.update(format!("{:?} {};", access.row_filters, access.hidden_hash));
        }
        if is_all {
            return 0;
        }
        let bytes = hash.finalize();
        bytes.first_chunk::<4>().map_or(1, |bytes| u32::from_be_bytes(*bytes)).max(1)
    }

    /// Equal for equal scopes within one model, except for the user's name.
    pub fn rights_key(&self) -> Option<(u128, GrantVerb)> {
        self.0.as_ref().map(|limited| (limited.caller.rights().key(), limited.verb))
    }

    /// Field indices, in order, that are hidden from the request's own verb. The access of GET decides which
    /// fields a response shows.
    pub fn hidden_fields(&self, resource: ResourceIndex) -> &[usize] {
        self.access(resource).map_or(&[], |access| &access.hidden)
    }

    /// The value of `$user` in expressions.
    pub fn user_name(&self) -> Option<&str> {
        self.0.as_ref()?.caller.user_name()
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
