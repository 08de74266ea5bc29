//! The store as the worker threads see it: each has its own connection pool, insert batches and pipelined reads.

use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout_at;

use crate::log::Logger;
use crate::metrics::Metrics;
use crate::model::Model;
use crate::plan::{DeliveryTask, Outcome, ReadPlan, WritePlan};
use crate::store::context::StoreContext;
use crate::store::error::{OpenError, StoreError};
use crate::store::export::ExportRequest;
use crate::store::export_stream::{ExportBody, Exports};
use crate::store::postgres::attempt::{NETWORK_GRACE, PostgresWorkerState, WriteAttempt};
use crate::store::postgres::connect::SessionSettings;
use crate::store::postgres::connection_url::address::PostgresUrl;
use crate::store::postgres::detach_on_drop::DetachOnDrop;
use crate::store::postgres::driver::{PostgresDriver, TransactionStage};
use crate::store::postgres::export;
use crate::store::postgres::insert_batch::{BatchResult, InsertBatches};
use crate::store::postgres::maintenance::MaintenanceThread;
use crate::store::postgres::pipelined::{PipelinedReads, ReadConnection};
use crate::store::postgres::pool::{ConnectionLease, ConnectionPool, LeasePurpose};
use crate::store::postgres::primary::PrimaryState;
use crate::store::postgres::replay_protection::NonceClaims;
use crate::store::postgres::replay_protection::claim_queue::ClaimQueue;
use crate::store::sql::dialect::POSTGRES;
use crate::store::write::WriteOptions;
use crate::store::{deliveries, read};
use crate::{clock, fault};

/// State that all worker threads share.
#[derive(Debug)]
pub struct PostgresStore {
    address: Arc<PostgresUrl>,
    metrics: Arc<Metrics>,
    session: SessionSettings,
    pub context: Arc<StoreContext>,
    connections_max: usize,
    exports: Arc<Exports>,
    epoch: Arc<Mutex<Option<u64>>>,
    claims: Arc<ClaimQueue>,
    keeper: Mutex<Option<MaintenanceThread>>,
    primary: Arc<PrimaryState>,
}

pub fn open(
    address: &Arc<PostgresUrl>,
    model: &Arc<Model>,
    (log, metrics): (&Logger, &Arc<Metrics>),
    is_patient: bool,
) -> Result<Arc<PostgresStore>, OpenError> {
    let context = StoreContext::new(model, &POSTGRES, Arc::clone(&metrics.store.damaged_items));
    let session = SessionSettings::new(&model.server);
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
        exports: Exports::new(&model.server.limits, metrics),
        claims: Arc::new(ClaimQueue::new(&epoch)),
        epoch,
        primary: Arc::clone(&maintenance.primary),
        keeper: Mutex::new(Some(maintenance)),
    }))
}

impl PostgresStore {
    pub fn close(&self) {
        let maintenance =
            self.keeper.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        if let Some(maintenance) = maintenance {
            maintenance.stop();
        }
    }
}

/// The store as one worker thread sees it.
#[derive(Debug)]
pub struct PostgresWorker {
    pub state: Arc<PostgresWorkerState>,
    pub reads: PipelinedReads,
    pub batches: Arc<InsertBatches>,
    pub claims: Arc<NonceClaims>,
    exports: Arc<Exports>,
}

impl PostgresWorker {
    pub fn new(shared: &Arc<PostgresStore>, workers: usize) -> Self {
        Self::with_connections(shared, shared.connections_max.div_ceil(workers.max(1)).max(1))
    }

    pub fn with_connections(shared: &Arc<PostgresStore>, connections_max: usize) -> Self {
        let address = Arc::clone(&shared.address);
        let counted = shared.metrics.pool();
        let pool = ConnectionPool::new(address, shared.session, connections_max, counted);
        let pool = pool.with_epoch(&shared.epoch).with_primary(&shared.primary);
        let limits = &shared.context.model.server.limits;
        let state = Arc::new(PostgresWorkerState {
            context: Arc::clone(&shared.context),
            pool: Arc::new(pool),
            statement_max: Duration::from_secs(limits.statement_seconds_max.into()),
        });
        Self {
            reads: PipelinedReads::new(&state.pool),
            batches: Arc::new(InsertBatches::new(&state)),
            claims: Arc::new(NonceClaims::new(&state, &shared.claims)),
            exports: Arc::clone(&shared.exports),
            state,
        }
    }

