//! Queue of nonce claims: claims that arrive while a batch is in flight wait here for the next one.
//!
//! It also holds the leases of this server. This module does not query the database.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::store::error::StoreError;
use crate::store::postgres::replay_protection::nonce_lease::NonceLeases;
use crate::store::postgres::replay_protection::tables::BucketStatements;
use crate::store::replay_protection::{NonceClaim, NonceClaimResult};

/// How many claims one batch holds, and how many may wait.
const BATCH_CLAIMS_MAX: usize = 256;
const QUEUED_CLAIMS_MAX: usize = 4_096;

/// The claims of all threads of this server.
#[derive(Debug)]
pub struct ClaimQueue {
    pending: Mutex<PendingClaims>,
    pub epoch: Arc<Mutex<Option<u64>>>,
    pub leases: NonceLeases,
    /// One entry for each table.
    sql: Vec<BucketStatements>,
}

#[derive(Debug, Default)]
struct PendingClaims {
    requests: Vec<ClaimRequest>,
    /// Whether a task is sending them.
    is_in_flight: bool,
}

#[derive(Debug)]
pub struct ClaimRequest {
    pub claim: NonceClaim,
    pub answer: oneshot::Sender<Result<NonceClaimResult, StoreError>>,
}

/// The result of one attempt to claim a count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimAttemptResult {
    Decided(NonceClaimResult),
    /// An earlier attempt got no answer: this server itself may have claimed the count.
    Unknown,
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ClaimQueue {
    pub fn new(epoch: &Arc<Mutex<Option<u64>>>) -> Self {
        Self {
            pending: Mutex::default(),
            epoch: Arc::clone(epoch),
            leases: NonceLeases::default(),
            sql: BucketStatements::for_all_buckets(),
        }
    }

    pub fn statements_for(&self, bucket: i64) -> Result<&BucketStatements, StoreError> {
        let used = usize::try_from(bucket).ok().and_then(|bucket| self.sql.get(bucket));
        used.ok_or_else(|| StoreError::internal("a nonce claim belongs to no table"))
    }

    /// Enqueues a claim. Returns whether the caller has to start the sending task.
    pub fn enqueue(&self, asked: ClaimRequest) -> Result<bool, StoreError> {
        let mut waiting = lock(&self.pending);
        if waiting.requests.len() >= QUEUED_CLAIMS_MAX {
            return Err(StoreError::Busy);
        }
        waiting.requests.push(asked);
        Ok(!std::mem::replace(&mut waiting.is_in_flight, true))
    }

    /// Takes the next batch. When it is empty, the sending task is done.
    pub fn take_batch(&self) -> Vec<ClaimRequest> {
        let mut waiting = lock(&self.pending);
        let count = waiting.requests.len().min(BATCH_CLAIMS_MAX);
        waiting.is_in_flight = count > 0;
        waiting.requests.drain(..count).collect()
    }
}

/// Guards the sending task. However it ends, the waiting claims get an error rather than no answer, and the
/// next claim starts a new task.
pub struct ClaimBatchGuard<'a> {
    pub queue: &'a ClaimQueue,
    pub is_done: bool,
}

impl Drop for ClaimBatchGuard<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            *lock(&self.queue.pending) = PendingClaims::default();
        }
    }
}
