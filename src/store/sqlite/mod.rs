//! The embedded backend: one file, one writer thread, readers in place.
//!
//! Writes queue for the one thread that owns the read-write connection and share its commits
//! (`writer`). A read that is quick runs on the thread that asks for it, on a connection of its own;
//! when the disk is slow, reads go through a small pool (`reader`) until they are quick there, so that
//! cold reads do not stall a core's other clients.

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

/// Whether there is nothing at this path, or an empty file.
pub(super) fn is_absent(path: &Path) -> bool {
    files::Files::find(path).is_ok_and(|files| files.is_empty())
}

/// Whether the folder has another database of ours.
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

/// A read that takes longer than this shows that the disk is slow.
const QUICK: Duration = Duration::from_millis(2);
/// A read that takes longer than this was held up by nothing but the disk.
const STUCK: Duration = Duration::from_millis(20);
/// So many quick reads in place make one slow one forgotten.
const SLOW_READ: u32 = 32;
/// So many quick reads in a row through the pool, and the disk is no longer slow.
const QUICK_AGAIN: u32 = 256;

/// What a reader in place keeps of the database.
const CACHE_KIB: u32 = 8_000;

/// What all threads share.
#[derive(Debug)]
pub struct Shared {
    path: PathBuf,
    context: Arc<Context>,
    queue: Queue,
    pool: Pool,
    /// For lists that may look at every row.
    wide: Pool,
    exports: Arc<Exports>,
    /// Set when a commit failed in a way that leaves its outcome open: nothing is written any more.
    stopped: Arc<AtomicBool>,
    readers: Mutex<Vec<JoinHandle<()>>>,
    writer: Mutex<Vec<JoinHandle<()>>>,
    statement_max: Duration,
    claims: Claims,
    /// Held for as long as the server lives; the operating system lets go of it with the process.
    _lock: std::fs::File,
}

impl Shared {
    /// Lets the writer finish what is queued, and closes the files: the readers first, because the
    /// last connection to close brings the log file into the database, and only the writer can.
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

/// One worker thread's way into the store.
#[derive(Debug)]
pub struct Worker {
    shared: Arc<Shared>,
    here: RefCell<Reader>,
    /// While reads are done in place: grows by `SLOW_READ` with every slow one, shrinks by one with
    /// every quick one.
    slowness: Cell<u32>,
    /// While the disk is slow: how many reads through the pool still have to be quick.
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
            // One that was cut short goes on in the pool.
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

    /// One slow read may be the scheduler's doing; two among a few, or one that is stuck, are the disk's.
    fn learn_here(&self, took: Duration) {
        if took <= QUICK {
            self.slowness.set(self.slowness.get().saturating_sub(1));
        } else if self.slowness.get() == 0 && took <= STUCK {
            self.slowness.set(SLOW_READ);
        } else {
            self.to_be_quick.set(QUICK_AGAIN);
        }
    }

    /// A slow disk is tried where it holds up nobody else.
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
        // The queue is bounded by itself: only its memory goes with a write whose client leaves.
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
            // Still in the queue: whoever claims it first decides. Once begun, it is waited for,
            // since only its end tells what is on disk.
            Err(_) if !claimed.swap(true, Ordering::AcqRel) => Err(StoreError::TimedOut),
            Err(_) => answered.await.unwrap_or_else(lost),
        }
    }
}

/// Reads that touch few rows.
fn is_short(read: &Read) -> bool {
    match read {
        Read::Ready | Read::Positions | Read::Item(..) | Read::Refuse(_) => true,
        Read::User(_) | Read::UsersStamp | Read::Kept(_) => true,
        Read::Page(_, list) => list.limit <= 100 && !read.is_wide(),
    }
}
