//! The driver trait: a backend's operations inside one transaction.
//!
//! The layers above are written once against this trait. It is async because PostgreSQL's driver waits on a
//! socket. SQLite's driver never waits, so its futures are ready at the first poll (`poll_once`), and the
//! same code runs on the writer thread without a runtime.

use std::ops::ControlFlow;
use std::pin::pin;
use std::slice;
use std::sync::atomic::AtomicI64;
use std::task::{Context, Poll, Waker};

use crate::fault::OrBug;
use crate::store::error::{
    FailedStatement, InternalError, StatementError, changed_while_locked_error,
};
use crate::store::sql::dialect::Dialect;
use crate::store::statement::{Bind, BulkInsert, Columns, Statement};
use crate::value::Moment;

/// Whether the transaction goes on after the last of several statements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// More statements of the transaction.
    Continue,
    /// The end of the transaction. A backend that commits by itself commits with the statements.
    Commit,
}

/// Reads a row of the statement with this index, and returns `Break` if the statement's other rows are not wanted.
///
/// A trait object, so that a backend's way to run statements is compiled once and not for each caller.
pub type RowReader<'r> =
    dyn FnMut(usize, &dyn Columns) -> Result<ControlFlow<()>, InternalError> + 'r;

/// A connection inside a transaction.
pub trait Driver {
    const DIALECT: &'static Dialect;

    /// Runs statements in order, in one round trip where the backend can, and calls `read` for their rows. Returns
    /// the first error of a statement or of `read`; rows of later statements may have been read by then.
    async fn read_rows(
        &mut self,
        statements: &[Statement<'_>],
        read: &mut RowReader<'_>,
    ) -> Result<(), StatementError>;

    /// Runs a statement and returns the number of rows it changed.
    async fn execute(&mut self, sql: &str, binds: &[Bind<'_>]) -> Result<usize, StatementError>;

    /// Runs statements in order, each of which must change exactly one row, unless it says otherwise.
    async fn execute_all(
        &mut self,
        statements: &[Statement<'_>],
        _: Then,
    ) -> Result<(), FailedStatement> {
        for (at, statement) in statements.iter().enumerate() {
            let failed = |failure| FailedStatement { at, failure };
            match self.execute(&statement.sql, &statement.binds).await.map_err(failed)? {
                1 => {}
                _ if !statement.changes_one_row => {}
                _ => return Err(failed(changed_while_locked_error())),
            }
        }
        Ok(())
    }

    /// Inserts rows, in bulk where the engine has a way to do so.
    async fn insert_rows(
        &mut self,
        insert: &BulkInsert,
        rows: &[Vec<Bind<'_>>],
    ) -> Result<(), StatementError> {
        for row in rows {
            self.execute(&insert.row, row).await?;
        }
        Ok(())
    }

    /// Sets a savepoint: from here on `rollback_to_savepoint` undoes the writes.
    async fn begin_savepoint(&mut self) -> Result<(), StatementError> {
        Ok(())
    }

    /// Undoes everything since `begin_savepoint`.
    async fn rollback_to_savepoint(&mut self) -> Result<(), StatementError>;

    /// Sets a savepoint in a transaction whose caller sets none: for `rollback_to_savepoint`, until it is released.
    async fn begin_nested(&mut self) -> Result<(), StatementError> {
        self.execute("SAVEPOINT request", &[]).await.map(drop)
    }

    /// Releases the savepoint of `begin_nested`, and keeps the writes.
    async fn release_nested(&mut self) -> Result<(), StatementError> {
        self.execute("RELEASE request", &[]).await.map(drop)
    }

    /// Makes the connection usable for reads after a statement was refused. The writes of the transaction may
    /// be rolled back by then.
    async fn recover(&mut self) -> Result<(), StatementError> {
        Ok(())
    }

    /// All statements from here on see the same state of the database, until `end_snapshot`. Does nothing where the
    /// caller has begun a transaction.
    fn begin_snapshot(&mut self) {}

    async fn end_snapshot(&mut self) -> Result<(), StatementError> {
        Ok(())
    }

    /// The current time; a transaction asks once.
    fn now(&self) -> Moment;

    /// The cached low-water mark of the change log: every change up to this number is visible. `None` where all
    /// visible changes are complete, because there is a single writer.
    fn low_watermark(&self) -> Option<&AtomicI64> {
        None
    }

    /// Runs statements as `read_rows` does, and returns the rows of each, up to the first for which `is_enough` holds.
    async fn query_all<T>(
        &mut self,
        statements: &[Statement<'_>],
        read: impl Fn(usize, &dyn Columns) -> Result<T, InternalError>,
        mut is_enough: impl FnMut(&T) -> bool,
    ) -> Result<Vec<Vec<T>>, StatementError> {
        let mut all: Vec<Vec<T>> = statements.iter().map(|_| Vec::new()).collect();
        let mut read_row = |at: usize, columns: &dyn Columns| {
            let row = read(at, columns)?;
            let is_last = is_enough(&row);
            all.get_mut(at).or_bug("a row belongs to a statement").push(row);
            Ok(if is_last { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        };
        self.read_rows(statements, &mut read_row).await?;
        Ok(all)
    }

    /// Runs a statement and reads every row.
    async fn query<T>(
        &mut self,
        sql: &str,
        binds: &[Bind<'_>],
        read: impl Fn(&dyn Columns) -> Result<T, InternalError>,
    ) -> Result<Vec<T>, StatementError> {
        self.query_statement(&Statement::new(sql, binds.to_vec()), read).await
    }

    /// As `query`, for a statement with its parameters.
    async fn query_statement<T>(
        &mut self,
        statement: &Statement<'_>,
        read: impl Fn(&dyn Columns) -> Result<T, InternalError>,
    ) -> Result<Vec<T>, StatementError> {
        let all = self.query_all(slice::from_ref(statement), |_, row| read(row), |_| false);
        Ok(all.await?.pop().or_bug("a result for each statement"))
    }

    /// Runs a statement that returns one row at most.
    async fn query_one<T>(
        &mut self,
        sql: &str,
        binds: &[Bind<'_>],
        read: impl Fn(&dyn Columns) -> Result<T, InternalError>,
    ) -> Result<Option<T>, StatementError> {
        Ok(self.query(sql, binds, read).await?.pop())
    }

    /// Runs a statement that returns a boolean.
    async fn query_is_true(&mut self, sql: &str) -> Result<bool, StatementError> {
        Ok(self.query_one(sql, &[], |row| row.boolean(0)).await?.flatten() == Some(true))
    }

    /// Whether each statement returns a row. Many statements are sent in several round trips.
    async fn have_rows(
        &mut self,
        statements: &[Statement<'_>],
    ) -> Result<Vec<bool>, StatementError> {
        let mut have_rows = Vec::with_capacity(statements.len());
        for statements in statements.chunks(PIPELINED_MAX) {
            let found = self.query_all(statements, |_, _| Ok(()), |()| false).await?;
            have_rows.extend(found.iter().map(|rows| !rows.is_empty()));
        }
        Ok(have_rows)
    }
}

/// Statements in one round trip, of those whose number depends on the request.
const PIPELINED_MAX: usize = 500;

/// Polls a future once; `None` if it is not ready.
pub fn poll_once<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}
