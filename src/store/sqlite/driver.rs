//! The SQLite driver: cached prepared statements, parameters and columns.

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, Error, ErrorCode, Row, ffi};
use uuid::Uuid;

use crate::clock;
use crate::store::driver::Driver;
use crate::store::error::{InternalError, StatementError};
use crate::store::sql::dialect::{Dialect, SQLITE};
use crate::store::statement::{Bind, Columns, Statement};
use crate::value::{Id, IdKind, Moment};

/// The savepoint of one request within its commit group.
pub const SAVEPOINT: &str = "SAVEPOINT request";
pub const ROLLBACK_TO: &str = "ROLLBACK TO request";
pub const RELEASE: &str = "RELEASE request";

/// A connection inside a transaction (or, for a single read, outside one).
#[derive(Debug)]
pub struct SqliteDriver<'a> {
    pub connection: &'a Connection,
}

fn bind_parameters(
    statement: &mut rusqlite::Statement<'_>,
    binds: &[Bind<'_>],
) -> Result<(), StatementError> {
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
                moment_text = moment.canonical_text();
                ValueRef::Text(&moment_text)
            }
            Bind::Id(Id::Uuid(uuid)) => {
                ValueRef::Text(uuid.hyphenated().encode_lower(&mut uuid_text).as_bytes())
            }
        };
        let value = ToSqlOutput::Borrowed(value);
        statement.raw_bind_parameter::<usize, _>(number, value).map_err(classify_error)?;
    }
    Ok(())
}

impl Driver for SqliteDriver<'_> {
    const DIALECT: &'static Dialect = &SQLITE;

    async fn query_all<T>(
        &mut self,
        statements: &[Statement<'_>],
        read: impl Fn(usize, &dyn Columns) -> Result<T, InternalError>,
        mut is_enough: impl FnMut(&T) -> bool,
    ) -> Result<Vec<Vec<T>>, StatementError> {
        let mut all = Vec::with_capacity(statements.len());
        for (at, Statement { sql, binds, is_cached }) in statements.iter().enumerate() {
            let (mut cached, mut uncached);
            let statement: &mut rusqlite::Statement<'_> = if *is_cached {
                cached = self.connection.prepare_cached(sql).map_err(classify_error)?;
                &mut cached
            } else {
                uncached = self.connection.prepare(sql).map_err(classify_error)?;
                &mut uncached
            };
            bind_parameters(statement, binds)?;
            let (mut rows, mut found) = (statement.raw_query(), Vec::new());
            while let Some(row) = rows.next().map_err(classify_error)? {
                let row = read(at, row).map_err(StatementError::Internal)?;
                let is_last = is_enough(&row);
                found.push(row);
                if is_last {
                    break;
                }
            }
            all.push(found);
        }
        Ok(all)
    }

    async fn execute(&mut self, sql: &str, binds: &[Bind<'_>]) -> Result<usize, StatementError> {
        let mut statement = self.connection.prepare_cached(sql).map_err(classify_error)?;
        bind_parameters(&mut statement, binds)?;
        statement.raw_execute().map_err(classify_error)
    }

    /// The writer sets the savepoint, and releases it.
    async fn rollback_to_savepoint(&mut self) -> Result<(), StatementError> {
        self.execute(ROLLBACK_TO, &[]).await.map(|_| ())
    }

    fn now(&self) -> Moment {
        clock::moment()
    }
}

/// Classifies SQLite's errors by their consequence for a request.
pub fn classify_error(error: Error) -> StatementError {
    match error {
        Error::SqliteFailure(code, message) => {
            let words = message.unwrap_or_else(|| code.to_string());
            match (code.code, code.extended_code) {
                (_, ffi::SQLITE_CONSTRAINT_UNIQUE | ffi::SQLITE_CONSTRAINT_PRIMARYKEY) => {
                    StatementError::UniqueViolation(words)
                }
                (ErrorCode::OperationInterrupted, _) => StatementError::TimedOut,
                (ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked, _) => StatementError::Locked,
                (_, extended) if is_sync_error(extended) => {
                    StatementError::Sync(format!("{words} (SQLite error {extended})"))
                }
                (code, extended) if is_storage_error(code) => {
                    StatementError::Storage(format!("{words} (SQLite error {extended})"))
                }
                (_, extended) => {
                    StatementError::Engine(format!("{words} (SQLite error {extended})"))
                }
            }
        }
        other => StatementError::Engine(other.to_string()),
    }
}

pub fn is_sync_error(extended: i32) -> bool {
    matches!(extended, ffi::SQLITE_IOERR_FSYNC | ffi::SQLITE_IOERR_DIR_FSYNC)
}

/// After these errors, everything since the last commit may be lost.
fn is_storage_error(code: ErrorCode) -> bool {
    use ErrorCode::{
        CannotOpen, DatabaseCorrupt, DiskFull, NotADatabase, OutOfMemory, ReadOnly, SystemIoFailure,
    };
    matches!(
        code,
        CannotOpen
            | DatabaseCorrupt
            | DiskFull
            | NotADatabase
            | OutOfMemory
            | ReadOnly
            | SystemIoFailure
    )
}

fn wrong_type_error(at: usize, expected: &str) -> InternalError {
    InternalError(format!("column {at} of a stored row: expected {expected}"))
}

fn text_bytes<'a>(row: &'a Row<'_>, at: usize) -> Result<Option<&'a [u8]>, InternalError> {
    match row.get_ref(at) {
        Ok(ValueRef::Null) => Ok(None),
        Ok(ValueRef::Text(bytes)) => Ok(Some(bytes)),
        _ => Err(wrong_type_error(at, "text")),
    }
}

impl Columns for Row<'_> {
    fn integer(&self, at: usize) -> Result<Option<i64>, InternalError> {
        match self.get_ref(at) {
            Ok(ValueRef::Null) => Ok(None),
            Ok(ValueRef::Integer(number)) => Ok(Some(number)),
            _ => Err(wrong_type_error(at, "an integer")),
        }
    }

    fn real(&self, at: usize) -> Result<Option<f64>, InternalError> {
        match self.get_ref(at) {
            Ok(ValueRef::Null) => Ok(None),
            Ok(ValueRef::Real(number)) => Ok(Some(number)),
            _ => Err(wrong_type_error(at, "a number")),
        }
    }

    fn boolean(&self, at: usize) -> Result<Option<bool>, InternalError> {
        Ok(self.integer(at)?.map(|number| number != 0))
    }

    fn text(&self, at: usize) -> Result<Option<&str>, InternalError> {
        let text = text_bytes(self, at)?.map(str::from_utf8);
        text.transpose().map_err(|_| wrong_type_error(at, "text in UTF-8"))
    }

    fn moment(&self, at: usize) -> Result<Option<Moment>, InternalError> {
        if let Some(moment) = text_bytes(self, at)?.and_then(Moment::from_canonical) {
            return Ok(Some(moment));
        }
        // Another program may have written it in another format.
        let text = self.text(at)?;
        text.map(|text| Moment::parse(text).ok_or_else(|| wrong_type_error(at, "a timestamp")))
            .transpose()
    }

    fn id(&self, at: usize, kind: IdKind) -> Result<Option<Id>, InternalError> {
        match kind {
            IdKind::Integer => Ok(self.integer(at)?.map(Id::Integer)),
            IdKind::Uuid => {
                let text = text_bytes(self, at)?;
                text.map(|text| {
                    IdKind::parse_uuid(text).ok_or_else(|| wrong_type_error(at, "a uuid"))
                })
                .transpose()
            }
        }
    }
}
