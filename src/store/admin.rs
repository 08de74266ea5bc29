//! The admin store: a second connection for CLI commands, which may run while a server has the database open.
//!
//! It uses the same code as a server, so each row is written with its change log entry; it has no threads,
//! queue or pool. It never creates a database: only a server does.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use crate::model::{Model, ResourceIndex};
use crate::plan::{ImportRow, Outcome, ReadPlan, WritePlan};
use crate::store::context::{CommitMode, StoreContext};
use crate::store::database::Database;
use crate::store::error::{MigrationError, OpenError, StoreError, WriteError};
use crate::store::import::{self, ImportEnd, ImportJob, ImportSource, ImportedBatch, PositionStep};
use crate::store::migration;
use crate::store::migration::steps::MigrationPlan;
use crate::store::missing_parts::{self, MissingParts};
use crate::store::postgres::admin::PostgresAdmin;
use crate::store::postgres::health::{self, PostgresHealth};
use crate::store::sql::dialect::{POSTGRES, SQLITE};
use crate::store::sqlite::admin::SqliteAdmin;
use crate::store::users::{self, RoleGroup};
use crate::store::webhooks::{self, StoredSecret};
use crate::store::{change_log, read, system_values, table_scan, write};
use crate::value::{Change, Item};

const DATABASE_ID: &str = "database_id";

/// A store for one caller, with blocking calls.
#[derive(Debug)]
pub struct AdminStore {
    connection: AdminConnection,
    context: Arc<StoreContext>,
}

#[derive(Debug)]
enum AdminConnection {
    Sqlite(SqliteAdmin),
    Postgres(PostgresAdmin),
}

/// Runs statements on the connection, whose driver has another type on each engine. `$call` is `read` or
/// `write`.
macro_rules! run {
    ($store:ident.$call:ident(|$driver:ident| $work:expr)) => {
        match &mut $store.connection {
            AdminConnection::Sqlite(connection) => connection.$call(async |$driver| $work),
            AdminConnection::Postgres(connection) => connection.$call(async |$driver| $work),
        }
    };
}

impl AdminStore {
    pub fn open(database: &Database, model: &Arc<Model>) -> Result<Self, OpenError> {
        Self::find(database, model)?.ok_or_else(|| database.missing_error())
    }

    /// `None` if there is no such database, or it has no tables.
    pub fn find(database: &Database, model: &Arc<Model>) -> Result<Option<Self>, OpenError> {
        let context = new_context(database, model);
        let connection = match database {
            Database::Sqlite(path) => SqliteAdmin::find(path)?.map(AdminConnection::Sqlite),
            Database::Postgres(url) => {
                PostgresAdmin::find(url, &context)?.map(AdminConnection::Postgres)
            }
        };
        Ok(connection.map(|connection| Self { connection, context }))
    }

    /// For `changes_after`: writes nothing, and recovers nothing.
    pub fn open_read_only(database: &Database, model: &Arc<Model>) -> Result<Self, OpenError> {
        Self::open_read_only_within(database, model, None)
    }

    /// As `open_read_only`. A PostgreSQL that does not answer a call within this time has failed.
    pub fn open_read_only_within(
        database: &Database,
        model: &Arc<Model>,
        call_max: Option<Duration>,
    ) -> Result<Self, OpenError> {
        let context = new_context(database, model);
        let connection = match database {
            Database::Sqlite(path) => {
                SqliteAdmin::find_read_only(path)?.map(AdminConnection::Sqlite)
            }
            Database::Postgres(url) => PostgresAdmin::find_read_only(url, &context, call_max)?
                .map(AdminConnection::Postgres),
        };
        let connection = connection.ok_or_else(|| database.missing_error())?;
        Ok(Self { connection, context })
    }

    /// Whether a server waits for the write lock while a command writes: the only writer of a SQLite file.
    pub fn blocks_server(database: &Database) -> Result<bool, OpenError> {
        match database {
            Database::Sqlite(path) => SqliteAdmin::is_served(path),
            Database::Postgres(_) => Ok(false),
        }
    }

