//! The change log read beside the server that has the file open.

use std::path::Path;

use rusqlite::{Connection, OpenFlags};

use super::driver::SqliteDriver;
use super::files::Files;
use crate::store::OpenError;
use crate::store::changes;
use crate::store::driver::{Failure, at_once};
use crate::store::ids::Ids;
use crate::store::sql::SQLITE;
use crate::value::Change;

/// A connection that only reads.
#[derive(Debug)]
pub struct Changes {
    connection: Connection,
    shown: String,
}

impl Changes {
    pub(in crate::store) fn open(path: &Path) -> Result<Self, OpenError> {
        let shown = path.display().to_string();
        if !path.exists() {
            return Err(OpenError(format!(
                "there is no database {shown}; name one with --database sqlite:PATH"
            )));
        }
        Files::find(path)?.check()?;
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let opened = Connection::open_with_flags(path, flags);
        let connection = opened.and_then(|connection| {
            super::open::prepare(&connection, 1_000)?;
            Ok(connection)
        });
        match connection {
            Ok(connection) => Ok(Self { connection, shown }),
            Err(error) => Err(OpenError(format!("cannot open {shown} ({error})"))),
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
