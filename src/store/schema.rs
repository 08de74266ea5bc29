//! Schema migration: brings the tables up to the model, in one transaction, written once for both backends.
//!
//! Additive changes are applied. A change that could lose or break data is refused with a list of all
//! differences, unless the tables are empty (`empty_tables`). A change that would drop a rule a running
//! server relies on is refused while that server runs.
//! The database stores the text of its model, so two models are compared, not two catalogues.
//! Only the startup of a server migrates; commands that run beside it change no table.

use crate::fault::OrBug;
use crate::model::diff::{Difference, MigrationEffect, ModelChange, compare};
use crate::model::loosened::loosened_rules;
use crate::model::{self, Model, ResourceIndex};
use crate::store::driver::Driver;
use crate::store::empty_tables;
use crate::store::error::{InternalError, MigrationError, StatementError};
use crate::store::present_parts::read_indexes;
use crate::store::sql::ddl::link_table;
use crate::store::sql::ddl::{self, ForeignKey, IndexDefinition};
use crate::store::sql::derived::derived_from;
use crate::store::sql::idempotency::IDEMPOTENCY_CLOCK;
use crate::store::sql::statements;
use crate::store::{change_log, idempotency, integer_ids, links, system_values, users, webhooks};

const ADDED_FIELD: &str = "an added field is one of the resource";

/// Creates the tables of an empty database.
pub async fn create<D: Driver>(driver: &mut D, model: &Model) -> Result<(), MigrationError> {
    crate::fault::point("create");
    create_tables(driver, model).await?;
    create_indexes(driver, model).await?;
    // Until the first sweep, the clock marks hold the creation time of the database.
    let now = driver.now().to_string();
    for mark in [statements::CHANGES_CLOCK, IDEMPOTENCY_CLOCK] {
        system_values::write(driver, mark, &now).await?;
    }
    system_values::write(driver, statements::CHANGES_SWEPT, "0").await?;
    system_values::write(driver, "model", &model.shape).await?;
    Ok(())
}

/// Creates all tables, those of the model and of the change log without their indexes.
pub async fn create_tables<D: Driver>(driver: &mut D, model: &Model) -> Result<(), StatementError> {
    let dialect = D::DIALECT;
    for table in dialect.system_tables {
        driver.execute(table, &[]).await?;
    }
    for resource in model.declared() {
        driver.execute(&ddl::create_table(model, resource, dialect), &[]).await?;
    }
    users::create(driver, model).await?;
    webhooks::create(driver, model).await?;
    idempotency::create(driver).await
}

/// Creates the indexes of the change log, and the indexes and foreign keys of the model's tables.
pub async fn create_indexes<D: Driver>(
    driver: &mut D,
    model: &Model,
) -> Result<(), StatementError> {
    let dialect = D::DIALECT;
    for index in dialect.log_indexes {
        driver.execute(index.create, &[]).await?;
    }
    for resource in model.declared() {
        for index in ddl::indexes(resource, dialect) {
            driver.execute(&index.create, &[]).await?;
        }
    }
    for resource in model.declared() {
        for key in ddl::foreign_keys(model, resource, None, dialect) {
            driver.execute(key.add(), &[]).await?;
        }
    }
    links::create_missing(driver, model).await
}

/// The key of the model of a start that has changed the tables but not completed its deferred work. That model
/// is not in force: a server with the previous model may start.
pub const UNFINISHED: &str = "model_unfinished";

/// Work that runs after the transaction, concurrently with users of the tables, where the engine supports
/// that. Until it is completed, the model is not in force.
#[derive(Debug, Default)]
pub struct Deferred {
    /// Indexes to be built.
    pub indexes: Vec<IndexDefinition>,
    /// Foreign keys to be validated.
    pub foreign_keys: Vec<ForeignKey>,
}

impl Deferred {
    pub fn is_empty(&self) -> bool {
        self.indexes.is_empty() && self.foreign_keys.is_empty()
    }
}

