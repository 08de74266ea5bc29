//! PostgreSQL implementation of the `DatabaseDriver` trait.
//!
//! Independent statements are pipelined, without waiting for the first answer: a plain read or create is
//! one round trip, an update two.
//! The one surprising thing: `BEGIN` is sent together with the first statement and `COMMIT` with the last;
//! a single statement needs neither.

use std::pin::pin;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use futures_util::TryStreamExt;
use futures_util::future::join;
use tokio_postgres::{Error, Row, RowStream};

use super::failure::{Trouble, sort};
use super::foreign_key::ForeignKey;
use super::message::{Message, execute, query, together};
use super::pool::Connection;
use crate::model::Resource;
use crate::model::settings::Pooling;
use crate::store::Broken;
use crate::store::driver::{Bind, Columns, Driver, Failure, Stopped, Stroke, changed_while_locked};
use crate::store::ids::Ids;
use crate::store::sql::{POSTGRES_NEXT_IDS, quoted};
use crate::value::{Id, IdKind, Moment};

/// The state of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Each statement is its own transaction.
    None,
    /// The next statement is sent with `BEGIN`.
    Due,
    Open,
    /// `COMMIT` was sent. Until the answer comes, the outcome is unknown.
    Ending,
}

/// A connection for the duration of one request.
pub(super) struct PostgresDriver<'a> {
    connection: &'a Connection,
    ids: &'a Mutex<Ids>,
    pooling: Pooling,
    stage: Stage,
    /// There is a savepoint, so the statements after it do not commit yet.
    is_held: bool,
    trouble: Option<Trouble>,
    violated: Option<ForeignKey>,
}

impl<'a> PostgresDriver<'a> {
    pub(super) fn new(
        connection: &'a Connection,
        ids: &'a Mutex<Ids>,
        pooling: Pooling,
        stage: Stage,
    ) -> Self {
        Self { connection, ids, pooling, stage, is_held: false, trouble: None, violated: None }
    }

    /// Records a reading of the database's clock.
    pub(super) fn read_clock(&self, asked: Instant, answered: Instant, database: Moment) {
        self.connection.clock.read(asked, answered, database.micros());
    }

    pub(super) fn trouble(&self) -> Option<Trouble> {
        self.trouble
    }

    /// The foreign key whose violation rolled the transaction back.
    pub(super) fn take_violated(&mut self) -> Option<ForeignKey> {
        self.violated.take()
    }

    /// Whether a commit was sent and not answered, so that it may have happened. From then on the statement
    /// must not be cancelled.
    pub(super) fn may_be_done(&self) -> bool {
        self.stage == Stage::Ending
    }

    /// Ends the transaction, whose commit PostgreSQL has confirmed. Fails where the commit's wait for the
    /// standbys was interrupted, for example by `pg_cancel_backend`: PostgreSQL then reports success with a
    /// warning, and a failover to a standby would lose the transaction.
    fn confirm_commit(&mut self) -> Result<(), Failure> {
        if self.connection.is_unreplicated.swap(false, Ordering::Relaxed) {
            self.trouble = Some(Trouble::Lost);
            let cause =
                "PostgreSQL stopped waiting for a synchronous standby to confirm the commit";
            return Err(Failure::Storage(cause.to_owned()));
        }
        self.stage = Stage::None;
        Ok(())
    }

    /// Rolls back what is not committed. Returns whether the connection can be reused.
    pub(super) async fn abandon(&mut self) -> bool {
        match (self.trouble, self.stage) {
            (Some(Trouble::Lost), _) => false,
            // The database has answered with an error, so it has rolled back already.
            (_, Stage::None | Stage::Due | Stage::Ending) => true,
            (_, Stage::Open) => self.connection.client.batch_execute("ROLLBACK").await.is_ok(),
        }
    }

    fn failed(&mut self, error: &Error) -> Failure {
        let (failure, trouble) = sort(error);
        self.trouble = self.trouble.or(trouble);
        self.violated = self.violated.take().or_else(|| ForeignKey::violated_in(error));
        failure
    }

