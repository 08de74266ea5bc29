//! Applies a model to the tables, inside the transaction of the caller.
//!
//! A column whose values change is added under a temporary name, filled row by row, and takes the place of the
//! former one; other columns are renamed or dropped. Foreign keys and indexes of changed tables are dropped first and
//! made anew at the end. On SQLite the caller has switched off the enforcement of foreign keys, which cannot be
//! changed inside a transaction.

use crate::fault::OrBug as _;
use crate::model::conversion::RowConversion;
use crate::model::diff::{Difference, MigrationEffect};
use crate::model::{Field, Model, Resource, ResourceIndex};
use crate::store::driver::{Driver, Then};
use crate::store::error::{InternalError, MigrationError, StatementError};
use crate::store::migration::log_names;
use crate::store::migration::pair::{ChangedResource, ModelPair};
use crate::store::migration::scan::{self, BrokenItems, for_each_batch};
use crate::store::migration::steps::{duplicates, unique_columns};
use crate::store::rows::{bind_derived, bind_field};
use crate::store::sql::derived::{DerivedColumn, derived_columns, derived_from};
use crate::store::sql::links::{linked_fields, select_dangling_links};
use crate::store::sql::{ddl, migration};
use crate::store::statement::{Bind, Statement};
use crate::store::{integer_ids, links, schema, system_values, uuid_v7};
use crate::value::{IdKind, Item, Value};

/// The key of a random number of the last migration, which may have changed items that keep their version: it is part of
/// entity tags.
pub const MIGRATION_STAMP: &str = "migration_stamp";

/// The progress of one resource.
#[derive(Debug, Clone, Copy)]
pub struct MigrationProgress<'a> {
    pub resource: &'a str,
    pub done: i64,
    pub items: i64,
}

/// Reports progress.
pub type ReportProgress<'a> = &'a dyn Fn(MigrationProgress<'_>);

/// Makes all changes, and records the new model. The caller has checked the plan in the same transaction.
pub async fn apply<D: Driver>(
    driver: &mut D,
    pair: &ModelPair<'_>,
    report: ReportProgress<'_>,
) -> Result<(), MigrationError> {
    let changed = pair.changed_resources(driver).await?;
    crate::fault::point("migrate");
    links::drop_affected(driver, pair.old, |_| true).await?;
    let relinked = relinked_resources(pair, &changed);
    drop_foreign_keys::<D>(driver, &relinked).await?;
    for index in changed
        .iter()
        .filter(|one| one.changes_tables())
        .flat_map(|one| ddl::indexes(one.before, D::DIALECT))
    {
        driver.execute(&migration::drop_index_if_exists(&index.name), &[]).await?;
    }
    crate::fault::point("migrate");
    // Before any column is added: it may refer to a table by its new name.
    change_tables(driver, pair.new, &changed).await?;
    crate::fault::point("migrate");
    for one in changed.iter().filter(|one| one.changes_tables() && !one.is_rebuilt()) {
        if let Some(after) = one.after {
            change_columns(driver, pair, (one, after), report).await?;
        }
    }
    let added = add_new_parts(driver, pair, &changed).await?;
    check_references(driver, pair.new, &changed).await?;
    let keys = relinked.iter().filter_map(|before| pair.successor(before));
    let keys = keys.flat_map(|after| ddl::foreign_keys(pair.new, after, None, D::DIALECT));
    for key in keys.chain(added) {
        driver.execute(key.add(), &[]).await?;
    }
    links::create_missing(driver, pair.new).await?;
    check_links(driver, pair.new, &changed).await?;
    check_uniques(driver, pair.new, &changed).await?;
    crate::fault::point("migrate");
    let all: Vec<ResourceIndex> = pair.new.declared().map(|resource| resource.index).collect();
    schema::reconcile_indexes(driver, (pair.new, &all), &[]).await?;
    log_names::rename(driver, &changed).await?;
    system_values::write(driver, "model", &pair.new.shape).await?;
    for stamp in uuid_v7::random_uuids(1)? {
        system_values::write(driver, MIGRATION_STAMP, &stamp.to_string()).await?;
    }
    crate::fault::point("migrate");
    Ok(())
}

/// The resources whose foreign keys are dropped and made anew: those that change, and those that refer to a table that
/// is dropped.
fn relinked_resources<'m>(
    pair: &ModelPair<'m>,
    changed: &[ChangedResource<'m>],
) -> Vec<&'m Resource> {
    let is_dropped = |index: ResourceIndex| {
        changed
            .iter()
            .any(|one| one.before.index == index && (one.after.is_none() || one.is_rebuilt()))
    };
    let refers = |resource: &Resource| {
        let targets =
            resource.fields.iter().filter_map(|field| Some(field.rules.reference?.resource));
        resource.parent.into_iter().chain(targets).any(is_dropped)
    };
    let is_changed = |resource: &Resource| {
        changed.iter().any(|one| one.before.index == resource.index && one.changes_tables())
    };
    pair.old.declared().filter(|resource| is_changed(resource) || refers(resource)).collect()
}

