//! Tables without rows, which a start may drop and make anew: where nothing is stored, nothing can be lost.
//!
//! A change of the model that would be refused for a resource with items makes the table of one without
//! items anew, and with it the empty tables that refer to it. What is left of the resource elsewhere stays:
//! its entries in the change log, and the last number that was given as an id, so that no id is given twice.
//! The one surprising thing: a table with rows may refer to one without, as long as no row does. Its
//! reference is taken off and put on again.

use super::driver::{Bind, Columns, Driver, Failure};
use super::schema::Mismatch;
use super::sql::{self, Dialect, quoted};
use crate::model::{Model, Resource, ResourceIndex};
use crate::value::IdKind;

/// Why a model cannot be applied while a resource has items.
#[derive(Debug)]
pub(super) struct Conflict {
    /// Its name in the old model.
    pub(super) resource: Box<str>,
    pub(super) reason: String,
}

/// The tables that are made anew.
#[derive(Debug, Default)]
pub(super) struct Rebuild {
    /// In the old model.
    old: Vec<ResourceIndex>,
    /// In the new model; a resource that it does not have is only dropped.
    pub(super) new: Vec<ResourceIndex>,
    /// Fields of tables with rows that refer to tables made anew, in the new model.
    relinked: Vec<(ResourceIndex, usize)>,
}

/// Finds out whether only resources without items are in the way. Nothing is locked or changed.
pub(super) async fn find<D: Driver>(
    driver: &mut D,
    (old, new): (&Model, &Model),
    conflicts: &[Conflict],
) -> Result<Rebuild, Mismatch> {
    let mut rebuild = Rebuild::default();
    let mut refused = Vec::new();
    for Conflict { resource, reason } in conflicts {
        match by_name(old, resource) {
            Some(resource) if rebuild.old.contains(&resource.index) => {}
            Some(resource) if is_empty(driver, resource).await? => rebuild.old.push(resource.index),
            _ => refused.push(reason.clone()),
        }
    }
    rebuild.take_in_referrers(driver, old).await?;
    for resource in old.declared().filter(|one| !rebuild.old.contains(&one.index)) {
        let Some(after) = by_name(new, &resource.name) else { continue };
        for field in &resource.fields {
            let target = field.rules.to.filter(|to| rebuild.old.contains(&to.resource));
            let (Some(target), Some((at, kept))) = (target, after.field(&field.name)) else {
                continue;
            };
            match kept.rules.to {
                Some(to) if to.id == target.id => rebuild.relinked.push((after.index, at)),
                _ => refused.push(format!(
                    "{}.{}: the kind of id changed that it refers to",
                    resource.name, field.name
                )),
            }
        }
    }
    if !refused.is_empty() {
        return Err(Mismatch::Refused(refused));
    }
    let kept = rebuild.old.iter().filter_map(|index| by_name(new, &old.resource(*index).name));
    rebuild.new = kept.map(|resource| resource.index).collect();
    Ok(rebuild)
}

fn by_name<'m>(model: &'m Model, name: &str) -> Option<&'m Resource> {
    model.declared().find(|resource| &*resource.name == name)
}

async fn is_empty<D: Driver>(driver: &mut D, resource: &Resource) -> Result<bool, Failure> {
    let any = format!("SELECT 1 FROM {} LIMIT 1", quoted(&resource.table));
    Ok(driver.rows(&any, &[], |_| Ok(())).await?.is_empty())
}

/// The resources that a resource refers to.
fn targets(resource: &Resource) -> impl Iterator<Item = ResourceIndex> {
    let fields = resource.fields.iter().filter_map(|field| Some(field.rules.to?.resource));
    resource.parent.into_iter().chain(fields)
}

impl Rebuild {
    /// A line for each table.
    pub(super) fn lines(&self, old: &Model) -> Vec<String> {
        let name = |index: &ResourceIndex| &old.resource(*index).name;
        self.old
            .iter()
            .map(|index| format!("{}: its empty table is made anew", name(index)))
            .collect()
    }

