//! Brings the tables up to the model, in one transaction, once for every backend.
//!
//! What adds is applied; what could lose or break data is refused with all that differs. The
//! database remembers the model it holds as text, and two models are compared, not two catalogues.

use super::Broken;
use super::OpenError;
use super::driver::{Bind, Columns, Driver, Failure};
use super::sql::{self, Dialect};
use super::{once, users};
use crate::model::diff::{Difference, compare};
use crate::model::{self, Model};

/// Why the tables were not brought up to the model.
#[derive(Debug)]
pub(super) enum Mismatch {
    /// What differs, a line each.
    Refused(Vec<String>),
    Failed(Failure),
}

impl From<Failure> for Mismatch {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl Mismatch {
    pub(super) fn describe(&self, database: &str) -> OpenError {
        OpenError(match self {
            Self::Refused(lines) => format!(
                "{database} holds data of another model, and this one would lose or break some of it:\n  {}\n\
                 nothing was changed; take these changes back, or start with another --database",
                lines.join("\n  ")
            ),
            Self::Failed(failure) => {
                let (cause, way_out) = match failure {
                    Failure::Storage(cause) | Failure::Sync(cause) => {
                        (cause.as_str(), "check that the disk has space and can be written")
                    }
                    Failure::TimedOut | Failure::Locked => {
                        ("another process has locked it", "wait until it is done, then start again")
                    }
                    Failure::Taken(cause)
                    | Failure::Engine(cause)
                    | Failure::Broken(Broken(cause)) => {
                        (cause.as_str(), "restore it from a backup, or name another --database")
                    }
                };
                format!("{database}: cannot make its tables fit the model ({cause}); {way_out}")
            }
        })
    }
}

/// What is there was written by a later version than this one.
pub(super) fn newer(database: &str, format: i64, known: i64) -> OpenError {
    OpenError(format!(
        "{database} was written by a newer nouns (form {format}, this one knows {known}); use that version, or name another --database"
    ))
}

/// Makes the tables of an empty database.
pub(super) async fn create<D: Driver>(
    driver: &mut D,
    model: &Model,
    dialect: &Dialect,
) -> Result<(), Mismatch> {
    crate::fault::point("create");
    for table in dialect.system_tables {
        driver.execute(table, &[]).await?;
    }
    driver.execute(dialect.place_index, &[]).await?;
    for resource in model.declared() {
        driver.execute(&sql::create_table(model, resource, dialect), &[]).await?;
        for index in sql::indexes(resource, dialect) {
            driver.execute(&index.create, &[]).await?;
        }
    }
    for resource in model.declared() {
        for reference in sql::add_references(model, resource, None, dialect) {
            driver.execute(&reference, &[]).await?;
        }
    }
    users::create(driver, model, dialect).await?;
    once::create(driver, dialect).await?;
    // Before the first look, the time at which the database was made is the last sign of life.
    let now = driver.now().to_string();
    for mark in [sql::CHANGES_CLOCK, sql::KEYS_CLOCK] {
        remember(driver, dialect, mark, &now).await?;
    }
    remember(driver, dialect, "model", &model.shape).await?;
    Ok(())
}

/// Adds what the model has and the database has not.
pub(super) async fn extend<D: Driver>(
    driver: &mut D,
    model: &Model,
    dialect: &Dialect,
) -> Result<(), Mismatch> {
    users::create(driver, model, dialect).await?;
    // Databases of earlier versions have none. To ask first takes no lock.
    if driver.rows(dialect.place_index_names, &[], |_| Ok(())).await?.is_empty() {
        driver.execute(dialect.place_index, &[]).await?;
    }
    once::create(driver, dialect).await?;
    let stored = recall(driver, dialect, "model").await?;
    let stored = stored.ok_or_else(|| {
        Failure::Broken(Broken("the database does not say which model it holds".into()))
    })?;
    if stored == model.shape {
        // Someone may have dropped one by hand.
        return Ok(reconcile_indexes(driver, model, dialect).await?);
    }
    let old = model::read_shape(&stored).map_err(|errors| {
        Failure::Broken(Broken(format!("the stored model cannot be read: {errors}")))
    })?;
    let mut refused = Vec::new();
    let mut steps = Vec::new();
    let mut references = Vec::new();
    for difference in compare(&old, model) {
        match difference {
            Difference::AddResource(index) => {
                let resource = model.resource(index);
                steps.push(sql::create_table(model, resource, dialect));
                references.extend(sql::add_references(model, resource, None, dialect));
            }
            Difference::AddField(index, field) => {
                let resource = model.resource(index);
                let Some(field) = resource.fields.get(field) else { continue };
                steps.push(sql::add_column(model, resource, field, dialect));
                references.extend(sql::add_references(model, resource, Some(field), dialect));
            }
            Difference::Refused(line) => refused.push(line),
        }
    }
    if !refused.is_empty() {
        return Err(Mismatch::Refused(refused));
    }
    for step in steps.iter().chain(&references) {
        driver.execute(step, &[]).await?;
    }
    reconcile_indexes(driver, model, dialect).await?;
    remember(driver, dialect, "model", &model.shape).await?;
    Ok(())
}

/// An index's name says all that it is: what the model does not ask for goes, what is missing comes.
async fn reconcile_indexes<D: Driver>(
    driver: &mut D,
    model: &Model,
    dialect: &Dialect,
) -> Result<(), Failure> {
    let read = |row: &dyn Columns| Ok(row.text(0)?.unwrap_or("").to_owned());
    let present = driver.rows(dialect.index_names, &[], read).await?;
    let wanted = model.declared().flat_map(|resource| sql::indexes(resource, dialect));
    let wanted: Vec<_> = wanted.collect();
    for name in present.iter().filter(|name| wanted.iter().all(|index| index.name != **name)) {
        driver.execute(&sql::drop_index(name), &[]).await?;
    }
    for index in wanted.iter().filter(|index| !present.contains(&index.name)) {
        driver.execute(&index.create, &[]).await?;
    }
    Ok(())
}

/// Keeps a word of our own in the database.
pub(super) async fn remember<D: Driver>(
    driver: &mut D,
    dialect: &Dialect,
    name: &str,
    value: &str,
) -> Result<(), Failure> {
    let binds = [Bind::Text(name), Bind::Text(value)];
    driver.execute(&sql::remember(dialect), &binds).await.map(|_| ())
}

/// Keeps a word unless there is one; the one that is there then.
pub(super) async fn remember_first<D: Driver>(
    driver: &mut D,
    dialect: &Dialect,
    name: &str,
    value: &str,
) -> Result<String, Failure> {
    let binds = [Bind::Text(name), Bind::Text(value)];
    driver.execute(&sql::remember_first(dialect), &binds).await?;
    let kept = recall(driver, dialect, name).await?;
    kept.ok_or_else(|| Failure::Broken(Broken(format!("{name} was kept and is not there"))))
}

/// The word that the database keeps under a name.
pub(super) async fn recall<D: Driver>(
    driver: &mut D,
    dialect: &Dialect,
    name: &str,
) -> Result<Option<String>, Failure> {
    let read = |row: &dyn Columns| Ok(row.text(0)?.map(str::to_owned));
    Ok(driver.rows(&sql::recall(dialect), &[Bind::Text(name)], read).await?.pop().flatten())
}
