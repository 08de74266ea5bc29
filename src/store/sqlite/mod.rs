//! The SQLite backend: one file, one writer thread with group commit, reads on the worker threads.
//!
//! Writes queue for the one thread that owns the read-write connection and share its commits (`writer`). A
//! fast read runs inline on the worker thread, on that thread's own connection. While the disk is slow, reads
//! go through a small pool (`reader`) until they are fast there, so that cold reads do not block the other
//! requests of a worker thread.

mod beside;
mod changes;
mod driver;
mod export;
mod files;
mod log_reset;
mod mail;
mod open;
mod queue;
mod reader;
mod recovery;
#[cfg(any(fuzzing, test))]
mod rehearsal;
#[cfg(test)]
mod starts;
#[cfg(test)]
mod steps;
mod sweep;
mod writer;

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;

pub use beside::Beside;
pub use changes::Changes;
pub(super) use open::open;
#[cfg(any(fuzzing, test))]
pub(super) use rehearsal::rehearse;

/// Whether the file is missing or empty.
pub(super) fn is_absent(path: &Path) -> bool {
    files::Files::find(path).is_ok_and(|files| files.is_empty())
}

/// Whether the folder has another `nouns` database.
pub(super) fn has_neighbour(path: &Path) -> bool {
    files::Files::find(path).is_ok_and(|files| files.has_neighbour())
}

use super::claims::Claims;
use super::export::{Export, Exported};
use super::transaction::Context;
use super::{Claim, Claimed, OpenError, StoreError, WriteOptions};
use crate::clock;
use crate::plan::{Outcome, Read, Write};
use export::Exports;
use mail::Mailbox;
use queue::{Job, Queue};
use reader::{Done, Pool, Reader};

/// A read that takes longer suggests a slow disk.
const QUICK: Duration = Duration::from_millis(2);
/// A read that takes longer was certainly blocked by the disk, not by the scheduler.
const STUCK: Duration = Duration::from_millis(20);
/// How many fast inline reads make up for one slow read.
const SLOW_READ: u32 = 32;
/// After this many consecutive fast reads through the pool the disk counts as fast again.
const QUICK_AGAIN: u32 = 256;

/// The page cache of a worker's own connection.
const CACHE_KIB: u32 = 8_000;

/// The open store, shared by all threads.
#[derive(Debug)]
pub struct Shared {
    path: PathBuf,
    context: Arc<Context>,
    queue: Queue,
    pool: Pool,
    /// For scans: lists that may read every row.
    wide: Pool,
    exports: Arc<Exports>,
    /// Set when a commit failed with an unknown outcome: nothing is written any more.
    stopped: Arc<AtomicBool>,
    readers: Mutex<Vec<JoinHandle<()>>>,
    writer: Mutex<Vec<JoinHandle<()>>>,
    statement_max: Duration,
    claims: Claims,
    /// Held while the server runs; the operating system releases it with the process.
    _lock: std::fs::File,
}

impl Shared {
    /// Drains the write queue and closes the files. Readers close first: the last connection to close
    /// checkpoints the WAL, and only the writer's can.
    pub(super) fn close(&self) {
        self.exports.close();
        self.pool.close();
        self.wide.close();
        join(&self.readers);
        self.queue.close();
        join(&self.writer);
    }
}

fn join(threads: &Mutex<Vec<JoinHandle<()>>>) {
    for thread in std::mem::take(&mut *threads.lock().unwrap_or_else(PoisonError::into_inner)) {
        // A thread that panicked has logged it.
        let _ = thread.join();
    }
}

/// The handle of one worker thread to the store.
#[derive(Debug)]
pub struct Worker {
    shared: Arc<Shared>,
    here: RefCell<Reader>,
    /// While reads run inline: grows by `SLOW_READ_PENALTY` with every slow read, shrinks by one with every
    /// fast one.
    slowness: Cell<u32>,
    /// While the disk is slow: how many reads through the pool still have to be fast.
    to_be_quick: Cell<u32>,
    mailbox: Arc<Mailbox>,
    is_delivering: Cell<bool>,
}

impl Worker {
    pub(super) fn new(shared: &Arc<Shared>) -> Result<Self, OpenError> {
        let here = Reader::open(&shared.path, &shared.context, (CACHE_KIB, reader::STEPS))?;
        Ok(Self {
            shared: Arc::clone(shared),
            here: RefCell::new(here),
            slowness: Cell::new(0),
            to_be_quick: Cell::new(0),
            mailbox: Arc::default(),
            is_delivering: Cell::new(false),
        })
    }

