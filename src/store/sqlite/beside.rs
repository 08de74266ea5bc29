//! The admin store on SQLite: opens the file beside a server that holds its lock, briefly, for small writes.
//!
//! SQLite's own locks serialize the two: a write takes the write lock first, and waits for the server's
//! commit. The one surprising thing: the model may differ from the server's. The users table is the same for
//! all models, and no table is migrated here.

use std::path::Path;
use std::sync::Arc;

use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::driver::{SqliteDriver, failure};
use super::files::Files;
use super::open::{CACHE_KIB, explain, inspect, prepare, recover_unserved, sync_fully};
use crate::model::Model;
use crate::plan::{Outcome, Read, Write};
use crate::store::driver::{Failure, at_once};
use crate::store::ids::Ids;
use crate::store::schema::{self, Mismatch};
use crate::store::sql::SQLITE;
use crate::store::transaction::{self, Context, Given, Halt, Pace};
use crate::store::users::{self, RoleGroup, STAMP};
use crate::store::{OpenError, StoreError};

/// One read-write connection.
pub struct Beside {
    connection: Connection,
    context: Arc<Context>,
    ids: Ids,
}

impl std::fmt::Debug for Beside {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Beside")
    }
}

impl Beside {
    /// `None` if the file is missing or empty.
    pub(in crate::store) fn find(
        path: &Path,
        model: &Arc<Model>,
    ) -> Result<Option<Self>, OpenError> {
        let files = Files::find(path)?;
        files.check()?;
        let context = Context::new(model, &SQLITE);
        let opened = |connection| Self { connection, context, ids: Ids::default() };
        if files.is_empty() {
            return Ok(None);
        }
        recover_unserved(&files)?;
        let explain = |error: rusqlite::Error| explain(&files.shown, &error);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&files.real, flags).map_err(explain)?;
        prepare(&connection, CACHE_KIB).map_err(explain)?;
        if inspect(&files, &connection)? {
            return Ok(None);
        }
        check_users(&files, &connection)?;
        sync_fully(&connection).map_err(explain)?;
        // The server makes the checkpoints, and handles their errors.
        connection.pragma_update(None, "wal_autocheckpoint", 0).map_err(explain)?;
        Ok(Some(opened(connection)))
    }

    pub(in crate::store) fn read(&mut self, read: &Read) -> Result<Outcome, StoreError> {
        let mut driver = SqliteDriver { connection: &self.connection, ids: &self.ids };
        at_once(transaction::read(&mut driver, &self.context, read)).unwrap_or_else(waited)
    }

    pub(in crate::store) fn write(&mut self, write: Write) -> Result<Outcome, StoreError> {
        let context = Arc::clone(&self.context);
        self.in_transaction(async |driver| {
            match transaction::write(driver, &context, Given::Whole(Box::new(write)), Pace::Alone)
                .await
            {
                Ok(outcome) => Ok(outcome),
                Err(Halt::Error(error)) => Err(error),
                Err(Halt::TooLong(_)) => {
                    Err(StoreError::broken("a write that is alone was too long"))
                }
            }
        })
    }

    pub(in crate::store) fn recall(&mut self, name: &str) -> Result<Option<String>, StoreError> {
        Ok(recall(&self.connection, name)?)
    }

    pub(in crate::store) fn role_groups(&mut self) -> Result<Vec<RoleGroup>, StoreError> {
        let mut driver = SqliteDriver { connection: &self.connection, ids: &self.ids };
        let read = at_once(users::role_groups(&mut driver, &self.context.model));
        Ok(read.unwrap_or(Err(Failure::TimedOut))?)
    }

    pub(in crate::store) fn remember(&mut self, name: &str, value: &str) -> Result<(), StoreError> {
        self.in_transaction(
            async |driver| Ok(schema::remember(driver, &SQLITE, name, value).await?),
        )
    }

    pub(in crate::store) fn remember_first(
        &mut self,
        name: &str,
        value: &str,
    ) -> Result<String, StoreError> {
        self.in_transaction(async |driver| {
            Ok(schema::remember_first(driver, &SQLITE, name, value).await?)
        })
    }

    fn in_transaction<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut SqliteDriver<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.connection.execute_batch("BEGIN IMMEDIATE").map_err(failure)?;
        let mut driver = SqliteDriver { connection: &self.connection, ids: &self.ids };
        let done = at_once(work(&mut driver)).unwrap_or_else(waited);
        let done = done.and_then(|done| match self.connection.execute_batch("COMMIT") {
            Ok(()) => Ok(done),
            // Detected before anything was written; any other error leaves the outcome unknown.
            Err(error) => Err(match error.sqlite_error_code() {
                Some(ErrorCode::DatabaseBusy | ErrorCode::DiskFull) => failure(error).into(),
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
fn check_users(files: &Files, connection: &Connection) -> Result<(), OpenError> {
    let stamp = recall(connection, STAMP);
    let stamp = stamp.map_err(|failure| Mismatch::Failed(failure).describe(&files.shown))?;
    stamp.map(drop).ok_or_else(|| schema::without_users(&files.shown))
}

fn waited<T>() -> Result<T, StoreError> {
    Err(StoreError::broken("SQLite made a command wait"))
}

fn recall(connection: &Connection, name: &str) -> Result<Option<String>, Failure> {
    let ids = Ids::default();
    let mut driver = SqliteDriver { connection, ids: &ids };
    at_once(schema::recall(&mut driver, &SQLITE, name)).unwrap_or(Err(Failure::TimedOut))
}
