//! The driver trait: a backend's operations inside one transaction, and the types of parameters and rows.
//!
//! `transaction` is written once against this trait. It is async because PostgreSQL's driver waits on a
//! socket. SQLite's driver never waits, so its futures are ready at the first poll (`poll_once`), and the
//! same code runs on the writer thread without a runtime.

use std::borrow::Cow;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::InternalError;
use crate::model::Resource;
use crate::value::{Decimal, Id, IdKind, Moment, Value};

/// A connection inside a transaction.
pub(super) trait DatabaseDriver {
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

    /// Allocates ids for new items; an id is never allocated twice.
    async fn allocate_ids(
        &mut self,
        resource: &Resource,
        count: usize,
        now: Moment,
    ) -> Result<Vec<Id>, StatementError>;

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

/// An SQL statement with its parameters.
#[derive(Debug)]
pub(super) struct Statement<'a> {
    pub(super) sql: Cow<'a, str>,
    pub(super) binds: Vec<Bind<'a>>,
}

impl<'a> Statement<'a> {
    pub(super) fn new(sql: impl Into<Cow<'a, str>>, binds: Vec<Bind<'a>>) -> Self {
        Self { sql: sql.into(), binds }
    }
}

/// Which of several statements failed, and how.
#[derive(Debug)]
pub(super) struct FailedStatement {
    pub(super) at: usize,
    pub(super) failure: StatementError,
}

/// A statement guarded by a version did not find its row.
pub(super) fn changed_while_locked_error() -> StatementError {
    StatementError::Engine("the item changed while it was locked".into())
}

/// Why a statement failed.
#[derive(Debug)]
pub(super) enum StatementError {
    /// A unique index was violated. The text is the engine's message or the index's name.
    UniqueViolation(String),
    /// The statement exceeded its time limit and was cancelled.
    TimedOut,
    /// Another process holds the lock of the database.
    Locked,
    /// The storage failed (disk full, I/O error); the transaction may be rolled back.
    Storage(String),
    /// fsync failed: it is unknown what is on the disk.
    Sync(String),
    /// Any other error of the engine, such as an invalid statement.
    Engine(String),
    Internal(InternalError),
}

impl StatementError {
    /// The message for the operator.
    pub(super) fn message(&self) -> &str {
        match self {
            Self::TimedOut => "the time limit was exceeded",
            Self::Locked => "another process has locked it",
            Self::UniqueViolation(cause)
            | Self::Storage(cause)
            | Self::Sync(cause)
            | Self::Engine(cause)
            | Self::Internal(InternalError(cause)) => cause,
        }
    }
}

/// The value of a statement's parameter.
#[derive(Debug, Clone, Copy)]
pub(super) enum Bind<'a> {
    Null,
    Boolean(bool),
    Integer(i64),
    Real(f64),
    Text(&'a str),
    Moment(Moment),
    /// As text in its canonical form.
    MomentText(Moment),
    Id(Id),
}

impl<'a> Bind<'a> {
    /// A field's value in its storage class. Lists and objects are canonical JSON by now, and a secret is
    /// never stored in clear text.
    pub(super) fn value(value: &'a Value) -> Self {
        match value {
            Value::Null | Value::List(_) | Value::Object(_) | Value::Clear(_) => Self::Null,
            Value::Boolean(boolean) => Self::Boolean(*boolean),
            Value::Integer(number) => Self::Integer(*number),
            Value::Decimal(Decimal { units, .. }) => Self::Integer(*units),
            Value::Number(number) => Self::Real(*number),
            Value::Text(text) | Value::Json(text) => Self::Text(text),
            Value::Moment(moment) => Self::Moment(*moment),
        }
    }

    pub(super) fn optional_text(text: Option<&'a str>) -> Self {
        text.map_or(Self::Null, Self::Text)
    }
}

/// The columns of one row, by position.
pub(super) trait Columns {
    fn integer(&self, at: usize) -> Result<Option<i64>, InternalError>;
    fn real(&self, at: usize) -> Result<Option<f64>, InternalError>;
    fn boolean(&self, at: usize) -> Result<Option<bool>, InternalError>;
    fn text(&self, at: usize) -> Result<Option<&str>, InternalError>;
    fn moment(&self, at: usize) -> Result<Option<Moment>, InternalError>;
    fn id(&self, at: usize, kind: IdKind) -> Result<Option<Id>, InternalError>;
}

/// Polls a future once; `None` if it is not ready.
pub(super) fn poll_once<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}
