//! Cascading delete: collects the dependents of a deleted item, and finds those that restrict the deletion.

use std::cmp::Reverse;
use std::collections::HashSet;

use super::Broken;
use super::driver::{Bind, Columns, Driver, Failure, Stroke};
use super::sql::Link;
use super::transaction::{Context, Halt, Pace, SHARED_ROWS_MAX};
use crate::model::{Model, OnDelete, ResourceIndex};
use crate::permit::Reach;
use crate::plan::{Collection, Dependent, Refusal};
use crate::value::Id;

/// Items whose dependents are queried together: each may have as many as one deletion may include.
const ASKED_MAX: usize = 20;

/// Everything that a deletion removes, found breadth-first by following incoming references.
pub(super) struct Gathering {
    all: Vec<Dependent>,
    known: HashSet<(usize, Id)>,
    dependents_max: usize,
    pace: Pace,
}

impl Gathering {
    pub(super) fn new(own: Dependent, dependents_max: usize, pace: Pace) -> Self {
        let known = HashSet::from([(own.collection.resource.0, own.id)]);
        Self { all: vec![own], known, dependents_max, pace }
    }

    pub(super) async fn cascade<D: Driver>(
        &mut self,
        driver: &mut D,
        context: &Context,
    ) -> Result<(), Halt<()>> {
        let mut at = 0;
        while at < self.all.len() {
            // The limit must not be used up by dependents that are known already.
            let limit = self.dependents_max.saturating_add(self.all.len() + 1);
            let some: Vec<_> = self.all.iter().skip(at).take(ASKED_MAX).collect();
            at += some.len();
            let asked = links(context, &some, OnDelete::Cascade);
            for dependents in dependents(driver, context, &asked, limit).await? {
                for dependent in dependents {
                    self.add(dependent)?;
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, dependent: Dependent) -> Result<(), Halt<()>> {
        if self.known.insert((dependent.collection.resource.0, dependent.id)) {
            self.all.push(dependent);
        }
        let count = self.all.len() - 1;
        if count > self.dependents_max {
            return Err(Refusal::TooMany { dependents_max: self.dependents_max }.into());
        }
        if count > SHARED_ROWS_MAX && self.pace == Pace::Shared {
            return Err(Halt::TooLong(()));
        }
        Ok(())
    }

    /// A resource whose items restrict the deletion: they refer to a deleted item and are not deleted
    /// themselves.
    pub(super) async fn restricted<D: Driver>(
        &self,
        driver: &mut D,
        context: &Context,
    ) -> Result<Option<ResourceIndex>, Halt<()>> {
        // One row more than the deletion removes: at least one of them stays.
        let limit = self.all.len().saturating_add(1);
        let all: Vec<_> = self.all.iter().collect();
        for some in all.chunks(ASKED_MAX) {
            let asked = links(context, some, OnDelete::Restrict);
            let found = dependents(driver, context, &asked, limit).await?;
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

    /// Sorted so that no parent key is violated. The deleted item itself need not be the last: it may refer
    /// to its own parent.
    pub(super) fn children_first(self, model: &Model) -> Vec<Dependent> {
        let mut going = self.all;
        going.reverse();
        going.sort_by_key(|entry| Reverse(model.resource(entry.collection.resource).depth));
        going
    }
}

/// Whether a deleted item is still referred to. Never true, unless the collection above has a bug.
pub(super) async fn is_referred_to<D: Driver>(
    driver: &mut D,
    context: &Context,
    gone: &[Dependent],
) -> Result<bool, Failure> {
    for Dependent { collection, id } in gone {
        for link in &context.sql.table(collection.resource).links {
            let found = dependents(driver, context, &[(link, *id)], 1).await?;
            if found.iter().any(|dependents| !dependents.is_empty()) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// The incoming references of some items, each with the item's id.
fn links<'a>(
    context: &'a Context,
    items: &[&Dependent],
    on_delete: OnDelete,
) -> Vec<(&'a Link, Id)> {
    let of = |item: &&Dependent| {
        let links = &context.sql.table(item.collection.resource).links;
        let id = item.id;
        links.iter().filter(move |link| link.on_delete == on_delete).map(move |link| (link, id))
    };
    items.iter().flat_map(of).collect()
}

/// The dependents of items by their incoming references: a list for each.
async fn dependents<D: Driver>(
    driver: &mut D,
    context: &Context,
    asked: &[(&Link, Id)],
    limit: usize,
) -> Result<Vec<Vec<Dependent>>, Failure> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let strokes: Vec<_> = asked
        .iter()
        .map(|(link, id)| Stroke::new(&link.dependents, vec![Bind::Id(*id), Bind::Integer(limit)]))
        .collect();
    if strokes.is_empty() {
        return Ok(Vec::new());
    }
    let missing = || Broken("an item without an id".into());
    let read = |at: usize, row: &dyn Columns| {
        let resource = asked.get(at).ok_or_else(missing)?.0.resource;
        // The id itself, then its ancestors from the nearest: the lineage reversed.
        let lineage = context.model.lineage(resource);
        let ids = lineage.iter().rev().enumerate();
        let ids = ids.map(|(at, resource)| row.id(at, resource.id)?.ok_or_else(missing));
        let mut ids = ids.collect::<Result<Vec<Id>, Broken>>()?.into_iter();
        let id = ids.next().ok_or_else(missing)?;
        let (ancestors, reach) = (ids.rev().collect(), Reach::default());
        Ok(Dependent { collection: Collection { resource, ancestors, reach }, id })
    };
    driver.rows_each(&strokes, read).await
}
