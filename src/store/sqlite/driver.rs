//! The SQLite driver: cached prepared statements, parameters and columns.

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{CachedStatement, Connection, Error, ErrorCode, Row, ffi};
use uuid::Uuid;

use crate::clock;
use crate::model::Resource;
use crate::store::Broken;
use crate::store::driver::{Bind, Columns, Driver, Failure, Stroke};
use crate::store::ids::Ids;
use crate::store::sql::SQLITE_LAST_ID;
use crate::value::{Id, IdKind, Moment};

/// The savepoint of one request within its commit group.
pub(super) const SAVEPOINT: &str = "SAVEPOINT request";
pub(super) const ROLLBACK_TO: &str = "ROLLBACK TO request";
pub(super) const RELEASE: &str = "RELEASE request";

/// A connection inside a transaction (or, for a single read, outside one).
#[derive(Debug)]
pub(super) struct SqliteDriver<'a> {
    pub(super) connection: &'a Connection,
    pub(super) ids: &'a Ids,
}

impl SqliteDriver<'_> {
    /// A prepared statement from the cache, with its parameters bound.
    fn prepare(&self, sql: &str, binds: &[Bind<'_>]) -> Result<CachedStatement<'_>, Failure> {
        let mut statement = self.connection.prepare_cached(sql).map_err(failure)?;
        bind(&mut statement, binds)?;
        Ok(statement)
    }
}

fn bind(statement: &mut rusqlite::Statement<'_>, binds: &[Bind<'_>]) -> Result<(), Failure> {
    for (number, bind) in (1..).zip(binds) {
        let mut uuid_text = Uuid::encode_buffer();
        let moment_text;
        let value = match bind {
            Bind::Null => ValueRef::Null,
            Bind::Boolean(boolean) => ValueRef::Integer(i64::from(*boolean)),
            Bind::Integer(number) | Bind::Id(Id::Integer(number)) => ValueRef::Integer(*number),
            Bind::Real(number) => ValueRef::Real(*number),
            Bind::Text(text) => ValueRef::Text(text.as_bytes()),
            Bind::Moment(moment) | Bind::MomentText(moment) => {
                moment_text = moment.text();
                ValueRef::Text(&moment_text)
            }
            Bind::Id(Id::Uuid(uuid)) => {
                ValueRef::Text(uuid.hyphenated().encode_lower(&mut uuid_text).as_bytes())
            }
        };
        let value = ToSqlOutput::Borrowed(value);
        statement.raw_bind_parameter::<usize, _>(number, value).map_err(failure)?;
    }
    Ok(())
}

/// Reads the rows of a statement until `is_enough` holds.
fn rows<T>(
    statement: &mut rusqlite::Statement<'_>,
    read: impl Fn(&dyn Columns) -> Result<T, Broken>,
    mut is_enough: impl FnMut(&T) -> bool,
) -> Result<Vec<T>, Failure> {
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

impl Driver for SqliteDriver<'_> {
    const SHARES_COMMIT: bool = true;

    async fn rows_until<T>(
        &mut self,
        sql: &str,
        binds: &[Bind<'_>],
        read: impl Fn(&dyn Columns) -> Result<T, Broken>,
        is_enough: impl FnMut(&T) -> bool,
    ) -> Result<Vec<T>, Failure> {
        let mut statement = self.prepare(sql, binds)?;
        rows(&mut statement, read, is_enough)
    }

    async fn rows_once<T>(
        &mut self,
        stroke: &Stroke<'_>,
        read: impl Fn(&dyn Columns) -> Result<T, Broken>,
        is_enough: impl FnMut(&T) -> bool,
    ) -> Result<Vec<T>, Failure> {
        let mut statement = self.connection.prepare(&stroke.sql).map_err(failure)?;
        bind(&mut statement, &stroke.binds)?;
        rows(&mut statement, read, is_enough)
    }

    /// Both statements read the same snapshot: the first one has returned its row but is not reset, so its
    /// read transaction stays open for the second.
    async fn rows_behind<A, T>(
        &mut self,
        (first, read_first): (&Stroke<'_>, impl Fn(&dyn Columns) -> Result<A, Broken>),
        then: &Stroke<'_>,
        read: impl Fn(&dyn Columns) -> Result<T, Broken>,
        is_enough: impl FnMut(&T) -> bool,
    ) -> Result<(Vec<A>, Vec<T>), Failure> {
        let ahead = SqliteDriver { connection: self.connection, ids: self.ids };
        let mut statement = ahead.prepare(&first.sql, &first.binds)?;
        let mut rows = statement.raw_query();
        let before = match rows.next().map_err(failure)? {
            Some(row) => vec![read_first(row).map_err(Failure::Broken)?],
            None => Vec::new(),
        };
        Ok((before, self.rows_until(&then.sql, &then.binds, read, is_enough).await?))
    }

    async fn execute(&mut self, sql: &str, binds: &[Bind<'_>]) -> Result<usize, Failure> {
        self.prepare(sql, binds)?.raw_execute().map_err(failure)
    }

    /// The writer sets the savepoint, and releases it.
    async fn undo(&mut self) -> Result<(), Failure> {
        self.execute(ROLLBACK_TO, &[]).await.map(|_| ())
    }

    async fn allocate(
        &mut self,
        resource: &Resource,
        count: usize,
        now: Moment,
    ) -> Result<Vec<Id>, Failure> {
        match resource.id {
            IdKind::Uuid => {
                let ids = (0..count).map(|_| self.ids.next(now).map(Id::Uuid));
                ids.collect::<Result<_, _>>().map_err(|error| Failure::Engine(error.to_string()))
            }
            // SQLite raises this number itself when a larger id is inserted, in the same transaction.
            IdKind::Integer => {
                let read = |row: &dyn Columns| row.integer(0);
                let last = self.rows(SQLITE_LAST_ID, &[Bind::Text(&resource.table)], read).await?;
                let last = last.into_iter().flatten().next().unwrap_or(0);
                Ok((last + 1..).take(count).map(Id::Integer).collect())
            }
        }
    }

    fn now(&self) -> Moment {
        clock::moment()
    }
}

/// Classifies SQLite's errors by their consequence for a request.
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

/// After these errors, everything since the last commit may be lost.
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

fn broken(at: usize, expected: &str) -> Broken {
    Broken(format!("column {at} of a stored row: expected {expected}"))
}

fn bytes<'a>(row: &'a Row<'_>, at: usize) -> Result<Option<&'a [u8]>, Broken> {
    match row.get_ref(at) {
        Ok(ValueRef::Null) => Ok(None),
        Ok(ValueRef::Text(bytes)) => Ok(Some(bytes)),
        _ => Err(broken(at, "text")),
    }
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
        let text = bytes(self, at)?.map(str::from_utf8);
        text.transpose().map_err(|_| broken(at, "text in UTF-8"))
    }

    fn moment(&self, at: usize) -> Result<Option<Moment>, Broken> {
        if let Some(moment) = bytes(self, at)?.and_then(Moment::from_text) {
            return Ok(Some(moment));
        }
        // Another program may have written it in another format.
        let text = self.text(at)?;
        text.map(|text| Moment::parse(text).ok_or_else(|| broken(at, "a timestamp"))).transpose()
    }

    fn id(&self, at: usize, kind: IdKind) -> Result<Option<Id>, Broken> {
        match kind {
            IdKind::Integer => Ok(self.integer(at)?.map(Id::Integer)),
            IdKind::Uuid => {
                let text = bytes(self, at)?;
                text.map(|text| IdKind::uuid(text).ok_or_else(|| broken(at, "a uuid"))).transpose()
            }
        }
    }
}
