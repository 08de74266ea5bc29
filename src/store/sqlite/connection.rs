//! A connection to the database file: its settings, the checks before its use, and the messages of its errors.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::hooks::Wal;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::store::error::{OpenError, newer_format_error};
use crate::store::sqlite::database_files::DatabaseFiles;

/// "NOUN": marks a database as ours.
pub const APPLICATION_ID: i64 = 0x4E4F_554E;
/// The format of our system tables; a larger number was written by a newer version.
pub const FORMAT: i64 = 1;
/// How long to wait for another process's lock.
pub const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Databases up to this size get an integrity check at every start.
const CHECKED_BYTES_MAX: u64 = 16 << 20;
/// The page cache of the writer's connection.
pub const CACHE_KIB: u32 = 16_000;

pub fn create_error(shown: &str, error: &io::Error) -> OpenError {
    OpenError::new(match error.kind() {
        ErrorKind::StorageFull => disk_full_message(shown),
        _ => format!(
            "cannot open {shown} ({error}); check that the folder exists and is writable, or name another --database"
        ),
    })
}

pub fn disk_full_message(shown: &str) -> String {
    format!("the disk that holds {shown} is full; free some space and start again")
}

/// The settings of every connection; `cache_kib` is the size of its page cache.
pub fn configure_connection(connection: &Connection, cache_kib: u32) -> rusqlite::Result<()> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(512);
    // Without it SQLite prepares a statement with a bound LIMIT again at every use.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "temp_store", "memory")?;
    connection.pragma_update(None, "cache_size", -i64::from(cache_kib))
}

/// Opens a database for reads, and leaves no files beside it that were not there. A connection with
/// `SQLITE_OPEN_READ_ONLY` could not remove the WAL and its index that it creates; this one does, when it is
/// the last one and the WAL is its own.
pub fn open_for_reading(path: &Path, cache_kib: u32) -> rusqlite::Result<Connection> {
    let mut wal = path.as_os_str().to_owned();
    wal.push("-wal");
    let has_wal = fs::metadata(wal).is_ok_and(|metadata| metadata.len() > 0);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    // The frames of an earlier process are checkpointed by a server, after their recovery.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, has_wal)?;
    configure_connection(&connection, cache_kib)?;
    connection.pragma_update(None, "query_only", true)?;
    Ok(connection)
}

/// Durability: an acknowledged write is on disk, because every commit is synced. `extra` is `full` in WAL mode. A
/// restored or moved database has a rollback journal until a server opens it, and is committed by deleting that: `extra`
/// syncs the folder too.
pub fn sync_fully(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "synchronous", "extra")?;
    // macOS only: its fsync leaves data in the drive's cache.
    connection.pragma_update(None, "fullfsync", true)?;
    connection.pragma_update(None, "checkpoint_fullfsync", true)
}

/// The number of pages in the WAL, as of each commit of this connection. Replaces SQLite's automatic checkpoints, which
/// would not report a failed fsync of the database.
pub fn count_wal_pages(connection: &mut Connection) -> rusqlite::Result<Arc<AtomicUsize>> {
    let counted = Arc::new(AtomicUsize::new(0));
    let pages = Arc::clone(&counted);
    let count = move |_: &mut Wal, count: i32| {
        pages.store(usize::try_from(count).unwrap_or(0), Ordering::Relaxed);
        Ok(())
    };
    connection.wal_hook(Some(count))?;
    Ok(counted)
}

/// The program that a database belongs to, by the marks in its header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DatabaseOrigin {
    /// This version, or an earlier one of the same format.
    Ours,
    /// A newer version, with this format.
    Newer(i64),
    /// It has no tables yet.
    Empty,
    OtherProgram,
}

pub fn identify_origin(connection: &Connection) -> rusqlite::Result<DatabaseOrigin> {
    let number = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0));
    Ok(match (number("PRAGMA application_id")?, number("PRAGMA user_version")?) {
        (APPLICATION_ID, FORMAT) => DatabaseOrigin::Ours,
        (APPLICATION_ID, format) if format > FORMAT => DatabaseOrigin::Newer(format),
        (0, 0) if number("SELECT count(*) FROM sqlite_master")? == 0 => DatabaseOrigin::Empty,
        _ => DatabaseOrigin::OtherProgram,
    })
}

/// Checks that the database is ours. True if it is empty.
pub fn inspect(files: &DatabaseFiles, connection: &Connection) -> Result<bool, OpenError> {
    let shown = &files.display_path;
    match identify_origin(connection).map_err(|error| explain_error(shown, &error))? {
        DatabaseOrigin::Ours => Ok(false),
        DatabaseOrigin::Empty => Ok(true),
        DatabaseOrigin::Newer(format) => Err(newer_format_error(shown, format, FORMAT)),
        DatabaseOrigin::OtherProgram => Err(OpenError::new(format!(
            "{shown} is a database of another program; name another --database"
        ))),
    }
}

/// Checks for damage, without reading a large file whole.
pub fn check_pages(files: &DatabaseFiles, connection: &Connection) -> Result<(), OpenError> {
    let explain = |error: rusqlite::Error| explain_error(&files.display_path, &error);
    let number =
        |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0)).map_err(explain);
    let bytes = fs::metadata(&files.real_path).map_or(0, |metadata| metadata.len());
    let pages = number("PRAGMA page_count")?.saturating_mul(number("PRAGMA page_size")?);
    let has_log = fs::metadata(files.sibling("-wal")).is_ok_and(|metadata| metadata.len() > 0);
    if !has_log && bytes < u64::try_from(pages).unwrap_or(0) {
        return Err(damaged_error(&files.display_path, "it is truncated"));
    }
    if bytes <= CHECKED_BYTES_MAX {
        let verdict: String =
            connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(explain)?;
        if verdict != "ok" {
            return Err(damaged_error(&files.display_path, &verdict));
        }
    }
    Ok(())
}

fn damaged_error(shown: &str, how: &str) -> OpenError {
    OpenError::new(format!(
        "{shown} is damaged ({how}); restore it from a backup, or name another --database"
    ))
}

/// SQLite's error, with a remedy.
pub fn explain_error(shown: &str, error: &rusqlite::Error) -> OpenError {
    OpenError::new(match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => {
            format!("{shown} is not an SQLite database; name another --database")
        }
        Some(ErrorCode::DatabaseCorrupt) => return damaged_error(shown, &error.to_string()),
        Some(ErrorCode::DiskFull) => disk_full_message(shown),
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
            format!(
                "{shown} cannot be written ({error}); make it writable, or name another --database"
            )
        }
        Some(ErrorCode::CannotOpen) => {
            format!(
                "cannot open {shown} ({error}); check that the folder exists and is writable, or name another --database"
            )
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            format!("{shown} is locked by another process; wait until it is done, then start again")
        }
        Some(ErrorCode::SystemIoFailure) => {
            format!("{shown} cannot be read or written ({error}); check the disk")
        }
        _ => format!("cannot use {shown} ({error}); name another --database"),
    })
}