    /// Empty tables that refer to one that is made anew are made anew too.
    async fn take_in_referrers<D: Driver>(
        &mut self,
        driver: &mut D,
        old: &Model,
    ) -> Result<(), Failure> {
        loop {
            let before = self.old.len();
            for resource in old.declared() {
                let is_new = !self.old.contains(&resource.index);
                let refers = targets(resource).any(|target| self.old.contains(&target));
                if is_new && refers && is_empty(driver, resource).await? {
                    self.old.push(resource.index);
                }
            }
            if self.old.len() == before {
                return Ok(());
            }
        }
    }

    /// Drops the old tables and makes the new ones, all inside of the start's transaction.
    pub(super) async fn run<D: Driver>(
        &self,
        driver: &mut D,
        (old, new): (&Model, &Model),
        dialect: &Dialect,
    ) -> Result<(), Mismatch> {
        let tables: Vec<_> = self.old.iter().map(|index| old.resource(*index)).collect();
        let mut last_ids = Vec::new();
        for resource in &tables {
            lock(driver, resource, dialect).await?;
            let after = by_name(new, &resource.name)
                .filter(|after| (resource.id, after.id) == (IdKind::Integer, IdKind::Integer));
            let last = match after {
                Some(_) => last_id(driver, resource, dialect).await?,
                None => None,
            };
            last_ids.extend(after.zip(last));
        }
        drop_tables(driver, &tables, dialect).await?;
        for index in &self.new {
            driver.execute(&sql::create_table(new, new.resource(*index), dialect), &[]).await?;
        }
        for (resource, last) in last_ids {
            let binds = [Bind::Text(&resource.table), Bind::Integer(last)];
            driver.rows(dialect.set_last_id, &binds, |_| Ok(())).await?;
        }
        Ok(())
    }

    /// The references of and to the tables that were made, where the engine makes them apart.
    pub(super) fn references(&self, new: &Model, dialect: &Dialect) -> Vec<String> {
        let own = self
            .new
            .iter()
            .flat_map(|index| sql::add_references(new, new.resource(*index), None, dialect));
        let others = self.relinked.iter().flat_map(|(index, at)| {
            let resource = new.resource(*index);
            let field = resource.fields.get(*at);
            field.map_or(Vec::new(), |field| {
                sql::add_references(new, resource, Some(field), dialect)
            })
        });
        own.chain(others).collect()
    }
}

/// Nobody writes to the table from here on, and nobody has.
async fn lock<D: Driver>(
    driver: &mut D,
    resource: &Resource,
    dialect: &Dialect,
) -> Result<(), Mismatch> {
    let Some(lock) = dialect.lock_table else { return Ok(()) };
    driver.execute(&lock(&quoted(&resource.table)), &[]).await?;
    match is_empty(driver, resource).await? {
        true => Ok(()),
        false => {
            let line = format!("{}: it had no items, and now it has", resource.name);
            Err(Mismatch::Refused(vec![line]))
        }
    }
}

async fn drop_tables<D: Driver>(
    driver: &mut D,
    tables: &[&Resource],
    dialect: &Dialect,
) -> Result<(), Failure> {
    let read = |row: &dyn Columns| Ok(row.text(0)?.map(str::to_owned));
    for resource in tables {
        let Some(referring) = dialect.drop_references else { break };
        let statements = driver.rows(referring, &[Bind::Text(&resource.table)], read).await?;
        for statement in statements.into_iter().flatten() {
            driver.execute(&statement, &[]).await?;
        }
    }
    for resource in tables {
        driver.execute(&sql::drop_table(&resource.table), &[]).await?;
    }
    Ok(())
}

/// The last number that was given as an id.
async fn last_id<D: Driver>(
    driver: &mut D,
    resource: &Resource,
    dialect: &Dialect,
) -> Result<Option<i64>, Failure> {
    let binds = [Bind::Text(&resource.table)];
    Ok(driver.rows(dialect.last_id, &binds, |row| row.integer(0)).await?.pop().flatten())
}
