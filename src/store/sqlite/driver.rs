//! SQLite behind the `Driver` trait: statements from the connection's cache, values in and out.

use rusqlite::types::{ToSql, ToSqlOutput, Value as Owned, ValueRef};
use rusqlite::{CachedStatement, Connection, Error, ErrorCode, Row, ffi};
use uuid::{ContextV7, Timestamp, Uuid};

use crate::clock;
use crate::model::Resource;
use crate::store::Broken;
use crate::store::driver::{Bind, Columns, Driver, Failure};
use crate::store::sql::SQLITE_LAST_ID;
use crate::value::{Id, IdKind, Moment};

/// A connection inside a transaction (or, for a single read, outside one).
#[derive(Debug)]
pub(super) struct SqliteDriver<'a> {
    pub(super) connection: &'a Connection,
    pub(super) ids: &'a Ids,
}

/// Makes UUIDs in the order they are asked for, also within one millisecond and when the clock is set
/// back.
#[derive(Debug)]
pub(super) struct Ids(ContextV7);

impl Default for Ids {
    fn default() -> Self {
        Self(ContextV7::new())
    }
}

impl Ids {
    fn next(&self, now: Moment) -> Id {
        let (seconds, nanos) = now.since_1970();
        Id::Uuid(Uuid::new_v7(Timestamp::from_unix(&self.0, seconds, nanos)))
    }
}

impl SqliteDriver<'_> {
    /// A statement from the cache with its parameters bound.
    fn prepare(&self, sql: &str, binds: &[Bind<'_>]) -> Result<CachedStatement<'_>, Failure> {
        let mut statement = self.connection.prepare_cached(sql).map_err(failure)?;
        for (number, bind) in (1..).zip(binds) {
            statement.raw_bind_parameter::<usize, _>(number, bind).map_err(failure)?;
        }
        Ok(statement)
    }
}

impl Driver for SqliteDriver<'_> {
    async fn rows_until<T>(
        &mut self,
        sql: &str,
        binds: &[Bind<'_>],
        read: impl Fn(&dyn Columns) -> Result<T, Broken>,
        mut is_enough: impl FnMut(&T) -> bool,
    ) -> Result<Vec<T>, Failure> {
        let mut statement = self.prepare(sql, binds)?;
        let mut rows = statement.raw_query();
        let mut all = Vec::new();
        while let Some(row) = rows.next().map_err(failure)? {
            let row = read(row).map_err(Failure::Broken)?;
            let is_last = is_enough(&row);
            all.push(row);
            if is_last {
                break;
            }
        }
        Ok(all)
    }

    async fn execute(&mut self, sql: &str, binds: &[Bind<'_>]) -> Result<usize, Failure> {
        self.prepare(sql, binds)?.raw_execute().map_err(failure)
    }

    async fn allocate(&mut self, resource: &Resource, count: usize) -> Result<Vec<Id>, Failure> {
        let now = self.now();
        match resource.id {
            IdKind::Uuid => Ok((0..count).map(|_| self.ids.next(now)).collect()),
            // SQLite moves this number up itself when a larger id is inserted, in the same transaction.
            IdKind::Integer => {
                let read = |row: &dyn Columns| row.integer(0);
                let last = self.rows(SQLITE_LAST_ID, &[Bind::Text(&resource.plural)], read).await?;
                let last = last.into_iter().flatten().next().unwrap_or(0);
                Ok((last + 1..).take(count).map(Id::Integer).collect())
            }
        }
    }

    fn now(&self) -> Moment {
        clock::moment()
    }
}

/// Sorts SQLite's errors by what they mean for a request.
pub(super) fn failure(error: Error) -> Failure {
    match error {
        Error::SqliteFailure(code, message) => {
            let words = message.unwrap_or_else(|| code.to_string());
            match (code.code, code.extended_code) {
                (_, ffi::SQLITE_CONSTRAINT_UNIQUE | ffi::SQLITE_CONSTRAINT_PRIMARYKEY) => {
                    Failure::Taken(words)
                }
                (ErrorCode::OperationInterrupted, _) => Failure::TimedOut,
                (ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked, _) => Failure::Locked,
                (_, extended) if is_sync(extended) => {
                    Failure::Sync(format!("{words} (SQLite error {extended})"))
                }
                (code, extended) if is_storage(code) => {
                    Failure::Storage(format!("{words} (SQLite error {extended})"))
                }
                (_, extended) => Failure::Engine(format!("{words} (SQLite error {extended})")),
            }
        }
        other => Failure::Engine(other.to_string()),
    }
}

pub(super) fn is_sync(extended: i32) -> bool {
    matches!(extended, ffi::SQLITE_IOERR_FSYNC | ffi::SQLITE_IOERR_DIR_FSYNC)
}

/// After these, everything since the last commit may be gone.
fn is_storage(code: ErrorCode) -> bool {
    use ErrorCode::{
        CannotOpen, DatabaseCorrupt, DiskFull, NotADatabase, OutOfMemory, ReadOnly, SystemIoFailure,
    };
    let storage = [
        CannotOpen,
        DatabaseCorrupt,
        DiskFull,
        NotADatabase,
        OutOfMemory,
        ReadOnly,
        SystemIoFailure,
    ];
    storage.contains(&code)
}

impl ToSql for Bind<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(match self {
            Self::Null => ToSqlOutput::Borrowed(ValueRef::Null),
            Self::Boolean(boolean) => ToSqlOutput::Owned(Owned::Integer(i64::from(*boolean))),
            Self::Integer(number) | Self::Id(Id::Integer(number)) => {
                ToSqlOutput::Owned(Owned::Integer(*number))
            }
            Self::Real(number) => ToSqlOutput::Owned(Owned::Real(*number)),
            Self::Text(text) => ToSqlOutput::Borrowed(ValueRef::Text(text.as_bytes())),
            Self::Moment(moment) => ToSqlOutput::Owned(Owned::Text(moment.to_string())),
            Self::Id(Id::Uuid(uuid)) => {
                ToSqlOutput::Owned(Owned::Text(uuid.hyphenated().to_string()))
            }
        })
    }
}

