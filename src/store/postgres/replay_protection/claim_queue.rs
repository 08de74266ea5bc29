//! The nonce claims of this server: their queue, its leases and the statements. This module does not query the
//! database.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::store::error::StoreError;
use crate::store::postgres::batch_queue::{BatchLimits, BatchQueue};
use crate::store::postgres::replay_protection::nonce_lease::NonceLeases;
use crate::store::postgres::replay_protection::tables::BucketStatements;
use crate::store::replay_protection::{NonceClaim, NonceClaimResult};

/// One batch is in flight at a time.
const LIMITS: BatchLimits =
    BatchLimits { batch_max: 256, waiting_max: 4_096, turn_wait_max: Duration::MAX };

/// The claims of all threads of this server.
#[derive(Debug)]
pub struct ClaimQueue {
    pub pending: Arc<BatchQueue<NonceClaim, Result<NonceClaimResult, StoreError>>>,
    pub epoch: Arc<Mutex<Option<u64>>>,
    pub leases: NonceLeases,
    /// One entry for each table.
    sql: Vec<BucketStatements>,
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
            pending: BatchQueue::new(LIMITS),
            epoch: Arc::clone(epoch),
            leases: NonceLeases::default(),
            sql: BucketStatements::for_all_buckets(),
        }
    }

    pub fn statements_for(&self, bucket: i64) -> Result<&BucketStatements, StoreError> {
        let used = usize::try_from(bucket).ok().and_then(|bucket| self.sql.get(bucket));
        used.ok_or_else(|| StoreError::internal("a nonce claim belongs to no table"))
    }
}
