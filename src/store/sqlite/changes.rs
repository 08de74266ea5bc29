//! Reader of the change log on SQLite, beside the server that has the file open.

use std::path::Path;

use rusqlite::{Connection, OpenFlags};

use super::driver::SqliteDriver;
use super::files::Files;
use super::open::{explain, inspect};
use crate::store::OpenError;
use crate::store::changes;
use crate::store::driver::{Failure, at_once};
use crate::store::ids::Ids;
use crate::store::sql::SQLITE;
use crate::value::Change;

/// A read-only connection.
#[derive(Debug)]
pub struct Changes {
    connection: Connection,
    shown: String,
}

impl Changes {
    /// `None` if the file is missing or empty.
    pub(in crate::store) fn find(path: &Path) -> Result<Option<Self>, OpenError> {
        let files = Files::find(path)?;
        files.check()?;
        if files.is_empty() {
            return Ok(None);
        }
        let shown = path.display().to_string();
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let opened = Connection::open_with_flags(path, flags);
        let connection = opened.and_then(|connection| {
            super::open::prepare(&connection, 1_000)?;
            Ok(connection)
        });
        let connection = connection.map_err(|error| explain(&shown, &error))?;
        match inspect(&files, &connection)? {
            true => Ok(None),
            false => Ok(Some(Self { connection, shown })),
        }
    }

    pub(in crate::store) fn after(&mut self, sequence: i64) -> Result<Vec<Change>, OpenError> {
        let ids = Ids::default();
        let mut driver = SqliteDriver { connection: &self.connection, ids: &ids };
        let read = at_once(changes::read(&mut driver, &SQLITE, sequence));
        read.unwrap_or(Err(Failure::TimedOut)).map_err(|failure| {
            let shown = &self.shown;
            OpenError(format!("cannot read the change log of {shown} ({})", failure.words()))
        })
    }
}