fn broken(at: usize, expected: &str) -> Broken {
    Broken(format!("column {at} of a stored row: expected {expected}"))
}

impl Columns for Row<'_> {
    fn integer(&self, at: usize) -> Result<Option<i64>, Broken> {
        match self.get_ref(at) {
            Ok(ValueRef::Null) => Ok(None),
            Ok(ValueRef::Integer(number)) => Ok(Some(number)),
            _ => Err(broken(at, "an integer")),
        }
    }

    fn real(&self, at: usize) -> Result<Option<f64>, Broken> {
        match self.get_ref(at) {
            Ok(ValueRef::Null) => Ok(None),
            Ok(ValueRef::Real(number)) => Ok(Some(number)),
            _ => Err(broken(at, "a number")),
        }
    }

    fn boolean(&self, at: usize) -> Result<Option<bool>, Broken> {
        Ok(self.integer(at)?.map(|number| number != 0))
    }

    fn text(&self, at: usize) -> Result<Option<&str>, Broken> {
        match self.get_ref(at) {
            Ok(ValueRef::Null) => Ok(None),
            Ok(ValueRef::Text(bytes)) => {
                str::from_utf8(bytes).map(Some).map_err(|_| broken(at, "text in UTF-8"))
            }
            _ => Err(broken(at, "text")),
        }
    }

    fn moment(&self, at: usize) -> Result<Option<Moment>, Broken> {
        let text = self.text(at)?;
        text.map(|text| Moment::parse(text).ok_or_else(|| broken(at, "a timestamp"))).transpose()
    }

    fn id(&self, at: usize, kind: IdKind) -> Result<Option<Id>, Broken> {
        match kind {
            IdKind::Integer => Ok(self.integer(at)?.map(Id::Integer)),
            IdKind::Uuid => {
                let text = self.text(at)?;
                text.map(|text| kind.parse(text).ok_or_else(|| broken(at, "a uuid"))).transpose()
            }
        }
    }
}
