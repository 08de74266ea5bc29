//! Insert batching: concurrent creates of one resource are coalesced into one multi-row INSERT.
//!
//! Creates that arrive while an insert of their resource is in flight wait for it, up to a millisecond, and
//! are then sent as one batch: one round trip, one commit and one sync for all of them. So the cost of a
//! create falls as the load rises. The limit of the wait lets several batches be in flight where the disk or
//! the network is slow, and keeps a blocked statement from blocking the others. When the database refuses the
//! statement, it rolls back the whole batch, and each create is retried individually, so that only the wrong
//! one gets the error.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::FutureExt;

use crate::fault::OrBug;
use crate::model::settings::Pooling;
use crate::plan::{Outcome, WritePlan};
use crate::store::batchable_create::{BatchableCreate, is_batchable};
use crate::store::driver::{Driver, Then};
use crate::store::error::{StoreError, WriteError};
use crate::store::postgres::attempt::{PostgresWorkerState, WriteAttempt};
use crate::store::postgres::batch_queue::{
    AnswerError, BatchEntry, BatchLimits, BatchQueue, BatchSender,
};
use crate::store::postgres::driver::{PostgresDriver, TransactionStage};
use crate::store::postgres::pool::LEASE_WAIT_MAX;
use crate::store::statement::{Bind, Statement};
use crate::store::uuid_v7;
use crate::store::write::{WriteOptions, is_rights_recheck_due};
use crate::value::Id;
use crate::{clock, fault};

/// Creates need no limit here: admission control bounds how many wait.
const LIMITS: BatchLimits =
    BatchLimits { batch_max: 64, waiting_max: usize::MAX, turn_wait_max: Duration::from_millis(1) };
/// How many times a batch yields to the event loop before it is sent. At each yield the thread polls its
/// sockets, and creates that have arrived can join the batch.
const YIELDS_BEFORE_SEND: usize = 2;
/// The maximum size of a create in a batch. A larger one is sent individually: the batch would wait for it.
const BATCHED_WRITE_BYTES_MAX: usize = 16 << 10;
/// How long a create waits beyond its deadline for the statement, which ends at the latest deadline of its
/// batch, to report what it knows.
const ANSWER_GRACE: Duration = Duration::from_millis(100);

/// The insert batches of one worker thread.
#[derive(Debug)]
pub struct InsertBatches {
    pub state: Arc<PostgresWorkerState>,
    /// One for each resource.
    queues: Vec<Arc<CreateQueue>>,
}

type CreateQueue = BatchQueue<BatchedCreate, BatchResult>;
type BatchMember = BatchEntry<BatchedCreate, BatchResult>;

/// A create in a batch, with its reservations.
#[derive(Debug)]
pub struct BatchedCreate {
    pub write: Box<WritePlan>,
    pub options: WriteOptions,
    pub enqueued_at: Instant,
}

/// How a create in a batch ended.
#[derive(Debug)]
pub enum BatchResult {
    Done(Result<Outcome, StoreError>),
    /// The batch was rolled back, or this create was never sent.
    RetryIndividually(BatchedCreate),
}

impl InsertBatches {
    pub fn new(state: &Arc<PostgresWorkerState>) -> Self {
        let resources = state.context.model.resources.iter();
        let queues = resources.map(|_| BatchQueue::new(LIMITS)).collect();
        Self { state: Arc::clone(state), queues }
    }

    /// The queue for a write, if it can be batched.
    pub fn queue_for(&self, write: &WritePlan, bytes: usize) -> Option<&Arc<CreateQueue>> {
        // The multi-row statement needs the parameter types, which only a prepared statement knows.
        let is_shared =
            self.state.pool.session.pooling == Pooling::Session && bytes <= BATCHED_WRITE_BYTES_MAX;
        let is_batched = is_shared && is_batchable(&self.state.context.model, write);
        let queue = || self.queues.get(write.collection.resource.0);
        is_batched.then(|| queue().or_bug("each resource has a queue"))
    }

    /// Joins the batch that is being collected, or starts one, and waits for the result.
    pub async fn create(
        self: &Arc<Self>,
        queue: &Arc<CreateQueue>,
        create: BatchedCreate,
    ) -> BatchResult {
        let until = create.options.deadline + ANSWER_GRACE;
        let (pending, sender) = match queue.push(create) {
            Ok(pushed) => pushed,
            Err(error) => return BatchResult::Done(Err(error)),
        };
        sender.into_iter().for_each(|sender| self.start(sender));
        let unknown = |cause: &str| StoreError::OutcomeUnknown(cause.to_owned());
        pending.wait(until).await.unwrap_or_else(|error| {
            BatchResult::Done(Err(match error {
                AnswerError::NotSent => StoreError::TimedOut,
                AnswerError::Late => unknown("the database did not confirm the commit in time"),
                AnswerError::Lost => unknown("the insert batch ended without a result"),
            }))
        })
    }

    fn start(self: &Arc<Self>, sender: BatchSender<BatchedCreate, BatchResult>) {
        tokio::task::spawn_local(Arc::clone(self).send_batch(sender));
    }

