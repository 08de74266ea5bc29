//! The health of a database file, for `nouns doctor`: it reads only, and for a limited time.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode};

use crate::clock;
use crate::store::error::OpenError;
use crate::store::sqlite::backup::{CACHE_KIB, last_line};
use crate::store::sqlite::connection::{explain_error, inspect, open_for_reading};
use crate::store::sqlite::database_files::DatabaseFiles;

/// The virtual machine steps of SQLite between two looks at the clock.
const PROGRESS_STEPS: i32 = 10_000;

/// The result of SQLite's check of all pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PageCheck {
    Passed,
    /// The first fault.
    Failed(String),
    /// The time was over before the end.
    Unfinished,
}

/// The state of a database file.
#[derive(Debug)]
pub struct SqliteHealth {
    pub bytes: u64,
    pub wal_bytes: u64,
    pub pages: PageCheck,
    /// A row that refers to a row that does not exist: the names of both tables.
    pub broken_reference: Option<(String, String)>,
    /// The database and the files beside it that exist.
    pub files: Vec<PathBuf>,
    /// The file that a killed restore has left beside the database.
    pub partial_file: Option<PathBuf>,
}

/// Examines a database that exists.
pub fn examine(path: &Path, time_max: Duration) -> Result<SqliteHealth, OpenError> {
    let files = DatabaseFiles::find(path)?;
    files.check()?;
    let explain = |error: rusqlite::Error| explain_error(&files.display_path, &error);
    let mut connection = open_for_reading(&files.real_path, CACHE_KIB).map_err(explain)?;
    inspect(&files, &connection)?;
    let until = clock::now() + time_max;
    connection
        .progress_handler(PROGRESS_STEPS, Some(move || clock::now() >= until))
        .map_err(explain)?;
    let pages =
        match connection.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0)) {
            Ok(verdict) if verdict == "ok" => PageCheck::Passed,
            Ok(verdict) => PageCheck::Failed(last_line(&verdict)),
            Err(error) if is_time_over(&error) => PageCheck::Unfinished,
            Err(error) => PageCheck::Failed(error.to_string()),
        };
    let broken_reference = match (&pages, find_broken_reference(&connection)) {
        (PageCheck::Passed, Ok(found)) => found,
        (PageCheck::Passed, Err(error)) if !is_time_over(&error) => return Err(explain(error)),
        _ => None,
    };
    // It removes the files that it has created.
    drop(connection);
    let bytes = |suffix| fs::metadata(files.sibling(suffix)).map_or(0, |file| file.len());
    let exists = |path: &PathBuf| path.symlink_metadata().is_ok();
    Ok(SqliteHealth {
        bytes: bytes(""),
        wal_bytes: bytes("-wal"),
        pages,
        broken_reference,
        files: DatabaseFiles::SUFFIXES
            .map(|end| files.sibling(end))
            .into_iter()
            .filter(exists)
            .collect(),
        partial_file: Some(files.sibling(".part")).filter(exists),
    })
}

fn is_time_over(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted)
}

fn find_broken_reference(connection: &Connection) -> rusqlite::Result<Option<(String, String)>> {
    let mut check = connection.prepare("PRAGMA foreign_key_check")?;
    let mut rows = check.query([])?;
    rows.next()?.map(|row| Ok((row.get(0)?, row.get(2)?))).transpose()
}
