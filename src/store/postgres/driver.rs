//! PostgreSQL implementation of the `Driver` trait.
//!
//! Independent statements are pipelined, without waiting for the first answer: a plain read or create is
//! one round trip, an update two.
//! `BEGIN` is sent together with the first statement and `COMMIT` with the last; a single statement needs
//! neither.

use std::pin::pin;
use std::sync::atomic::Ordering;
use std::time::Instant;

use futures_util::TryStreamExt;
use futures_util::future::join;
use tokio_postgres::{Error, Row, RowStream};

use crate::model::settings::Pooling;
use crate::store::driver::Driver;
use crate::store::error::{
    FailedStatement, InternalError, StatementError, changed_while_locked_error,
};
use crate::store::postgres::error_class::{ErrorClass, ViolatedForeignKey, classify};
use crate::store::postgres::outgoing_statement::{
    OutgoingStatement, execute, join_pipelined, query,
};
use crate::store::postgres::pool::DatabaseConnection;
use crate::store::sql::dialect::{Dialect, POSTGRES};
use crate::store::statement::{Bind, Columns, Statement};
use crate::value::Moment;

/// The state of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransactionStage {
    /// Each statement is its own transaction.
    Autocommit,
    /// The next statement is sent with `BEGIN`.
    BeginPending,
    Open,
    /// `COMMIT` was sent. Until the answer arrives, the outcome is unknown.
    CommitSent,
}

/// A connection for the duration of one request.
pub struct PostgresDriver<'a> {
    connection: &'a DatabaseConnection,
    stage: TransactionStage,
    /// Whether there is a savepoint, so that the statements after it do not commit yet.
    has_savepoint: bool,
    trouble: Option<ErrorClass>,
    violated_key: Option<ViolatedForeignKey>,
}

impl<'a> PostgresDriver<'a> {
    pub fn new(connection: &'a DatabaseConnection, stage: TransactionStage) -> Self {
        Self { connection, stage, has_savepoint: false, trouble: None, violated_key: None }
    }

    /// Records a reading of the database's clock.
    pub fn record_clock(&self, sent_at: Instant, received_at: Instant, database: Moment) {
        self.connection.clock.record_reading(sent_at, received_at, database.micros());
    }

    pub fn error_class(&self) -> Option<ErrorClass> {
        self.trouble
    }

    /// The foreign key whose violation rolled the transaction back.
    pub fn take_violated_key(&mut self) -> Option<ViolatedForeignKey> {
        self.violated_key.take()
    }

    /// Whether a commit was sent and not answered, so that it may have happened. From then on the statement
    /// must not be cancelled.
    pub fn may_have_committed(&self) -> bool {
        self.stage == TransactionStage::CommitSent
    }

    /// Ends the transaction, whose commit PostgreSQL has confirmed. Fails where the commit's wait for the
    /// standbys was interrupted, for example by `pg_cancel_backend`: PostgreSQL then reports success with a
    /// warning, and a failover to a standby would lose the transaction.
    fn confirm_commit(&mut self) -> Result<(), StatementError> {
        if self.connection.is_unreplicated.swap(false, Ordering::Relaxed) {
            self.trouble = Some(ErrorClass::ConnectionLost);
            let cause =
                "PostgreSQL stopped waiting for a synchronous standby to confirm the commit";
            return Err(StatementError::Storage(cause.to_owned()));
        }
        self.stage = TransactionStage::Autocommit;
        Ok(())
    }

    pub async fn commit(&mut self) -> Result<(), StatementError> {
        Ok(self.finish(&[]).await?)
    }

    /// Rolls back an uncommitted transaction. Returns whether the connection can be reused.
    pub async fn rollback_uncommitted(&mut self) -> bool {
        match (self.trouble, self.stage) {
            (Some(ErrorClass::ConnectionLost), _) => false,
            // The database has answered with an error, so it has rolled back already.
            (
                _,
                TransactionStage::Autocommit
                | TransactionStage::BeginPending
                | TransactionStage::CommitSent,
            ) => true,
            (_, TransactionStage::Open) => {
                self.connection.client.batch_execute("ROLLBACK").await.is_ok()
            }
        }
    }

