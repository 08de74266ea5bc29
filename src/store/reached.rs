//! Row-level security: the statements of a resource for the access scope of a caller.
//!
//! For a caller with access to all rows these are the statements made at startup. For others they are made on
//! first use, and cached for all callers with the same rights.

use std::convert::Infallible;
use std::sync::Arc;

use super::driver::{Bind, Stroke};
use super::sql::{Part, Table};
use super::transaction::Context;
use crate::model::ResourceIndex;
use crate::permit::Reach;
use crate::plan::Collection;
use crate::value::Id;

/// Capacity of the cache of row filters: a few kilobytes each.
pub(super) const PARTS_MAX: usize = 1_000;

/// The statements of one resource within an access scope.
#[derive(Debug)]
pub(super) struct Reached<'a> {
    table: &'a Table,
    part: Option<Arc<Part>>,
    reach: &'a Reach,
}

/// What the transaction is about to do with an item that it locks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RowLock {
    /// Change it: others may insert children meanwhile.
    Update,
    Delete,
}

/// The statement for all rows, and a function that picks its counterpart from a row filter.
type Texts<'a> = (&'a str, fn(&Part) -> &String);

impl Context {
    pub(super) fn reached<'a>(&'a self, resource: ResourceIndex, reach: &'a Reach) -> Reached<'a> {
        Reached { table: self.sql.table(resource), part: self.part(resource, reach), reach }
    }

    /// The parent item of a collection, if it has one: its statements, its id and the ids of its ancestors.
    pub(super) fn parent<'a>(
        &'a self,
        collection: &'a Collection,
        seen: &'a Reach,
    ) -> Option<(Reached<'a>, Id, &'a [Id])> {
        let parent = self.model.resource(collection.resource).parent?;
        let (id, above) = collection.ancestors.split_last()?;
        Some((self.reached(parent, seen), *id, above))
    }

    /// `None` if the caller has access to all rows.
    fn part(&self, resource: ResourceIndex, reach: &Reach) -> Option<Arc<Part>> {
        if !reach.is_part(&self.model, resource) {
            return None;
        }
        let (rights, verb) = reach.key()?;
        let make = || {
            let (model, dialect) = (&self.model, self.sql.dialect);
            let part = Part::new(model, dialect, model.resource(resource), reach);
            Ok::<_, Infallible>(Arc::new(part))
        };
        self.parts.get_or_insert_with(&(rights, verb, resource), make).ok()
    }
}

impl Reached<'_> {
    pub(super) fn item(&self, id: Id, ancestors: &[Id]) -> Stroke<'_> {
        self.stroke((&self.table.item, |part| &part.item), &[Bind::Id(id)], ancestors)
    }

    /// Reads the item and locks its row until the transaction ends.
    pub(super) fn locked_item(&self, id: Id, ancestors: &[Id], lock: RowLock) -> Stroke<'_> {
        let texts: Texts<'_> = match lock {
            RowLock::Update => (&self.table.item_for_update, |part| &part.item_for_update),
            RowLock::Delete => (&self.table.item_for_delete, |part| &part.item_for_delete),
        };
        self.stroke(texts, &[Bind::Id(id)], ancestors)
    }

    pub(super) fn exists(&self, id: Id, ancestors: &[Id]) -> Stroke<'_> {
        self.stroke((&self.table.exists, |part| &part.exists), &[Bind::Id(id)], ancestors)
    }

    pub(super) fn exists_anywhere(&self, id: Id) -> Stroke<'_> {
        let texts: Texts<'_> = (&self.table.exists_anywhere, |part| &part.exists_anywhere);
        self.stroke(texts, &[Bind::Id(id)], &[])
    }

    /// `limit` rows, after an id (keyset pagination) or from the first one.
    pub(super) fn page(&self, limit: i64, after: Option<Id>, ancestors: &[Id]) -> Stroke<'_> {
        let limit = Bind::Integer(limit);
        match after {
            None => self.stroke((&self.table.page, |part| &part.page), &[limit], ancestors),
            Some(after) => {
                let texts: Texts<'_> = (&self.table.page_after, |part| &part.page_after);
                self.stroke(texts, &[limit, Bind::Id(after)], ancestors)
            }
        }
    }

    /// The statement for all rows or that of the row filter. Its parameters: the first ones, the ids of the
    /// ancestors from the nearest, the parameters of the conditions.
    fn stroke<'s>(
        &'s self,
        (whole, pick): Texts<'s>,
        first: &[Bind<'s>],
        ancestors: &[Id],
    ) -> Stroke<'s> {
        let mut binds = first.to_vec();
        binds.extend(ancestors.iter().rev().map(|id| Bind::Id(*id)));
        match &self.part {
            None => Stroke::new(whole, binds),
            Some(part) => {
                binds.extend(part.binds(self.reach));
                Stroke::new(pick(part), binds)
            }
        }
    }
}
