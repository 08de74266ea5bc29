//! PostgreSQL implementation of the `Driver` trait.
//!
//! Independent statements are pipelined, without waiting for the first answer: a plain read or create is
//! one round trip, an update two.
//! `BEGIN` is sent together with the first statement and `COMMIT` with the last; a single statement needs
//! neither.

use std::cell::RefCell;
use std::ops::ControlFlow;
use std::pin::pin;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Instant;

use futures_util::TryStreamExt;
use futures_util::future::join;
use tokio::sync::Semaphore;
use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::types::Type;
use tokio_postgres::{Error, RowStream};

use crate::fault::OrBug;
use crate::model::settings::Pooling;
use crate::store::driver::{Driver, RowReader, Then};
use crate::store::error::{
    FailedStatement, InternalError, StatementError, changed_while_locked_error,
};
use crate::store::postgres::error_class::{ErrorClass, ViolatedForeignKey, classify};
use crate::store::postgres::outgoing_statement::{
    OutgoingStatement, execute, join_pipelined, query,
};
use crate::store::postgres::pool::DatabaseConnection;
use crate::store::sql::dialect::{Dialect, POSTGRES};
use crate::store::statement::{Bind, BulkInsert, Columns, Statement, StatementReuse};
use crate::value::Moment;

/// A result of more bytes needs one of the permits for large reads.
const LARGE_READ_BYTES: usize = 512 << 10;
/// Begins a transaction whose statements all see the same state.
const BEGIN_SNAPSHOT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";

/// The state of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransactionStage {
    /// Each statement is its own transaction.
    Autocommit,
    /// The next statement is sent with `BEGIN`.
    BeginPending,
    /// The next statement is sent with `BEGIN_SNAPSHOT`.
    SnapshotPending,
    Open,
    /// The COMMIT, or a statement that commits by itself, was sent. Until the answer arrives, the outcome is
    /// unknown.
    CommitSent,
}

/// A connection for the duration of one request.
pub struct PostgresDriver<'a> {
    connection: &'a DatabaseConnection,
    stage: TransactionStage,
    /// Whether there is a savepoint, so that a refused statement undoes only what follows it.
    has_savepoint: bool,
    trouble: Option<ErrorClass>,
    violated_key: Option<ViolatedForeignKey>,
    /// The low-water mark behind a transaction-pooling proxy, where a connection may lead to another server at any
    /// time.
    unshared_watermark: AtomicI64,
}

impl<'a> PostgresDriver<'a> {
    pub fn new(connection: &'a DatabaseConnection, stage: TransactionStage) -> Self {
        Self {
            connection,
            stage,
            has_savepoint: false,
            trouble: None,
            violated_key: None,
            unshared_watermark: AtomicI64::new(0),
        }
    }

