//! Cascading delete: collects the dependents of a deleted item, the references to clear, and finds the items that
//! restrict the deletion.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use crate::fault::OrBug;
use crate::model::{Model, OnDelete, ResourceIndex};
use crate::permit::AccessScope;
use crate::plan::{Collection, Dependent, ReferencesToClear, RequestRefusal};
use crate::store::context::{CommitMode, GROUPED_ROWS_MAX, StoreContext};
use crate::store::driver::Driver;
use crate::store::error::{InternalError, StatementError, WriteError};
use crate::store::sql::statements::IncomingReference;
use crate::store::statement::{Bind, Columns, Statement};
use crate::value::Id;

/// Items whose dependents are queried together: each may have as many as one deletion may include.
const BATCH_ITEMS_MAX: usize = 20;

/// Everything that a deletion removes, found breadth-first by following incoming references.
pub struct CascadeDelete {
    all: Vec<Dependent>,
    known: HashSet<(usize, Id)>,
    cleared: Vec<ReferencesToClear>,
    dependents_max: usize,
    mode: CommitMode,
}

impl CascadeDelete {
    pub fn new(own: Dependent, dependents_max: usize, mode: CommitMode) -> Self {
        let known = HashSet::from([(own.collection.resource.0, own.id)]);
        Self { all: vec![own], known, cleared: Vec::new(), dependents_max, mode }
    }

    pub async fn collect_dependents<D: Driver>(
        &mut self,
        driver: &mut D,
        context: &StoreContext,
    ) -> Result<(), WriteError> {
        let mut at = 0;
        while at < self.all.len() {
            // The limit must not be used up by dependents that are known already.
            let limit = self.dependents_max.saturating_add(self.all.len() + 1);
            let some: Vec<_> = self.all.iter().skip(at).take(BATCH_ITEMS_MAX).collect();
            at += some.len();
            let asked = incoming_references(context, &some, OnDelete::Cascade);
            for dependents in load_dependents(driver, context, &asked, limit).await? {
                for dependent in dependents {
                    self.add(dependent)?;
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, dependent: Dependent) -> Result<(), WriteError> {
        if self.known.insert((dependent.collection.resource.0, dependent.id)) {
            self.all.push(dependent);
        }
        self.check_count()
    }

    /// Deleted and updated items count alike.
    fn check_count(&self) -> Result<(), WriteError> {
        let count = self.all.len() - 1 + self.cleared.len();
        if count > self.dependents_max {
            return Err(
                RequestRefusal::TooManyDependents { dependents_max: self.dependents_max }.into()
            );
        }
        if count > GROUPED_ROWS_MAX && self.mode == CommitMode::Grouped {
            return Err(WriteError::ExceedsGroup);
        }
        Ok(())
    }

    /// Collects the references of items that stay. The dependents are collected before.
    pub async fn collect_references_to_clear<D: Driver>(
        &mut self,
        driver: &mut D,
        context: &StoreContext,
    ) -> Result<(), WriteError> {
        let mut places: HashMap<(usize, Id), usize> = HashMap::new();
        let limit = self.dependents_max.saturating_add(self.all.len() + 1);
        let all = self.all.clone();
        for some in all.chunks(BATCH_ITEMS_MAX) {
            let some: Vec<_> = some.iter().collect();
            let asked = incoming_references(context, &some, OnDelete::Clear);
            let found = load_dependents(driver, context, &asked, limit).await?;
            for ((link, removed), items) in asked.iter().zip(found) {
                let field = link.field.or_bug("only a reference of a field is cleared");
                for item in items {
                    let key = (item.collection.resource.0, item.id);
                    if self.known.contains(&key) {
                        continue;
                    }
                    let place = *places.entry(key).or_insert(self.cleared.len());
                    if place == self.cleared.len() {
                        self.cleared.push(ReferencesToClear { item, references: Vec::new() });
                    }
                    let clear = self.cleared.get_mut(place).or_bug("it was added");
                    clear.references.push((field, *removed));
                    self.check_count()?;
                }
            }
        }
        Ok(())
    }

    /// A resource whose items restrict the deletion: they refer to a deleted item and are not deleted
    /// themselves.
    pub async fn find_restriction<D: Driver>(
        &self,
        driver: &mut D,
        context: &StoreContext,
    ) -> Result<Option<ResourceIndex>, WriteError> {
        // One row more than the deletion removes: at least one of them stays.
        let limit = self.all.len().saturating_add(1);
        let all: Vec<_> = self.all.iter().collect();
        for some in all.chunks(BATCH_ITEMS_MAX) {
            let asked = incoming_references(context, some, OnDelete::Restrict);
            let found = load_dependents(driver, context, &asked, limit).await?;
            for ((link, _), by) in asked.iter().zip(found) {
                let stays =
                    |by: &Dependent| !self.known.contains(&(by.collection.resource.0, by.id));
                if by.iter().any(stays) {
                    return Ok(Some(link.resource));
                }
            }
        }
        Ok(None)
    }

    /// The items to delete, sorted so that no parent key is violated, and the references to clear before. The deleted
    /// item itself need not be the last: it may refer to its own parent.
    pub fn into_deletion_order(self, model: &Model) -> (Vec<Dependent>, Vec<ReferencesToClear>) {
        let mut going = self.all;
        going.reverse();
        going.sort_by_key(|entry| Reverse(model.resource(entry.collection.resource).depth));
        (going, self.cleared)
    }
}

/// The incoming references of some items, each with the item's id.
fn incoming_references<'a>(
    context: &'a StoreContext,
    items: &[&Dependent],
    on_delete: OnDelete,
) -> Vec<(&'a IncomingReference, Id)> {
    let of = |item: &&Dependent| {
        let links = &context.sql.table_statements(item.collection.resource).incoming;
        let id = item.id;
        links.iter().filter(move |link| link.on_delete == on_delete).map(move |link| (link, id))
    };
    items.iter().flat_map(of).collect()
}

/// The dependents of items by their incoming references: a list for each.
async fn load_dependents<D: Driver>(
    driver: &mut D,
    context: &StoreContext,
    asked: &[(&IncomingReference, Id)],
    limit: usize,
) -> Result<Vec<Vec<Dependent>>, StatementError> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let statements: Vec<_> = asked
        .iter()
        .map(|(link, id)| {
            Statement::new(&link.dependents, vec![Bind::Id(*id), Bind::Integer(limit)])
        })
        .collect();
    let missing = || InternalError("an item without an id".into());
    let read = |at: usize, row: &dyn Columns| {
        let resource = asked.get(at).or_bug("the row of one of the statements").0.resource;
        // The id itself, then its ancestors from the nearest: the lineage reversed.
        let lineage = context.model.lineage(resource);
        let ids = lineage.iter().rev().enumerate();
        let ids = ids.map(|(at, resource)| row.id(at, resource.id)?.ok_or_else(missing));
        let mut ids = ids.collect::<Result<Vec<Id>, InternalError>>()?.into_iter();
        let id = ids.next().ok_or_else(missing)?;
        let (ancestors, scope) = (ids.rev().collect(), AccessScope::default());
        Ok(Dependent { collection: Collection::nested(resource, ancestors, scope), id })
    };
    driver.query_all(&statements, read, |_| false).await
}
