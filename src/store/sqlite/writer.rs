//! The writer thread: one connection, and group commit.
//!
//! Queued requests run in one transaction and are committed with one fsync; only then are they answered, so
//! an answer means that the write is durable. A refused request is rolled back alone. When the storage fails,
//! the whole group is rolled back and gets an error; when the commit itself fails, it is unknown what is on
//! disk, and the writer stops.

use std::iter;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use rusqlite::{Connection, Error, ErrorCode};

use crate::log::{Level, Logger};
use crate::metrics::{self, Metrics};
use crate::plan::{Outcome, WriteAction, WritePlan};
use crate::store::context::{CommitMode, StoreContext};
use crate::store::driver::{Driver, poll_once};
use crate::store::error::{StatementError, StoreError, WriteError, writer_stopped_error};
use crate::store::retention::{self, ClockDoubtLog, SWEEP_EVERY, SweepResult};
use crate::store::sqlite::checkpoint;
use crate::store::sqlite::completions::{ReplyHandle, WriteResult, complete_all};
use crate::store::sqlite::database_lock::{DatabaseLock, LockHolder};
use crate::store::sqlite::driver::{RELEASE, ROLLBACK_TO, SAVEPOINT, SqliteDriver, classify_error};
use crate::store::sqlite::wal_maintenance::{DiskFailure, WalMaintenance};
use crate::store::sqlite::wal_reset::DRAIN_POLL;
use crate::store::sqlite::write_queue::{QueuedWork, QueuedWrite, WriteReceiver};
use crate::store::{deliveries, write};
use crate::{clock, fault};

const GROUP_REQUESTS_MAX: usize = 512;
const GROUP_BYTES_MAX: usize = 4 << 20;
// A test decides itself which requests share a commit.
const GROUP_WORK_MAX: Duration = Duration::from_millis(if cfg!(test) { 60_000 } else { 5 });

/// The state of the writer thread.
#[derive(Debug)]
pub struct SqliteWriter {
    pub connection: Connection,
    pub context: Arc<StoreContext>,
    pub queue: WriteReceiver,
    pub stopped: Arc<AtomicBool>,
    pub wal: WalMaintenance,
    pub lock: Arc<DatabaseLock>,
    pub log: Logger,
    pub metrics: Arc<Metrics>,
    /// The metrics of the writer itself.
    pub writer_metrics: Arc<metrics::WriterMetrics>,
    /// The warnings logged about a clock that is ahead.
    pub doubt_log: ClockDoubtLog,
}

/// How a refused request is rolled back without its commit group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RollbackScope {
    /// The request writes one row, and only the statement that writes it can be refused, as a whole.
    Statement,
    /// The request may be refused, or fail, after some rows are written. A savepoint copies every page it changes.
    Savepoint,
    /// The request has a separate commit.
    Transaction,
}

impl RollbackScope {
    fn for_work(context: &StoreContext, work: &QueuedWork, mode: CommitMode) -> Self {
        match work {
            QueuedWork::Write(write) => Self::for_write(context, write, mode),
            QueuedWork::Delivery(_) => Self::Savepoint,
        }
    }

    fn for_write(context: &StoreContext, write: &WritePlan, mode: CommitMode) -> Self {
        match &write.action {
            // The stored response of a refusal outlives the rolled-back writes.
            _ if write.idempotency.is_some() => Self::Savepoint,
            _ if mode == CommitMode::Exclusive => Self::Transaction,
            // It reads after it has written.
            _ if write::has_read_check(context, write) => Self::Savepoint,
            WriteAction::Create { drafts, .. } if drafts.len() <= 1 => Self::Statement,
            WriteAction::Replace { .. } | WriteAction::Patch { .. } => Self::Statement,
            WriteAction::Create { .. } | WriteAction::Remove { .. } => Self::Savepoint,
        }
    }
}

/// The result of one queued write.
enum QueuedWriteOutcome {
    Done(WriteResult),
    /// Its client has disconnected, or its deadline has passed.
    Skipped,
    /// The request needs a separate commit.
    ExceedsGroup,
    /// The storage failed, and with it everything since the last commit.
    Failed(String),
}

type GroupResults = Vec<(ReplyHandle, WriteResult)>;

