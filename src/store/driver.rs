//! The driver trait: a backend's operations inside one transaction, and the types of parameters and rows.
//!
//! `transaction` is written once against this trait. It is async because PostgreSQL's driver waits on a
//! socket. SQLite's driver never waits, so its futures are ready at the first poll (`poll_once`), and the
//! same code runs on the writer thread without a runtime.

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use crate::store::error::{
    FailedStatement, InternalError, StatementError, changed_while_locked_error,
};
use crate::store::sql::dialect::Dialect;
use crate::store::statement::{Bind, Columns, Statement};
use crate::value::Moment;

/// A connection inside a transaction.
pub trait Driver {
    const DIALECT: &'static Dialect;

    /// Whether transactions of several requests share one commit (group commit), so that an error which would
    /// fail the commit has to be found before it.
    const HAS_SHARED_COMMIT: bool;

    /// Runs a statement and reads rows until `is_enough` holds.
    async fn query_until<T>(
        &mut self,
        sql: &str,
        binds: &[Bind<'_>],
        read: impl Fn(&dyn Columns) -> Result<T, InternalError>,
        is_enough: impl FnMut(&T) -> bool,
    ) -> Result<Vec<T>, StatementError>;

    /// Runs a statement and reads every row.
    async fn query<T>(
        &mut self,
        sql: &str,
        binds: &[Bind<'_>],
        read: impl Fn(&dyn Columns) -> Result<T, InternalError>,
    ) -> Result<Vec<T>, StatementError> {
        self.query_until(sql, binds, read, |_| false).await
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

    /// As `query_until`, for a statement that is unlikely to be repeated: it is not put into the statement
    /// cache.
    async fn query_uncached<T>(
        &mut self,
        stroke: &Statement<'_>,
        read: impl Fn(&dyn Columns) -> Result<T, InternalError>,
        is_enough: impl FnMut(&T) -> bool,
    ) -> Result<Vec<T>, StatementError> {
        self.query_until(&stroke.sql, &stroke.binds, read, is_enough).await
    }

    /// Runs two statements in one round trip where the backend can; reads rows of the second until
    /// `is_enough` holds.
    async fn query_pair<A, T>(
        &mut self,
        (first, read_first): (&Statement<'_>, impl Fn(&dyn Columns) -> Result<A, InternalError>),
        then: &Statement<'_>,
        read: impl Fn(&dyn Columns) -> Result<T, InternalError>,
        is_enough: impl FnMut(&T) -> bool,
    ) -> Result<(Vec<A>, Vec<T>), StatementError> {
        let before = self.query(&first.sql, &first.binds, read_first).await?;
        Ok((before, self.query_until(&then.sql, &then.binds, read, is_enough).await?))
    }

    /// Runs a statement and returns the number of rows it changed.
    async fn execute(&mut self, sql: &str, binds: &[Bind<'_>]) -> Result<usize, StatementError>;

    /// Runs statements in order and reads the rows of each; `read` gets the index of the statement.
    async fn query_each<T>(
        &mut self,
        strokes: &[Statement<'_>],
        read: impl Fn(usize, &dyn Columns) -> Result<T, InternalError>,
    ) -> Result<Vec<Vec<T>>, StatementError> {
        let mut all = Vec::with_capacity(strokes.len());
        for (at, stroke) in strokes.iter().enumerate() {
            all.push(self.query(&stroke.sql, &stroke.binds, |row| read(at, row)).await?);
        }
        Ok(all)
    }

    /// Runs statements in order, each of which must change exactly one row.
    async fn execute_each(&mut self, strokes: &[Statement<'_>]) -> Result<(), FailedStatement> {
        for (at, stroke) in strokes.iter().enumerate() {
            let done = self.execute(&stroke.sql, &stroke.binds).await;
            let count = done.map_err(|failure| FailedStatement { at, failure })?;
            if count != 1 {
                return Err(FailedStatement { at, failure: changed_while_locked_error() });
            }
        }
        Ok(())
    }

    /// Makes the connection usable for reads after a statement was refused. The writes of the transaction may
    /// be rolled back by then.
    async fn recover(&mut self) -> Result<(), StatementError> {
        Ok(())
    }

    /// Runs the last statements of a transaction. A backend that commits by itself commits with them.
    async fn finish(&mut self, strokes: &[Statement<'_>]) -> Result<(), FailedStatement> {
        self.execute_each(strokes).await
    }

    /// Sets a savepoint: from here on `rollback_to_savepoint` undoes the writes, and `finish` no longer ends
    /// the transaction; `finish_savepoint` does.
    async fn begin_savepoint(&mut self) -> Result<(), StatementError> {
        Ok(())
    }

    /// Undoes everything since `begin_savepoint`.
    async fn rollback_to_savepoint(&mut self) -> Result<(), StatementError>;

    /// Runs the last statements after `begin_savepoint`.
    async fn finish_savepoint(&mut self, strokes: &[Statement<'_>]) -> Result<(), FailedStatement> {
        self.execute_each(strokes).await
    }

    /// Runs slow computation where it blocks no other task.
    async fn run_blocking<T: Send + 'static>(
        &mut self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, StatementError> {
        Ok(work())
    }

    /// The current time; a transaction asks once.
    fn now(&self) -> Moment;

    /// The low-water mark of the change log: every change up to this number is visible. With a single writer
    /// all visible changes are complete.
    fn low_watermark(&self) -> i64 {
        i64::MAX
    }

    /// Caches a low-water mark for the next reader.
    fn raise_low_watermark(&self, _number: i64) {}
}

/// Polls a future once; `None` if it is not ready.
pub fn poll_once<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}
