//! Reader of the change log for `nouns changes`, in order, beside the running servers.
//!
//! It never misses a change that commits late with a smaller number: it reads only up to the low-water mark
//! (`Dialect::low_watermark`). It writes nothing.

use crate::model::settings::Pooling;
use crate::store::database::Database;
use crate::store::error::OpenError;
use crate::store::postgres::change_reader::PostgresChangeReader;
use crate::store::sqlite::change_reader::SqliteChangeReader;
use crate::value::Change;

/// A reader of one database's change log.
#[derive(Debug)]
pub enum ChangeReader {
    Sqlite(SqliteChangeReader),
    Postgres(PostgresChangeReader),
}

impl ChangeReader {
    pub fn open(database: &Database, pooling: Option<Pooling>) -> Result<Self, OpenError> {
        let found = match database {
            Database::Sqlite(path) => SqliteChangeReader::find(path)?.map(Self::Sqlite),
            Database::Postgres(address) => {
                let pooling = pooling.unwrap_or(Pooling::Session);
                PostgresChangeReader::find(address, pooling)?.map(Self::Postgres)
            }
        };
        found.ok_or_else(|| database.missing_error())
    }

    /// The next changes after a number, in order; empty if there are none yet.
    pub fn read_after(&mut self, sequence: i64) -> Result<Vec<Change>, OpenError> {
        match self {
            Self::Sqlite(changes) => changes.read_after(sequence),
            Self::Postgres(changes) => changes.read_after(sequence),
        }
    }
}