impl SqliteWriter {
    pub fn run_loop(self) {
        // However the thread ends, later writes must fail instead of waiting.
        let _ended = StopOnDrop(Arc::clone(&self.stopped));
        // Entries may have expired while no server ran.
        let mut next_sweep = clock::now();
        loop {
            if self.run_once(&mut next_sweep).is_break() {
                return;
            }
        }
    }

    /// Runs one iteration. A panic rolls back the group; the thread continues.
    pub fn run_once(&self, next_sweep: &mut Instant) -> ControlFlow<()> {
        let turn = AssertUnwindSafe(|| self.group_or_sweep(next_sweep));
        catch_unwind(turn).unwrap_or_else(|panic| {
            // The dropped channels report it to the waiting requests.
            self.roll_back(&fault::panic_message(&*panic));
            ControlFlow::Continue(())
        })
    }

    /// Runs a commit group, if one arrives before the next sweep, and a batch of the sweep when it is due.
    fn group_or_sweep(&self, next_sweep: &mut Instant) -> ControlFlow<()> {
        let wait = next_sweep.saturating_duration_since(clock::now());
        let wait = if self.wal.is_holding() { wait.min(DRAIN_POLL) } else { wait };
        match self.queue.recv_timeout(wait) {
            Ok(job) => self.run_group(job),
            Err(RecvTimeoutError::Timeout) if self.wal.is_holding() => {
                self.checkpoint_when_due();
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return ControlFlow::Break(()),
        }
        let now = clock::now();
        if now >= *next_sweep {
            // Set first, so that a sweep that panics is not repeated immediately.
            *next_sweep = now + SWEEP_EVERY;
            *next_sweep = now + self.sweep();
        }
        ControlFlow::Continue(())
    }

    /// Runs queued writes, up to the limits of a group, and commits them.
    fn run_group(&self, first: QueuedWrite) {
        if first.is_abandoned() {
            return;
        }
        if let Err(error) = self.begin() {
            return self.fail_queued(first, &error);
        }
        let began = clock::now();
        let mut done = Vec::new();
        let mut bytes = 0;
        let mut next = Some(first);
        let mut long = None;
        while let Some(job) = next.take() {
            bytes += job.bytes;
            match self.run_write(&job, CommitMode::Grouped) {
                QueuedWriteOutcome::Done(outcome) => done.push((job.reply_handle, outcome)),
                QueuedWriteOutcome::Skipped => {}
                QueuedWriteOutcome::ExceedsGroup => {
                    long = Some(job);
                    break;
                }
                QueuedWriteOutcome::Failed(cause) => {
                    return self.fail_group(done, job.reply_handle, &cause);
                }
            }
            let over = clock::now().saturating_duration_since(began) > GROUP_WORK_MAX;
            if !over && bytes < GROUP_BYTES_MAX && done.len() < GROUP_REQUESTS_MAX {
                next = self.queue.try_recv();
            }
        }
        fault::point("commit");
        self.commit(done);
        if let Some(job) = long {
            self.run_exclusive(job);
        }
    }

    /// Fails all queued writes, because the database is locked or the writer has stopped.
    fn fail_queued(&self, first: QueuedWrite, error: &StoreError) {
        let again = || match error {
            StoreError::Unavailable(cause) => StoreError::Unavailable(cause.clone()),
            other => StoreError::Unavailable(format!("{other:?}")),
        };
        for job in [first].into_iter().chain(iter::from_fn(|| self.queue.try_recv())) {
            if !job.is_claimed.swap(true, Ordering::AcqRel) {
                complete_all([(job.reply_handle, Err(again()))]);
            }
        }
    }

    fn run_exclusive(&self, job: QueuedWrite) {
        if let Err(error) = self.begin() {
            return complete_all([(job.reply_handle, Err(error))]);
        }
        match self.run_write(&job, CommitMode::Exclusive) {
            // It was refused, and is rolled back.
            QueuedWriteOutcome::Done(outcome) if self.connection.is_autocommit() => {
                complete_all([(job.reply_handle, outcome)]);
            }
            QueuedWriteOutcome::Done(outcome) => {
                self.commit(vec![(job.reply_handle, outcome)]);
            }
            QueuedWriteOutcome::Skipped | QueuedWriteOutcome::ExceedsGroup => {
                self.commit(Vec::new());
            }
            QueuedWriteOutcome::Failed(cause) => {
                self.fail_group(Vec::new(), job.reply_handle, &cause);
            }
        }
    }

    pub fn begin(&self) -> Result<(), StoreError> {
        if self.stopped.load(Ordering::Relaxed) {
            return Err(writer_stopped_error());
        }
        // IMMEDIATE: a transaction that reads before it writes would fail instead of waiting for the write
        // lock.
        self.statement("BEGIN IMMEDIATE").map_err(|error| classify_error(error).into())
    }

    fn statement(&self, sql: &str) -> rusqlite::Result<()> {
        #[cfg(test)]
        crate::store::fault_injection::count_statement(sql)?;
        self.connection.prepare_cached(sql)?.raw_execute().map(|_| ())
    }

    fn run_write(&self, job: &QueuedWrite, mode: CommitMode) -> QueuedWriteOutcome {
        let is_mine = mode == CommitMode::Exclusive || !job.is_claimed.swap(true, Ordering::AcqRel);
        if !is_mine || job.reply_handle.is_closed() {
            return QueuedWriteOutcome::Skipped;
        }
        let undoing = RollbackScope::for_work(&self.context, &job.work, mode);
        if let Err(error) = self.begin_request(undoing) {
            return QueuedWriteOutcome::Failed(error.to_string());
        }
        let changes_before = self.connection.total_changes();
        let mut driver = self.driver();
        let run = AssertUnwindSafe(|| match &job.work {
            QueuedWork::Write(write) => {
                poll_once(write::write(&mut driver, &self.context, write, mode))
            }
            QueuedWork::Delivery(task) => {
                let done = poll_once(deliveries::run(&mut driver, task))?;
                Some(done.map(Outcome::Delivery).map_err(WriteError::from))
            }
        });
        let outcome = match catch_unwind(run) {
            Ok(Some(outcome)) => outcome,
            Ok(None) => Err(StoreError::internal("the SQLite driver blocked in a write").into()),
            Err(panic) => Err(StoreError::internal(fault::panic_message(&*panic)).into()),
        };
        match outcome {
            Err(WriteError::Error(StoreError::Unavailable(cause))) => {
                return QueuedWriteOutcome::Failed(cause);
            }
            Err(WriteError::Error(StoreError::OutcomeUnknown(cause))) => {
                self.stop(&cause);
                return QueuedWriteOutcome::Failed(cause);
            }
            Err(WriteError::Error(error)) if self.is_group_lost(undoing, changes_before) => {
                return QueuedWriteOutcome::Failed(format!("{error:?}"));
            }
            Ok(_) | Err(_) => {}
        }
        if let Err(error) = self.end_request(undoing, outcome.is_ok()) {
            return QueuedWriteOutcome::Failed(error.to_string());
        }
        match outcome {
            Ok(outcome) => QueuedWriteOutcome::Done(Ok(outcome)),
            Err(WriteError::Error(error)) => QueuedWriteOutcome::Done(Err(error)),
            Err(WriteError::ExceedsGroup) => QueuedWriteOutcome::ExceedsGroup,
        }
    }

    /// Whether a failed request cannot be rolled back alone: it wrote a row without its change log entry,
    /// which is a bug; or SQLite has rolled back the whole group by itself.
    fn is_group_lost(&self, undoing: RollbackScope, changes_before: u64) -> bool {
        self.connection.is_autocommit()
            || (undoing == RollbackScope::Statement
                && self.connection.total_changes() != changes_before)
    }

    fn begin_request(&self, undoing: RollbackScope) -> rusqlite::Result<()> {
        match undoing {
            RollbackScope::Statement | RollbackScope::Transaction => Ok(()),
            RollbackScope::Savepoint => self.statement(SAVEPOINT),
        }
    }

    fn end_request(&self, undoing: RollbackScope, is_done: bool) -> rusqlite::Result<()> {
        match undoing {
            RollbackScope::Statement => Ok(()),
            RollbackScope::Savepoint if is_done => self.statement(RELEASE),
            RollbackScope::Savepoint => {
                self.statement(ROLLBACK_TO)?;
                self.statement(RELEASE)
            }
            RollbackScope::Transaction if is_done => Ok(()),
            RollbackScope::Transaction => self.statement("ROLLBACK"),
        }
    }

    /// Commits the group with one fsync, then sends the answers. Returns whether it succeeded.
    pub fn commit(&self, done: GroupResults) -> bool {
        let began = clock::now();
        let committed = self.statement("COMMIT");
        self.writer_metrics.commit.observe_time(clock::now().saturating_duration_since(began));
        if !done.is_empty() {
            self.writer_metrics
                .group_requests
                .observe(u64::try_from(done.len()).unwrap_or(u64::MAX));
        }
        match &committed {
            Ok(()) => {
                let is_delivery = |result: &WriteResult| matches!(result, Ok(Outcome::Delivery(_)));
                // Deliveries have no entries in the change log.
                let has_changes =
                    done.is_empty() || !done.iter().all(|(_, result)| is_delivery(result));
                complete_all(done);
                if has_changes {
                    self.context.change_hint.notify();
                }
                self.checkpoint_when_due();
            }
            Err(error) => self.handle_commit_failure(done, error),
        }
        committed.is_ok()
    }

    /// Makes a checkpoint once the WAL has grown, after the answers.
    fn checkpoint_when_due(&self) {
        fault::point("checkpoint");
        if self.stopped.load(Ordering::Relaxed) {
            return self.wal.end_hold();
        }
        if let Err(DiskFailure(cause)) = self.wal.run(&self.connection) {
            self.stop(&cause);
        }
    }

    fn handle_commit_failure(&self, done: GroupResults, error: &Error) {
        let cause = error.to_string();
        let rolled_back = self.connection.is_autocommit() || self.statement("ROLLBACK").is_ok();
        let outcome: fn(String) -> StoreError = match error.sqlite_error_code() {
            // These are detected before anything is durable.
            Some(ErrorCode::DiskFull | ErrorCode::DatabaseBusy) if rolled_back => {
                StoreError::Unavailable
            }
            Some(ErrorCode::ConstraintViolation) if rolled_back => {
                |cause| StoreError::internal(cause)
            }
            // After a failed fsync, a second one may succeed although the data is lost: it is never retried.
            // A restart finds out what is on disk.
            _ => {
                self.stop(&cause);
                StoreError::OutcomeUnknown
            }
        };
        self.log.event(Level::Error, "a commit failed", &[("cause", &cause)]);
        complete_all(done.into_iter().map(|(answer, _)| (answer, Err(outcome(cause.clone())))));
    }

    /// The storage failed before the commit: rolls back the group and fails all its requests.
    fn fail_group(&self, done: GroupResults, failed: ReplyHandle, cause: &str) {
        self.log.event(Level::Error, "a write failed", &[("cause", &cause)]);
        self.roll_back(cause);
        let all = done.into_iter().map(|(answer, _)| answer).chain([failed]);
        complete_all(all.map(|answer| (answer, Err(StoreError::Unavailable(cause.to_owned())))));
    }

    /// SQLite may have rolled back by itself. If the rollback fails, the writer stops.
    pub fn roll_back(&self, cause: &str) {
        let clean = self.connection.is_autocommit() || self.statement("ROLLBACK").is_ok();
        if !clean || !self.connection.is_autocommit() {
            self.stop(cause);
        }
    }

    fn stop(&self, cause: &str) {
        self.stopped.store(true, Ordering::Relaxed);
        // Fails only for an unknown setting.
        let _ = checkpoint::keep_wal_on_close(&self.connection);
        // Where the disk does not take it, commands are not told.
        let _ = self.lock.announce(LockHolder::StoppedServer);
        let message =
            "the writer has stopped; reads continue; check the disk and restart the server";
        self.log.event(Level::Error, message, &[("cause", &cause)]);
    }

    /// A driver for one transaction.
    pub fn driver(&self) -> impl Driver {
        let driver = SqliteDriver { connection: &self.connection };
        #[cfg(test)]
        let driver = crate::store::fault_injection::FaultyDriver(driver);
        driver
    }
}

struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl SqliteWriter {
    /// Runs one batch of the sweep; returns the delay before the next one.
    pub fn sweep(&self) -> Duration {
        fault::point("sweep");
        retention::report_batch(self.sweep_step(), &self.log, &self.metrics, &self.doubt_log)
    }

    fn sweep_step(&self) -> Result<SweepResult, StoreError> {
        self.begin()?;
        let step =
            poll_once(retention::sweep_batch(&mut self.driver(), &self.context, clock::moment()));
        match step.unwrap_or(Err(StatementError::TimedOut)) {
            Ok(step) if self.commit(Vec::new()) => Ok(step),
            // `commit` has logged the cause.
            Ok(_) => Ok(SweepResult::default()),
            Err(failure) => {
                self.roll_back(&format!("{failure:?}"));
                Err(failure.into())
            }
        }
    }
}
