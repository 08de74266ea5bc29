//! `nouns migrate` on SQLite: the lock of a server, a backup, then one transaction.

use std::fs;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use rusqlite::config::DbConfig;

use crate::fault::OrBug as _;
use crate::store::driver::poll_once;
use crate::store::error::{MigrationError, OpenError, StatementError};
use crate::store::migration::steps::MigrationPlan;
use crate::store::migration::{self, Migrated, MigrationRequest};
use crate::store::sqlite::backup::{ExistingFile, back_up};
use crate::store::sqlite::connection::{explain_error, sync_fully};
use crate::store::sqlite::database_files::DatabaseFiles;
use crate::store::sqlite::driver::SqliteDriver;
use crate::store::sqlite::open::with_server_lock;
use crate::store::sqlite::recovery::open_recovered;

/// The names of backups end like this; those after the first one with a number.
const BACKUP_SUFFIX: &str = ".before-migration";

pub fn migrate(path: &Path, request: MigrationRequest<'_>) -> Result<Migrated, OpenError> {
    let files = DatabaseFiles::find(path)?;
    with_server_lock(&files, |_lock| {
        let (connection, _, _) = open_recovered(&files)?;
        let explain = |error: rusqlite::Error| explain_error(&files.display_path, &error);
        sync_fully(&connection).map_err(explain)?;
        connection
            .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false)
            .map_err(explain)?;
        // A table that other tables refer to can only be replaced without enforcement. It cannot be changed inside
        // the transaction, which checks all foreign keys before it commits.
        connection.pragma_update(None, "foreign_keys", false).map_err(explain)?;
        // The sorting of a large index does not fit into memory.
        connection.pragma_update(None, "temp_store", "file").map_err(explain)?;
        connection.execute_batch("BEGIN IMMEDIATE").map_err(explain)?;
        let done = run(&files, &connection, request).and_then(|migrated| {
            connection.execute_batch("COMMIT").map_err(explain).map(|()| migrated)
        });
        if done.is_err() && !connection.is_autocommit() {
            // If this fails, closing the connection rolls back.
            let _ = connection.execute_batch("ROLLBACK");
        }
        done
    })
}

/// Copies the database, unless there is nothing to do or the plan is refused. Returns the path of the copy, and its name
/// for messages.
fn back_up_first(
    files: &DatabaseFiles,
    connection: &Connection,
    request: MigrationRequest<'_>,
) -> Result<Option<(PathBuf, String)>, OpenError> {
    let mut driver = SqliteDriver { connection };
    let plan = finish(files, poll_once(migration::plan(&mut driver, request.model)))?;
    (request.decide)(&plan).map_err(OpenError::new)?;
    if plan.steps.is_empty() {
        return Ok(None);
    }
    let numbers = (2_u32..).map(|number| format!("{BACKUP_SUFFIX}-{number}"));
    let mut names = [BACKUP_SUFFIX.to_owned()].into_iter().chain(numbers);
    let free = names.find(|name| files.sibling(name).symlink_metadata().is_err());
    let name = free.or_bug("the numbers do not end");
    let copy = files.sibling(&name);
    back_up(files, &copy, ExistingFile::Refuse)?;
    Ok(Some((copy, format!("{}{name}", files.display_path))))
}

fn run(
    files: &DatabaseFiles,
    connection: &Connection,
    request: MigrationRequest<'_>,
) -> Result<Migrated, OpenError> {
    // Inside the transaction: nothing is committed between the copy and the migration.
    let backup = match request.wants_backup {
        true => back_up_first(files, connection, request)?,
        false => None,
    };
    let done = change(files, connection, request);
    if let (Err(_), Some((copy, _))) = (&done, &backup) {
        // Nothing was changed, so that it would only take space.
        let _ = fs::remove_file(copy);
    }
    Ok(Migrated { plan: done?, backup: backup.map(|(_, shown)| shown) })
}

fn change(
    files: &DatabaseFiles,
    connection: &Connection,
    request: MigrationRequest<'_>,
) -> Result<MigrationPlan, OpenError> {
    let mut driver = SqliteDriver { connection };
    let plan = finish(files, poll_once(migration::run(&mut driver, request)))?;
    let violated = connection.query_row(
        "SELECT group_concat(DISTINCT \"table\") FROM pragma_foreign_key_check",
        [],
        |row| row.get::<_, Option<String>>(0),
    );
    match violated.map_err(|error| explain_error(&files.display_path, &error))? {
        None => Ok(plan),
        Some(tables) => Err(OpenError::new(format!(
            "{}: the migration was not made, because items of {tables} refer to others that do not exist; nothing was \
             changed",
            files.display_path
        ))),
    }
}

/// The result of statements that never wait.
fn finish(
    files: &DatabaseFiles,
    done: Option<Result<MigrationPlan, MigrationError>>,
) -> Result<MigrationPlan, OpenError> {
    let done = done.unwrap_or(Err(MigrationError::Failed(StatementError::TimedOut)));
    done.map_err(|error| error.describe(&files.display_path))
}