/// Migrates the tables from the stored model to this one. `others`: the models of servers
/// that run concurrently.
pub async fn migrate<D: Driver>(
    driver: &mut D,
    model: &Model,
    others: &[Model],
) -> Result<Deferred, MigrationError> {
    let dialect = D::DIALECT;
    users::create(driver, model).await?;
    users::add_fields(driver, model).await?;
    webhooks::create(driver, model).await?;
    idempotency::create(driver).await?;
    let stored = system_values::read(driver, "model").await?;
    let stored = stored.ok_or_else(|| {
        StatementError::Internal(InternalError("the database does not record its model".into()))
    })?;
    let unfinished = match dialect.can_build_concurrently {
        true => system_values::read(driver, UNFINISHED).await?,
        false => None,
    };
    let is_changed = stored != model.shape;
    let mut changed = ChangedTables::default();
    if is_changed {
        // The tables are those of the last start that changed them, whether or not it completed.
        let tables = unfinished.as_ref().unwrap_or(&stored);
        if *tables == model.shape {
            refuse_loosening(others, model, Vec::new())?;
        } else {
            let old = read_stored(tables)?;
            let done = migrate_tables(driver, (&old, model), others).await;
            changed = match (done, &unfinished) {
                (Err(MigrationError::Refused(mut lines)), Some(tables)) => {
                    lines.push(undo_unfinished(&read_stored(&stored)?, &read_stored(tables)?));
                    return Err(MigrationError::Refused(lines));
                }
                (done, _) => done?,
            };
        }
    }
    links::create_missing(driver, model).await?;
    // An operator may have dropped an index by hand.
    let mut deferred = Deferred {
        indexes: reconcile_indexes(driver, (model, &changed.made), others).await?,
        foreign_keys: find_unvalidated(driver, model).await?,
    };
    // Databases of earlier versions lack some of these. Checking first avoids a lock.
    let present = driver.query(dialect.log_index_names, &[], |row| row.required_text(0)).await?;
    for index in dialect.log_indexes.iter().filter(|index| !present.iter().any(|n| n == index.name))
    {
        let (name, create) = (index.name.to_owned(), index.create.to_owned());
        create_index(driver, IndexDefinition { name, create }, &mut deferred.indexes).await?;
    }
    change_log::record_swept_if_absent(driver).await?;
    // If tables were recreated, those of the previous model no longer exist.
    if is_changed && (deferred.is_empty() || changed.has_rebuilt) {
        system_values::write(driver, "model", &model.shape).await?;
        if unfinished.is_some() {
            system_values::remove(driver, UNFINISHED).await?;
        }
    } else if is_changed {
        system_values::write(driver, UNFINISHED, &model.shape).await?;
    }
    Ok(deferred)
}

/// Records that the deferred work is completed: the model is in force from now on, unless it drops rules of
/// `others`: a server with the previous model may have started since `migrate` compared.
pub async fn complete<D: Driver>(
    driver: &mut D,
    model: &Model,
    others: &[Model],
) -> Result<(), MigrationError> {
    if system_values::read(driver, UNFINISHED).await?.as_ref() == Some(&model.shape) {
        let relied_on = relied_on_rules(others, model, Vec::new());
        if !relied_on.is_empty() {
            return Err(MigrationError::InUseSinceBuild(relied_on));
        }
        system_values::write(driver, "model", &model.shape).await?;
        system_values::remove(driver, UNFINISHED).await?;
        return Ok(());
    }
    match system_values::read(driver, "model").await?.as_ref() == Some(&model.shape) {
        true => Ok(()),
        false => {
            let line = "another model was applied while the indexes of this one were built";
            Err(MigrationError::Refused(vec![line.to_owned()]))
        }
    }
}

pub fn read_stored(shape: &str) -> Result<Model, StatementError> {
    model::read_shape(shape).map_err(|errors| {
        StatementError::Internal(InternalError(format!(
            "the stored model cannot be read: {errors}"
        )))
    })
}

/// The statements by which an operator undoes what an uncompleted start has added.
fn undo_unfinished(before: &Model, unfinished: &Model) -> String {
    let differences = compare(before, unfinished);
    let statements = differences.iter().rev().filter_map(|difference| match difference {
        Difference::AddResource(index) => Some(ddl::drop_table(&unfinished.resource(*index).table)),
        Difference::AddField(index, at) => {
            let resource = unfinished.resource(*index);
            let field = resource.fields.get(*at).or_bug(ADDED_FIELD);
            let columns = derived_from(*at, field).map(|derived| derived.name());
            let columns = [field.name.to_string()].into_iter().chain(columns);
            let columns = columns.map(|column| ddl::drop_column(&resource.table, &column));
            let column = columns.collect::<Vec<_>>().join("; ");
            Some(match field.many_references() {
                None => column,
                Some(_) => format!("{}; {column}", ddl::drop_table(&link_table(resource, field))),
            })
        }
        Difference::Change(_) => None,
    });
    let forget = format!("DELETE FROM nouns_system WHERE name = '{UNFINISHED}'");
    let statements = statements.chain([forget]).collect::<Vec<_>>().join("; ");
    format!(
        "a start with a model that has more than the one in use was not finished: finish it with that \
         model, or take back what it has added, which no server has used, by: {statements}"
    )
}

/// The foreign keys of the model that are not validated yet (`NOT VALID`).
async fn find_unvalidated<D: Driver>(
    driver: &mut D,
    model: &Model,
) -> Result<Vec<ForeignKey>, StatementError> {
    let Some(list) = D::DIALECT.unvalidated_keys else { return Ok(Vec::new()) };
    let unvalidated = driver.query(list, &[], |row| row.required_text(0)).await?;
    let keys = model.declared();
    let keys = keys.flat_map(|resource| ddl::foreign_keys(model, resource, None, D::DIALECT));
    Ok(keys.filter(|key| unvalidated.contains(&key.name)).collect())
}

/// Refuses a model that drops rules on which running servers rely. `lines`: other reasons to refuse it.
fn refuse_loosening(
    others: &[Model],
    model: &Model,
    lines: Vec<String>,
) -> Result<(), MigrationError> {
    let lines = relied_on_rules(others, model, lines);
    if lines.is_empty() { Ok(()) } else { Err(MigrationError::InUse(lines)) }
}

