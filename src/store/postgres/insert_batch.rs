//! Insert batching: concurrent creates of one resource are coalesced into one multi-row INSERT.
//!
//! A create that depends on nothing stored is sent immediately while few inserts of its resource are in
//! flight. Creates that arrive later wait until those inserts have ended, and are sent as one batch: one
//! round trip, one commit and one sync for all of them. So the cost of a create falls as the load rises.
//! After a batch the next create is not sent immediately either: its thread first collects the creates that
//! have arrived meanwhile. When the database refuses the statement, it rolls back the whole batch, and each
//! create is retried individually, so that only the wrong one gets the error.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::sync::oneshot::{Receiver, Sender, channel};
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use crate::fault::OrBug;
use crate::model::ResourceIndex;
use crate::model::settings::Pooling;
use crate::plan::{Outcome, WritePlan};
use crate::store::batchable_create::{BatchableCreate, is_batchable};
use crate::store::driver::{Driver, Then};
use crate::store::error::{StoreError, WriteError};
use crate::store::postgres::attempt::{PostgresWorkerState, WriteAttempt};
use crate::store::postgres::driver::{PostgresDriver, TransactionStage};
use crate::store::postgres::pool::LEASE_WAIT_MAX;
use crate::store::statement::{Bind, Statement};
use crate::store::uuid_v7;
use crate::store::write::is_rights_recheck_due;
use crate::value::Id;
use crate::{clock, fault};

/// How many statements of one resource are in flight before creates wait for a batch.
const IN_FLIGHT_MAX: u32 = 4;
/// If statements take no longer than this, a batch waits for all of them: the database's CPU is the limit,
/// and larger batches need less of it. If they take longer, the disk or the network is the limit, and both
/// serve several statements concurrently.
const FAST_STATEMENT_MAX: Duration = Duration::from_millis(1);
/// How long a batch waits for the statements before it, which may be blocked by something else.
const FLUSH_WAIT_MAX: Duration = Duration::from_millis(2);
/// How many times the batch leader yields to the event loop before it sends. At each yield the thread polls
/// its sockets, and creates that have arrived can join the batch.
const YIELDS_BEFORE_FLUSH: usize = 2;
/// How many creates one batch holds.
const BATCH_MEMBERS_MAX: usize = 64;
/// The maximum size of a create in a batch. A larger one is sent individually: the batch would wait for it.
const BATCHED_WRITE_BYTES_MAX: usize = 16 << 10;

/// The insert batches of one worker thread.
#[derive(Debug)]
pub struct InsertBatches {
    pub state: Arc<PostgresWorkerState>,
    /// One for each resource.
    queues: Vec<BatchQueue>,
}

/// The insert batches of one resource.
#[derive(Debug)]
pub struct BatchQueue {
    in_flight: Semaphore,
    /// The shortest recent duration of a statement, in microseconds: concurrent statements slow each other
    /// down, so an average would overestimate.
    fastest_micros: AtomicU64,
    /// How many rows the last statement had.
    last_batch_size: AtomicUsize,
    next: Mutex<Weak<InsertBatch>>,
}

/// The permission to send a statement.
pub struct FlushPermit<'a> {
    line: &'a BatchQueue,
    started_at: Instant,
    _permit: Option<SemaphorePermit<'a>>,
}

impl FlushPermit<'_> {
    /// Records that a statement with this many rows succeeded. A refused or failed one says nothing about
    /// the usual duration.
    pub fn record_success(&self, members: usize) {
        self.line.record_duration(self.started_at.elapsed());
        self.line.last_batch_size.store(members, Ordering::Relaxed);
    }
}

/// The creates of one statement, collected until it is sent.
#[derive(Debug)]
struct InsertBatch {
    members: Mutex<Option<Vec<BatchMember>>>,
    /// The deadline of the first create; all others have a later one.
    deadline: Instant,
}

#[derive(Debug)]
struct BatchMember {
    write: Box<WritePlan>,
    enqueued_at: Instant,
    result: Sender<BatchResult>,
}

impl BatchMember {
    fn send_result(self, done: Result<Outcome, StoreError>) {
        // The receiver is gone if the client disconnected.
        let _ = self.result.send(BatchResult::Done(done));
    }

    fn retry_individually(self) {
        let _ = self.result.send(BatchResult::RetryIndividually(self.write));
    }
}

/// How a create in a batch ended.
#[derive(Debug)]
pub enum BatchResult {
    Done(Result<Outcome, StoreError>),
    /// The batch was rolled back, or this create was never sent.
    RetryIndividually(Box<WritePlan>),
}

impl BatchQueue {
    fn new() -> Self {
        let under_way = Semaphore::new(IN_FLIGHT_MAX as usize);
        Self {
            in_flight: under_way,
            fastest_micros: AtomicU64::new(0),
            last_batch_size: AtomicUsize::new(0),
            next: Mutex::default(),
        }
    }

