//! The caller's rights to the item that a write stores: read-only and limited fields, and row filters.

use super::collection::Collection;
use super::outcome::RequestRefusal;
use crate::model::expr::{ExprNode, PathRoot, UserValues, holds_part};
use crate::model::{Field, Resource, UniqueConflict, UniqueRule};
use crate::permit::{Access, FactReader, ParsedRow, StoredRow, UnreadableFields};
use crate::problem::{FaultCode, FieldFault};
use crate::value::Item;

/// The caller's rights to one item.
#[derive(Clone, Copy)]
pub(super) struct ItemRights<'a> {
    pub(super) access: &'a Access,
    user: UserValues<'a>,
    /// The stored values that no response may reveal.
    pub(super) unseen: UnreadableFields<'a>,
    pub(super) facts: &'a FactReader<'a>,
}

/// Why the caller may not change a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RefusalReason {
    ReadOnly,
    /// The caller may change it in other items.
    Limited,
}

impl RefusalReason {
    /// The end of a sentence about the refusal.
    pub(super) fn scope(self) -> &'static str {
        match self {
            Self::ReadOnly => "",
            Self::Limited => " in this item",
        }
    }
}

/// The row that a write stores, and the one that it replaces.
#[derive(Clone, Copy)]
pub(super) struct RowChange<'a> {
    /// `None` for a new item.
    pub(super) before: Option<StoredRow<'a>>,
    pub(super) after: StoredRow<'a>,
}

impl<'a> ItemRights<'a> {
    pub(super) fn new(collection: &'a Collection, facts: &'a FactReader<'a>) -> Self {
        let reach = &collection.scope;
        let unseen = UnreadableFields::Fields(&[]);
        let access = reach.access(collection.resource);
        Self { access, user: reach.user(), unseen, facts }
    }

    pub(super) fn for_stored(
        resource: &Resource,
        collection: &'a Collection,
        stored: &Item,
        facts: &'a FactReader<'a>,
    ) -> Self {
        let unseen = collection.scope.unreadable(resource, stored, facts);
        Self { unseen, ..Self::new(collection, facts) }
    }

    /// The fields that the caller may not change, of those for which `is_changed` holds: the read-only ones, and the
    /// limited ones that no grant lets be changed in all of these rows. With the reason, in the order of the model.
    pub(super) fn refused_fields<'r>(
        self,
        resource: &'r Resource,
        rows: &[&ParsedRow<'_>],
        is_changed: impl Fn(usize, &Field) -> bool,
    ) -> Vec<(&'r Field, RefusalReason)> {
        let changed = |fields: &[usize]| -> Vec<usize> {
            let is_changed = |at: &usize| {
                let field = resource.fields.get(*at).filter(|field| !field.is_made_by_server());
                field.is_some_and(|field| is_changed(*at, field))
            };
            fields.iter().copied().filter(is_changed).collect()
        };
        let readonly = changed(&self.access.readonly).into_iter();
        let mut refused: Vec<_> = readonly.map(|at| (at, RefusalReason::ReadOnly)).collect();
        for limited in &self.access.limited_fields {
            let changed = changed(&limited.fields);
            if !changed.is_empty() && !limited.are_writable(rows, self.user, self.facts) {
                refused.extend(changed.into_iter().map(|at| (at, RefusalReason::Limited)));
            }
        }
        refused.sort_unstable_by_key(|(at, _)| *at);
        let field = |(at, reason): (usize, RefusalReason)| {
            resource.fields.get(at).map(|field| (field, reason))
        };
        refused.into_iter().filter_map(field).collect()
    }

