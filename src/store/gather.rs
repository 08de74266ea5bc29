//! What goes with a removed item, and what stands in the way.

use std::cmp::Reverse;
use std::collections::HashSet;

use super::Broken;
use super::driver::{Bind, Columns, Driver, Failure};
use super::sql::Link;
use super::transaction::{Context, Halt, Pace, SHARED_ROWS_MAX};
use crate::model::{Model, OnDelete, ResourceIndex};
use crate::plan::{Collection, Dependent, Refusal};
use crate::value::Id;

/// Everything that goes with a removed item: found by following the links, level by level.
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
        while let Some((resource, id)) =
            self.all.get(at).map(|entry| (entry.collection.resource, entry.id))
        {
            for link in &context.sql.table(resource).links {
                if link.on_delete == OnDelete::Cascade {
                    // Those known already must not hide one that is not.
                    let limit = self.dependents_max.saturating_add(self.all.len() + 1);
                    for dependent in dependents(driver, context, link, id, limit).await? {
                        self.add(dependent)?;
                    }
                }
            }
            at += 1;
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

    /// An item that stands in the way: it refers to one that goes, and does not go itself.
    pub(super) async fn restricted<D: Driver>(
        &self,
        driver: &mut D,
        context: &Context,
    ) -> Result<Option<ResourceIndex>, Halt<()>> {
        for entry in &self.all {
            for link in &context.sql.table(entry.collection.resource).links {
                if link.on_delete == OnDelete::Restrict {
                    // So many may go along; one more cannot be among them.
                    let limit = self.all.len().saturating_add(1);
                    let by = dependents(driver, context, link, entry.id, limit).await?;
                    let stays =
                        |by: &Dependent| !self.known.contains(&(by.collection.resource.0, by.id));
                    if by.iter().any(stays) {
                        return Ok(Some(link.resource));
                    }
                }
            }
        }
        Ok(None)
    }

    /// In an order that no parent key forbids. The removed item need not be the last: a reference
    /// may lead from it up to its own parent.
    pub(super) fn children_first(self, model: &Model) -> Vec<Dependent> {
        let mut going = self.all;
        going.reverse();
        going.sort_by_key(|entry| Reverse(model.resource(entry.collection.resource).depth));
        going
    }
}

/// Whether an item that is gone is still referred to. Never, unless the gathering is wrong.
pub(super) async fn is_referred_to<D: Driver>(
    driver: &mut D,
    context: &Context,
    gone: &[Dependent],
) -> Result<bool, Failure> {
    for Dependent { collection, id } in gone {
        for link in &context.sql.table(collection.resource).links {
            if !dependents(driver, context, link, *id, 1).await?.is_empty() {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

async fn dependents<D: Driver>(
    driver: &mut D,
    context: &Context,
    link: &Link,
    id: Id,
    limit: usize,
) -> Result<Vec<Dependent>, Failure> {
    let lineage = context.model.lineage(link.resource);
    let read = |row: &dyn Columns| {
        // The id itself, then its ancestors, the nearest first: the lineage backwards.
        let ids: Result<Vec<Id>, Broken> = lineage
            .iter()
            .rev()
            .enumerate()
            .map(|(at, resource)| {
                row.id(at, resource.id)?.ok_or_else(|| Broken("an item without an id".into()))
            })
            .collect();
        let mut ids = ids?.into_iter();
        let id = ids.next().ok_or_else(|| Broken("an item without an id".into()))?;
        let ancestors = ids.rev().collect();
        Ok(Dependent { collection: Collection { resource: link.resource, ancestors }, id })
    };
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    driver.rows(&link.dependents, &[Bind::Id(id), Bind::Integer(limit)], read).await
}