    fn record_error(&mut self, error: &Error) -> StatementError {
        let (failure, trouble) = classify(error);
        self.trouble = self.trouble.or(trouble);
        self.violated_key =
            self.violated_key.take().or_else(|| ViolatedForeignKey::from_error(error));
        failure
    }

    async fn prepare_statement<'b>(
        &mut self,
        stroke: &'b Statement<'_>,
    ) -> Result<OutgoingStatement<'b>, StatementError> {
        self.prepare_sql(&stroke.sql, &stroke.binds).await
    }

    async fn prepare_sql<'b>(
        &mut self,
        sql: &'b str,
        binds: &'b [Bind<'b>],
    ) -> Result<OutgoingStatement<'b>, StatementError> {
        if self.connection.pooling == Pooling::Transaction {
            return Ok(OutgoingStatement::Unprepared(sql, binds));
        }
        match self.connection.prepare_cached(sql).await {
            Ok(statement) => Ok(OutgoingStatement::Prepared(statement, binds)),
            Err(error) => Err(self.record_error(&error)),
        }
    }

    /// Sends a transaction command without parameters.
    async fn send_command(&mut self, word: &str) -> Result<(), StatementError> {
        let done = self.connection.client.batch_execute(word).await;
        done.map_err(|error| self.record_error(&error))
    }

    /// `BEGIN`, if it is pending.
    fn take_begin(&mut self) -> Option<&'static str> {
        let is_due = self.stage == TransactionStage::BeginPending;
        is_due.then(|| {
            self.stage = TransactionStage::Open;
            "BEGIN"
        })
    }

    /// Reads rows until `is_enough`.
    async fn collect_rows_until<T>(
        &mut self,
        rows: RowStream,
        read: impl Fn(&dyn Columns) -> Result<T, InternalError>,
        mut is_enough: impl FnMut(&T) -> bool,
    ) -> Result<Vec<T>, StatementError> {
        let mut rows = pin!(rows);
        let mut all = Vec::new();
        loop {
            let row: Option<Row> =
                rows.as_mut().try_next().await.map_err(|error| self.record_error(&error))?;
            let Some(row) = row else { return Ok(all) };
            let row = read(&row).map_err(StatementError::Internal)?;
            let is_last = is_enough(&row);
            all.push(row);
            if is_last {
                return Ok(all);
            }
        }
    }

    /// Pipelines statements, and returns how many rows each changed.
    async fn send_pipelined(
        &mut self,
        messages: Vec<OutgoingStatement<'_>>,
    ) -> Vec<Result<u64, Error>> {
        let client = &self.connection.client;
        join_pipelined(messages.into_iter().map(|message| execute(client, message))).await
    }

    /// Runs one statement that is its own transaction.
    async fn run_autocommit(&mut self, stroke: &Statement<'_>) -> Result<(), FailedStatement> {
        let stopped = |failure| FailedStatement { at: 0, failure };
        let message = self.prepare_statement(stroke).await.map_err(stopped)?;
        crate::fault::point("commit");
        self.stage = TransactionStage::CommitSent;
        match execute(&self.connection.client, message).await {
            Ok(1) => self.confirm_commit().map_err(stopped),
            Ok(_) => Err(stopped(changed_while_locked_error())),
            Err(error) => Err(stopped(self.record_error(&error))),
        }
    }

    /// Runs one multi-row statement, with one array per column; it is its own transaction.
    pub async fn insert_columns(
        &mut self,
        sql: &str,
        columns: &[Vec<Bind<'_>>],
    ) -> Result<(), StatementError> {
        let statement = self.connection.prepare_cached(sql).await;
        let statement = statement.map_err(|error| self.record_error(&error))?;
        crate::fault::point("commit");
        self.stage = TransactionStage::CommitSent;
        let rows = columns.first().map_or(0, Vec::len);
        match self.connection.client.execute_raw(&statement, columns).await {
            Ok(done) if usize::try_from(done) == Ok(rows) => self.confirm_commit(),
            // It is committed, but wrong, so it must not be retried.
            Ok(_) => {
                self.trouble = Some(ErrorClass::ConnectionLost);
                Err(StatementError::Engine(
                    "a multi-row insert wrote another number of rows than it was given".into(),
                ))
            }
            Err(error) => Err(self.record_error(&error)),
        }
    }

    /// Runs statements; with `is_last` also the commit after them.
    async fn run_all_statements(
        &mut self,
        strokes: &[Statement<'_>],
        is_last: bool,
    ) -> Result<(), FailedStatement> {
        if let ([stroke], TransactionStage::Autocommit, true) = (strokes, self.stage, is_last) {
            return self.run_autocommit(stroke).await;
        }
        let mut messages = Vec::with_capacity(strokes.len() + 2);
        let is_block = self.stage != TransactionStage::Autocommit || strokes.len() > 1;
        if self.stage == TransactionStage::Autocommit && is_block {
            self.stage = TransactionStage::BeginPending;
        }
        for (at, stroke) in strokes.iter().enumerate() {
            let message = self.prepare_statement(stroke).await;
            messages.push(message.map_err(|failure| FailedStatement { at, failure })?);
        }
        let begin = self.take_begin();
        let before = usize::from(begin.is_some());
        messages.splice(..0, begin.map(OutgoingStatement::Command));
        if is_last {
            if !strokes.is_empty() {
                crate::fault::point("commit");
            }
            if is_block {
                messages.push(OutgoingStatement::Command("COMMIT"));
            }
            self.stage = TransactionStage::CommitSent;
        }
        for (at, done) in self.send_pipelined(messages).await.into_iter().enumerate() {
            let at = at.saturating_sub(before);
            match done {
                Ok(1) => {}
                Ok(_) => return Err(FailedStatement { at, failure: changed_while_locked_error() }),
                Err(error) => {
                    return Err(FailedStatement { at, failure: self.record_error(&error) });
                }
            }
        }
        if is_last {
            let at = strokes.len();
            self.confirm_commit().map_err(|failure| FailedStatement { at, failure })?;
        }
        Ok(())
    }

    async fn begin_and_query<T>(
        &mut self,
        message: OutgoingStatement<'_>,
        read: impl Fn(&dyn Columns) -> Result<T, InternalError>,
        is_enough: impl FnMut(&T) -> bool,
    ) -> Result<Vec<T>, StatementError> {
        let begin = self.take_begin();
        let client = &self.connection.client;
        let (begun, rows) = match begin {
            None => (Ok(()), query(client, message).await),
            // `join` polls `BEGIN` first, so it is sent first. Boxed, since a plain read does not need it.
            Some(begin) => {
                Box::pin(join(client.batch_execute(begin), query(client, message))).await
            }
        };
        let rows = begun.and(rows).map_err(|error| self.record_error(&error))?;
        self.collect_rows_until(rows, read, is_enough).await
    }
}

impl Driver for PostgresDriver<'_> {
    const DIALECT: &'static Dialect = &POSTGRES;
    const HAS_SHARED_COMMIT: bool = false;

    async fn query_until<T>(
        &mut self,
        sql: &str,
        binds: &[Bind<'_>],
        read: impl Fn(&dyn Columns) -> Result<T, InternalError>,
        is_enough: impl FnMut(&T) -> bool,
    ) -> Result<Vec<T>, StatementError> {
        let message = self.prepare_sql(sql, binds).await?;
        self.begin_and_query(message, read, is_enough).await
    }

    async fn query_pair<A, T>(
        &mut self,
        (first, read_first): (&Statement<'_>, impl Fn(&dyn Columns) -> Result<A, InternalError>),
        then: &Statement<'_>,
        read: impl Fn(&dyn Columns) -> Result<T, InternalError>,
        is_enough: impl FnMut(&T) -> bool,
    ) -> Result<(Vec<A>, Vec<T>), StatementError> {
        let (one, other) =
            (self.prepare_statement(first).await?, self.prepare_statement(then).await?);
        let begin = self.take_begin();
        let client = &self.connection.client;
        let begun = async {
            match begin {
                Some(begin) => client.batch_execute(begin).await,
                None => Ok(()),
            }
        };
        let ahead = async { query(client, one).await?.try_collect::<Vec<Row>>().await };
        let ((begun, before), rows) = join(join(begun, ahead), query(client, other)).await;
        let before = begun.and(before).map_err(|error| self.record_error(&error))?;
        let rows = rows.map_err(|error| self.record_error(&error))?;
        let before: Result<_, _> = before.iter().map(|row| read_first(row)).collect();
        Ok((
            before.map_err(StatementError::Internal)?,
            self.collect_rows_until(rows, read, is_enough).await?,
        ))
    }

    async fn query_uncached<T>(
        &mut self,
        stroke: &Statement<'_>,
        read: impl Fn(&dyn Columns) -> Result<T, InternalError>,
        is_enough: impl FnMut(&T) -> bool,
    ) -> Result<Vec<T>, StatementError> {
        self.begin_and_query(
            OutgoingStatement::Unprepared(&stroke.sql, &stroke.binds),
            read,
            is_enough,
        )
        .await
    }

    async fn execute(&mut self, sql: &str, binds: &[Bind<'_>]) -> Result<usize, StatementError> {
        let message = self.prepare_sql(sql, binds).await?;
        let messages: Vec<_> = self
            .take_begin()
            .map(OutgoingStatement::Command)
            .into_iter()
            .chain([message])
            .collect();
        let mut count = 0;
        for done in self.send_pipelined(messages).await {
            count = done.map_err(|error| self.record_error(&error))?;
        }
        Ok(usize::try_from(count).unwrap_or(usize::MAX))
    }

    async fn query_each<T>(
        &mut self,
        strokes: &[Statement<'_>],
        read: impl Fn(usize, &dyn Columns) -> Result<T, InternalError>,
    ) -> Result<Vec<Vec<T>>, StatementError> {
        let mut messages = Vec::with_capacity(strokes.len() + 1);
        for stroke in strokes {
            messages.push(self.prepare_statement(stroke).await?);
        }
        let begin = self.take_begin();
        let before = usize::from(begin.is_some());
        messages.splice(..0, begin.map(OutgoingStatement::Command));
        let client = &self.connection.client;
        let sent = messages.into_iter().map(|message| async move {
            match message {
                word @ OutgoingStatement::Command(_) => {
                    execute(client, word).await.map(|_| Vec::new())
                }
                message => query(client, message).await?.try_collect().await,
            }
        });
        let mut all = Vec::with_capacity(strokes.len());
        for (at, rows) in join_pipelined(sent).await.into_iter().enumerate() {
            let rows: Vec<Row> = rows.map_err(|error| self.record_error(&error))?;
            if let Some(at) = at.checked_sub(before) {
                let rows: Result<_, _> = rows.iter().map(|row| read(at, row)).collect();
                all.push(rows.map_err(StatementError::Internal)?);
            }
        }
        Ok(all)
    }

    async fn execute_each(&mut self, strokes: &[Statement<'_>]) -> Result<(), FailedStatement> {
        self.run_all_statements(strokes, false).await
    }

    async fn finish(&mut self, strokes: &[Statement<'_>]) -> Result<(), FailedStatement> {
        self.run_all_statements(strokes, !self.has_savepoint).await
    }

    async fn begin_savepoint(&mut self) -> Result<(), StatementError> {
        self.send_command("SAVEPOINT request").await?;
        self.has_savepoint = true;
        Ok(())
    }

    async fn rollback_to_savepoint(&mut self) -> Result<(), StatementError> {
        self.send_command("ROLLBACK TO request").await
    }

    async fn finish_savepoint(&mut self, strokes: &[Statement<'_>]) -> Result<(), FailedStatement> {
        self.has_savepoint = false;
        self.run_all_statements(strokes, true).await
    }

    async fn run_blocking<T: Send + 'static>(
        &mut self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, StatementError> {
        match tokio::task::spawn_blocking(work).await {
            Ok(done) => Ok(done),
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime is shutting down.
                Err(_) => Err(StatementError::TimedOut),
            },
        }
    }

    async fn recover(&mut self) -> Result<(), StatementError> {
        if self.has_savepoint {
            return self.rollback_to_savepoint().await;
        }
        let is_block = std::mem::replace(&mut self.stage, TransactionStage::Autocommit)
            == TransactionStage::Open;
        if is_block {
            self.send_command("ROLLBACK").await?;
        }
        Ok(())
    }

    fn now(&self) -> Moment {
        self.connection.clock.now()
    }

    fn low_watermark(&self) -> i64 {
        self.connection.low_watermark.load(Ordering::Relaxed)
    }

    fn raise_low_watermark(&self, number: i64) {
        self.connection.low_watermark.fetch_max(number, Ordering::Relaxed);
    }
}
