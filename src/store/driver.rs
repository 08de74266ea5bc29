//! What a backend has to be able to do inside one transaction, and the values that go in and out.
//!
//! `transaction` is written once against this trait. It is async because PostgreSQL's driver waits
//! on a socket; SQLite's never waits, so its futures are ready at the first poll (`at_once`), and
//! the same code runs on the writer thread without a runtime.

use std::borrow::Cow;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::Broken;
use crate::model::Resource;
use crate::value::{Decimal, Id, IdKind, Moment, Value};

/// A connection inside a transaction.
pub(super) trait Driver {
    /// Whether others share its commit, so that what fails the commit must be found before.
    const SHARES_COMMIT: bool;

    /// Runs a statement and reads rows until one is enough.
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

    /// As `rows_until`, for a statement that may never come again: it takes no place among those that are
    /// kept.
    async fn rows_once<T>(
        &mut self,
        stroke: &Stroke<'_>,
        read: impl Fn(&dyn Columns) -> Result<T, Broken>,
        is_enough: impl FnMut(&T) -> bool,
    ) -> Result<Vec<T>, Failure> {
        self.rows_until(&stroke.sql, &stroke.binds, read, is_enough).await
    }

    /// Runs one statement and another behind it; of the second, rows are read until one is enough.
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

    /// Runs a statement and counts the rows it changed.
    async fn execute(&mut self, sql: &str, binds: &[Bind<'_>]) -> Result<usize, Failure>;

    /// Runs statements in order, and reads the rows of each; `read` is told which one it is.
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

    /// Runs statements in order, each of which must change one row.
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

    /// Makes the connection fit to look at what is stored, after a statement that was refused. What the
    /// transaction has written may be gone by then.
    async fn recover(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    /// The last statements of a transaction: a backend that commits by itself does so behind them.
    async fn finish(&mut self, strokes: &[Stroke<'_>]) -> Result<(), Stopped> {
        self.execute_each(strokes).await
    }

    /// From here on `undo` takes back what is done, and `finish` does not end the transaction: `end` does.
    async fn hold(&mut self) -> Result<(), Failure> {
        Ok(())
    }

    /// Takes back all since `hold`.
    async fn undo(&mut self) -> Result<(), Failure>;

    /// The last statements after `hold`.
    async fn end(&mut self, strokes: &[Stroke<'_>]) -> Result<(), Stopped> {
        self.execute_each(strokes).await
    }

    /// Does what takes long where nobody has to wait for it.
    async fn aside<T: Send + 'static>(
        &mut self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Failure> {
        Ok(work())
    }

    /// Ids for new items, never given before.
    async fn allocate(
        &mut self,
        resource: &Resource,
        count: usize,
        now: Moment,
    ) -> Result<Vec<Id>, Failure>;

    /// The time; a transaction asks once.
    fn now(&self) -> Moment;

    /// The number up to which the change log is known to be complete. With one writer, that is all that
    /// can be seen of it.
    fn settled(&self) -> i64 {
        i64::MAX
    }

    /// Keeps such a number for the next who asks.
    fn settle(&self, _number: i64) {}
}

/// A statement with its parameters.
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

/// Which of several statements failed.
#[derive(Debug)]
pub(super) struct Stopped {
    pub(super) at: usize,
    pub(super) failure: Failure,
}

/// A guarded statement did not find its row.
pub(super) fn changed_while_locked() -> Failure {
    Failure::Engine("the item changed while it was locked".into())
}

/// Why a statement did not do its work.
#[derive(Debug)]
pub(super) enum Failure {
    /// A unique index stood in the way; the engine's own words, or the index's name, say which.
    Taken(String),
    /// It took too long and was stopped.
    TimedOut,
    /// Another process holds the database.
    Locked,
    /// The storage failed (a full disk, an I/O error); the transaction may be gone.
    Storage(String),
    /// What was written could not be synced: nobody knows what the disk has.
    Sync(String),
    /// The engine does not understand us.
    Engine(String),
    Broken(Broken),
}

impl Failure {
    /// For the operator.
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

/// A value on its way into a statement.
#[derive(Debug, Clone, Copy)]
pub(super) enum Bind<'a> {
    Null,
    Boolean(bool),
    Integer(i64),
    Real(f64),
    Text(&'a str),
    Moment(Moment),
    /// In its one spelling.
    MomentText(Moment),
    Id(Id),
}

impl<'a> Bind<'a> {
    /// A field's value in its storage class. Lists and objects are sealed by now, and a secret is
    /// never stored as it was sent.
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

/// Runs a future that never waits.
pub(super) fn at_once<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}
