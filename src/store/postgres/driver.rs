//! PostgreSQL behind the `Driver` trait.
//!
//! What does not depend on each other is sent together, without waiting for the first answer: a plain
//! read or create is one way to the database and back, an update two.
//! The one surprising thing: a transaction is begun with its first statement, and committed with its
//! last; a single statement is its own.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::{Mutex, PoisonError};
use std::task::Poll;

use futures_util::TryStreamExt;
use futures_util::future::{MaybeDone, join, maybe_done};
use tokio_postgres::types::Type;
use tokio_postgres::{CancelToken, Client, Error, Row, RowStream, Statement};

use super::failure::{Trouble, sort};
use super::pool::Connection;
use crate::clock;
use crate::model::Resource;
use crate::model::settings::Pooling;
use crate::store::Broken;
use crate::store::driver::{Bind, Columns, Driver, Failure, Stopped, Stroke, changed_while_locked};
use crate::store::ids::Ids;
use crate::store::sql::{POSTGRES_NEXT_IDS, quoted};
use crate::value::{Id, IdKind, Moment};

/// Where a transaction stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    /// Each statement is a transaction of its own.
    None,
    /// The next statement begins one.
    Due,
    Open,
    /// Its end was sent. Until the answer comes, nobody knows how it ended.
    Ending,
}

/// A connection for one request.
pub(super) struct PostgresDriver<'a> {
    connection: &'a mut Connection,
    ids: &'a Mutex<Ids>,
    pooling: Pooling,
    stage: Stage,
    trouble: Option<Trouble>,
}

/// What goes over the connection.
pub(super) enum Message<'a> {
    Word(&'static str),
    Prepared(Statement, &'a [Bind<'a>]),
    /// Prepared and used in one go.
    Unprepared(&'a str, &'a [Bind<'a>]),
}

impl<'a> PostgresDriver<'a> {
    pub(super) fn new(
        connection: &'a mut Connection,
        ids: &'a Mutex<Ids>,
        pooling: Pooling,
        stage: Stage,
    ) -> Self {
        Self { connection, ids, pooling, stage, trouble: None }
    }

    pub(super) fn trouble(&self) -> Option<Trouble> {
        self.trouble
    }

    pub(super) fn cancel_token(&self) -> &CancelToken {
        &self.connection.cancel
    }

    /// Whether something was sent that may have been done, although no answer says so.
    pub(super) fn may_be_done(&self) -> bool {
        self.stage == Stage::Ending
    }

    /// Undoes what is not committed. True when the connection can be used again.
    pub(super) async fn abandon(&mut self) -> bool {
        match (self.trouble, self.stage) {
            (Some(Trouble::Lost), _) => false,
            // The database has answered, and with an error: it has undone all of it.
            (_, Stage::None | Stage::Due | Stage::Ending) => true,
            (_, Stage::Open) => self.connection.client.batch_execute("ROLLBACK").await.is_ok(),
        }
    }

    fn failed(&mut self, error: &Error) -> Failure {
        let (failure, trouble) = sort(error);
        self.trouble = self.trouble.or(trouble);
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

    /// `BEGIN`, if it is due.
    fn begin(&mut self) -> Option<&'static str> {
        let is_due = self.stage == Stage::Due;
        is_due.then(|| {
            self.stage = Stage::Open;
            "BEGIN"
        })
    }

    /// Sends statements together, and says how many rows each changed.
    async fn fly(&mut self, messages: Vec<Message<'_>>) -> Vec<Result<u64, Error>> {
        let client = &self.connection.client;
        together(messages.into_iter().map(|message| execute(client, message))).await
    }

    /// Runs one stroke that is a transaction of its own.
    async fn run_alone(&mut self, stroke: &Stroke<'_>) -> Result<(), Stopped> {
        let stopped = |failure| Stopped { at: 0, failure };
        let message = self.message(stroke).await.map_err(stopped)?;
        crate::fault::point("commit");
        self.stage = Stage::Ending;
        match execute(&self.connection.client, message).await {
            Ok(1) => {
                self.stage = Stage::None;
                Ok(())
            }
            Ok(_) => Err(stopped(changed_while_locked())),
            Err(error) => Err(stopped(self.failed(&error))),
        }
    }

    /// Runs strokes; `is_last`: and the end of the transaction behind them.
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
            self.stage = Stage::None;
        }
        Ok(())
    }

    async fn rows_of<T>(
        &mut self,
        message: Message<'_>,
        read: impl Fn(&dyn Columns) -> Result<T, Broken>,
        mut is_enough: impl FnMut(&T) -> bool,
    ) -> Result<Vec<T>, Failure> {
        let begin = self.begin();
        let client = &self.connection.client;
        let (begun, rows) = match begin {
            None => (Ok(()), query(client, message).await),
            // The first is sent first.
            Some(begin) => join(client.batch_execute(begin), query(client, message)).await,
        };
        let opened = begun.and(rows);
        let mut rows = pin!(opened.map_err(|error| self.failed(&error))?);
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
        self.run(strokes, true).await
    }

    async fn recover(&mut self) -> Result<(), Failure> {
        let is_block = std::mem::replace(&mut self.stage, Stage::None) == Stage::Open;
        if is_block {
            let done = self.connection.client.batch_execute("ROLLBACK").await;
            done.map_err(|error| self.failed(&error))?;
        }
        Ok(())
    }

    async fn allocate(&mut self, resource: &Resource, count: usize) -> Result<Vec<Id>, Failure> {
        let now = self.now();
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
                let ids = self.rows(POSTGRES_NEXT_IDS, &binds, read).await?;
                Ok(ids.into_iter().flatten().map(Id::Integer).collect())
            }
        }
    }

    fn now(&self) -> Moment {
        clock::moment()
    }
}

