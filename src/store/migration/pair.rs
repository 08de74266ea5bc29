//! The stored model and the new one, with what changes between them.

use crate::model::conversion::RowConversion;
use crate::model::diff::{Difference, MigrationEffect, ModelChange, compare, former_resource};
use crate::model::{Model, Resource};
use crate::store::driver::Driver;
use crate::store::error::StatementError;
use crate::store::migration::scan::count;
use crate::store::sql::migration;

/// A resource of the stored model, and what becomes of it.
#[derive(Debug)]
pub struct ChangedResource<'m> {
    pub before: &'m Resource,
    /// `None`: it was removed.
    pub after: Option<&'m Resource>,
    pub changes: Vec<&'m ModelChange>,
    /// The number of its items.
    pub items: i64,
}

/// The two models, and their differences.
#[derive(Debug)]
pub struct ModelPair<'m> {
    pub old: &'m Model,
    pub new: &'m Model,
    pub differences: Vec<Difference>,
}

impl<'m> ModelPair<'m> {
    pub fn new(old: &'m Model, new: &'m Model) -> Self {
        Self { old, new, differences: compare(old, new) }
    }

    /// The tables of resources with changes that startup does not make.
    pub fn changed_tables(&self) -> impl Iterator<Item = &'m str> {
        let is_changed = |resource: &Resource| {
            self.differences.iter().any(|difference| match difference {
                Difference::Change(change) => change.resource == resource.index,
                _ => false,
            })
        };
        self.old.declared().filter(move |one| is_changed(one)).map(|resource| &*resource.table)
    }

    /// The resource of the new model that continues one of the old model.
    pub fn successor(&self, before: &Resource) -> Option<&'m Resource> {
        self.new.declared().find(|after| self.is_former(before, after))
    }

    /// Whether a resource of the new model continues one of the old model.
    fn is_former(&self, before: &Resource, after: &Resource) -> bool {
        former_resource(self.old, after).is_some_and(|one| one.index == before.index)
    }

    /// The resources with changes that startup does not make, with the numbers of their items.
    pub async fn changed_resources<D: Driver>(
        &self,
        driver: &mut D,
    ) -> Result<Vec<ChangedResource<'_>>, StatementError> {
        let mut found = Vec::new();
        for before in self.old.declared() {
            let changes: Vec<_> = self
                .differences
                .iter()
                .filter_map(|difference| match difference {
                    Difference::Change(change) if change.resource == before.index => Some(change),
                    _ => None,
                })
                .collect();
            if changes.is_empty() {
                continue;
            }
            let after = self.successor(before);
            let items = count(driver, &migration::count_rows(&before.table)).await?;
            found.push(ChangedResource { before, after, changes, items });
        }
        Ok(found)
    }
}

impl ChangedResource<'_> {
    fn has_effect(&self, is_wanted: impl Fn(MigrationEffect) -> bool) -> bool {
        self.changes.iter().any(|change| is_wanted(change.effect))
    }

    /// Whether more than its items are looked at.
    pub fn changes_tables(&self) -> bool {
        use MigrationEffect::{Check, CheckItem, CheckUnique};
        self.has_effect(|effect| !matches!(effect, Check | CheckUnique(_) | CheckItem(_)))
            || self.conversion().is_some_and(|conversion| conversion.written().next().is_some())
    }

    /// Whether the texts that are derived from a field of the new model are computed again.
    pub fn derives(&self, field: usize) -> bool {
        let mut changes = self.changes.iter();
        changes
            .any(|change| change.effect == MigrationEffect::Derive && change.field == Some(field))
    }

    /// Whether its table has no items and is made anew.
    pub fn is_rebuilt(&self) -> bool {
        self.has_effect(|effect| effect == MigrationEffect::Refuse)
    }

    pub fn conversion(&self) -> Option<RowConversion<'_>> {
        self.after.map(|after| RowConversion::new(self.before, after, &self.changes))
    }
}
