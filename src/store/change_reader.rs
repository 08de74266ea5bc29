//! Reader of the change log for `nouns changes`, in order, beside the running servers.
//!
//! It never misses a change that commits late with a smaller number: it reads only up to the low-water mark
//! (`Dialect::low_watermark`). It writes nothing.

use super::driver::{Bind, Columns, DatabaseDriver, StatementError};
use super::sql::{Dialect, changes_between};
use super::{Database, InternalError, OpenError, postgres, sqlite};
use crate::model::settings::Pooling;
use crate::value::Change;

/// Changes per batch.
pub(super) const BATCH_CHANGES_MAX: i64 = 500;

/// A reader of one database's change log.
#[derive(Debug)]
pub enum ChangeReader {
    Sqlite(sqlite::SqliteChangeReader),
    Postgres(postgres::PostgresChangeReader),
}

impl ChangeReader {
    pub fn open(database: &Database, pooling: Option<Pooling>) -> Result<Self, OpenError> {
        let found = match database {
            Database::Sqlite(path) => sqlite::SqliteChangeReader::find(path)?.map(Self::Sqlite),
            Database::Postgres(address) => {
                let pooling = pooling.unwrap_or(Pooling::Session);
                postgres::PostgresChangeReader::find(address, pooling)?.map(Self::Postgres)
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

/// Reads one batch. Two statements, in this order: the second must see every change up to the low-water mark
/// that the first returns.
pub(super) async fn read_batch<D: DatabaseDriver>(
    driver: &mut D,
    dialect: &Dialect,
    sequence: i64,
) -> Result<Vec<Change>, StatementError> {
    let settled = driver.query(dialect.low_watermark, &[], |row| row.integer(0)).await?;
    let settled = settled.into_iter().flatten().next().unwrap_or(0);
    if settled <= sequence {
        return Ok(Vec::new());
    }
    let binds = [Bind::Integer(sequence), Bind::Integer(settled), Bind::Integer(BATCH_CHANGES_MAX)];
    driver.query(&changes_between(dialect), &binds, read_change).await
}

fn read_change(row: &dyn Columns) -> Result<Change, InternalError> {
    let text = |at| {
        let text = row.text(at)?.map(str::to_owned);
        text.ok_or_else(|| InternalError(format!("column {at} of the change log: expected text")))
    };
    let optional = |at| Ok::<_, InternalError>(row.text(at)?.map(str::to_owned));
    let missing = || InternalError("a change log entry without its number or time".to_owned());
    Ok(Change {
        sequence: row.integer(0)?.ok_or_else(missing)?,
        time: row.moment(1)?.ok_or_else(missing)?,
        resource: text(2)?,
        id: text(3)?,
        subject: text(4)?,
        kind: text(5)?,
        actor: text(6)?,
        request_id: text(7)?,
        changed: optional(8)?,
        before: optional(9)?,
        after: optional(10)?,
    })
}
