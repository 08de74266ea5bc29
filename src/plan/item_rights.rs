//! The caller's rights to the item that a write stores: read-only fields and row filters.

use super::collection::Collection;
use super::outcome::RequestRefusal;
use crate::model::{Field, Resource, UniqueRule};
use crate::permit::{Access, UnreadableFields};
use crate::problem::{FaultCode, FieldFault};
use crate::value::{Item, Value};

/// The caller's rights to one item.
#[derive(Clone, Copy)]
pub(super) struct ItemRights<'a> {
    pub(super) access: &'a Access,
    pub(super) user: Option<&'a str>,
    /// The stored values that no response may reveal.
    pub(super) unseen: UnreadableFields<'a>,
}

impl<'a> ItemRights<'a> {
    pub(super) fn new(collection: &'a Collection) -> Self {
        let reach = &collection.scope;
        let unseen = UnreadableFields::Fields(&[]);
        Self { access: reach.access(collection.resource), user: reach.user_name(), unseen }
    }

    pub(super) fn for_stored(
        resource: &Resource,
        collection: &'a Collection,
        stored: &Item,
    ) -> Self {
        Self { unseen: collection.scope.unreadable(resource, stored), ..Self::new(collection) }
    }

    /// Whether the caller may store the item with these values. `is_changed` tells whether the request sets a
    /// read-only field.
    pub(super) fn check(
        self,
        resource: &Resource,
        root: &str,
        values: &[Value],
        is_changed: impl Fn(usize, &Field) -> bool + Copy,
    ) -> Result<(), RequestRefusal> {
        let fields = self.access.readonly.iter().filter_map(|at| {
            let field = resource.fields.get(*at).filter(|field| !field.is_made_by_server())?;
            is_changed(*at, field).then_some(field)
        });
        let fault = |field: &Field| FieldFault {
            pointer: format!("{root}/{}", field.name),
            code: FaultCode::ReadOnly,
            detail: "your roles do not let you change this".to_owned(),
        };
        let faults: Vec<FieldFault> = fields.map(fault).collect();
        if !faults.is_empty() {
            return Err(RequestRefusal::ReadOnly(faults));
        }
        if self.access.allows_row(resource, values, self.user) {
            return Ok(());
        }
        Err(RequestRefusal::OutsideRowFilter(
            self.row_filter_faults(resource, root, values, is_changed),
        ))
    }

    /// The faults of the fields that the caller has set and that one of the caller's row filters reads. None
    /// where the item could also violate a unique rule together with an item that the caller cannot see: both
    /// cases get the same response, and faults would distinguish them.
    fn row_filter_faults(
        self,
        resource: &Resource,
        root: &str,
        values: &[Value],
        is_changed: impl Fn(usize, &Field) -> bool,
    ) -> Vec<FieldFault> {
        let is_known = |at: usize| !self.access.hidden.contains(&at) && !self.unseen.contains(at);
        let is_set = |at: usize| {
            let field = resource.fields.get(at).filter(|field| !field.is_made_by_server());
            field.is_some_and(|field| is_changed(at, field))
        };
        let is_there =
            |at: usize| !is_known(at) || values.get(at).is_some_and(|value| !value.is_null());
        let may_clash = |unique: &UniqueRule| {
            unique.fields.iter().all(|at| is_there(*at))
                && unique.fields.iter().any(|at| is_set(*at))
        };
        if resource.unique.iter().any(may_clash) {
            return Vec::new();
        }
        let filters = &self.access.row_filters;
        let fields = resource.fields.iter().enumerate();
        let named = fields.filter(|(at, _)| {
            is_known(*at) && is_set(*at) && filters.iter().any(|filter| filter.reads_field(*at))
        });
        let fault = |field: &Field| FieldFault {
            pointer: format!("{root}/{}", field.name),
            code: FaultCode::Outside,
            detail: FaultCode::Outside.meaning().to_owned(),
        };
        named.map(|(_, field)| fault(field)).collect()
    }
}