    async fn message<'b>(&mut self, stroke: &'b Stroke<'_>) -> Result<Message<'b>, Failure> {
        self.message_of(&stroke.sql, &stroke.binds).await
    }

    async fn message_of<'b>(
        &mut self,
        sql: &'b str,
        binds: &'b [Bind<'b>],
    ) -> Result<Message<'b>, Failure> {
        if self.pooling == Pooling::Transaction {
            return Ok(Message::Unprepared(sql, binds));
        }
        match self.connection.statement(sql).await {
            Ok(statement) => Ok(Message::Prepared(statement, binds)),
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// Sends a transaction command without parameters.
    async fn word(&mut self, word: &str) -> Result<(), Failure> {
        let done = self.connection.client.batch_execute(word).await;
        done.map_err(|error| self.failed(&error))
    }

    /// `BEGIN`, if it is pending.
    fn begin(&mut self) -> Option<&'static str> {
        let is_due = self.stage == Stage::Due;
        is_due.then(|| {
            self.stage = Stage::Open;
            "BEGIN"
        })
    }

    /// Reads rows until `is_enough`.
    async fn read_until<T>(
        &mut self,
        rows: RowStream,
        read: impl Fn(&dyn Columns) -> Result<T, Broken>,
        mut is_enough: impl FnMut(&T) -> bool,
    ) -> Result<Vec<T>, Failure> {
        let mut rows = pin!(rows);
        let mut all = Vec::new();
        loop {
            let row: Option<Row> =
                rows.as_mut().try_next().await.map_err(|error| self.failed(&error))?;
            let Some(row) = row else { return Ok(all) };
            let row = read(&row).map_err(Failure::Broken)?;
            let is_last = is_enough(&row);
            all.push(row);
            if is_last {
                return Ok(all);
            }
        }
    }

    /// Pipelines statements, and returns how many rows each changed.
    async fn fly(&mut self, messages: Vec<Message<'_>>) -> Vec<Result<u64, Error>> {
        let client = &self.connection.client;
        together(messages.into_iter().map(|message| execute(client, message))).await
    }

    /// Runs one statement that is its own transaction.
    async fn run_alone(&mut self, stroke: &Stroke<'_>) -> Result<(), Stopped> {
        let stopped = |failure| Stopped { at: 0, failure };
        let message = self.message(stroke).await.map_err(stopped)?;
        crate::fault::point("commit");
        self.stage = Stage::Ending;
        match execute(&self.connection.client, message).await {
            Ok(1) => self.confirm_commit().map_err(stopped),
            Ok(_) => Err(stopped(changed_while_locked())),
            Err(error) => Err(stopped(self.failed(&error))),
        }
    }

    /// Runs one multi-row statement, with one array per column; it is its own transaction.
    pub(super) async fn run_all(
        &mut self,
        sql: &str,
        columns: &[Vec<Bind<'_>>],
    ) -> Result<(), Failure> {
        let statement = self.connection.statement(sql).await;
        let statement = statement.map_err(|error| self.failed(&error))?;
        crate::fault::point("commit");
        self.stage = Stage::Ending;
        let rows = columns.first().map_or(0, Vec::len);
        match self.connection.client.execute_raw(&statement, columns).await {
            Ok(done) if usize::try_from(done) == Ok(rows) => self.confirm_commit(),
            // It is committed, but wrong, so it must not be retried.
            Ok(_) => {
                self.trouble = Some(Trouble::Lost);
                Err(Failure::Engine("not all of several rows were written".into()))
            }
            Err(error) => Err(self.failed(&error)),
        }
    }

    /// Runs statements; with `is_last` also the commit after them.
    async fn run(&mut self, strokes: &[Stroke<'_>], is_last: bool) -> Result<(), Stopped> {
        if let ([stroke], Stage::None, true) = (strokes, self.stage, is_last) {
            return self.run_alone(stroke).await;
        }
        let mut messages = Vec::with_capacity(strokes.len() + 2);
        let is_block = self.stage != Stage::None || strokes.len() > 1;
        if self.stage == Stage::None && is_block {
            self.stage = Stage::Due;
        }
        for (at, stroke) in strokes.iter().enumerate() {
            let message = self.message(stroke).await;
            messages.push(message.map_err(|failure| Stopped { at, failure })?);
        }
        let begin = self.begin();
        let before = usize::from(begin.is_some());
        messages.splice(..0, begin.map(Message::Word));
        if is_last {
            if !strokes.is_empty() {
                crate::fault::point("commit");
            }
            if is_block {
                messages.push(Message::Word("COMMIT"));
            }
            self.stage = Stage::Ending;
        }
        for (at, done) in self.fly(messages).await.into_iter().enumerate() {
            let at = at.saturating_sub(before);
            match done {
                Ok(1) => {}
                Ok(_) => return Err(Stopped { at, failure: changed_while_locked() }),
                Err(error) => return Err(Stopped { at, failure: self.failed(&error) }),
            }
        }
        if is_last {
            let at = strokes.len();
            self.confirm_commit().map_err(|failure| Stopped { at, failure })?;
        }
        Ok(())
    }

    async fn rows_of<T>(
        &mut self,
        message: Message<'_>,
        read: impl Fn(&dyn Columns) -> Result<T, Broken>,
        is_enough: impl FnMut(&T) -> bool,
    ) -> Result<Vec<T>, Failure> {
        let begin = self.begin();
        let client = &self.connection.client;
        let (begun, rows) = match begin {
            None => (Ok(()), query(client, message).await),
            // `join` polls `BEGIN` first, so it is sent first. Boxed, since a plain read does not need it.
            Some(begin) => {
                Box::pin(join(client.batch_execute(begin), query(client, message))).await
            }
        };
        let rows = begun.and(rows).map_err(|error| self.failed(&error))?;
        self.read_until(rows, read, is_enough).await
    }
}

impl Driver for PostgresDriver<'_> {
    const SHARES_COMMIT: bool = false;

    async fn rows_until<T>(
        &mut self,
        sql: &str,
        binds: &[Bind<'_>],
        read: impl Fn(&dyn Columns) -> Result<T, Broken>,
        is_enough: impl FnMut(&T) -> bool,
    ) -> Result<Vec<T>, Failure> {
        let message = self.message_of(sql, binds).await?;
        self.rows_of(message, read, is_enough).await
    }

    async fn rows_behind<A, T>(
        &mut self,
        (first, read_first): (&Stroke<'_>, impl Fn(&dyn Columns) -> Result<A, Broken>),
        then: &Stroke<'_>,
        read: impl Fn(&dyn Columns) -> Result<T, Broken>,
        is_enough: impl FnMut(&T) -> bool,
    ) -> Result<(Vec<A>, Vec<T>), Failure> {
        let (one, other) = (self.message(first).await?, self.message(then).await?);
        let begin = self.begin();
        let client = &self.connection.client;
        let begun = async {
            match begin {
                Some(begin) => client.batch_execute(begin).await,
                None => Ok(()),
            }
        };
        let ahead = async { query(client, one).await?.try_collect::<Vec<Row>>().await };
        let ((begun, before), rows) = join(join(begun, ahead), query(client, other)).await;
        let before = begun.and(before).map_err(|error| self.failed(&error))?;
        let rows = rows.map_err(|error| self.failed(&error))?;
        let before: Result<_, _> = before.iter().map(|row| read_first(row)).collect();
        Ok((before.map_err(Failure::Broken)?, self.read_until(rows, read, is_enough).await?))
    }

    async fn rows_once<T>(
        &mut self,
        stroke: &Stroke<'_>,
        read: impl Fn(&dyn Columns) -> Result<T, Broken>,
        is_enough: impl FnMut(&T) -> bool,
    ) -> Result<Vec<T>, Failure> {
        self.rows_of(Message::Unprepared(&stroke.sql, &stroke.binds), read, is_enough).await
    }

    async fn execute(&mut self, sql: &str, binds: &[Bind<'_>]) -> Result<usize, Failure> {
        let message = self.message_of(sql, binds).await?;
        let messages: Vec<_> =
            self.begin().map(Message::Word).into_iter().chain([message]).collect();
        let mut count = 0;
        for done in self.fly(messages).await {
            count = done.map_err(|error| self.failed(&error))?;
        }
        Ok(usize::try_from(count).unwrap_or(usize::MAX))
    }

    async fn rows_each<T>(
        &mut self,
        strokes: &[Stroke<'_>],
        read: impl Fn(usize, &dyn Columns) -> Result<T, Broken>,
    ) -> Result<Vec<Vec<T>>, Failure> {
        let mut messages = Vec::with_capacity(strokes.len() + 1);
        for stroke in strokes {
            messages.push(self.message(stroke).await?);
        }
        let begin = self.begin();
        let before = usize::from(begin.is_some());
        messages.splice(..0, begin.map(Message::Word));
        let client = &self.connection.client;
        let sent = messages.into_iter().map(|message| async move {
            match message {
                word @ Message::Word(_) => execute(client, word).await.map(|_| Vec::new()),
                message => query(client, message).await?.try_collect().await,
            }
        });
        let mut all = Vec::with_capacity(strokes.len());
        for (at, rows) in together(sent).await.into_iter().enumerate() {
            let rows: Vec<Row> = rows.map_err(|error| self.failed(&error))?;
            if let Some(at) = at.checked_sub(before) {
                let rows: Result<_, _> = rows.iter().map(|row| read(at, row)).collect();
                all.push(rows.map_err(Failure::Broken)?);
            }
        }
        Ok(all)
    }

    async fn execute_each(&mut self, strokes: &[Stroke<'_>]) -> Result<(), Stopped> {
        self.run(strokes, false).await
    }

    async fn finish(&mut self, strokes: &[Stroke<'_>]) -> Result<(), Stopped> {
        self.run(strokes, !self.is_held).await
    }

    async fn hold(&mut self) -> Result<(), Failure> {
        self.word("SAVEPOINT request").await?;
        self.is_held = true;
        Ok(())
    }

    async fn undo(&mut self) -> Result<(), Failure> {
        self.word("ROLLBACK TO request").await
    }

    async fn end(&mut self, strokes: &[Stroke<'_>]) -> Result<(), Stopped> {
        self.is_held = false;
        self.run(strokes, true).await
    }

    async fn aside<T: Send + 'static>(
        &mut self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Failure> {
        match tokio::task::spawn_blocking(work).await {
            Ok(done) => Ok(done),
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime is shutting down.
                Err(_) => Err(Failure::TimedOut),
            },
        }
    }

    async fn recover(&mut self) -> Result<(), Failure> {
        if self.is_held {
            return self.undo().await;
        }
        let is_block = std::mem::replace(&mut self.stage, Stage::None) == Stage::Open;
        if is_block {
            self.word("ROLLBACK").await?;
        }
        Ok(())
    }

    async fn allocate(
        &mut self,
        resource: &Resource,
        count: usize,
        now: Moment,
    ) -> Result<Vec<Id>, Failure> {
        match resource.id {
            IdKind::Uuid => {
                let ids = self.ids.lock().unwrap_or_else(PoisonError::into_inner);
                let ids = (0..count).map(|_| ids.next(now).map(Id::Uuid));
                ids.collect::<Result<_, _>>().map_err(|error| Failure::Engine(error.to_string()))
            }
            IdKind::Integer => {
                let count = i64::try_from(count).unwrap_or(i64::MAX);
                let table = quoted(&resource.table);
                let binds = [Bind::Text(&table), Bind::Integer(count)];
                let read = |row: &dyn Columns| row.integer(0);
                // Boxed, since most ids need no query.
                let ids = Box::pin(self.rows(POSTGRES_NEXT_IDS, &binds, read)).await?;
                Ok(ids.into_iter().flatten().map(Id::Integer).collect())
            }
        }
    }

    fn now(&self) -> Moment {
        self.connection.clock.now()
    }

    fn settled(&self) -> i64 {
        self.connection.settled.load(Ordering::Relaxed)
    }

    fn settle(&self, number: i64) {
        self.connection.settled.fetch_max(number, Ordering::Relaxed);
    }
}
