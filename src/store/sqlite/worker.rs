//! The store as the worker threads see it: reads inline or in a pool, writes queued for the writer thread.

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;

use crate::clock;
use crate::model::Model;
use crate::plan::{DeliveryTask, Outcome, ReadPlan, WritePlan};
use crate::store::context::StoreContext;
use crate::store::error::{OpenError, StoreError, writer_stopped_error};
use crate::store::export::ExportRequest;
use crate::store::export_stream::ExportBody;
use crate::store::replay_protection::{NonceClaim, NonceClaimResult, UsedNonces};
use crate::store::sqlite::completions::CompletionQueue;
use crate::store::sqlite::database_lock::DatabaseLock;
use crate::store::sqlite::export::SqliteExports;
use crate::store::sqlite::reader::{PROGRESS_STEPS, PooledReadResult, ReaderPool, SqliteReader};
use crate::store::sqlite::write_queue::{QueuedWork, QueuedWrite, WriteQueue};
use crate::store::write::WriteOptions;

/// A read that takes longer suggests a slow disk.
const FAST_READ_MAX: Duration = Duration::from_millis(2);
/// A read that takes longer was certainly blocked by the disk, not by the scheduler.
const STALLED_READ_MIN: Duration = Duration::from_millis(20);
/// How many fast inline reads make up for one slow read.
const SLOW_READ_PENALTY: u32 = 32;
/// After this many consecutive fast reads through the pool the disk counts as fast again.
const FAST_READS_TO_RECOVER: u32 = 256;

/// The page cache of a worker's own connection.
const CACHE_KIB: u32 = 8_000;

/// The open store, shared by all threads.
#[derive(Debug)]
pub struct SqliteStore {
    pub path: PathBuf,
    pub context: Arc<StoreContext>,
    pub queue: WriteQueue,
    pub pool: ReaderPool,
    /// For scans: lists that may read every row.
    pub scan_pool: ReaderPool,
    /// For the change feed and the webhooks.
    pub feed_pool: ReaderPool,
    pub exports: Arc<SqliteExports>,
    /// Set when a commit failed with an unknown outcome: nothing is written any more.
    pub is_stopped: Arc<AtomicBool>,
    pub readers: Mutex<Vec<JoinHandle<()>>>,
    pub writer: Mutex<Vec<JoinHandle<()>>>,
    pub statement_max: Duration,
    pub used_nonces: UsedNonces,
    /// Held while the server runs; the operating system releases it with the process.
    pub _lock: Arc<DatabaseLock>,
}

