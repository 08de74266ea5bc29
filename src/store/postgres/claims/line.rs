//! Claims that wait for one under way, and what this server has to itself.
//!
//! Nothing is asked of the database here.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::ours::Ours;
use super::tables::Used;
use crate::clock;
use crate::store::claims::NONCE_SECONDS;
use crate::store::{Claim, Claimed, StoreError};

/// Claims that are sent together, and that may wait.
const SENT_MAX: usize = 256;
const WAITING_MAX: usize = 4_096;

/// The claims of all threads of this server.
#[derive(Debug)]
pub(in crate::store::postgres) struct Batch {
    waiting: Mutex<Waiting>,
    watching: Mutex<Watching>,
    pub(super) epoch: Arc<Mutex<Option<u64>>>,
    pub(super) ours: Ours,
    /// By table.
    sql: Vec<Used>,
}

#[derive(Debug, Default)]
struct Waiting {
    asked: Vec<Asked>,
    /// Whether there is a task that takes them.
    is_under_way: bool,
}

#[derive(Debug, Default)]
struct Watching {
    /// From then on nothing that was taken is good for anything.
    until: Option<Instant>,
    is_under_way: bool,
}

#[derive(Debug)]
pub(super) struct Asked {
    pub(super) claim: Claim,
    pub(super) answer: oneshot::Sender<Result<Found, StoreError>>,
}

/// What the database says of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    Told(Claimed),
    /// Another server has it to itself.
    Held,
    /// It was made before, and the answer did not come: it may be our own work that is in the way.
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

    /// Puts a claim in line. Whether somebody has to begin.
    pub(super) fn put(&self, asked: Asked) -> Result<bool, StoreError> {
        let mut waiting = lock(&self.waiting);
        if waiting.asked.len() >= WAITING_MAX {
            return Err(StoreError::Busy);
        }
        waiting.asked.push(asked);
        Ok(!std::mem::replace(&mut waiting.is_under_way, true))
    }

    /// The next ones. When there are none, whoever asks is done.
    pub(super) fn take(&self) -> Vec<Asked> {
        let mut waiting = lock(&self.waiting);
        let count = waiting.asked.len().min(SENT_MAX);
        waiting.is_under_way = count > 0;
        waiting.asked.drain(..count).collect()
    }

    /// Whether a watch has to begin, now that something was taken.
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

/// A task that works off what waits. However it ends, nobody waits for it in vain, and the next claim
/// begins anew.
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
