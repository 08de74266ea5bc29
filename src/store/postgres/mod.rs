//! PostgreSQL backend: any number of server processes serve one database and share nothing else.
//!
//! Each worker thread has its own connection pool (`pool`), so a request never changes threads. A write is
//! retried while no response was sent to the client and the transaction certainly did not commit; where the
//! outcome is unknown, the client gets `OutcomeUnknown`. A maintenance thread opens the database at startup
//! and then sweeps the change log (`maintenance`).

mod connection_url;
mod admin;
mod change_reader;
mod replay_protection;
mod commit_wait;
mod connect;
mod database_clock;
mod driver;
mod export;
mod error_class;
mod foreign_key;
mod insert_batch;
mod index_build;
mod maintenance;
mod pipelined;
mod server_registry;
mod outgoing_statement;
mod detach_on_drop;
mod open;
mod pool;
mod lru_cache;
mod tls;
mod values;

#[cfg(test)]
pub(super) use self::connect::tests::cluster;

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout_at;

pub use admin::PostgresAdminStore;
pub use change_reader::PostgresChangeReader;
pub use connection_url::{LibpqEnvironment, PostgresUrl};

use self::connect::SessionSettings;
use self::database_clock::DatabaseClock;
use self::detach_on_drop::DetachOnDrop;
use self::driver::{PostgresDriver, TransactionStage};
use self::error_class::ErrorClass;
use self::export::PostgresExports;
use self::foreign_key::PostgresForeignKey;
use self::insert_batch::{BatchQueues, BatchResult};
use self::pipelined::ReadConnection;
use self::pool::{ConnectionPool, LeasePurpose};
use self::replay_protection::ClaimQueue;
use super::sql::POSTGRES;
use super::transaction::{self, CommitMode, StoreContext, WriteError, WriteRef};
use super::uuid_v7::UuidGenerator;
use super::{OpenError, StoreError, WriteOptions};
use crate::clock;
use crate::fault;
use crate::log::Logger;
use crate::metrics::Metrics;
use crate::model::Model;
use crate::model::settings::{Pooling, ServerTable};
use crate::plan::{Outcome, ReadPlan, RequestRefusal, WriteAction, WritePlan};
use maintenance::MaintenanceThread;

/// How often one write is attempted.
const ATTEMPTS_MAX: u32 = 10;
/// Base delay before a write is retried; the delay grows with each attempt (backoff).
const RETRY_DELAY: Duration = Duration::from_millis(2);
/// The delay while another server holds the same idempotency key stops growing after this many retries.
const RETRY_DELAY_STEPS_MAX: u32 = 20;
/// Added to every statement's deadline: PostgreSQL enforces `statement_timeout`, but a hung network does
/// not.
const NETWORK_GRACE: Duration = Duration::from_secs(5);
/// A rollback that takes longer is cut short by closing the connection, which rolls back too.
const ROLLBACK_TIMEOUT: Duration = Duration::from_secs(1);

/// State that all worker threads share.
#[derive(Debug)]
pub struct PostgresStore {
    address: Arc<PostgresUrl>,
    metrics: Arc<Metrics>,
    session: SessionSettings,
    context: Arc<StoreContext>,
    connections_max: usize,
    exports: Arc<PostgresExports>,
    epoch: Arc<Mutex<Option<u64>>>,
    claims: Arc<ClaimQueue>,
    keeper: Mutex<Option<MaintenanceThread>>,
    clock: Arc<DatabaseClock>,
}

pub(super) fn open(
    address: &Arc<PostgresUrl>,
    model: &Arc<Model>,
    (log, metrics): (&Logger, &Arc<Metrics>),
    is_patient: bool,
) -> Result<Arc<PostgresStore>, OpenError> {
    let context = StoreContext::with_metrics(model, &POSTGRES, Arc::clone(&metrics.damaged_items));
    let session = session_settings(&model.server);
    let (address, counted) = (Arc::clone(address), (log, metrics));
    let maintenance = MaintenanceThread::start(
        Arc::clone(&address),
        Arc::clone(&context),
        session,
        counted,
        is_patient,
    )?;
    let epoch = Arc::default();
    Ok(Arc::new(PostgresStore {
        address,
        metrics: Arc::clone(metrics),
        session,
        context,
        connections_max: model.server.limits.database_connections_max,
        exports: Arc::new(PostgresExports::new(&model.server.limits, metrics)),
        claims: Arc::new(ClaimQueue::new(&epoch)),
        epoch,
        clock: Arc::clone(&maintenance.clock),
        keeper: Mutex::new(Some(maintenance)),
    }))
}