    async fn send_batch(self: Arc<Self>, sender: BatchSender<BatchedCreate, BatchResult>) {
        let _turn = sender.wait_for_turn().await;
        // Creates whose requests have already arrived join too.
        for _ in 0..YIELDS_BEFORE_SEND {
            tokio::task::yield_now().await;
        }
        // None: all of them have reached their deadlines.
        let Some(deadline) = sender.latest(|create| create.options.deadline) else { return };
        let (mut sender, mut members) = (Some(sender), Vec::new());
        let work = async |driver: &mut PostgresDriver<'_>| {
            // The batch is taken only when there is a connection: until then creates can join.
            // A create whose permissions have to be checked again runs individually.
            let batch = self.take_batch(&mut sender).into_iter();
            let (due, others) = batch.partition(|one| is_rights_recheck_due(&one.request.write));
            members = others;
            Vec::into_iter(due).for_each(retry_individually);
            self.create_all(driver, &members).await
        };
        let attempt = self.state.attempt_write(TransactionStage::Autocommit, deadline, work);
        let done = AssertUnwindSafe(attempt).catch_unwind().await;
        // Without a connection the batch was not taken.
        members.append(&mut self.take_batch(&mut sender));
        match done {
            Ok(done) => {
                if matches!(done, WriteAttempt::Done(Ok(_))) {
                    self.state.pool.record_batch_size(members.len());
                }
                distribute_results(members, done);
            }
            Err(panic) => fail_all(members, &fault::panic_message(&*panic)),
        }
    }

    /// Takes the batch, at the first call, and starts the next one if there are more creates.
    fn take_batch(
        self: &Arc<Self>,
        sender: &mut Option<BatchSender<BatchedCreate, BatchResult>>,
    ) -> Vec<BatchMember> {
        let Some(sender) = sender.take() else { return Vec::new() };
        let (batch, next) = sender.take();
        next.into_iter().for_each(|next| self.start(next));
        batch
    }

    async fn create_all<'a>(
        &'a self,
        driver: &mut PostgresDriver<'_>,
        members: &'a [BatchMember],
    ) -> Result<Vec<Result<Outcome, StoreError>>, WriteError> {
        let Some(first) = members.first() else { return Ok(Vec::new()) };
        let context = &*self.state.context;
        let resource = context.model.resource(first.request.write.collection.resource);
        let now = driver.now();
        let ids = uuid_v7::next_ids(members.len(), now)?;
        let decide = |(member, id): (&'a BatchMember, Id)| {
            // A panic fails one create, not the batch.
            let decide = || BatchableCreate::decide(context, &member.request.write, (id, now));
            catch_unwind(AssertUnwindSafe(decide))
                .unwrap_or_else(|panic| Err(StoreError::internal(fault::panic_message(&*panic))))
        };
        let created: Vec<_> = members.iter().zip(ids).map(decide).collect();
        let strokes = created.iter().flatten().flat_map(|creation| creation.statements(context));
        let strokes: Vec<_> = strokes.collect();
        match (&*strokes, &context.sql.table_statements(resource.index).insert_batch) {
            ([], _) => {}
            ([_, _, ..], Some(sql)) => {
                driver.insert_columns(sql, &transpose_to_columns(&strokes)).await?;
            }
            (strokes, _) => driver.execute_all(strokes, Then::Commit).await?,
        }
        Ok(created.into_iter().map(|creation| creation?.outcome()).collect())
    }
}

/// Transposes rows to columns. A row's last parameter says whether it is the first row, which the multi-row
/// statement knows by itself.
fn transpose_to_columns<'a>(strokes: &[Statement<'a>]) -> Vec<Vec<Bind<'a>>> {
    let count = strokes.first().map_or(0, |stroke| stroke.binds.len().saturating_sub(1));
    let bind = |stroke: &Statement<'a>, at| {
        *stroke.binds.get(at).or_bug("all rows have the same number of parameters")
    };
    let column = |at| strokes.iter().map(|stroke| bind(stroke, at)).collect();
    (0..count).map(column).collect()
}

fn send_result(member: BatchMember, done: Result<Outcome, StoreError>) {
    // The receiver is gone if the create has reached its deadline.
    let _ = member.answer.send(BatchResult::Done(done));
}

/// After a panic: that of a single create is its own error, as that of any request.
fn fail_all(members: Vec<BatchMember>, panic: &str) {
    let is_single = members.len() == 1;
    for member in members {
        let error = match is_single {
            true => StoreError::internal(panic),
            false => StoreError::OutcomeUnknown(panic.to_owned()),
        };
        send_result(member, Err(error));
    }
}

fn retry_individually(member: BatchMember) {
    let _ = member.answer.send(BatchResult::RetryIndividually(member.request));
}

fn distribute_results(
    members: Vec<BatchMember>,
    done: WriteAttempt<Vec<Result<Outcome, StoreError>>>,
) {
    let error = match done {
        WriteAttempt::Done(Ok(outcomes)) => {
            let results = members.into_iter().zip(outcomes);
            return results.for_each(|(member, outcome)| send_result(member, outcome));
        }
        // The batch was rolled back, so each create can be retried.
        WriteAttempt::Retry(_) => {
            return members.into_iter().for_each(retry_individually);
        }
        WriteAttempt::Done(Err(error)) => error,
    };
    let now = clock::now();
    for member in members {
        match &error {
            StoreError::OutcomeUnknown(cause) => {
                send_result(member, Err(StoreError::OutcomeUnknown(cause.clone())));
            }
            // The database as a whole failed, so a retry would fail too.
            StoreError::Unavailable(cause) => {
                send_result(member, Err(StoreError::Unavailable(cause.clone())));
            }
            // A create that joined late has not waited long enough to give up.
            StoreError::Busy if now >= member.request.enqueued_at + LEASE_WAIT_MAX / 2 => {
                send_result(member, Err(StoreError::Busy));
            }
            StoreError::Busy
            | StoreError::TimedOut
            | StoreError::RightsChanged
            | StoreError::Refused(_)
            | StoreError::Broken(_) => retry_individually(member),
        }
    }
}

#[cfg(test)]
mod tests;
