//! The driver trait: what a backend provides inside one transaction, and the types of parameters and rows.
//!
//! `transaction` is written once against this trait. It is async because PostgreSQL's driver waits on a
//! socket. SQLite's driver never waits, so its futures are ready at the first poll (`poll_once`), and the
//! same code runs on the writer thread without a runtime.

use std::borrow::Cow;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::Broken;
use crate::model::Resource;
use crate::value::{Decimal, Id, IdKind, Moment, Value};

/// A connection inside a transaction.
pub(super) trait Driver {
    /// Whether transactions of several requests share one commit (group commit), so that an error which would
    /// fail the commit has to be found before it.
    const SHARES_COMMIT: bool;

    /// Runs a statement and reads rows until `is_enough` holds.
    async fn rows_until<T>(
        &mut self,
        sql: &str,
        binds: &[Bind<'_>],
        read: impl Fn(&dyn Columns) -> Result<T, Broken>,
        is_enough: impl FnMut(&T) -> bool,
    ) -> Result<Vec<T>, Failure>;

    /// Runs a statement and reads every row.
    async fn rows<T>(
        &mut self,
        sql: &str,
        binds: &[Bind<'_>],
        read: impl Fn(&dyn Columns) -> Result<T, Broken>,
    ) -> Result<Vec<T>, Failure> {
        self.rows_until(sql, binds, read, |_| false).await
    }

    /// As `query_until`, for a statement that is unlikely to be repeated: it is not put into the statement
    /// cache.
    async fn rows_once<T>(
        &mut self,
        stroke: &Stroke<'_>,
        read: impl Fn(&dyn Columns) -> Result<T, Broken>,
        is_enough: impl FnMut(&T) -> bool,
    ) -> Result<Vec<T>, Failure> {
        self.rows_until(&stroke.sql, &stroke.binds, read, is_enough).await
    }

    /// Runs two statements in one round trip where the backend can; reads rows of the second until
    /// `is_enough` holds.
    async fn rows_behind<A, T>(
        &mut self,
        (first, read_first): (&Stroke<'_>, impl Fn(&dyn Columns) -> Result<A, Broken>),
        then: &Stroke<'_>,
        read: impl Fn(&dyn Columns) -> Result<T, Broken>,
        is_enough: impl FnMut(&T) -> bool,
    ) -> Result<(Vec<A>, Vec<T>), Failure> {
        let before = self.rows(&first.sql, &first.binds, read_first).await?;
        Ok((before, self.rows_until(&then.sql, &then.binds, read, is_enough).await?))
    }

    /// Runs a statement and returns the number of rows it changed.
    async fn execute(&mut self, sql: &str, binds: &[Bind<'_>]) -> Result<usize, Failure>;

    /// Runs statements in order and reads the rows of each; `read` gets the index of the statement.
    async fn rows_each<T>(
        &mut self,
        strokes: &[Stroke<'_>],
        read: impl Fn(usize, &dyn Columns) -> Result<T, Broken>,
    ) -> Result<Vec<Vec<T>>, Failure> {
        let mut all = Vec::with_capacity(strokes.len());
        for (at, stroke) in strokes.iter().enumerate() {
            all.push(self.rows(&stroke.sql, &stroke.binds, |row| read(at, row)).await?);
        }
        Ok(all)
    }

    /// Runs statements in order, each of which must change exactly one row.
    async fn execute_each(&mut self, strokes: &[Stroke<'_>]) -> Result<(), Stopped> {
        for (at, stroke) in strokes.iter().enumerate() {
            let done = self.execute(&stroke.sql, &stroke.binds).await;
            let count = done.map_err(|failure| Stopped { at, failure })?;
            if count != 1 {
                return Err(Stopped { at, failure: changed_while_locked() });
            }
        }
        Ok(())
    }

    /// Makes the connection usable for reads after a statement was refused. The writes of the transaction may
    /// be rolled back by then.
    async fn recover(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    /// Runs the last statements of a transaction. A backend that commits by itself commits with them.
    async fn finish(&mut self, strokes: &[Stroke<'_>]) -> Result<(), Stopped> {
        self.execute_each(strokes).await
    }

    /// Sets a savepoint: from here on `rollback_to_savepoint` undoes the writes, and `finish` no longer ends
    /// the transaction; `finish_savepoint` does.
    async fn hold(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    /// Undoes everything since `begin_savepoint`.
    async fn undo(&mut self) -> Result<(), Failure>;

    /// Runs the last statements after `begin_savepoint`.
    async fn end(&mut self, strokes: &[Stroke<'_>]) -> Result<(), Stopped> {
        self.execute_each(strokes).await
    }

    /// Runs slow computation where it blocks no other task.
    async fn aside<T: Send + 'static>(
        &mut self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Failure> {
        Ok(work())
    }

    /// Allocates ids for new items; an id is never allocated twice.
    async fn allocate(
        &mut self,
        resource: &Resource,
        count: usize,
        now: Moment,
    ) -> Result<Vec<Id>, Failure>;

    /// The current time; a transaction asks once.
    fn now(&self) -> Moment;

    /// The low-water mark of the change log: every change up to this number is visible. With a single writer
    /// all visible changes are complete.
    fn settled(&self) -> i64 {
        i64::MAX
    }

    /// Caches a low-water mark for the next reader.
    fn settle(&self, _number: i64) {}
}

/// An SQL statement with its parameters.
#[derive(Debug)]
pub(super) struct Stroke<'a> {
    pub(super) sql: Cow<'a, str>,
    pub(super) binds: Vec<Bind<'a>>,
}

impl<'a> Stroke<'a> {
    pub(super) fn new(sql: impl Into<Cow<'a, str>>, binds: Vec<Bind<'a>>) -> Self {
        Self { sql: sql.into(), binds }
    }
}

/// Which of several statements failed, and how.
#[derive(Debug)]
pub(super) struct Stopped {
    pub(super) at: usize,
    pub(super) failure: Failure,
}

/// A statement guarded by a version did not find its row.
pub(super) fn changed_while_locked() -> Failure {
    Failure::Engine("the item changed while it was locked".into())
}

/// Why a statement failed.
#[derive(Debug)]
pub(super) enum Failure {
    /// A unique index was violated. The text is the engine's message or the index's name.
    Taken(String),
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
    Broken(Broken),
}

impl Failure {
    /// The message for the operator.
    pub(super) fn words(&self) -> &str {
        match self {
            Self::TimedOut => "it took too long",
            Self::Locked => "another process has locked it",
            Self::Taken(cause)
            | Self::Storage(cause)
            | Self::Sync(cause)
            | Self::Engine(cause)
            | Self::Broken(Broken(cause)) => cause,
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
    fn integer(&self, at: usize) -> Result<Option<i64>, Broken>;
    fn real(&self, at: usize) -> Result<Option<f64>, Broken>;
    fn boolean(&self, at: usize) -> Result<Option<bool>, Broken>;
    fn text(&self, at: usize) -> Result<Option<&str>, Broken>;
    fn moment(&self, at: usize) -> Result<Option<Moment>, Broken>;
    fn id(&self, at: usize, kind: IdKind) -> Result<Option<Id>, Broken>;
}

/// Polls a future once; `None` if it is not ready.
pub(super) fn at_once<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}