/// The rules of other models that this one drops, a line each, and other lines; sorted.
fn relied_on_rules(others: &[Model], model: &Model, mut lines: Vec<String>) -> Vec<String> {
    lines.extend(others.iter().flat_map(|other| loosened_rules(other, model)));
    lines.sort();
    lines.dedup();
    lines
}

/// The result of a change of the tables.
#[derive(Debug, Default)]
struct ChangedTables {
    /// The resources whose tables were created: no other session can see them yet.
    made: Vec<ResourceIndex>,
    /// Whether some of them replace tables of the previous model.
    has_rebuilt: bool,
}

async fn migrate_tables<D: Driver>(
    driver: &mut D,
    (old, model): (&Model, &Model),
    others: &[Model],
) -> Result<ChangedTables, MigrationError> {
    let dialect = D::DIALECT;
    let (mut conflicts, mut made, mut fields) = (Vec::new(), Vec::new(), Vec::new());
    for difference in compare(old, model) {
        match difference {
            Difference::AddResource(index) => made.push(index),
            Difference::AddField(index, field) => fields.push((index, field)),
            Difference::Change(change) => conflicts.push(change),
        }
    }
    let is_removal = |change: &ModelChange| change.effect == MigrationEffect::Remove;
    if !others.is_empty()
        && !conflicts.is_empty()
        && conflicts.iter().all(is_removal)
        && made.is_empty()
        && fields.is_empty()
    {
        // A rollback beside servers with the newer model, which use the tables even if they are empty.
        return Err(MigrationError::Refused(conflicts.iter().map(ModelChange::describe).collect()));
    }
    let rebuild = empty_tables::plan_rebuild(driver, (old, model), &conflicts).await?;
    if !others.is_empty() {
        refuse_loosening(others, model, rebuild.describe(old))?;
    }
    links::drop_affected(driver, old, |resource| rebuild.drops(resource)).await?;
    rebuild.run(driver, (old, model)).await?;
    let mut keys = Vec::new();
    for index in &made {
        let resource = model.resource(*index);
        integer_ids::create_table(driver, model, resource).await?;
        let own = ddl::foreign_keys(model, resource, None, dialect);
        keys.extend(own.iter().map(|key| key.add().to_owned()));
    }
    for (index, at) in fields.into_iter().filter(|(index, _)| !rebuild.new.contains(index)) {
        let resource = model.resource(index);
        let field = resource.fields.get(at).or_bug(ADDED_FIELD);
        for column in ddl::add_columns(model, resource, field, dialect) {
            driver.execute(&column, &[]).await?;
        }
        let own = ddl::foreign_keys(model, resource, Some(field), dialect);
        keys.extend(own.iter().map(ForeignKey::add_unvalidated));
    }
    keys.extend(rebuild.add_foreign_keys(model, dialect));
    for key in &keys {
        driver.execute(key, &[]).await?;
    }
    let has_rebuilt = rebuild.has_dropped();
    made.extend(rebuild.new);
    Ok(ChangedTables { made, has_rebuilt })
}

/// Drops indexes that no model asks for and creates missing ones; an index's name states its whole
/// definition. An index that the model of another running server asks for stays.
pub async fn reconcile_indexes<D: Driver>(
    driver: &mut D,
    (model, made): (&Model, &[ResourceIndex]),
    others: &[Model],
) -> Result<Vec<IndexDefinition>, StatementError> {
    let dialect = D::DIALECT;
    let present = read_indexes(driver).await?;
    let wanted = |model: &Model| -> Vec<IndexDefinition> {
        model.declared().flat_map(|resource| ddl::indexes(resource, dialect)).collect()
    };
    let asked_for: Vec<IndexDefinition> = others.iter().chain([model]).flat_map(wanted).collect();
    for (name, _) in present.iter().filter(|(name, _)| asked_for.iter().all(|i| i.name != *name)) {
        driver.execute(&ddl::drop_index(name), &[]).await?;
    }
    let mut pending = Vec::new();
    for resource in model.declared() {
        for index in ddl::indexes(resource, dialect) {
            let is_there = |(name, is_valid): &(String, bool)| *name == index.name && *is_valid;
            if present.iter().any(is_there) {
                continue;
            }
            if made.contains(&resource.index) {
                // An invalid one, which a failed build has left.
                if present.iter().any(|(name, _)| *name == index.name) {
                    driver.execute(&ddl::drop_index(&index.name), &[]).await?;
                }
                driver.execute(&index.create, &[]).await?;
            } else {
                create_index(driver, index, &mut pending).await?;
            }
        }
    }
    Ok(pending)
}

/// Creates the index of a table that is in use, or defers it where the engine can build it concurrently.
async fn create_index<D: Driver>(
    driver: &mut D,
    index: IndexDefinition,
    pending: &mut Vec<IndexDefinition>,
) -> Result<(), StatementError> {
    match D::DIALECT.can_build_concurrently {
        true => pending.push(index),
        false => drop(driver.execute(&index.create, &[]).await?),
    }
    Ok(())
}