    pub(super) async fn read(
        &self,
        read: Read,
        place: Option<OwnedSemaphorePermit>,
    ) -> Result<Outcome, StoreError> {
        if matches!(read, Read::Ready) && self.shared.stopped.load(Ordering::Relaxed) {
            return Err(writer::stopped());
        }
        let (now, is_short) = (clock::now(), is_short(&read));
        if is_short && self.to_be_quick.get() == 0 {
            let outcome = self.here.borrow_mut().read(&read, now + QUICK);
            self.learn_here(clock::now().saturating_duration_since(now));
            // A read that exceeded its time limit is repeated in the pool.
            if !matches!(outcome, Err(StoreError::TimedOut)) {
                return outcome;
            }
        }
        let until = now + self.shared.statement_max;
        let pool = if read.is_wide() { &self.shared.wide } else { &self.shared.pool };
        let answer = pool.read(read, until, place)?;
        // The reader looks at the clock between steps; a disk that hangs gives it none.
        match tokio::time::timeout_at((until + QUICK).into(), answer).await {
            Ok(Ok(Done { outcome, took })) => {
                if is_short {
                    self.learn_there(took);
                }
                outcome
            }
            Ok(Err(_)) => {
                Err(StoreError::Unavailable("a reader panicked; the log says where".to_owned()))
            }
            Err(_) => Err(StoreError::TimedOut),
        }
    }

    pub(super) async fn export(&self, export: Export) -> Result<Exported, StoreError> {
        self.shared.exports.begin(export).await
    }

    pub(super) fn epoch(&self) -> u64 {
        self.shared.claims.epoch(clock::moment().seconds())
    }

    pub(super) fn claim(&self, claim: &Claim) -> Claimed {
        self.shared.claims.claim(claim, clock::moment().seconds())
    }

    /// One slow read may be due to the scheduler; two within a few reads, or a very slow one, are due to the
    /// disk.
    fn learn_here(&self, took: Duration) {
        if took <= QUICK {
            self.slowness.set(self.slowness.get().saturating_sub(1));
        } else if self.slowness.get() == 0 && took <= STUCK {
            self.slowness.set(SLOW_READ);
        } else {
            self.to_be_quick.set(QUICK_AGAIN);
        }
    }

    /// While the disk is slow, it is probed in the pool, where it blocks no other request.
    fn learn_there(&self, took: Duration) {
        let left = self.to_be_quick.get();
        if left > 0 {
            self.to_be_quick.set(if took <= QUICK { left - 1 } else { QUICK_AGAIN });
        }
    }

    pub(super) async fn write(
        &self,
        write: Box<Write>,
        options: WriteOptions,
    ) -> Result<Outcome, StoreError> {
        crate::fault::point("queue");
        // The queue has its own limit: only the memory reservation stays with a write whose client
        // disconnects.
        let WriteOptions { bytes, deadline, memory, place: _place } = options;
        if !self.is_delivering.replace(true) {
            tokio::task::spawn_local(Arc::clone(&self.mailbox).deliver());
        }
        let (answer, mut answered) = self.mailbox.ticket();
        let claimed = Arc::new(AtomicBool::new(false));
        let job = Job { write, bytes, claimed: Arc::clone(&claimed), answer, memory };
        self.shared.queue.push(job)?;
        let lost = |_| {
            let cause = "the writer panicked; the log says where".to_owned();
            Err(StoreError::broken(cause))
        };
        match tokio::time::timeout_at(deadline.into(), &mut answered).await {
            Ok(outcome) => outcome.unwrap_or_else(lost),
            // At the deadline, whoever claims the queued write first decides. Once the writer has begun it,
            // this waits for its end: only then is it known what is on disk.
            Err(_) if !claimed.swap(true, Ordering::AcqRel) => Err(StoreError::TimedOut),
            Err(_) => answered.await.unwrap_or_else(lost),
        }
    }
}

/// Reads of few rows.
fn is_short(read: &Read) -> bool {
    match read {
        Read::Ready | Read::Positions | Read::Item(..) | Read::Refuse(_) => true,
        Read::User(_) | Read::UsersStamp | Read::Kept(_) => true,
        Read::Page(_, list) => list.limit <= 100 && !read.is_wide(),
    }
}
