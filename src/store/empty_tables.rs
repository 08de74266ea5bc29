//! Migration of empty tables, which startup may drop and create again, because there is no data to lose.
//!
//! A model change that is refused for a resource with items recreates the table of a resource without
//! items, together with the empty tables that refer to it. Other data of the resource stays:
//! its entries in the change log, and the last allocated id, so that no id is allocated twice.
//! A table with rows may refer to one without, as long as no row does. Its foreign key is dropped and added
//! again; on SQLite, which can do neither, the foreign key follows a table that is renamed. A foreign key
//! that is not ours is never dropped: the migration is refused.

use crate::fault::OrBug;
use crate::model::diff::{MigrationEffect, ModelChange};
use crate::model::{Model, Resource, ResourceIndex};
use crate::store::driver::Driver;
use crate::store::error::{MigrationError, StatementError};
use crate::store::integer_ids;
use crate::store::sql::columns::quote_name;
use crate::store::sql::ddl;
use crate::store::sql::dialect::Dialect;
use crate::store::statement::{Bind, Columns};
use crate::value::IdKind;

/// The tables to rebuild.
#[derive(Debug, Default)]
pub struct EmptyTableRebuild {
    /// The tables to drop, in the old model.
    old: Vec<ResourceIndex>,
    /// The tables to create, in the new model; a resource that it does not have is only dropped.
    pub new: Vec<ResourceIndex>,
    /// Fields of tables with rows that refer to rebuilt tables, in the new model.
    relinked: Vec<(ResourceIndex, usize)>,
}

/// Finds the tables to rebuild, or refuses if a conflicting resource has items. Locks and changes nothing.
pub async fn plan_rebuild<D: Driver>(
    driver: &mut D,
    (old, new): (&Model, &Model),
    conflicts: &[ModelChange],
) -> Result<EmptyTableRebuild, MigrationError> {
    let mut rebuild = EmptyTableRebuild::default();
    let mut refused = Vec::new();
    for change in conflicts {
        let resource = old.resource(change.resource);
        let is_renamed = resource_by_name(new, &resource.name).is_none()
            && change.effect == MigrationEffect::Rename;
        if rebuild.old.contains(&resource.index) {
            continue;
        }
        // Startup does not rename the entries of a resource in the change log; `nouns migrate` does.
        match !is_renamed && is_table_empty(driver, resource).await? {
            true => rebuild.old.push(resource.index),
            false => refused.push(change.describe()),
        }
    }
    rebuild.add_empty_referrers(driver, old).await?;
    for resource in old.declared().filter(|one| !rebuild.old.contains(&one.index)) {
        let Some(after) = resource_by_name(new, &resource.name) else { continue };
        for field in &resource.fields {
            let target = field.rules.reference.filter(|to| rebuild.old.contains(&to.resource));
            let (Some(target), Some((at, kept))) = (target, after.field(&field.name)) else {
                continue;
            };
            match kept.rules.reference {
                Some(to) if to.id == target.id => rebuild.relinked.push((after.index, at)),
                _ => refused.push(format!(
                    "{}.{}: the id type of its target changed",
                    resource.name, field.name
                )),
            }
        }
    }
    if !refused.is_empty() {
        return Err(MigrationError::Refused(refused));
    }
    let kept =
        rebuild.old.iter().filter_map(|index| resource_by_name(new, &old.resource(*index).name));
    rebuild.new = kept.map(|resource| resource.index).collect();
    Ok(rebuild)
}

fn resource_by_name<'m>(model: &'m Model, name: &str) -> Option<&'m Resource> {
    model.declared().find(|resource| &*resource.name == name)
}

async fn is_table_empty<D: Driver>(
    driver: &mut D,
    resource: &Resource,
) -> Result<bool, StatementError> {
    let any = format!("SELECT 1 FROM {} LIMIT 1", quote_name(&resource.table));
    Ok(driver.query(&any, &[], |_| Ok(())).await?.is_empty())
}

/// The resources that a resource refers to.
fn reference_targets(resource: &Resource) -> impl Iterator<Item = ResourceIndex> {
    let fields = resource.fields.iter().filter_map(|field| Some(field.rules.reference?.resource));
    resource.parent.into_iter().chain(fields)
}

impl EmptyTableRebuild {
    /// A line for each table.
    pub fn describe(&self, old: &Model) -> Vec<String> {
        let name = |index: &ResourceIndex| &old.resource(*index).name;
        self.old
            .iter()
            .map(|index| format!("{}: its empty table is rebuilt", name(index)))
            .collect()
    }

    /// Whether the table of a resource of the old model is dropped.
    pub fn drops(&self, resource: &Resource) -> bool {
        self.old.contains(&resource.index)
    }

    /// Whether tables of the old model are dropped.
    pub fn has_dropped(&self) -> bool {
        !self.old.is_empty()
    }

    /// Adds the empty tables that refer to a recreated table: they are recreated too.
    async fn add_empty_referrers<D: Driver>(
        &mut self,
        driver: &mut D,
        old: &Model,
    ) -> Result<(), StatementError> {
        loop {
            let before = self.old.len();
            for resource in old.declared() {
                let is_new = !self.old.contains(&resource.index);
                let refers = reference_targets(resource).any(|target| self.old.contains(&target));
                if is_new && refers && is_table_empty(driver, resource).await? {
                    self.old.push(resource.index);
                }
            }
            if self.old.len() == before {
                return Ok(());
            }
        }
    }