    /// Once it has a connection, the work continues when the client disconnects: the database completes
    /// the statement anyway, and the connection cannot be reused before. The admission permit is held as long.
    pub async fn read(
        &self,
        read: ReadPlan,
        place: Option<OwnedSemaphorePermit>,
    ) -> Result<Outcome, StoreError> {
        fault::point("read");
        let until = clock::now() + self.state.statement_max;
        let way = match &read {
            read if read.is_point_lookup() => self.reads.lease_for_read(until).await?,
            read => {
                let lease = lease(&self.state, read, until).await?;
                ReadConnection::Exclusive(lease)
            }
        };
        let state = Arc::clone(&self.state);
        DetachOnDrop::new(|| async move {
            let _place = place;
            run_read(&state, &read, way, until).await
        })
        .await
    }

    /// Runs a write to its end even if the client disconnects; meanwhile it keeps its memory and queue
    /// slot.
    pub fn write(
        &self,
        write: Box<WritePlan>,
        options: WriteOptions,
    ) -> impl Future<Output = Result<Outcome, StoreError>> + use<> {
        fault::point("queue");
        let batches = Arc::clone(&self.batches);
        DetachOnDrop::new(|| run_write(batches, write, options))
    }

    /// Runs a task of the delivery queue to its end. It is not retried: the caller finds out what is stored.
    pub fn deliver(
        &self,
        task: DeliveryTask,
        until: Instant,
    ) -> impl Future<Output = Result<Outcome, StoreError>> + use<> {
        let state = Arc::clone(&self.state);
        DetachOnDrop::new(|| async move {
            let work = async |driver: &mut PostgresDriver<'_>| {
                let done = deliveries::run(driver, &task).await?;
                driver.commit().await?;
                Ok(Outcome::Delivery(done))
            };
            match state.attempt_write(TransactionStage::BeginPending, until, work).await {
                WriteAttempt::Done(done) => done,
                WriteAttempt::Retry(undone) => Err(undone.error),
            }
        })
    }

    /// Starts an export, and returns when its first chunk is ready.
    pub async fn export(&self, request: ExportRequest) -> Result<ExportBody, StoreError> {
        export::begin(&self.exports, &self.state, request).await
    }
}

async fn run_read(
    state: &PostgresWorkerState,
    read: &ReadPlan,
    mut way: ReadConnection,
    until: Instant,
) -> Result<Outcome, StoreError> {
    let mut is_second = false;
    loop {
        let mut driver = PostgresDriver::new(&way, TransactionStage::Autocommit);
        let late = until + NETWORK_GRACE;
        let deadline = way.shared_deadline(clock::now(), until).unwrap_or(late);
        let done = {
            let mut work = pin!(read::read(&mut driver, &state.context, read));
            match timeout_at(deadline.into(), work.as_mut()).await {
                Err(_) if way.is_sole_read() => timeout_at(late.into(), work).await,
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
                let is_late = clock::now() >= late;
                if is_late {
                    way.doubt_primary();
                }
                way.abandon();
                if is_late {
                    return Err(StoreError::TimedOut);
                }
            }
        }
        // The old connection is released first: its slot may be the only one.
        way = ReadConnection::Exclusive(lease(state, read, until).await?);
    }
}

async fn run_write(
    batches: Arc<InsertBatches>,
    write: Box<WritePlan>,
    options: WriteOptions,
) -> Result<Outcome, StoreError> {
    let WriteOptions { bytes, deadline: until, memory: _memory, place: _place } = options;
    let state = &batches.state;
    let Some(line) = batches.batch_queue(&write, bytes, until) else {
        return state.write_individually(&write, until).await;
    };
    if let Some(turn) = line.try_acquire_permit() {
        let done = state.write_individually(&write, until).await;
        if done.is_ok() {
            turn.record_success(1);
            state.pool.record_batch_size(1);
        }
        return done;
    }
    match batches.enqueue_create(line, write, until).await {
        BatchResult::Done(done) => done,
        BatchResult::RetryIndividually(_) if clock::now() >= until => Err(StoreError::TimedOut),
        BatchResult::RetryIndividually(write) => state.write_individually(&write, until).await,
    }
}

async fn lease(
    state: &PostgresWorkerState,
    read: &ReadPlan,
    until: Instant,
) -> Result<ConnectionLease, StoreError> {
    let is_scan = read.is_full_scan(&state.context.model);
    let purpose = if is_scan { LeasePurpose::List } else { LeasePurpose::Read };
    state.pool.lease(purpose, until).await
}
