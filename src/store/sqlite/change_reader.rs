//! Reader of the change log on SQLite, beside the server that has the file open.

use std::path::Path;

use rusqlite::{Connection, OpenFlags};

use crate::store::change_log;
use crate::store::driver::poll_once;
use crate::store::error::{OpenError, StatementError};
use crate::store::sql::dialect::SQLITE;
use crate::store::sqlite::connection::{configure_connection, explain_error, inspect};
use crate::store::sqlite::database_files::DatabaseFiles;
use crate::store::sqlite::driver::SqliteDriver;
use crate::store::uuid_v7::UuidGenerator;
use crate::value::Change;

/// A read-only connection.
#[derive(Debug)]
pub struct SqliteChangeReader {
    connection: Connection,
    display_path: String,
}

impl SqliteChangeReader {
    /// `None` if the file is missing or empty.
    pub fn find(path: &Path) -> Result<Option<Self>, OpenError> {
        let files = DatabaseFiles::find(path)?;
        files.check()?;
        if files.is_empty() {
            return Ok(None);
        }
        let display_path = path.display().to_string();
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let opened = Connection::open_with_flags(path, flags);
        let connection = opened.and_then(|connection| {
            configure_connection(&connection, 1_000)?;
            Ok(connection)
        });
        let connection = connection.map_err(|error| explain_error(&display_path, &error))?;
        match inspect(&files, &connection)? {
            true => Ok(None),
            false => Ok(Some(Self { connection, display_path })),
        }
    }

    pub fn read_after(&mut self, sequence: i64) -> Result<Vec<Change>, OpenError> {
        let ids = UuidGenerator::default();
        let mut driver = SqliteDriver { connection: &self.connection, ids: &ids };
        let read = poll_once(change_log::read_batch(&mut driver, &SQLITE, sequence));
        read.unwrap_or(Err(StatementError::TimedOut)).map_err(|failure| {
            let shown = &self.display_path;
            OpenError(format!("cannot read the change log of {shown} ({})", failure.message()))
        })
    }
}
