//! Queue of nonce claims: claims that arrive while a batch is in flight wait here for the next one.
//!
//! It also holds the leases of this server. This module does not query the database.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::ours::Ours;
use super::tables::Used;
use crate::clock;
use crate::store::claims::NONCE_SECONDS;
use crate::store::{Claim, Claimed, StoreError};

/// How many claims one batch holds, and how many may wait.
const SENT_MAX: usize = 256;
const WAITING_MAX: usize = 4_096;

/// The claims of all threads of this server.
#[derive(Debug)]
pub(in crate::store::postgres) struct Batch {
    waiting: Mutex<Waiting>,
    watching: Mutex<Watching>,
    pub(super) epoch: Arc<Mutex<Option<u64>>>,
    pub(super) ours: Ours,
    /// One entry for each table.
    sql: Vec<Used>,
}

#[derive(Debug, Default)]
struct Waiting {
    asked: Vec<Asked>,
    /// Whether a task is sending them.
    is_under_way: bool,
}

#[derive(Debug, Default)]
struct Watching {
    /// When the last lease that this server has taken expires.
    until: Option<Instant>,
    is_under_way: bool,
}

#[derive(Debug)]
pub(super) struct Asked {
    pub(super) claim: Claim,
    pub(super) answer: oneshot::Sender<Result<Found, StoreError>>,
}

/// The result of one attempt to claim a count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    Told(Claimed),
    /// Another server has leased the block.
    Held,
    /// An earlier attempt got no answer: the count may have been claimed by ourselves.
    Unknown,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Batch {
    pub(in crate::store::postgres) fn new(epoch: &Arc<Mutex<Option<u64>>>) -> Self {
        Self {
            waiting: Mutex::default(),
            watching: Mutex::default(),
            epoch: Arc::clone(epoch),
            ours: Ours::default(),
            sql: Used::all(),
        }
    }

    pub(super) fn sql(&self, bucket: i64) -> Result<&Used, StoreError> {
        let used = usize::try_from(bucket).ok().and_then(|bucket| self.sql.get(bucket));
        used.ok_or_else(|| StoreError::broken("a claim without a table"))
    }

    /// Enqueues a claim. Returns whether the caller has to start the sending task.
    pub(super) fn put(&self, asked: Asked) -> Result<bool, StoreError> {
        let mut waiting = lock(&self.waiting);
        if waiting.asked.len() >= WAITING_MAX {
            return Err(StoreError::Busy);
        }
        waiting.asked.push(asked);
        Ok(!std::mem::replace(&mut waiting.is_under_way, true))
    }

    /// Takes the next batch. When it is empty, the sending task is done.
    pub(super) fn take(&self) -> Vec<Asked> {
        let mut waiting = lock(&self.waiting);
        let count = waiting.asked.len().min(SENT_MAX);
        waiting.is_under_way = count > 0;
        waiting.asked.drain(..count).collect()
    }

    /// Extends the handover watch after a lease. Returns whether the caller has to start it.
    pub(super) fn begin_watch(&self) -> bool {
        let mut watching = lock(&self.watching);
        let lifetime = Duration::from_secs(NONCE_SECONDS.unsigned_abs());
        watching.until = Some(clock::now() + lifetime);
        !std::mem::replace(&mut watching.is_under_way, true)
    }

    pub(super) fn goes_on_watching(&self) -> bool {
        let mut watching = lock(&self.watching);
        watching.is_under_way = watching.until.is_some_and(|until| clock::now() < until);
        watching.is_under_way
    }
}

/// Guards the sending task. However it ends, the waiting claims get an error rather than no answer, and the
/// next claim starts a new task.
pub(super) struct UnderWay<'a> {
    pub(super) batch: &'a Batch,
    pub(super) is_done: bool,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            *lock(&self.batch.waiting) = Waiting::default();
        }
    }
}
