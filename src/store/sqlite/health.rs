//! The health of a database file, for `nouns doctor`: it reads only, and for a limited time.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode};

use crate::clock;
use crate::store::error::OpenError;
use crate::store::sqlite::backup::{CACHE_KIB, last_line};
use crate::store::sqlite::connection::{explain_error, inspect, open_for_reading};
use crate::store::sqlite::database_files::{DatabaseFiles, is_database_or_empty};

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

/// The result of SQLite's check of all references.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReferenceCheck {
    Passed,
    /// A row refers to a row that does not exist: the names of both tables.
    Broken {
        table: String,
        other: String,
    },
    /// The time was over before the end, or the pages are damaged.
    Unfinished,
}

/// The state of a database file.
#[derive(Debug)]
pub struct SqliteHealth {
    pub bytes: u64,
    pub wal_bytes: u64,
    pub pages: PageCheck,
    pub references: ReferenceCheck,
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
    let references = match pages {
        PageCheck::Passed => check_references(&connection).map_err(explain)?,
        PageCheck::Failed(_) | PageCheck::Unfinished => ReferenceCheck::Unfinished,
    };
    // It removes the files that it has created.
    drop(connection);
    let bytes = |suffix| fs::metadata(files.sibling(suffix)).map_or(0, |file| file.len());
    let exists = |path: &PathBuf| path.symlink_metadata().is_ok();
    // A file with other contents is no copy of ours.
    let is_unfinished_copy = |path: &PathBuf| {
        let is_file = path.symlink_metadata().is_ok_and(|found| found.is_file());
        let is_copy = |file| is_database_or_empty(&file).unwrap_or(false);
        is_file && fs::File::open(path).is_ok_and(is_copy)
    };
    Ok(SqliteHealth {
        bytes: bytes(""),
        wal_bytes: bytes("-wal"),
        pages,
        references,
        files: DatabaseFiles::SUFFIXES
            .map(|end| files.sibling(end))
            .into_iter()
            .filter(exists)
            .collect(),
        partial_file: Some(files.sibling(".part")).filter(is_unfinished_copy),
    })
}

fn is_time_over(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::OperationInterrupted)
}

fn check_references(connection: &Connection) -> rusqlite::Result<ReferenceCheck> {
    let find = || {
        let mut check = connection.prepare("PRAGMA foreign_key_check")?;
        let mut rows = check.query([])?;
        match rows.next()? {
            Some(row) => Ok(ReferenceCheck::Broken { table: row.get(0)?, other: row.get(2)? }),
            None => Ok(ReferenceCheck::Passed),
        }
    };
    match find() {
        Err(error) if is_time_over(&error) => Ok(ReferenceCheck::Unfinished),
        found => found,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a check that had run out of time counted as passed.
    #[test]
    fn reference_check_out_of_time_is_unfinished() {
        let mut connection = Connection::open_in_memory().unwrap();
        connection
            .execute_batch(
                "CREATE TABLE parents (id INTEGER PRIMARY KEY);
                 CREATE TABLE children (parent REFERENCES parents);
                 WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000)
                 INSERT INTO parents SELECT i FROM n;
                 INSERT INTO children SELECT id FROM parents",
            )
            .unwrap();
        assert_eq!(check_references(&connection).unwrap(), ReferenceCheck::Passed);
        connection.progress_handler(100, Some(|| true)).unwrap();
        assert_eq!(check_references(&connection).unwrap(), ReferenceCheck::Unfinished);
        connection.progress_handler(100, None::<fn() -> bool>).unwrap();
        connection
            .execute_batch("PRAGMA foreign_keys = off; INSERT INTO children VALUES (0)")
            .unwrap();
        let (table, other) = ("children".to_owned(), "parents".to_owned());
        let broken = ReferenceCheck::Broken { table, other };
        assert_eq!(check_references(&connection).unwrap(), broken);
    }
}