async fn drop_foreign_keys<D: Driver>(
    driver: &mut D,
    resources: &[&Resource],
) -> Result<(), StatementError> {
    if !D::DIALECT.has_separate_foreign_keys {
        return Ok(());
    }
    for resource in resources {
        let fields = resource.fields.iter().filter(|field| field.rules.reference.is_some());
        let columns = resource.parent_key.as_deref().into_iter();
        for column in columns.chain(fields.map(|field| &*field.name)) {
            for name in ddl::foreign_key_names(resource, column) {
                let drop = migration::drop_constraint_if_exists(&resource.table, &name);
                driver.execute(&drop, &[]).await?;
            }
        }
    }
    Ok(())
}

/// Changes the columns of a table, which has its new name.
async fn change_columns<D: Driver>(
    driver: &mut D,
    pair: &ModelPair<'_>,
    (changed, after): (&ChangedResource<'_>, &Resource),
    report: ReportProgress<'_>,
) -> Result<(), MigrationError> {
    let (before, table) = (changed.before, &*after.table);
    let conversion = changed.conversion().or_bug("the resource is in the new model");
    let written: Vec<(usize, &Field)> =
        conversion.written().filter_map(|at| Some((at, after.fields.get(at)?))).collect();
    for (_, field) in &written {
        let add = migration::add_temporary_column(pair.new, table, field, D::DIALECT);
        driver.execute(&add, &[]).await?;
    }
    let is_written = |field: &Field| written.iter().any(|(_, one)| one.name == field.name);
    let derived = change_derived_columns(driver, (changed, after), &is_written).await?;
    for one in &derived {
        driver.execute(&ddl::add_derived_column(table, *one, D::DIALECT), &[]).await?;
    }
    crate::fault::point("migrate");
    if changed.items > 0 && (!written.is_empty() || !derived.is_empty()) {
        let rewrite = TableRewrite {
            model: pair.old,
            table,
            changed,
            after,
            conversion: &conversion,
            written: &written,
            derived: &derived,
        };
        rewrite.run(driver, report).await?;
    }
    for field in &before.fields {
        let successor = after.fields.iter().find(|one| {
            one.find_former(&before.fields).is_some_and(|(_, former)| former.name == field.name)
        });
        match successor {
            Some(one) if !is_written(one) => {}
            _ => drop(driver.execute(&ddl::drop_column(table, &field.name), &[]).await?),
        }
    }
    for field in after.fields.iter().filter(|field| !is_written(field)) {
        let former = field.find_former(&before.fields).map(|(_, former)| &*former.name);
        rename_column(driver, table, (former, Some(&field.name))).await?;
    }
    rename_column(driver, table, (before.parent_key.as_deref(), after.parent_key.as_deref()))
        .await?;
    for (_, field) in &written {
        let temporary = migration::temporary_column(field);
        rename_column(driver, table, (Some(&temporary), Some(&field.name))).await?;
    }
    Ok(())
}

/// Renames the columns of derived texts that stay as they are, and drops the others; returns those to add, except those of
/// added fields.
async fn change_derived_columns<'r, D: Driver>(
    driver: &mut D,
    (changed, after): (&ChangedResource<'_>, &'r Resource),
    is_written: &dyn Fn(&Field) -> bool,
) -> Result<Vec<DerivedColumn<'r>>, StatementError> {
    let (table, mut renamed, mut added) = (&*after.table, Vec::new(), Vec::new());
    for derived in derived_columns(after) {
        let former = derived.field.find_former(&changed.before.fields);
        let kept = former.filter(|_| !is_written(derived.field) && !changed.derives(derived.at));
        let kept = kept.and_then(|(at, field)| {
            derived_from(at, field).find(|one| one.derivation == derived.derivation)
        });
        match kept {
            Some(kept) => renamed.push((kept.name(), derived.name())),
            None if former.is_some() || is_written(derived.field) => added.push(derived),
            None => {}
        }
    }
    for name in derived_columns(changed.before).map(|derived| derived.name()) {
        if !renamed.iter().any(|(from, _)| *from == name) {
            driver.execute(&ddl::drop_column(table, &name), &[]).await?;
        }
    }
    for (from, to) in &renamed {
        rename_column(driver, table, (Some(from), Some(to))).await?;
    }
    Ok(added)
}

