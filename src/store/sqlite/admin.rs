//! The admin store on SQLite: opens the file beside a server that holds its lock, briefly, for small writes.
//!
//! SQLite's own locks serialize the two: a write acquires the write lock first, and waits for the server's
//! commit. The model may differ from the server's. The users table is the same for all models, and no table
//! is migrated here.

use std::path::Path;
use std::sync::Arc;

use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::model::Model;
use crate::plan::{Outcome, ReadPlan, WritePlan};
use crate::store::context::{CommitMode, StoreContext};
use crate::store::driver::poll_once;
use crate::store::error::{
    MigrationError, OpenError, StatementError, StoreError, WriteError, missing_users_error,
};
use crate::store::sql::dialect::SQLITE;
use crate::store::sqlite::connection::{
    CACHE_KIB, configure_connection, explain_error, inspect, sync_fully,
};
use crate::store::sqlite::database_files::DatabaseFiles;
use crate::store::sqlite::driver::{SqliteDriver, classify_error};
use crate::store::sqlite::recovery::recover_unserved;
use crate::store::users::{self, RoleGroup, STAMP_KEY};
use crate::store::uuid_v7::UuidGenerator;
use crate::store::write::{self, WriteRef};
use crate::store::{read, system_values};

/// One read-write connection.
pub struct SqliteAdminStore {
    connection: Connection,
    context: Arc<StoreContext>,
    ids: UuidGenerator,
}

impl std::fmt::Debug for SqliteAdminStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SqliteAdminStore")
    }
}

impl SqliteAdminStore {
    /// `None` if the file is missing or empty.
    pub fn find(path: &Path, model: &Arc<Model>) -> Result<Option<Self>, OpenError> {
        let files = DatabaseFiles::find(path)?;
        files.check()?;
        let context = StoreContext::new(model, &SQLITE);
        let opened = |connection| Self { connection, context, ids: UuidGenerator::default() };
        if files.is_empty() {
            return Ok(None);
        }
        recover_unserved(&files)?;
        let explain = |error: rusqlite::Error| explain_error(&files.display_path, &error);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&files.real_path, flags).map_err(explain)?;
        configure_connection(&connection, CACHE_KIB).map_err(explain)?;
        if inspect(&files, &connection)? {
            return Ok(None);
        }
        check_users(&files, &connection)?;
        sync_fully(&connection).map_err(explain)?;
        // The server makes the checkpoints, and handles their errors.
        connection.pragma_update(None, "wal_autocheckpoint", 0).map_err(explain)?;
        Ok(Some(opened(connection)))
    }

    pub fn read(&mut self, read: &ReadPlan) -> Result<Outcome, StoreError> {
        let mut driver = SqliteDriver { connection: &self.connection, ids: &self.ids };
        poll_once(read::read(&mut driver, &self.context, read)).unwrap_or_else(blocked_error)
    }

    pub fn write(&mut self, write: WritePlan) -> Result<Outcome, StoreError> {
        let context = Arc::clone(&self.context);
        self.in_transaction(async |driver| {
            match write::write(
                driver,
                &context,
                WriteRef::Owned(Box::new(write)),
                CommitMode::Exclusive,
            )
            .await
            {
                Ok(outcome) => Ok(outcome),
                Err(WriteError::Error(error)) => Err(error),
                Err(WriteError::ExceedsGroup(_)) => {
                    Err(StoreError::internal("an exclusive write exceeded its commit group"))
                }
            }
        })
    }

    pub fn read_system_value(&mut self, name: &str) -> Result<Option<String>, StoreError> {
        Ok(read_system_value_on(&self.connection, name)?)
    }

    pub fn role_groups(&mut self) -> Result<Vec<RoleGroup>, StoreError> {
        let mut driver = SqliteDriver { connection: &self.connection, ids: &self.ids };
        let read = poll_once(users::role_groups(&mut driver, &self.context.model));
        Ok(read.unwrap_or(Err(StatementError::TimedOut))?)
    }

    pub fn write_system_value(&mut self, name: &str, value: &str) -> Result<(), StoreError> {
        self.in_transaction(async |driver| {
            Ok(system_values::write(driver, &SQLITE, name, value).await?)
        })
    }

    pub fn write_system_value_if_absent(
        &mut self,
        name: &str,
        value: &str,
    ) -> Result<String, StoreError> {
        self.in_transaction(async |driver| {
            Ok(system_values::write_if_absent(driver, &SQLITE, name, value).await?)
        })
    }

    fn in_transaction<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut SqliteDriver<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.connection.execute_batch("BEGIN IMMEDIATE").map_err(classify_error)?;
        let mut driver = SqliteDriver { connection: &self.connection, ids: &self.ids };
        let done = poll_once(work(&mut driver)).unwrap_or_else(blocked_error);
        let done = done.and_then(|done| match self.connection.execute_batch("COMMIT") {
            Ok(()) => Ok(done),
            // Detected before anything was written; any other error leaves the outcome unknown.
            Err(error) => Err(match error.sqlite_error_code() {
                Some(ErrorCode::DatabaseBusy | ErrorCode::DiskFull) => classify_error(error).into(),
                _ => StoreError::OutcomeUnknown(error.to_string()),
            }),
        });
        if done.is_err() && !self.connection.is_autocommit() {
            // If this fails, closing the connection rolls back.
            let _ = self.connection.execute_batch("ROLLBACK");
        }
        done
    }
}

/// Checks that the users table exists.
fn check_users(files: &DatabaseFiles, connection: &Connection) -> Result<(), OpenError> {
    let stamp = read_system_value_on(connection, STAMP_KEY);
    let stamp =
        stamp.map_err(|failure| MigrationError::Failed(failure).describe(&files.display_path))?;
    stamp.map(drop).ok_or_else(|| missing_users_error(&files.display_path))
}

fn blocked_error<T>() -> Result<T, StoreError> {
    Err(StoreError::internal("the SQLite driver blocked in a command"))
}

fn read_system_value_on(
    connection: &Connection,
    name: &str,
) -> Result<Option<String>, StatementError> {
    let ids = UuidGenerator::default();
    let mut driver = SqliteDriver { connection, ids: &ids };
    poll_once(system_values::read(&mut driver, &SQLITE, name))
        .unwrap_or(Err(StatementError::TimedOut))
}
