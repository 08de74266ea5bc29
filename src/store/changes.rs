//! The change log, read in order from beside the servers.
//!
//! A reader never misses a change that is committed late with a smaller number: it goes only as far as
//! nothing smaller can come any more (`Dialect::settled`). Nothing is written here.

use super::driver::{Bind, Columns, Driver, Failure};
use super::sql::{Dialect, changes_between};
use super::{Broken, Database, OpenError, postgres, sqlite};
use crate::model::settings::Pooling;
use crate::value::Change;

/// Changes that are read at once.
pub(super) const CHANGES_MAX: i64 = 500;

/// The change log of one database.
#[derive(Debug)]
pub enum Changes {
    Sqlite(sqlite::Changes),
    Postgres(postgres::Changes),
}

impl Changes {
    pub fn open(database: &Database, pooling: Option<Pooling>) -> Result<Self, OpenError> {
        let found = match database {
            Database::Sqlite(path) => sqlite::Changes::find(path)?.map(Self::Sqlite),
            Database::Postgres(address) => {
                let pooling = pooling.unwrap_or(Pooling::Session);
                postgres::Changes::find(address, pooling)?.map(Self::Postgres)
            }
        };
        found.ok_or_else(|| database.is_missing())
    }

    /// The next changes after a number, in their order; none when there are none yet.
    pub fn after(&mut self, sequence: i64) -> Result<Vec<Change>, OpenError> {
        match self {
            Self::Sqlite(changes) => changes.after(sequence),
            Self::Postgres(changes) => changes.after(sequence),
        }
    }
}

/// One step of a reader. Two statements, in this order: the second must see all that the first counts on.
pub(super) async fn read<D: Driver>(
    driver: &mut D,
    dialect: &Dialect,
    sequence: i64,
) -> Result<Vec<Change>, Failure> {
    let settled = driver.rows(dialect.settled, &[], |row| row.integer(0)).await?;
    let settled = settled.into_iter().flatten().next().unwrap_or(0);
    if settled <= sequence {
        return Ok(Vec::new());
    }
    let binds = [Bind::Integer(sequence), Bind::Integer(settled), Bind::Integer(CHANGES_MAX)];
    driver.rows(&changes_between(dialect), &binds, read_change).await
}

fn read_change(row: &dyn Columns) -> Result<Change, Broken> {
    let text = |at| {
        let text = row.text(at)?.map(str::to_owned);
        text.ok_or_else(|| Broken(format!("column {at} of the change log: expected text")))
    };
    let optional = |at| Ok::<_, Broken>(row.text(at)?.map(str::to_owned));
    let missing = || Broken("an entry of the change log without its number or time".to_owned());
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