async fn rename_column<D: Driver>(
    driver: &mut D,
    table: &str,
    names: (Option<&str>, Option<&str>),
) -> Result<(), StatementError> {
    match names {
        (Some(from), Some(to)) if from != to => {
            driver.execute(&migration::rename_column(table, from, to), &[]).await.map(drop)
        }
        _ => Ok(()),
    }
}

/// The rewrite of all rows of a table.
struct TableRewrite<'a> {
    model: &'a Model,
    /// Its new name.
    table: &'a str,
    changed: &'a ChangedResource<'a>,
    after: &'a Resource,
    conversion: &'a RowConversion<'a>,
    written: &'a [(usize, &'a Field)],
    derived: &'a [DerivedColumn<'a>],
}

impl TableRewrite<'_> {
    async fn run<D: Driver>(
        &self,
        driver: &mut D,
        report: ReportProgress<'_>,
    ) -> Result<(), StatementError> {
        let ChangedResource { before, items, .. } = *self.changed;
        let columns = self.written.iter().map(|(_, field)| migration::temporary_column(field));
        let columns = columns.chain(self.derived.iter().map(DerivedColumn::name));
        let update =
            migration::update_columns(self.table, &columns.collect::<Vec<_>>(), D::DIALECT);
        let mut done = 0;
        for_each_batch(driver, (self.model, before, self.table), async |driver: &mut D, batch| {
            let mut converted = Vec::with_capacity(batch.len());
            for item in &batch {
                converted.push((item, self.convert(item)?));
            }
            let mut statements = Vec::with_capacity(batch.len());
            for (item, values) in &converted {
                statements.push(Statement::new(&*update, self.binds(item, values)));
            }
            driver.execute_all(&statements, Then::Continue).await?;
            crate::fault::point("migrate");
            done += i64::try_from(batch.len()).unwrap_or(0);
            report(MigrationProgress { resource: &before.name, done, items });
            Ok(())
        })
        .await
    }

    /// The plan was checked in this transaction, so every item can be converted.
    fn convert(&self, item: &Item) -> Result<Vec<Value>, StatementError> {
        if self.written.is_empty() {
            return Ok(self.former_values(item));
        }
        self.conversion.convert(&item.values).map_err(|faults| {
            let fault = faults.first().map_or("", |fault| &*fault.detail);
            let name = &self.changed.before.name;
            StatementError::Internal(InternalError(format!("{name} {}: {fault}", item.id)))
        })
    }

    /// The values as they are stored.
    fn former_values(&self, item: &Item) -> Vec<Value> {
        let stored = |field: &Field| {
            let (at, _) = field.find_former(&self.changed.before.fields)?;
            item.values.get(at).cloned()
        };
        self.after.fields.iter().map(|field| stored(field).unwrap_or(Value::Null)).collect()
    }

    fn binds<'v>(&self, item: &Item, values: &'v [Value]) -> Vec<Bind<'v>> {
        let written = self.written.iter().map(|(at, field)| {
            bind_field(field, values.get(*at).or_bug("an item has a value for each field"))
        });
        let derived = self.derived.iter().map(|derived| bind_derived(*derived, values));
        [Bind::Id(item.id)].into_iter().chain(written).chain(derived).collect()
    }
}