impl SqliteStore {
    /// Drains the write queue and closes the files. Readers close first: the last connection to close
    /// checkpoints the WAL, and only the writer's can.
    pub fn close(&self) {
        self.exports.in_flight.close();
        self.pool.close();
        self.scan_pool.close();
        self.feed_pool.close();
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
pub struct SqliteWorker {
    shared: Arc<SqliteStore>,
    /// `None`: everything is read in the pool of the change feed.
    inline_reader: Option<RefCell<SqliteReader>>,
    /// While reads run inline: grows by `SLOW_READ_PENALTY` with every slow read, shrinks by one with every
    /// fast one.
    slow_read_score: Cell<u32>,
    /// While the disk is slow: how many reads through the pool still have to be fast.
    fast_reads_left: Cell<u32>,
    completions: Arc<CompletionQueue>,
    is_dispatching: Cell<bool>,
}

impl SqliteWorker {
    pub fn new(shared: &Arc<SqliteStore>) -> Result<Self, OpenError> {
        let reader =
            SqliteReader::open(&shared.path, &shared.context, (CACHE_KIB, PROGRESS_STEPS))?;
        Ok(Self::with_reader(shared, Some(reader)))
    }

    /// A worker of the change feed or of the webhooks. Their threads never wait for the disk.
    pub fn for_feed(shared: &Arc<SqliteStore>) -> Self {
        Self::with_reader(shared, None)
    }

    fn with_reader(shared: &Arc<SqliteStore>, inline_reader: Option<SqliteReader>) -> Self {
        Self {
            shared: Arc::clone(shared),
            inline_reader: inline_reader.map(RefCell::new),
            slow_read_score: Cell::new(0),
            fast_reads_left: Cell::new(0),
            completions: Arc::default(),
            is_dispatching: Cell::new(false),
        }
    }

    pub fn context(&self) -> &StoreContext {
        &self.shared.context
    }

    pub async fn read(
        &self,
        read: ReadPlan,
        place: Option<OwnedSemaphorePermit>,
    ) -> Result<Outcome, StoreError> {
        if matches!(read, ReadPlan::Ready) && self.shared.is_stopped.load(Ordering::Relaxed) {
            return Err(writer_stopped_error());
        }
        let model = &self.shared.context.model;
        let (now, is_short) = (clock::now(), is_short(model, &read));
        let reader = self.inline_reader.as_ref();
        if let Some(reader) = reader.filter(|_| is_short && self.fast_reads_left.get() == 0) {
            let outcome = reader.borrow_mut().read(&read, now + FAST_READ_MAX);
            self.record_inline_read(clock::now().saturating_duration_since(now));
            // A read that exceeded its time limit is repeated in the pool.
            if !matches!(outcome, Err(StoreError::TimedOut)) {
                return outcome;
            }
        }
        let until = now + self.shared.statement_max;
        let pool = match reader {
            None => &self.shared.feed_pool,
            Some(_) if read.is_full_scan(model) => &self.shared.scan_pool,
            Some(_) => &self.shared.pool,
        };
        let answer = pool.read(read, until, place)?;
        // The reader checks the clock between steps, and makes no step while the disk hangs.
        match tokio::time::timeout_at((until + FAST_READ_MAX).into(), answer).await {
            Ok(Ok(PooledReadResult { outcome, duration: took })) => {
                if is_short {
                    self.record_pooled_read(took);
                }
                outcome
            }
            Ok(Err(_)) => {
                Err(StoreError::Unavailable("a reader thread panicked; see the log".to_owned()))
            }
            Err(_) => Err(StoreError::TimedOut),
        }
    }

    pub async fn export(&self, export: ExportRequest) -> Result<ExportBody, StoreError> {
        self.shared.exports.begin(export).await
    }

    pub fn nonce_epoch(&self) -> u64 {
        self.shared.used_nonces.epoch(clock::moment().seconds())
    }

    pub fn claim_nonce(&self, claim: &NonceClaim) -> NonceClaimResult {
        self.shared.used_nonces.claim(claim, clock::moment().seconds())
    }

    /// One slow read may be due to the scheduler; two within a few reads, or a very slow one, are due to the
    /// disk.
    fn record_inline_read(&self, took: Duration) {
        if took <= FAST_READ_MAX {
            self.slow_read_score.set(self.slow_read_score.get().saturating_sub(1));
        } else if self.slow_read_score.get() == 0 && took <= STALLED_READ_MIN {
            self.slow_read_score.set(SLOW_READ_PENALTY);
        } else {
            self.fast_reads_left.set(FAST_READS_TO_RECOVER);
        }
    }

    /// While the disk is slow, it is probed in the pool, where it blocks no other request.
    fn record_pooled_read(&self, took: Duration) {
        let left = self.fast_reads_left.get();
        if left > 0 {
            self.fast_reads_left.set(if took <= FAST_READ_MAX {
                left - 1
            } else {
                FAST_READS_TO_RECOVER
            });
        }
    }

    pub async fn write(
        &self,
        write: Box<WritePlan>,
        options: WriteOptions,
    ) -> Result<Outcome, StoreError> {
        crate::fault::point("queue");
        self.run_queued(QueuedWork::Write(write), options).await
    }

    /// Runs a task of the delivery queue.
    pub async fn deliver(
        &self,
        task: DeliveryTask,
        options: WriteOptions,
    ) -> Result<Outcome, StoreError> {
        self.run_queued(QueuedWork::Delivery(Box::new(task)), options).await
    }

    async fn run_queued(
        &self,
        work: QueuedWork,
        options: WriteOptions,
    ) -> Result<Outcome, StoreError> {
        // The queue has its own limit: only the memory reservation stays with a write whose client
        // disconnects.
        let WriteOptions { bytes, deadline, memory, place: _place } = options;
        if !self.is_dispatching.replace(true) {
            tokio::task::spawn_local(Arc::clone(&self.completions).run_dispatcher());
        }
        let (answer, mut answered) = self.completions.reply_handle();
        let claimed = Arc::new(AtomicBool::new(false));
        let job = QueuedWrite {
            work,
            bytes,
            is_claimed: Arc::clone(&claimed),
            reply_handle: answer,
            _memory: memory,
        };
        self.shared.queue.push(job)?;
        let lost = |_| {
            let cause = "the writer thread panicked; see the log".to_owned();
            Err(StoreError::internal(cause))
        };
        match tokio::time::timeout_at(deadline.into(), &mut answered).await {
            Ok(outcome) => outcome.unwrap_or_else(lost),
            // At the deadline, the first claim of the queued write decides. Once the writer has begun it,
            // this waits for its end: only then is it known what is on disk.
            Err(_) if !claimed.swap(true, Ordering::AcqRel) => Err(StoreError::TimedOut),
            Err(_) => answered.await.unwrap_or_else(lost),
        }
    }
}

/// Whether a read returns few rows.
fn is_short(model: &Model, read: &ReadPlan) -> bool {
    match read {
        ReadPlan::Ready
        | ReadPlan::ChangeLogBounds
        | ReadPlan::LogMarks
        | ReadPlan::WatchStart(..)
        | ReadPlan::Item(..)
        | ReadPlan::InvalidWrite(_) => true,
        ReadPlan::User(_) | ReadPlan::UsersStamp | ReadPlan::IdempotentResponse(_) => true,
        ReadPlan::Changes(_) | ReadPlan::PastItem(_) | ReadPlan::Expanded(_) => false,
        ReadPlan::ChangeBatch { .. } | ReadPlan::RelatedFacts { .. } => false,
        ReadPlan::WebhookQueues | ReadPlan::WebhookStart(_) | ReadPlan::ModelInForce => false,
        ReadPlan::WebhookProgress(_) => true,
        ReadPlan::Page(_, list) => list.limit <= 100 && !read.is_full_scan(model),
    }
}
