//! `nouns move` on SQLite: the file that is read, with the lock of a server; and the file that is written, which gets
//! its name when it is complete.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::partial_file::PartialFile;
use crate::store::database::Database;
use crate::store::database_move::copy::{MoveError, not_empty_message};
use crate::store::error::OpenError;
use crate::store::sqlite::backup::{create_part, explain_file_error, explain_part_error, find_log};
use crate::store::sqlite::connection::{
    APPLICATION_ID, CACHE_KIB, FORMAT, configure_connection, explain_error, inspect,
    open_for_reading,
};
use crate::store::sqlite::database_files::{DatabaseFiles, LOCK_SUFFIX};
use crate::store::sqlite::database_lock::DatabaseLock;
use crate::store::sqlite::driver::{SqliteDriver, classify_error};

/// Reads a file that no server has open. Nothing can be written to it meanwhile.
pub async fn read_source<T>(
    path: &Path,
    work: impl AsyncFnOnce(&mut SqliteDriver<'_>) -> Result<T, MoveError>,
) -> Result<T, MoveError> {
    let files = DatabaseFiles::find(path)?;
    files.check()?;
    if files.is_empty() {
        return Err(Database::Sqlite(path.to_owned()).missing_error().into());
    }
    let lock = lock(&files)?;
    let done = read_locked(&files, work).await;
    if lock.is_new {
        let _ = fs::remove_file(files.sibling(LOCK_SUFFIX));
    }
    done
}

fn lock(files: &DatabaseFiles) -> Result<DatabaseLock, OpenError> {
    let shown = &files.display_path;
    DatabaseLock::acquire(files)?.map_err(|holder| {
        let holder = holder.describe();
        OpenError::new(format!("{holder} is using {shown}; stop it first, and move again"))
    })
}

async fn read_locked<T>(
    files: &DatabaseFiles,
    work: impl AsyncFnOnce(&mut SqliteDriver<'_>) -> Result<T, MoveError>,
) -> Result<T, MoveError> {
    let shown = &files.display_path;
    let explain = |error: rusqlite::Error| explain_error(shown, &error);
    let connection = open_for_reading(&files.real_path, CACHE_KIB).map_err(explain)?;
    if inspect(files, &connection)? {
        return Err(Database::Sqlite(files.real_path.clone()).missing_error().into());
    }
    // The write lock keeps commands out, which write beside a server. Nothing is written here.
    connection.pragma_update(None, "query_only", false).map_err(explain)?;
    connection.execute_batch("BEGIN IMMEDIATE").map_err(explain)?;
    if let Some(tables) = broken_references(&connection).map_err(explain)? {
        return Err(MoveError::Refused(format!(
            "rows of {tables} refer to rows that do not exist, which another program has caused; mend or delete them, and \
             move again (list them with: sqlite3 -readonly {shown} 'PRAGMA foreign_key_check')"
        )));
    }
    let done = work(&mut SqliteDriver { connection: &connection }).await;
    // Nothing was written; closing the connection releases the lock too.
    let _ = connection.execute_batch("ROLLBACK");
    done
}

/// The tables with rows that refer to rows that do not exist.
fn broken_references(connection: &Connection) -> rusqlite::Result<Option<String>> {
    let sql = "SELECT group_concat(DISTINCT \"table\") FROM pragma_foreign_key_check";
    connection.query_row(sql, [], |row| row.get(0))
}

/// Writes a new file, which appears when the work is done.
pub async fn write_target<T>(
    path: &Path,
    work: impl AsyncFnOnce(&mut SqliteDriver<'_>) -> Result<T, MoveError>,
) -> Result<T, MoveError> {
    let files = DatabaseFiles::find(path).map_err(|error| MoveError::about_target(&error))?;
    let lock = lock(&files).map_err(|error| MoveError::about_target(&error))?;
    let done = write_locked(&files, work).await;
    if done.is_err() && lock.is_new {
        let _ = fs::remove_file(files.sibling(LOCK_SUFFIX));
    }
    done
}

async fn write_locked<T>(
    files: &DatabaseFiles,
    work: impl AsyncFnOnce(&mut SqliteDriver<'_>) -> Result<T, MoveError>,
) -> Result<T, MoveError> {
    let shown = Path::new(&files.display_path);
    refuse_used_file(files)?;
    let part = create_part(&files.real_path).map_err(|error| explain_part_error(error, shown))?;
    let done = write_part(&part, work).await?;
    refuse_used_file(files)?;
    crate::fault::point("move");
    part.publish(&files.real_path).map_err(|error| explain_file_error(&error, shown))?;
    crate::fault::point("move");
    Ok(done)
}

async fn write_part<T>(
    part: &PartialFile,
    work: impl AsyncFnOnce(&mut SqliteDriver<'_>) -> Result<T, MoveError>,
) -> Result<T, MoveError> {
    let failed = |error: rusqlite::Error| MoveError::Target(classify_error(error));
    let connection = open_part(&part.path).map_err(failed)?;
    connection.execute_batch("BEGIN").map_err(failed)?;
    let done = work(&mut SqliteDriver { connection: &connection }).await?;
    if let Some(tables) = broken_references(&connection).map_err(failed)? {
        return Err(MoveError::Refused(format!(
            "rows of {tables} refer to rows that do not exist; mend or delete them, and move again"
        )));
    }
    connection.execute_batch("COMMIT").map_err(failed)?;
    connection.close().map_err(|(_, error)| failed(error))?;
    Ok(done)
}

fn open_part(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    configure_connection(&connection, CACHE_KIB)?;
    // Rows come before those that they refer to. All references are checked at the end.
    connection.pragma_update(None, "foreign_keys", false)?;
    // A file that is not completed is removed, so there is nothing to roll back; the whole file is synced at the end.
    connection.pragma_update(None, "journal_mode", "off")?;
    connection.pragma_update(None, "synchronous", "off")?;
    // The sorting of a large index does not fit into memory.
    connection.pragma_update(None, "temp_store", "file")?;
    // This writes the header, so that a file that is left is known as a database.
    connection.pragma_update(None, "application_id", APPLICATION_ID)?;
    connection.pragma_update(None, "user_version", FORMAT)?;
    Ok(connection)
}

/// Refuses a file with tables, and one that is no database. A file without tables is replaced.
fn refuse_used_file(files: &DatabaseFiles) -> Result<(), OpenError> {
    let shown = &files.display_path;
    if let Some(log) = find_log(&files.real_path) {
        return Err(OpenError::new(format!(
            "{log} is here, which SQLite would apply to the new database; name another --to, or move {log} away",
            log = log.display()
        )));
    }
    if files.is_empty() {
        return match fs::metadata(&files.real_path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(explain_file_error(&error, Path::new(shown)))
            }
            _ => Ok(()),
        };
    }
    let tables = open_for_reading(&files.real_path, CACHE_KIB);
    let tables = tables.and_then(|connection| table_names(&connection));
    match tables {
        Ok(tables) if tables.is_empty() => Ok(()),
        Ok(tables) => Err(OpenError::new(not_empty_message(shown, &tables))),
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::NotADatabase) => {
            Err(OpenError::new(format!(
                "{shown} exists already, and is no SQLite database; name another --to"
            )))
        }
        Err(error) => {
            Err(OpenError::new(format!("cannot read {shown} ({error}); name another --to")))
        }
    }
}

fn table_names(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let sql = "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') \
               AND substr(name, 1, 7) <> 'sqlite_' ORDER BY name";
    connection.prepare(sql)?.query_map([], |row| row.get(0))?.collect()
}