/// Drops, renames and rebuilds tables. A table may take the name of another, so all of them leave their names first.
async fn change_tables<D: Driver>(
    driver: &mut D,
    new: &Model,
    changed: &[ChangedResource<'_>],
) -> Result<(), StatementError> {
    for one in changed.iter().filter(|one| one.after.is_none()) {
        driver.execute(&ddl::drop_table(&one.before.table), &[]).await?;
    }
    let renamed = || {
        let pairs = changed.iter().filter_map(|one| Some((one.before, one.after?)));
        pairs.filter(|(before, after)| before.table != after.table)
    };
    for (before, _) in renamed() {
        let temporary = migration::temporary_table(&before.table);
        driver.execute(&ddl::rename_table(&before.table, &temporary), &[]).await?;
    }
    for (before, after) in renamed() {
        let temporary = migration::temporary_table(&before.table);
        driver.execute(&ddl::rename_table(&temporary, &after.table), &[]).await?;
    }
    for one in changed.iter().filter(|one| one.is_rebuilt()) {
        let Some(after) = one.after else { continue };
        let keeps_numbers = (one.before.id, after.id) == (IdKind::Integer, IdKind::Integer);
        let last = match keeps_numbers {
            true => integer_ids::read_last(driver, after).await?,
            false => None,
        };
        driver.execute(&ddl::drop_table(&after.table), &[]).await?;
        integer_ids::create_table(driver, new, after).await?;
        if let Some(last) = last {
            integer_ids::raise_last(driver, after, last).await?;
        }
    }
    Ok(())
}

/// Adds new resources and fields; returns their foreign keys, where these are added separately.
async fn add_new_parts<D: Driver>(
    driver: &mut D,
    pair: &ModelPair<'_>,
    changed: &[ChangedResource<'_>],
) -> Result<Vec<ddl::ForeignKey>, StatementError> {
    let (new, dialect) = (pair.new, D::DIALECT);
    let mut keys = Vec::new();
    for difference in &pair.differences {
        match difference {
            Difference::AddResource(index) => {
                let resource = new.resource(*index);
                integer_ids::create_table(driver, new, resource).await?;
                keys.extend(ddl::foreign_keys(new, resource, None, dialect));
            }
            Difference::AddField(index, at) => {
                let resource = new.resource(*index);
                let own =
                    changed.iter().find(|one| one.after.is_some_and(|one| one.index == *index));
                if own.is_some_and(ChangedResource::is_rebuilt) {
                    continue;
                }
                let field =
                    resource.fields.get(*at).or_bug("an added field is one of the resource");
                for column in ddl::add_columns(new, resource, field, dialect) {
                    driver.execute(&column, &[]).await?;
                }
                // Those of a changed resource are all made anew.
                if !own.is_some_and(ChangedResource::changes_tables) {
                    keys.extend(ddl::foreign_keys(new, resource, Some(field), dialect));
                }
            }
            Difference::Change(_) => {}
        }
    }
    Ok(keys)
}

/// Refuses references that lead nowhere.
async fn check_references<D: Driver>(
    driver: &mut D,
    new: &Model,
    changed: &[ChangedResource<'_>],
) -> Result<(), MigrationError> {
    let mut refused = Vec::new();
    for (one, after) in changed.iter().filter_map(|one| Some((one, one.after?))) {
        let written: Vec<usize> =
            one.conversion().map(|conversion| conversion.written().collect()).unwrap_or_default();
        for (_, field) in after.fields.iter().enumerate().filter(|(at, _)| written.contains(at)) {
            let Some(target) = field.rules.reference else { continue };
            let target = &new.resource(target.resource).table;
            let sql = |limit| migration::select_dangling(&after.table, &field.name, target, limit);
            let fault = "the item referred to does not exist";
            let broken = scan::find_by_statement(driver, (new, after), &sql, fault).await?;
            add_refusal(&mut refused, &format!("{}.{}", after.name, field.name), &broken);
        }
    }
    if refused.is_empty() { Ok(()) } else { Err(MigrationError::Blocked(refused)) }
}

/// Refuses lists of references that lead nowhere.
async fn check_links<D: Driver>(
    driver: &mut D,
    new: &Model,
    changed: &[ChangedResource<'_>],
) -> Result<(), MigrationError> {
    let mut refused = Vec::new();
    for after in changed.iter().filter_map(|one| one.after) {
        for (_, field, target) in linked_fields(after) {
            let target = new.resource(target.resource);
            let sql = |limit| select_dangling_links((after, field), target, limit);
            let fault = "an item referred to does not exist";
            let broken = scan::find_by_statement(driver, (new, after), &sql, fault).await?;
            add_refusal(&mut refused, &format!("{}.{}", after.name, field.name), &broken);
        }
    }
    if refused.is_empty() { Ok(()) } else { Err(MigrationError::Blocked(refused)) }
}

/// Refuses values that a new unique rule does not allow.
async fn check_uniques<D: Driver>(
    driver: &mut D,
    new: &Model,
    changed: &[ChangedResource<'_>],
) -> Result<(), MigrationError> {
    let mut refused = Vec::new();
    for (one, after) in changed.iter().filter_map(|one| Some((one, one.after?))) {
        for change in &one.changes {
            let MigrationEffect::CheckUnique(index) = change.effect else { continue };
            let unique = after.unique.get(index).or_bug("a checked rule is one of the resource");
            let fields = unique.fields.iter().filter_map(|at| after.fields.get(*at));
            let fields = fields.map(|field| field.name.to_string()).collect();
            let columns = unique_columns(unique, after, fields);
            let broken = duplicates(driver, (new, after), &columns).await?;
            add_refusal(&mut refused, &change.path, &broken);
        }
    }
    if refused.is_empty() { Ok(()) } else { Err(MigrationError::Blocked(refused)) }
}

fn add_refusal(refused: &mut Vec<String>, path: &str, broken: &BrokenItems) {
    if broken.count > 0 {
        refused.push(format!("{path}: {}", broken.describe()));
    }
}