    /// Records a reading of the database's clock.
    pub fn record_clock(&self, sent_at: Instant, received_at: Instant, database: Moment) {
        self.connection.primary.clock.record_reading(sent_at, received_at, database.micros());
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
        Ok(self.execute_all(&[], Then::Commit).await?)
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
                | TransactionStage::SnapshotPending
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

    async fn prepare<'b>(
        &mut self,
        sql: &'b str,
        binds: &'b [Bind<'b>],
        reuse: StatementReuse,
    ) -> Result<OutgoingStatement<'b>, StatementError> {
        // The best plan for the query of a list depends on its values, unless it is a range of one index.
        let is_planned_each_time = matches!(reuse, StatementReuse::OfLists | StatementReuse::Never);
        if is_planned_each_time || self.connection.pooling == Pooling::Transaction {
            return Ok(OutgoingStatement::Unprepared(sql, binds));
        }
        match self.connection.prepare_cached(sql, reuse).await {
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
        let begin = match self.stage {
            TransactionStage::BeginPending => "BEGIN",
            TransactionStage::SnapshotPending => BEGIN_SNAPSHOT,
            TransactionStage::Autocommit
            | TransactionStage::Open
            | TransactionStage::CommitSent => return None,
        };
        self.stage = TransactionStage::Open;
        Some(begin)
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
    async fn run_autocommit(&mut self, statement: &Statement<'_>) -> Result<(), FailedStatement> {
        let stopped = |failure| FailedStatement { at: 0, failure };
        let Statement { sql, binds, reuse, .. } = statement;
        let message = self.prepare(sql, binds, *reuse).await.map_err(stopped)?;
        crate::fault::point("commit");
        self.stage = TransactionStage::CommitSent;
        match execute(&self.connection.client, message).await {
            Ok(1) => self.confirm_commit().map_err(stopped),
            Ok(_) if !statement.changes_one_row => self.confirm_commit().map_err(stopped),
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
        let statement = self.connection.prepare_cached(sql, StatementReuse::Always).await;
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
}

impl Driver for PostgresDriver<'_> {
    const DIALECT: &'static Dialect = &POSTGRES;

    async fn read_rows(
        &mut self,
        statements: &[Statement<'_>],
        read: &mut RowReader<'_>,
    ) -> Result<(), StatementError> {
        let mut messages = Vec::with_capacity(statements.len());
        for (at, Statement { sql, binds, reuse, .. }) in statements.iter().enumerate() {
            messages.push((at, self.prepare(sql, binds, *reuse).await?));
        }
        if messages.is_empty() {
            return Ok(());
        }
        let begin = self.take_begin();
        let DatabaseConnection { client, large_reads, .. } = self.connection;
        // One task polls all futures, and `read` does not await, so it is borrowed once at a time.
        let read = &RefCell::new(read);
        let run = move |(at, message)| async move {
            let rows = query(client, message).await?;
            read_each_row(rows, |row| read.borrow_mut()(at, row), large_reads).await
        };
        let results = match (begin, messages.pop()) {
            // A plain read needs no box.
            (None, Some(message)) if messages.is_empty() => vec![run(message).await],
            (begin, last) => {
                let begun = async {
                    match begin {
                        Some(begin) => client.batch_execute(begin).await,
                        None => Ok(()),
                    }
                };
                let sent = join_pipelined(messages.into_iter().chain(last).map(run));
                // `join` polls `BEGIN` first, so it is sent first.
                let (begun, results) = Box::pin(join(begun, sent)).await;
                begun.map_err(|error| self.record_error(&error))?;
                results
            }
        };
        for result in results {
            result.map_err(|error| match error {
                RowError::Database(error) => self.record_error(&error),
                RowError::Internal(broken) => StatementError::Internal(broken),
            })?;
        }
        Ok(())
    }

    async fn execute(&mut self, sql: &str, binds: &[Bind<'_>]) -> Result<usize, StatementError> {
        let message = self.prepare(sql, binds, StatementReuse::Always).await?;
        let begin = self.take_begin().map(OutgoingStatement::Command);
        let mut count = 0;
        for done in self.send_pipelined(begin.into_iter().chain([message]).collect()).await {
            count = done.map_err(|error| self.record_error(&error))?;
        }
        Ok(usize::try_from(count).unwrap_or(usize::MAX))
    }

    async fn execute_all(
        &mut self,
        statements: &[Statement<'_>],
        then: Then,
    ) -> Result<(), FailedStatement> {
        let is_last = then == Then::Commit;
        if let ([statement], TransactionStage::Autocommit, true) = (statements, self.stage, is_last)
        {
            return self.run_autocommit(statement).await;
        }
        let mut messages = Vec::with_capacity(statements.len() + 2);
        let is_block = self.stage != TransactionStage::Autocommit || statements.len() > 1;
        if self.stage == TransactionStage::Autocommit && is_block {
            self.stage = TransactionStage::BeginPending;
        }
        for (at, Statement { sql, binds, reuse, .. }) in statements.iter().enumerate() {
            let message = self.prepare(sql, binds, *reuse).await;
            messages.push(message.map_err(|failure| FailedStatement { at, failure })?);
        }
        let begin = self.take_begin();
        let before = usize::from(begin.is_some());
        messages.splice(..0, begin.map(OutgoingStatement::Command));
        if is_last {
            if !statements.is_empty() {
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
                Ok(_) if statements.get(at).is_some_and(|one| !one.changes_one_row) => {}
                Ok(_) => return Err(FailedStatement { at, failure: changed_while_locked_error() }),
                Err(error) => {
                    return Err(FailedStatement { at, failure: self.record_error(&error) });
                }
            }
        }
        if is_last {
            self.has_savepoint = false;
            let at = statements.len();
            self.confirm_commit().map_err(|failure| FailedStatement { at, failure })?;
        }
        Ok(())
    }

    /// By COPY, inside a transaction that has begun.
    async fn insert_rows(
        &mut self,
        insert: &BulkInsert,
        rows: &[Vec<Bind<'_>>],
    ) -> Result<(), StatementError> {
        let copied = copy_rows(self.connection, &insert.copy, rows).await;
        let copied = copied.map_err(|error| self.record_error(&error))?;
        match usize::try_from(copied) == Ok(rows.len()) {
            true => Ok(()),
            false => Err(StatementError::Engine(
                "COPY wrote another number of rows than it was given".to_owned(),
            )),
        }
    }

    async fn begin_savepoint(&mut self) -> Result<(), StatementError> {
        self.send_command("SAVEPOINT request").await?;
        self.has_savepoint = true;
        Ok(())
    }

    async fn begin_nested(&mut self) -> Result<(), StatementError> {
        self.begin_savepoint().await
    }

    async fn release_nested(&mut self) -> Result<(), StatementError> {
        self.has_savepoint = false;
        self.send_command("RELEASE request").await
    }

    async fn rollback_to_savepoint(&mut self) -> Result<(), StatementError> {
        self.send_command("ROLLBACK TO request").await
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

    fn begin_snapshot(&mut self) {
        self.stage = TransactionStage::SnapshotPending;
    }

    async fn end_snapshot(&mut self) -> Result<(), StatementError> {
        match std::mem::replace(&mut self.stage, TransactionStage::Autocommit) {
            // Nothing was written. After a failed statement, COMMIT rolls back.
            TransactionStage::Open => self.send_command("COMMIT").await,
            _ => Ok(()),
        }
    }

    fn now(&self) -> Moment {
        self.connection.primary.clock.now()
    }

    fn low_watermark(&self) -> Option<&AtomicI64> {
        match self.connection.pooling {
            Pooling::Session => Some(&self.connection.low_watermark),
            Pooling::Transaction => Some(&self.unshared_watermark),
        }
    }
}

async fn copy_rows(
    connection: &DatabaseConnection,
    sql: &str,
    rows: &[Vec<Bind<'_>>],
) -> Result<u64, Error> {
    let sink = connection.client.copy_in(sql).await?;
    // A value is encoded by its class, whatever the type.
    let types = vec![Type::TEXT; rows.first().map_or(0, Vec::len)];
    let mut writer = pin!(BinaryCopyInWriter::new(sink, &types));
    for row in rows {
        writer.as_mut().write_raw(row).await?;
    }
    writer.finish().await
}

/// Why the rows of a statement could not be read.
enum RowError {
    Database(Error),
    Internal(InternalError),
}

impl From<Error> for RowError {
    fn from(error: Error) -> Self {
        Self::Database(error)
    }
}

/// Reads rows until `read` returns `Break`. A large result waits for its permit in the middle, while what it has read
/// is still small, and before the rows of a later statement of the same connection arrive: so no permit is held by a
/// read that waits for another one.
async fn read_each_row(
    rows: RowStream,
    read: impl Fn(&dyn Columns) -> Result<ControlFlow<()>, InternalError>,
    large_reads: &Semaphore,
) -> Result<(), RowError> {
    let mut rows = pin!(rows);
    let (mut bytes, mut permit) = (0, None);
    while let Some(row) = rows.as_mut().try_next().await? {
        bytes += row.raw_size_bytes();
        if bytes > LARGE_READ_BYTES && permit.is_none() {
            let granted = Box::pin(large_reads.acquire()).await.ok();
            permit = Some(granted.or_bug("the semaphore of large reads is never closed"));
        }
        if read(&row).map_err(RowError::Internal)?.is_break() {
            break;
        }
    }
    Ok(())
}