/// Session settings: no statement runs, and none waits for a lock, longer than a request may take.
fn session_settings(settings: &ServerTable) -> SessionSettings {
    let millis = u64::from(settings.limits.statement_seconds_max) * 1_000;
    SessionSettings {
        pooling: settings.database_pooling.unwrap_or(Pooling::Session),
        // The lock timeout fires first, because its error says more.
        statement_ms_max: millis + 250,
        lock_ms_max: millis,
        idle_in_transaction_ms_max: 4 * millis,
    }
}

impl PostgresStore {
    pub(super) fn close(&self) {
        let maintenance =
            self.keeper.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        if let Some(maintenance) = maintenance {
            maintenance.stop();
        }
    }
}

/// The store as one worker thread sees it.
#[derive(Debug)]
pub struct PostgresWorker(Arc<PostgresWorkerState>);

#[derive(Debug)]
struct PostgresWorkerState {
    context: Arc<StoreContext>,
    pool: Arc<ConnectionPool>,
    ids: Mutex<UuidGenerator>,
    pooling: Pooling,
    statement_max: Duration,
    claims: Arc<ClaimQueue>,
    exports: Arc<PostgresExports>,
    batch_queues: BatchQueues,
}

impl PostgresWorker {
    pub(super) fn new(shared: &Arc<PostgresStore>, workers: usize) -> Self {
        let address = Arc::clone(&shared.address);
        let connections_max = shared.connections_max.div_ceil(workers.max(1)).max(1);
        let counted = shared.metrics.pool();
        let pool = ConnectionPool::new(address, shared.session, connections_max, counted);
        let pool = pool.with_epoch(&shared.epoch).with_clock(&shared.clock);
        let limits = &shared.context.model.server.limits;
        Self(Arc::new(PostgresWorkerState {
            context: Arc::clone(&shared.context),
            pool: Arc::new(pool),
            ids: Mutex::default(),
            pooling: shared.session.pooling,
            statement_max: Duration::from_secs(limits.statement_seconds_max.into()),
            claims: Arc::clone(&shared.claims),
            exports: Arc::clone(&shared.exports),
            batch_queues: BatchQueues::new(&shared.context.model),
        }))
    }

    /// Once it has a connection, the work continues when the client disconnects: the database completes
    /// the statement anyway, and the connection cannot be reused before. The admission permit is held as long.
    pub(super) async fn read(
        &self,
        read: ReadPlan,
        place: Option<OwnedSemaphorePermit>,
    ) -> Result<Outcome, StoreError> {
        fault::point("read");
        let now = clock::now();
        let until = now + self.0.statement_max;
        let pool = &self.0.pool;
        let way = match &read {
            read if read.is_point_lookup() => pool.lease_for_read(now, until).await?,
            read => ReadConnection::Exclusive(pool.lease(lease_purpose(read), until).await?),
        };
        let inner = Arc::clone(&self.0);
        DetachOnDrop::new(|| async move {
            let _place = place;
            PostgresWorkerState::read(inner, read, way, until).await
        })
        .await
    }

    /// Runs a write to its end even if the client disconnects; meanwhile it keeps its memory and queue
    /// slot.
    pub(super) fn write(
        &self,
        write: Box<WritePlan>,
        options: WriteOptions,
    ) -> impl Future<Output = Result<Outcome, StoreError>> + use<> {
        fault::point("queue");
        let inner = Arc::clone(&self.0);
        DetachOnDrop::new(|| PostgresWorkerState::write(inner, write, options))
    }
}