    /// Updates the shortest duration, which decays over ten to twenty statements.
    fn record_duration(&self, took: Duration) {
        let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        // No other thread has this queue, so load and store need not be one operation.
        let least = self.fastest_micros.load(Ordering::Relaxed);
        self.fastest_micros.store(took.min(least + least / 16 + 50), Ordering::Relaxed);
    }

    fn permits_per_statement(&self) -> u32 {
        let least = Duration::from_micros(self.fastest_micros.load(Ordering::Relaxed));
        if least <= FAST_STATEMENT_MAX { IN_FLIGHT_MAX } else { 1 }
    }

    fn open_batch(&self) -> MutexGuard<'_, Weak<InsertBatch>> {
        self.next.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The permission to send immediately, if few statements are in flight, no batch is being collected, and
    /// the last statement had one row.
    pub fn try_acquire_permit(&self) -> Option<FlushPermit<'_>> {
        if self.last_batch_size.load(Ordering::Relaxed) > 1
            || self.open_batch().upgrade().is_some_and(|group| group.members().is_some())
        {
            return None;
        }
        let permit = self.in_flight.try_acquire_many(self.permits_per_statement()).ok()?;
        Some(FlushPermit { line: self, started_at: clock::now(), _permit: Some(permit) })
    }

    /// Waits for the permission, but sends without it after `FLUSH_WAIT_MAX`.
    async fn acquire_permit(&self) -> FlushPermit<'_> {
        let permit =
            timeout(FLUSH_WAIT_MAX, self.in_flight.acquire_many(self.permits_per_statement()))
                .await;
        FlushPermit {
            line: self,
            started_at: clock::now(),
            _permit: permit.ok().and_then(Result::ok),
        }
    }
}

impl InsertBatch {
    fn members(&self) -> MutexGuard<'_, Option<Vec<BatchMember>>> {
        self.members.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a create, unless the batch is full or closed.
    fn try_add(&self, member: BatchMember) -> Result<(), BatchMember> {
        match &mut *self.members() {
            Some(members) if members.len() < BATCH_MEMBERS_MAX => {
                members.push(member);
                Ok(())
            }
            _ => Err(member),
        }
    }

    /// Closes the batch: no create can join it from here on.
    fn close(&self) -> Vec<BatchMember> {
        self.members().take().unwrap_or_default()
    }
}

impl InsertBatches {
    pub fn new(state: &Arc<PostgresWorkerState>) -> Self {
        let queues = state.context.model.resources.iter().map(|_| BatchQueue::new()).collect();
        Self { state: Arc::clone(state), queues }
    }

    fn queue_for(&self, resource: ResourceIndex) -> &BatchQueue {
        self.queues.get(resource.0).or_bug("each resource has a queue")
    }

    /// The batch queue for a write, if it can be batched. A write with little time left is not: the batch
    /// has the deadline of its first member, so its waits would be cut short for all.
    pub fn batch_queue(
        &self,
        write: &WritePlan,
        bytes: usize,
        until: Instant,
    ) -> Option<&BatchQueue> {
        // The multi-row statement needs the parameter types, which only a prepared statement knows.
        let is_shared =
            self.state.pool.session.pooling == Pooling::Session && bytes <= BATCHED_WRITE_BYTES_MAX;
        if !is_shared || !is_batchable(&self.state.context.model, write) {
            return None;
        }
        let whole = self.state.context.model.server.limits.request_seconds_max;
        let has_time = clock::now() + Duration::from_secs(whole.into()) / 2 <= until;
        has_time.then(|| self.queue_for(write.collection.resource))
    }

    /// Joins the batch that is being collected, or starts one, and waits for the result.
    pub async fn enqueue_create(
        self: &Arc<Self>,
        line: &BatchQueue,
        write: Box<WritePlan>,
        until: Instant,
    ) -> BatchResult {
        match self.join_batch(line, write, until).await {
            Ok(result) => result,
            // The leader's task is gone, so the outcome is unknown.
            Err(_) => BatchResult::Done(Err(StoreError::OutcomeUnknown(
                "the insert batch ended without a result".to_owned(),
            ))),
        }
    }

    fn join_batch(
        self: &Arc<Self>,
        line: &BatchQueue,
        write: Box<WritePlan>,
        until: Instant,
    ) -> Receiver<BatchResult> {
        let resource = write.collection.resource;
        let (result, answer) = channel();
        let mut member = BatchMember { write, enqueued_at: clock::now(), result };
        let mut next = line.open_batch();
        if let Some(group) = next.upgrade() {
            if until < group.deadline {
                member.retry_individually();
                return answer;
            }
            match group.try_add(member) {
                Ok(()) => return answer,
                Err(back) => member = back,
            }
        }
        let group =
            Arc::new(InsertBatch { members: Mutex::new(Some(vec![member])), deadline: until });
        *next = Arc::downgrade(&group);
        drop(next);
        tokio::task::spawn_local(Arc::clone(self).lead_batch(group, resource));
        answer
    }

