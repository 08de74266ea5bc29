//! The SQLite driver: cached prepared statements, parameters and columns.

use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, Error, ErrorCode, Row, ffi};
use uuid::Uuid;

use crate::clock;
use crate::store::driver::{Driver, RowReader};
use crate::store::error::{InternalError, StatementError};
use crate::store::sql::dialect::{Dialect, SQLITE};
use crate::store::statement::{Bind, Columns, Statement, StatementReuse};
use crate::value::{Id, IdKind, Moment};

/// A longer statement of a list is not kept prepared: it is rarely repeated, and takes much memory.
const LIST_TEXT_BYTES_CACHED: usize = 4 << 10;

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
        let (moment_text, derived_text);
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
            Bind::Derived(derivation, text) => {
                derived_text = derivation.derive(text);
                ValueRef::Text(derived_text.as_bytes())
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

    async fn read_rows(
        &mut self,
        statements: &[Statement<'_>],
        read: &mut RowReader<'_>,
    ) -> Result<(), StatementError> {
        for (at, Statement { sql, binds, reuse, .. }) in statements.iter().enumerate() {
            let (mut cached, mut uncached);
            let is_cached = match reuse {
                StatementReuse::Always => true,
                // Most of them have connections of their own, so that they evict only each other.
                StatementReuse::OfRanges | StatementReuse::OfLists => {
                    sql.len() <= LIST_TEXT_BYTES_CACHED
                }
                StatementReuse::Never => false,
            };
            let statement: &mut rusqlite::Statement<'_> = if is_cached {
                cached = self.connection.prepare_cached(sql).map_err(classify_error)?;
                &mut cached
            } else {
                uncached = self.connection.prepare(sql).map_err(classify_error)?;
                &mut uncached
            };
            bind_parameters(statement, binds)?;
            let mut rows = statement.raw_query();
            while let Some(row) = rows.next().map_err(classify_error)? {
                if read(at, row).map_err(StatementError::Internal)?.is_break() {
                    break;
                }
            }
        }
        Ok(())
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use rusqlite::hooks::{AuthAction, AuthContext, Authorization};

    use super::*;
    use crate::store::driver::poll_once;

    /// SQLite calls the authorizer when it prepares a statement.
    #[test]
    fn list_statement_is_kept_prepared_unless_it_is_long() {
        let mut connection = Connection::open_in_memory().unwrap();
        let prepared = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&prepared);
        let count = move |context: AuthContext<'_>| {
            if let AuthAction::Select = context.action {
                counter.fetch_add(1, Ordering::Relaxed);
            }
            Authorization::Allow
        };
        connection.authorizer(Some(count)).unwrap();
        let connection = connection;
        let prepared_by = |statement: &dyn Fn() -> Statement<'static>| {
            let before = prepared.load(Ordering::Relaxed);
            for _ in 0..3 {
                let mut driver = SqliteDriver { connection: &connection };
                let statements = [statement()];
                let read = |_: usize, row: &dyn Columns| row.required_integer(0);
                let found = poll_once(driver.query_all(&statements, read, |_| false)).unwrap();
                assert_eq!(found.unwrap(), [[5]]);
            }
            prepared.load(Ordering::Relaxed) - before
        };
        // The cache ignores spaces at the end.
        let sql = |length: usize| format!("SELECT ?1 -- {}", "x".repeat(length));
        let binds = || vec![Bind::Integer(5)];
        assert_eq!(prepared_by(&|| Statement::of_list(sql(0), binds())), 1);
        assert_eq!(prepared_by(&|| Statement::of_list(sql(LIST_TEXT_BYTES_CACHED), binds())), 3);
        assert_eq!(prepared_by(&|| Statement::uncached(sql(1), binds())), 3);
        assert_eq!(prepared_by(&|| Statement::new(sql(2), binds())), 1);
    }
}