impl PostgresWorkerState {
    async fn read(
        self: Arc<Self>,
        read: ReadPlan,
        mut way: ReadConnection,
        until: Instant,
    ) -> Result<Outcome, StoreError> {
        let mut is_second = false;
        loop {
            let connection = way.connection().ok_or_else(no_connection)?;
            let mut driver = PostgresDriver::new(
                connection,
                &self.ids,
                self.pooling,
                TransactionStage::Autocommit,
            );
            let late = until + NETWORK_GRACE;
            let done = {
                let mut work = pin!(transaction::read(&mut driver, &self.context, &read));
                let done = timeout_at(way.answer_deadline(late).into(), work.as_mut()).await;
                match done {
                    Err(_) if way.is_sole_read() => timeout_at(late.into(), work.as_mut()).await,
                    done => done,
                }
            };
            match (done, driver.error_class()) {
                (Ok(done), None) => {
                    way.complete();
                    return done;
                }
                (Ok(done), Some(_)) => {
                    way.mark_broken();
                    if is_second {
                        return done;
                    }
                    // An idle connection that was cut shows it only at its next use: retry once.
                    is_second = true;
                }
                (Err(_), _) => {
                    way.abandon();
                    if clock::now() >= late {
                        return Err(StoreError::TimedOut);
                    }
                }
            }
            // The old connection is released first: its slot may be the only one.
            way = ReadConnection::Exclusive(self.pool.lease(lease_purpose(&read), until).await?);
        }
    }

    async fn write(
        self: Arc<Self>,
        write: Box<WritePlan>,
        options: WriteOptions,
    ) -> Result<Outcome, StoreError> {
        let WriteOptions { bytes, deadline: until, memory: _memory, place: _place } = options;
        let Some(line) = self.batch_queue(&write, bytes, until) else {
            return self.write_individually(&write, until).await;
        };
        if let Some(turn) = line.try_acquire_permit() {
            let done = self.write_individually(&write, until).await;
            if done.is_ok() {
                turn.record_success(1);
                self.pool.record_batch_size(1);
            }
            return done;
        }
        match self.enqueue_create(line, write, until).await {
            BatchResult::Done(done) => done,
            BatchResult::RetryIndividually(_) if clock::now() >= until => Err(StoreError::TimedOut),
            BatchResult::RetryIndividually(write) => self.write_individually(&write, until).await,
        }
    }