    pub fn read(&mut self, plan: &ReadPlan) -> Result<Outcome, StoreError> {
        run!(self.read(|driver| read::read(driver, &self.context, plan).await))
    }

    /// Returns after the commit is durable.
    pub fn write(&mut self, plan: &WritePlan) -> Result<Outcome, StoreError> {
        let connection = match &mut self.connection {
            AdminConnection::Sqlite(connection) => connection,
            AdminConnection::Postgres(connection) => return connection.execute(plan),
        };
        let context = &self.context;
        connection.write(async |driver| {
            let written = write::write(driver, context, plan, CommitMode::Exclusive).await;
            written.map_err(|error| match error {
                WriteError::Error(error) => error,
                WriteError::ExceedsGroup => {
                    StoreError::internal("an exclusive write exceeded its commit group")
                }
            })
        })
    }

    /// Reads all items of a resource from one snapshot, in the order of their ids, until `with` breaks.
    pub fn scan_table(
        &mut self,
        resource: ResourceIndex,
        with: &mut dyn FnMut(&Item) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        run!(self.snapshot(|driver| table_scan::scan(driver, &self.context, resource, with).await))
    }

    /// Whether the model is the one that the database was last migrated to.
    pub fn is_model_in_force(&mut self) -> Result<bool, StoreError> {
        let stored = self.read_system_value("model")?;
        Ok(stored.as_ref() == Some(&self.context.model.shape))
    }

    /// Writes all rows of a source in one transaction.
    pub fn import(
        &mut self,
        job: &ImportJob,
        source: &mut dyn ImportSource,
    ) -> Result<ImportEnd, StoreError> {
        let context = &self.context;
        run!(self.write_unless_refused(|driver| {
            let end = import::write_all(driver, context, job, source).await?;
            Ok((end, end == ImportEnd::Committed))
        }))
    }

