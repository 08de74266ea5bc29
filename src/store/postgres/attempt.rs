//! One attempt to write: a leased connection, a transaction, and what a failure means for the write.
//!
//! A commit that was sent is never cancelled.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::time::timeout_at;

use crate::plan::{Outcome, RequestRefusal, WriteAction, WritePlan};
use crate::store::context::{CommitMode, StoreContext};
use crate::store::error::{StoreError, WriteError};
use crate::store::postgres::driver::{PostgresDriver, TransactionStage};
use crate::store::postgres::error_class::{ErrorClass, ViolatedForeignKey};
use crate::store::postgres::pool::{ConnectionPool, LeasePurpose};
use crate::store::sql::ddl::is_declared_foreign_key;
use crate::store::write;
use crate::{clock, fault};

/// Added to every statement's deadline: PostgreSQL enforces `statement_timeout`, but a hung network does
/// not.
pub const NETWORK_GRACE: Duration = Duration::from_secs(5);
/// A rollback that takes longer is cut short by closing the connection, which rolls back too.
pub const ROLLBACK_TIMEOUT: Duration = Duration::from_secs(1);
/// How often one write is attempted.
const ATTEMPTS_MAX: u32 = 10;
/// Base delay before a write is retried; the delay grows with each attempt (backoff).
const RETRY_DELAY: Duration = Duration::from_millis(2);
/// The delay while another server holds the same idempotency key stops growing after this many retries.
const RETRY_DELAY_STEPS_MAX: u32 = 20;

/// The state that all operations of a worker thread share.
#[derive(Debug)]
pub struct PostgresWorkerState {
    pub context: Arc<StoreContext>,
    pub pool: Arc<ConnectionPool>,
    pub statement_max: Duration,
}

impl PostgresWorkerState {
    /// Retries a write while the database rolls it back, up to its deadline.
    pub async fn write_individually(
        &self,
        write: &WritePlan,
        until: Instant,
    ) -> Result<Outcome, StoreError> {
        // A write that depends on the stored item holds its row lock until the commit.
        let stage = match &write.action {
            // The response stored for the idempotency key is written in the same transaction.
            _ if write.idempotency.is_some() => TransactionStage::BeginPending,
            // The check of what the caller may read runs in the same transaction.
            _ if write::has_read_check(&self.context, write) => TransactionStage::BeginPending,
            // They are counted under a lock.
            _ if write.collection.resource == self.context.model.webhooks => {
                TransactionStage::BeginPending
            }
            WriteAction::Create { .. } => TransactionStage::Autocommit,
            WriteAction::Replace { .. }
            | WriteAction::Patch { .. }
            | WriteAction::Remove { .. } => TransactionStage::BeginPending,
        };
        // While another server is processing a request with the same idempotency key.
        let key_until = write.idempotency.as_ref().map(|once| clock::now() + once.wait_max);
        let mut key_retries = 0;
        let mut attempt = 1;
        loop {
            let is_last = attempt == ATTEMPTS_MAX;
            let work = async |driver: &mut PostgresDriver<'_>| {
                write::write(driver, &self.context, write, CommitMode::Exclusive).await
            };
            match self.attempt_write(stage, until, work).await {
                WriteAttempt::Done(Err(StoreError::Refused(
                    RequestRefusal::IdempotencyKeyInFlight,
                ))) if key_until.is_some_and(|until| clock::now() < until) => {
                    key_retries = RETRY_DELAY_STEPS_MAX.min(key_retries + 1);
                    tokio::time::sleep(RETRY_DELAY * key_retries).await;
                    continue;
                }
                WriteAttempt::Done(done) => {
                    if done.is_ok() {
                        self.context.change_hint.notify();
                    }
                    return done;
                }
                WriteAttempt::Retry(RollbackCause { violated_key: Some(key), .. })
                    if self.is_delete_refused(write, &key) =>
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

    /// Whether a foreign key refuses a write permanently: the write is a delete, and the model declares no such
    /// reference.
    fn is_delete_refused(&self, write: &WritePlan, key: &ViolatedForeignKey) -> bool {
        let ViolatedForeignKey { table, constraint } = key;
        matches!(write.action, WriteAction::Remove { .. })
            && !is_declared_foreign_key(&self.context.model, table, constraint)
    }

    /// One attempt. Whoever writes to the change log notifies `change_hint` when it succeeds.
    pub async fn attempt_write<T>(
        &self,
        stage: TransactionStage,
        until: Instant,
        work: impl AsyncFnOnce(&mut PostgresDriver<'_>) -> Result<T, WriteError>,
    ) -> WriteAttempt<T> {
        let lease = match self.pool.lease(LeasePurpose::Write, until).await {
            Ok(lease) => lease,
            Err(error) => return WriteAttempt::Done(Err(error)),
        };
        let mut driver = PostgresDriver::new(&lease, stage);
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
            Ok(Err(WriteError::ExceedsGroup)) => {
                StoreError::internal("an exclusive write exceeded its commit group")
            }
            // A commit is never cancelled: PostgreSQL would stop waiting for its standbys, and report
            // success for a transaction that a failover loses.
            Err(_) if driver.may_have_committed() => {
                let cause = "the database did not confirm the commit in time".to_owned();
                lease.doubt_primary();
                lease.return_when_drained();
                return WriteAttempt::Done(Err(StoreError::OutcomeUnknown(cause)));
            }
            // The work is dropped first, so no commit can follow the cancel request.
            Err(_) => {
                lease.doubt_primary();
                lease.spawn_cancel();
                return WriteAttempt::Done(Err(StoreError::TimedOut));
            }
        };
        match driver.error_class() {
            Some(ErrorClass::ConnectionLost) if driver.may_have_committed() => {
                WriteAttempt::Done(Err(StoreError::OutcomeUnknown(error_cause(error))))
            }
            // The connection is not reused: one of its prepared statements may be the cause.
            Some(ErrorClass::Retryable | ErrorClass::ConnectionLost) => {
                WriteAttempt::Retry(RollbackCause {
                    error,
                    violated_key: driver.take_violated_key(),
                })
            }
            class @ (None | Some(ErrorClass::ReadOnly)) => {
                let undo =
                    Box::pin(tokio::time::timeout(ROLLBACK_TIMEOUT, driver.rollback_uncommitted()));
                if undo.await == Ok(true) {
                    lease.return_to_pool();
                }
                // All writes that fail at a failover wait for one search, and none of them holds a connection.
                if class.is_some() && self.find_primary(until).await {
                    return WriteAttempt::Retry(RollbackCause { error, violated_key: None });
                }
                WriteAttempt::Done(Err(error))
            }
        }
    }

    /// Looks for the primary; returns whether it was found before the deadline.
    pub async fn find_primary(&self, until: Instant) -> bool {
        timeout_at(until.into(), self.pool.find_primary()).await.unwrap_or(false)
    }
}

/// How one attempt to write ended.
pub enum WriteAttempt<T> {
    Done(Result<T, StoreError>),
    /// The transaction was rolled back, and a retry may succeed.
    Retry(RollbackCause),
}

/// Why the database rolled a write back.
pub struct RollbackCause {
    pub error: StoreError,
    pub violated_key: Option<ViolatedForeignKey>,
}

fn error_cause(error: StoreError) -> String {
    match error {
        StoreError::Unavailable(cause) => cause,
        other => format!("{other:?}"),
    }
}