    async fn write_individually(
        &self,
        write: &WritePlan,
        until: Instant,
    ) -> Result<Outcome, StoreError> {
        // A write that depends on the stored item holds its row lock until the commit.
        let stage = match &write.action {
            // The response stored for the idempotency key is written in the same transaction.
            _ if write.idempotency.is_some() => TransactionStage::BeginPending,
            WriteAction::Create { .. } => TransactionStage::Autocommit,
            WriteAction::Replace { .. }
            | WriteAction::Patch { .. }
            | WriteAction::Remove { .. } => TransactionStage::BeginPending,
        };
        let mut key_wait = IdempotencyKeyWait::new(write);
        let mut attempt = 1;
        loop {
            let is_last = attempt == ATTEMPTS_MAX;
            let work = async |driver: &mut PostgresDriver<'_>| {
                transaction::write(
                    driver,
                    &self.context,
                    WriteRef::Borrowed(write),
                    CommitMode::Exclusive,
                )
                .await
            };
            match self.attempt_write(stage, until, work).await {
                WriteAttempt::Done(Err(error)) if key_wait.should_retry(&error) => {
                    key_wait.wait().await;
                    continue;
                }
                WriteAttempt::Done(done) => return done,
                WriteAttempt::Retry(RollbackCause { violated_key: Some(key), .. })
                    if self.is_delete_refused(write, &key, until).await =>
                {
                    return Err(StoreError::Refused(RequestRefusal::Referenced(None)));
                }
                WriteAttempt::Retry(undone) if is_last || clock::now() >= until => {
                    return Err(undone.error);
                }
                WriteAttempt::Retry(_) => tokio::time::sleep(RETRY_DELAY * attempt * attempt).await,
            }
            attempt += 1;
        }
    }

    async fn attempt_write<T>(
        &self,
        stage: TransactionStage,
        until: Instant,
        work: impl AsyncFnOnce(&mut PostgresDriver<'_>) -> Result<T, WriteError<Box<WritePlan>>>,
    ) -> WriteAttempt<T> {
        let lease = match self.pool.lease(LeasePurpose::Write, until).await {
            Ok(lease) => lease,
            Err(error) => return WriteAttempt::Done(Err(error)),
        };
        let Some(connection) = lease.connection() else {
            return WriteAttempt::Done(Err(no_connection()));
        };
        let mut driver = PostgresDriver::new(connection, &self.ids, self.pooling, stage);
        let done = {
            let work = pin!(work(&mut driver));
            timeout_at(until.into(), work).await
        };
        let error = match done {
            Ok(Ok(outcome)) => {
                fault::point("answer");
                lease.return_to_pool();
                return WriteAttempt::Done(Ok(outcome));
            }
            Ok(Err(WriteError::Error(error))) => error,
            Ok(Err(WriteError::ExceedsGroup(_))) => {
                StoreError::internal("an exclusive write exceeded its commit group")
            }
            // A commit is never cancelled: PostgreSQL would stop waiting for its standbys, and report
            // success for a transaction that a failover loses.
            Err(_) if driver.may_have_committed() => {
                let cause = "the database did not confirm the commit in time".to_owned();
                lease.return_when_drained();
                return WriteAttempt::Done(Err(StoreError::OutcomeUnknown(cause)));
            }
            // The work is dropped first, so no commit can follow the cancel request.
            Err(_) => {
                lease.spawn_cancel();
                return WriteAttempt::Done(Err(StoreError::TimedOut));
            }
        };
        match driver.error_class() {
            Some(ErrorClass::ConnectionLost) if driver.may_have_committed() => {
                WriteAttempt::Done(Err(StoreError::OutcomeUnknown(error_cause(error))))
            }
            // The connection is not reused: one of its prepared statements may be the cause.
            Some(_) => WriteAttempt::Retry(RollbackCause {
                error,
                violated_key: driver.take_violated_key(),
            }),
            None => {
                let undo =
                    Box::pin(tokio::time::timeout(ROLLBACK_TIMEOUT, driver.rollback_uncommitted()));
                if undo.await == Ok(true) {
                    lease.return_to_pool();
                }
                WriteAttempt::Done(Err(error))
            }
        }
    }
}

/// Retries while another server is processing a request with the same idempotency key. The write holds no
/// connection between two attempts.
struct IdempotencyKeyWait {
    until: Option<Instant>,
    retries: u32,
}

impl IdempotencyKeyWait {
    fn new(write: &WritePlan) -> Self {
        let until = write.idempotency.as_ref().map(|once| clock::now() + once.wait_max);
        Self { until, retries: 0 }
    }

    fn should_retry(&self, error: &StoreError) -> bool {
        matches!(error, StoreError::Refused(RequestRefusal::IdempotencyKeyInFlight))
            && self.until.is_some_and(|until| clock::now() < until)
    }

    async fn wait(&mut self) {
        self.retries = self.retries.saturating_add(1).min(RETRY_DELAY_STEPS_MAX);
        tokio::time::sleep(RETRY_DELAY * self.retries).await;
    }
}

/// How one attempt to write ended.
enum WriteAttempt<T> {
    Done(Result<T, StoreError>),
    /// The transaction was rolled back, and a retry may succeed.
    Retry(RollbackCause),
}

/// Why the database rolled a write back.
struct RollbackCause {
    error: StoreError,
    violated_key: Option<PostgresForeignKey>,
}

fn lease_purpose(read: &ReadPlan) -> LeasePurpose {
    if read.is_full_scan() { LeasePurpose::List } else { LeasePurpose::Read }
}

fn no_connection() -> StoreError {
    StoreError::internal("a lease without a connection")
}

fn error_cause(error: StoreError) -> String {
    match error {
        StoreError::Unavailable(cause) => cause,
        other => format!("{other:?}"),
    }
}