    /// Writes one batch of a resumable import and its position, unless a row is refused or nothing is to be written.
    /// `None`: another import has changed the position.
    pub fn import_step(
        &mut self,
        job: &ImportJob,
        (rows, position): (&[ImportRow], &PositionStep<'_>),
    ) -> Result<Option<ImportedBatch>, StoreError> {
        let context = &self.context;
        run!(self.write_unless_refused(|driver| {
            let batch = import::write_step(driver, context, job, (rows, position)).await?;
            let is_fine = batch.as_ref().is_some_and(|batch| batch.faults.is_empty());
            Ok((batch, is_fine && !job.is_dry_run))
        }))
    }

    /// The next changes after a number, in order; empty if there are none yet.
    ///
    /// A change that commits late with a smaller number is never missed: only changes up to the low-water mark
    /// (`Dialect::low_watermark`) are read.
    pub fn changes_after(&mut self, sequence: i64) -> Result<Vec<Change>, String> {
        let changes =
            run!(self.read(|driver| Ok(change_log::read_changes_after(driver, sequence).await)));
        match changes {
            Ok(Ok(changes)) => Ok(changes),
            Ok(Err(failure)) => Err(failure.message().to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// The oldest change that the log has, if changes after a number were swept.
    pub fn oldest_change_after_sweep(&mut self, sequence: i64) -> Result<Option<i64>, String> {
        let bounds = run!(self.read(|driver| Ok(change_log::read_bounds(driver).await)));
        match bounds {
            Ok(Ok(bounds)) => Ok(bounds.oldest.filter(|oldest| sequence < oldest - 1)),
            Ok(Err(failure)) => Err(failure.message().to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }

    /// The newest entry of the change log.
    pub fn newest_change(&mut self) -> Result<Option<Change>, String> {
        let bounds = run!(self.read(|driver| Ok(change_log::read_bounds(driver).await)));
        let newest = match bounds {
            Ok(Ok(bounds)) => bounds.newest,
            Ok(Err(failure)) => return Err(failure.message().to_owned()),
            Err(error) => return Err(error.to_string()),
        };
        match newest {
            Some(newest) => Ok(self.changes_after(newest - 1)?.into_iter().next()),
            None => Ok(None),
        }
    }

    /// The state of the PostgreSQL server; `None` with SQLite.
    pub fn postgres_health(&mut self) -> Option<Result<PostgresHealth, StoreError>> {
        match &mut self.connection {
            AdminConnection::Sqlite(_) => None,
            AdminConnection::Postgres(connection) => {
                Some(connection.read(async |driver| Ok(health::examine(driver).await?)))
            }
        }
    }

    /// Reads a value of the key-value table `nouns_system`.
    pub fn read_system_value(&mut self, name: &str) -> Result<Option<String>, StoreError> {
        run!(self.read(|driver| Ok(system_values::read(driver, name).await?)))
    }

    /// Writes a value into the key-value table `nouns_system`.
    pub fn write_system_value(&mut self, name: &str, value: &str) -> Result<(), StoreError> {
        run!(self.write(|driver| Ok(system_values::write(driver, name, value).await?)))
    }

    /// Writes a value unless the key exists; returns the value that is stored then.
    pub fn write_system_value_if_absent(
        &mut self,
        name: &str,
        value: &str,
    ) -> Result<String, StoreError> {
        run!(
            self.write(|driver| { Ok(system_values::write_if_absent(driver, name, value).await?) })
        )
    }

    /// A random id of this database, which tells it from others of the same name; created at first use.
    pub fn ensure_database_id(&mut self) -> Result<String, StoreError> {
        let random = getrandom::u64()
            .map_err(|error| StoreError::Unavailable(format!("no randomness: {error}")))?;
        self.write_system_value_if_absent(DATABASE_ID, &format!("{random:016x}"))
    }

    /// `None` before its first use.
    pub fn database_id(&mut self) -> Result<Option<String>, StoreError> {
        self.read_system_value(DATABASE_ID)
    }

    /// The stored secrets of all webhooks; none if no server has created their table yet.
    pub fn webhook_secrets(&mut self) -> Result<Vec<StoredSecret>, StoreError> {
        run!(self.read(|driver| Ok(webhooks::read_secrets(driver).await?)))
    }

    /// Replaces the stored secret of a webhook by the same secret, sealed with another key.
    pub fn replace_sealed_secret(
        &mut self,
        stored: &StoredSecret,
        sealed: &str,
    ) -> Result<(), StoreError> {
        run!(self.write(|driver| Ok(webhooks::replace_sealed(driver, stored, sealed).await?)))
    }

    /// The plan of a migration to the model of this store.
    pub fn plan_migration(&mut self) -> Result<MigrationPlan, MigrationError> {
        let model = Arc::clone(&self.context.model);
        let plan = run!(self.read(|driver| Ok(migration::plan(driver, &model).await)));
        plan.unwrap_or_else(|error| Err(MigrationError::Declined(error.to_string())))
    }

    /// The tables, columns and indexes of the stored model that the database lacks.
    pub fn missing_parts(&mut self, stored: &Model) -> Result<MissingParts, StoreError> {
        run!(self.read(|driver| Ok(missing_parts::find(driver, stored).await?)))
    }

    /// Groups the users by their roles.
    pub fn role_groups(&mut self) -> Result<Vec<RoleGroup>, StoreError> {
        run!(self.read(|driver| Ok(users::role_groups(driver, &self.context.model).await?)))
    }
}

fn new_context(database: &Database, model: &Arc<Model>) -> Arc<StoreContext> {
    let dialect = match database {
        Database::Sqlite(_) => &SQLITE,
        Database::Postgres(_) => &POSTGRES,
    };
    StoreContext::new(model, dialect, Arc::default())
}

#[cfg(test)]
mod tests;