/// Sends a message; how many rows it changed. A word counts as one.
pub(super) async fn execute(client: &Client, message: Message<'_>) -> Result<u64, Error> {
    match message {
        Message::Word(word) => client.batch_execute(word).await.map(|()| 1),
        Message::Prepared(statement, binds) => client.execute_raw(&statement, binds).await,
        Message::Unprepared(sql, binds) => {
            let rows = Box::pin(client.query_typed_raw(sql, typed(binds))).await?;
            let mut rows = pin!(rows);
            while rows.as_mut().try_next().await?.is_some() {}
            Ok(rows.rows_affected().unwrap_or(0))
        }
    }
}

pub(super) async fn query(client: &Client, message: Message<'_>) -> Result<RowStream, Error> {
    match message {
        Message::Word(word) => Box::pin(client.query_typed_raw(word, typed(&[]))).await,
        Message::Prepared(statement, binds) => client.query_raw(&statement, binds).await,
        Message::Unprepared(sql, binds) => {
            Box::pin(client.query_typed_raw(sql, typed(binds))).await
        }
    }
}

/// PostgreSQL finds out by itself of which type a parameter is.
fn typed<'a>(binds: &'a [Bind<'a>]) -> impl Iterator<Item = (&'a Bind<'a>, Type)> {
    binds.iter().map(|bind| (bind, Type::UNKNOWN))
}

/// Lets all begin, in order, before it waits for the first: so everything is sent at once. Answers come
/// in the same order.
async fn together<F: Future>(futures: impl Iterator<Item = F>) -> Vec<F::Output> {
    let mut flight: Vec<Pin<Box<MaybeDone<F>>>> =
        futures.map(|future| Box::pin(maybe_done(future))).collect();
    poll_fn(|context| {
        for one in &mut flight {
            let _ = one.as_mut().poll(context);
        }
        Poll::Ready(())
    })
    .await;
    let mut all = Vec::with_capacity(flight.len());
    for mut one in flight {
        one.as_mut().await;
        all.extend(one.as_mut().take_output());
    }
    all
}