    /// Drops the old tables and creates the new ones, inside the transaction of the migration.
    pub async fn run<D: Driver>(
        &self,
        driver: &mut D,
        (old, new): (&Model, &Model),
    ) -> Result<(), MigrationError> {
        let dialect = D::DIALECT;
        let tables: Vec<_> = self.old.iter().map(|index| old.resource(*index)).collect();
        let mut last_ids = Vec::new();
        for resource in &tables {
            lock_empty_table(driver, resource).await?;
            let after = resource_by_name(new, &resource.name)
                .filter(|after| (resource.id, after.id) == (IdKind::Integer, IdKind::Integer));
            let last = match after {
                Some(_) => integer_ids::read_last(driver, resource).await?,
                None => None,
            };
            last_ids.extend(after.zip(last));
        }
        drop_foreign_keys(driver, (old, &tables)).await?;
        match dialect.has_separate_foreign_keys {
            true => drop_tables(driver, &tables).await?,
            false => drop_renamed(driver, new, &tables).await?,
        }
        for index in &self.new {
            integer_ids::create_table(driver, new, new.resource(*index)).await?;
        }
        for (resource, last) in last_ids {
            integer_ids::raise_last(driver, resource, last).await?;
        }
        Ok(())
    }

    /// The statements that add the foreign keys of and to the new tables, where these are added separately.
    pub fn add_foreign_keys(&self, new: &Model, dialect: &Dialect) -> Vec<String> {
        let own = self.new.iter().flat_map(|index| {
            let keys = ddl::foreign_keys(new, new.resource(*index), None, dialect);
            keys.into_iter().map(|key| key.add().to_owned())
        });
        let others = self.relinked.iter().flat_map(|(index, at)| {
            let resource = new.resource(*index);
            let field = resource.fields.get(*at).or_bug("a relinked field is one of the resource");
            let keys = ddl::foreign_keys(new, resource, Some(field), dialect);
            keys.into_iter().map(|key| key.add_unvalidated())
        });
        own.chain(others).collect()
    }
}

/// Locks the table against writers, and checks again that it is empty.
async fn lock_empty_table<D: Driver>(
    driver: &mut D,
    resource: &Resource,
) -> Result<(), MigrationError> {
    let Some(lock) = D::DIALECT.lock_table else { return Ok(()) };
    driver.execute(&lock(&quote_name(&resource.table)), &[]).await?;
    match is_table_empty(driver, resource).await? {
        true => Ok(()),
        false => {
            let line = format!("{}: it was empty, and now has items", resource.name);
            Err(MigrationError::Refused(vec![line]))
        }
    }
}

/// Drops the foreign keys that refer to the tables, where that must precede dropping a table. Refuses if a
/// table that stays has such a foreign key that is not ours.
async fn drop_foreign_keys<D: Driver>(
    driver: &mut D,
    (old, tables): (&Model, &[&Resource]),
) -> Result<(), MigrationError> {
    let Some(list) = D::DIALECT.foreign_keys_to else { return Ok(()) };
    let read = |row: &dyn Columns| {
        Ok((row.required_text(0)?, row.optional_text(1)?, row.required_text(2)?))
    };
    let mut refused = Vec::new();
    for resource in tables {
        let keys = driver.query(list, &[Bind::Text(&resource.table)], read).await?;
        for (quoted_table, table, key) in keys {
            let goes = tables.iter().any(|one| table.as_deref() == Some(&*one.table));
            let is_ours = |table: &str| ddl::is_declared_foreign_key(old, table, &key);
            if !goes && !table.as_deref().is_some_and(is_ours) {
                refused.push(format!(
                    "{}: its empty table cannot be made anew, because the foreign key {key} of the table \
                     {quoted_table} refers to it, and is not one of ours",
                    resource.name
                ));
                continue;
            }
            driver.execute(&ddl::drop_constraint(&quoted_table, &key), &[]).await?;
        }
    }
    if refused.is_empty() { Ok(()) } else { Err(MigrationError::Refused(refused)) }
}

async fn drop_tables<D: Driver>(
    driver: &mut D,
    tables: &[&Resource],
) -> Result<(), StatementError> {
    for resource in tables {
        driver.execute(&ddl::drop_table(&resource.table), &[]).await?;
    }
    Ok(())
}

/// Drops the tables where foreign keys cannot be changed. A table that gets another name is renamed before
/// it is dropped: the foreign keys that refer to it then name the table that replaces it. All of
/// these get a temporary name first, since one may take the name of another.
async fn drop_renamed<D: Driver>(
    driver: &mut D,
    new: &Model,
    tables: &[&Resource],
) -> Result<(), StatementError> {
    let after =
        |resource: &Resource| resource_by_name(new, &resource.name).map(|after| &after.table);
    let (renamed, kept): (Vec<&Resource>, Vec<&Resource>) = tables
        .iter()
        .partition(|resource| after(resource).is_some_and(|table| *table != resource.table));
    drop_tables(driver, &kept).await?;
    let between = |resource: &Resource| format!("nouns.renamed.{}", resource.table);
    for resource in &renamed {
        driver.execute(&ddl::rename_table(&resource.table, &between(resource)), &[]).await?;
    }
    for resource in &renamed {
        let table = after(resource).or_bug("a renamed table has a new name");
        driver.execute(&ddl::rename_table(&between(resource), table), &[]).await?;
        driver.execute(&ddl::drop_table(table), &[]).await?;
    }
    Ok(())
}