    /// Whether the caller may store the row after a write. `is_changed` tells whether the request sets a field.
    pub(super) fn check(
        self,
        resource: &Resource,
        root: &str,
        RowChange { before, after }: RowChange<'_>,
        is_changed: impl Fn(usize, &Field) -> bool + Copy,
    ) -> Result<(), RequestRefusal> {
        let after = ParsedRow::new(resource, after);
        let before = before.map(|row| ParsedRow::new(resource, row));
        let is_allowed = self.access.allows_parsed_row(&after, self.user, self.facts);
        // No grant decides about the fields of a row that none covers.
        let decisive = is_allowed.then_some(&after);
        let rows: Vec<&ParsedRow<'_>> = before.iter().chain(decisive).collect();
        let fault = |(field, reason): (&Field, RefusalReason)| FieldFault {
            pointer: format!("{root}/{}", field.name),
            code: FaultCode::ReadOnly,
            detail: format!("your roles do not let you change this{}", reason.scope()),
        };
        let refused = self.refused_fields(resource, &rows, is_changed);
        if !refused.is_empty() {
            let faults = refused.into_iter().map(fault).collect();
            return Err(RequestRefusal::ReadOnly(faults));
        }
        if is_allowed {
            return Ok(());
        }
        Err(RequestRefusal::OutsideRowFilter(
            self.row_filter_faults(resource, root, &after, is_changed),
        ))
    }

    /// The faults of the fields that the caller has set and that break one of the caller's row filters. None where the
    /// item could also violate a unique rule together with an item that the caller cannot see, unless the model lets
    /// callers know of that: both cases get the same response, and faults would distinguish them.
    fn row_filter_faults(
        self,
        resource: &Resource,
        root: &str,
        row: &ParsedRow<'_>,
        is_changed: impl Fn(usize, &Field) -> bool,
    ) -> Vec<FieldFault> {
        let is_known = |at: usize| !self.access.hidden.contains(&at) && !self.unseen.contains(at);
        let is_set = |at: usize| {
            let field = resource.fields.get(at).filter(|field| !field.is_made_by_server());
            field.is_some_and(|field| is_changed(at, field))
        };
        let is_there =
            |at: usize| !is_known(at) || row.stored().get(at).is_some_and(|value| !value.is_null());
        // A computed field changes with the fields that it is made from.
        let is_made_of_set = |at: usize| {
            let computed = resource.fields.get(at).and_then(|field| field.computed.as_ref());
            computed.is_some_and(|from| read_fields(&from.root).into_iter().any(is_set))
        };
        let may_clash = |unique: &UniqueRule| {
            unique.fields.iter().all(|at| is_there(*at))
                && unique.fields.iter().any(|at| is_set(*at) || is_made_of_set(*at))
        };
        let is_silent = resource.conflict == UniqueConflict::Silent;
        if is_silent && resource.unique.iter().any(may_clash) {
            return Vec::new();
        }
        let decisive = self.decisive_fields(resource, row, is_known);
        let fields = resource.fields.iter().enumerate();
        let named = fields.filter(|(at, _)| is_known(*at) && is_set(*at) && decisive.contains(at));
        let fault = |field: &Field| FieldFault {
            pointer: format!("{root}/{}", field.name),
            code: FaultCode::Outside,
            detail: FaultCode::Outside.meaning().to_owned(),
        };
        named.map(|(_, field)| fault(field)).collect()
    }

    /// The fields that the parts of row filters read which do not hold, and those that a computed field among them is
    /// made from. A part that reads a field unknown to the caller, or another item, counts as one that does not hold:
    /// otherwise the response would tell something about that field or item.
    fn decisive_fields(
        self,
        resource: &Resource,
        row: &ParsedRow<'_>,
        is_known: impl Fn(usize) -> bool,
    ) -> Vec<usize> {
        let mut decisive = Vec::new();
        let filters = self.access.row_filters.iter();
        for part in filters.flat_map(|filter| filter.root.conjuncts()) {
            let read = read_fields(part);
            let is_known_part = !part.reads_related() && read.iter().all(|at| is_known(*at));
            let related = self.facts.for_user(self.user);
            if is_known_part && holds_part(part, row.expr_row(), self.user, &related) {
                continue;
            }
            for at in read.into_iter().filter(|at| is_known(*at)) {
                let computed = resource.fields.get(at).and_then(|field| field.computed.as_ref());
                decisive.extend(computed.iter().flat_map(|from| read_fields(&from.root)));
                decisive.push(at);
            }
        }
        decisive
    }
}

/// The fields of the resource that an expression reads, by index.
fn read_fields(node: &ExprNode) -> Vec<usize> {
    let mut read = Vec::new();
    node.for_each_path(&mut |path| {
        if let PathRoot::Field(at) = path.root {
            read.push(at);
        }
    });
    read
}