    async fn lead_batch(self: Arc<Self>, group: Arc<InsertBatch>, resource: ResourceIndex) {
        let turn = self.queue_for(resource).acquire_permit().await;
        // Creates whose requests have already arrived join too.
        for _ in 0..YIELDS_BEFORE_FLUSH {
            tokio::task::yield_now().await;
        }
        let mut members = Vec::new();
        let work = async |driver: &mut PostgresDriver<'_>| {
            // The batch is closed only when there is a connection: until then creates can join.
            // A create whose permissions have to be checked again runs individually.
            let (due, others) =
                group.close().into_iter().partition(|member| is_rights_recheck_due(&member.write));
            members = others;
            Vec::into_iter(due).for_each(BatchMember::retry_individually);
            self.create_all(driver, &members).await
        };
        let done =
            self.state.attempt_write(TransactionStage::Autocommit, group.deadline, work).await;
        // Without a connection the batch was never closed.
        members.append(&mut group.close());
        if matches!(done, WriteAttempt::Done(Ok(_))) {
            self.state.context.change_hint.notify();
            turn.record_success(members.len());
            self.state.pool.record_batch_size(members.len());
        }
        distribute_results(members, done);
    }

    async fn create_all<'a>(
        &'a self,
        driver: &mut PostgresDriver<'_>,
        members: &'a [BatchMember],
    ) -> Result<Vec<Result<Outcome, StoreError>>, WriteError> {
        let Some(first) = members.first() else { return Ok(Vec::new()) };
        let context = &*self.state.context;
        let resource = context.model.resource(first.write.collection.resource);
        let now = driver.now();
        let ids = uuid_v7::next_ids(members.len(), now)?;
        let decide = |(member, id): (&'a BatchMember, Id)| {
            // A panic fails one create, not the batch.
            let decide = || BatchableCreate::decide(context, &member.write, (id, now));
            catch_unwind(AssertUnwindSafe(decide))
                .unwrap_or_else(|panic| Err(StoreError::internal(fault::panic_message(&*panic))))
        };
        let created: Vec<_> = members.iter().zip(ids).map(decide).collect();
        let statements = created.iter().flatten().flat_map(|creation| creation.statements(context));
        let statements: Vec<_> = statements.collect();
        match (&*statements, &context.sql.table_statements(resource.index).insert_batch) {
            ([], _) => {}
            ([_, _, ..], Some(sql)) => {
                driver.insert_columns(sql, &transpose_to_columns(&statements)).await?;
            }
            (statements, _) => driver.execute_all(statements, Then::Commit).await?,
        }
        Ok(created.into_iter().map(|creation| creation?.outcome()).collect())
    }
}

/// Transposes rows to columns. A row's last parameter says whether it is the first row, which the multi-row
/// statement knows by itself.
fn transpose_to_columns<'a>(statements: &[Statement<'a>]) -> Vec<Vec<Bind<'a>>> {
    let count = statements.first().map_or(0, |statement| statement.binds.len().saturating_sub(1));
    let bind = |statement: &Statement<'a>, at| {
        *statement.binds.get(at).or_bug("all rows have the same number of parameters")
    };
    let column = |at| statements.iter().map(|statement| bind(statement, at)).collect();
    (0..count).map(column).collect()
}

fn distribute_results(
    members: Vec<BatchMember>,
    done: WriteAttempt<Vec<Result<Outcome, StoreError>>>,
) {
    let error = match done {
        WriteAttempt::Done(Ok(outcomes)) => {
            let results = members.into_iter().zip(outcomes);
            return results.for_each(|(member, outcome)| member.send_result(outcome));
        }
        // The batch was rolled back, so each create can be retried.
        WriteAttempt::Retry(_) => {
            return members.into_iter().for_each(BatchMember::retry_individually);
        }
        WriteAttempt::Done(Err(error)) => error,
    };
    let now = clock::now();
    for member in members {
        match &error {
            StoreError::OutcomeUnknown(cause) => {
                member.send_result(Err(StoreError::OutcomeUnknown(cause.clone())));
            }
            // The database as a whole failed, so a retry would fail too.
            StoreError::Unavailable(cause) => {
                member.send_result(Err(StoreError::Unavailable(cause.clone())));
            }
            // A create that joined late has not waited long enough to give up.
            StoreError::Busy if now >= member.enqueued_at + LEASE_WAIT_MAX / 2 => {
                member.send_result(Err(StoreError::Busy));
            }
            StoreError::Busy
            | StoreError::TimedOut
            | StoreError::RightsChanged
            | StoreError::Refused(_)
            | StoreError::Broken(_) => member.retry_individually(),
        }
    }
}

#[cfg(test)]
mod tests;
