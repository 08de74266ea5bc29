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
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use rusqlite::{Connection, Error, ErrorCode};

use super::driver::{RELEASE, ROLLBACK_TO, SAVEPOINT, SqliteDriver, failure};
use super::export::Exports;
use super::log_reset::{LogAction, LogBlocker, LogReset};
use super::mail::{Answer, Ticket, send_all};
use super::open::BUSY_MAX;
use super::queue::{Job, Jobs};
use crate::clock;
use crate::fault;
use crate::log::{Level, Log};
use crate::metrics::{self, Metrics};
use crate::plan::{Action, Write};
use crate::store::StoreError;
use crate::store::driver::{Driver, at_once};
use crate::store::ids::Ids;
use crate::store::sweep::{DoubtLog, SWEEP_EVERY};
use crate::store::transaction::{self, Context, Given, Halt, Pace, broken};

const GROUP_REQUESTS_MAX: usize = 512;
const GROUP_BYTES_MAX: usize = 4 << 20;
// A test decides itself which requests share a commit.
const GROUP_WORK_MAX: Duration = Duration::from_millis(if cfg!(test) { 60_000 } else { 5 });
/// How long one attempt to reset the WAL waits for short reads to end.
const RESET_BUSY_MAX: Duration = Duration::from_millis(100);
/// While scans are held back, how often the writer checks whether those in flight have ended.
const DRAIN_POLL: Duration = Duration::from_millis(5);

pub(super) fn stopped() -> StoreError {
    StoreError::Unavailable("writing has stopped after a failure of the storage".to_owned())
}

/// The state of the writer thread.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) connection: Connection,
    pub(super) context: Arc<Context>,
    pub(super) ids: Ids,
    pub(super) jobs: Jobs,
    pub(super) stopped: Arc<AtomicBool>,
    /// Pages in the WAL, as of the last commit.
    pub(super) log_pages: Arc<AtomicUsize>,
    pub(super) log_reset: LogReset,
    pub(super) exports: Arc<Exports>,
    pub(super) log: Log,
    pub(super) metrics: Arc<Metrics>,
    /// The metrics of the writer itself.
    pub(super) counted: Arc<metrics::Writer>,
    /// The warnings logged about a clock that is ahead.
    pub(super) doubts: DoubtLog,
}

/// How a refused request is rolled back without its commit group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Undoing {
    /// It writes one row, and only the statement that writes it can be refused, as a whole.
    Statement,
    /// It may be refused after some of its rows are written. A savepoint copies every page it changes.
    Savepoint,
    /// It has a commit of its own.
    Transaction,
}

impl Undoing {
    fn of(write: &Write, pace: Pace) -> Self {
        match &write.action {
            // The stored answer of a refusal outlives the rolled-back writes.
            _ if write.once.is_some() => Self::Savepoint,
            _ if pace == Pace::Alone => Self::Transaction,
            Action::Create { drafts, .. } if drafts.len() <= 1 => Self::Statement,
            Action::Replace { .. } | Action::Amend { .. } => Self::Statement,
            Action::Create { .. } | Action::Remove { .. } => Self::Savepoint,
        }
    }
}

/// The result of one queued write.
enum Ran {
    Done(Ticket, Answer),
    /// Its client has disconnected, or its deadline has passed.
    Skipped,
    /// It needs a commit of its own.
    TooLong(Job),
    /// The storage failed, and with it everything since the last commit.
    Failed(Ticket, String),
}

type Done = Vec<(Ticket, Answer)>;

impl Writer {
    pub(super) fn work(self) {
        // However the thread ends, later writes must fail instead of waiting.
        let _ended = Ended(Arc::clone(&self.stopped));
        // Entries may have expired while no server ran.
        let mut next_sweep = clock::now();
        loop {
            if self.turn(&mut next_sweep).is_break() {
                return;
            }
        }
    }

    /// A panic rolls back the group; the thread continues.
    pub(super) fn turn(&self, next_sweep: &mut Instant) -> ControlFlow<()> {
        let turn = AssertUnwindSafe(|| self.group_or_sweep(next_sweep));
        catch_unwind(turn).unwrap_or_else(|panic| {
            // The dropped channels report it to the waiting requests.
            self.roll_back(&fault::words(&*panic));
            ControlFlow::Continue(())
        })
    }

    /// Runs a commit group, if one arrives before the next sweep, and a batch of the sweep when it is due.
    fn group_or_sweep(&self, next_sweep: &mut Instant) -> ControlFlow<()> {
        let wait = next_sweep.saturating_duration_since(clock::now());
        let wait = if self.log_reset.is_holding() { wait.min(DRAIN_POLL) } else { wait };
        match self.jobs.next_within(wait) {
            Ok(job) => self.group(job),
            Err(RecvTimeoutError::Timeout) if self.log_reset.is_holding() => {
                self.checkpoint_when_due();
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return ControlFlow::Break(()),
        }
        let now = clock::now();
        if now >= *next_sweep {
            // Set first, so that a sweep that panics is not repeated at once.
            *next_sweep = now + SWEEP_EVERY;
            *next_sweep = now + self.sweep();
        }
        ControlFlow::Continue(())
    }

    /// Runs queued writes, up to the limits of a group, and commits them.
    fn group(&self, first: Job) {
        if first.is_abandoned() {
            return;
        }
        if let Err(error) = self.begin() {
            return self.refuse(first, &error);
        }
        let began = clock::now();
        let mut done = Vec::new();
        let mut bytes = 0;
        let mut next = Some(first);
        let mut long = None;
        while let Some(job) = next.take() {
            bytes += job.bytes;
            match self.run(job, Pace::Shared) {
                Ran::Done(answer, outcome) => done.push((answer, outcome)),
                Ran::Skipped => {}
                Ran::TooLong(job) => {
                    long = Some(job);
                    break;
                }
                Ran::Failed(answer, cause) => return self.undo(done, answer, &cause),
            }
            let over = clock::now().saturating_duration_since(began) > GROUP_WORK_MAX;
            if !over && bytes < GROUP_BYTES_MAX && done.len() < GROUP_REQUESTS_MAX {
                next = self.jobs.next_waiting();
            }
        }
        fault::point("commit");
        self.commit(done);
        if let Some(job) = long {
            self.alone(job);
        }
    }

    /// Fails all queued writes, because the database is locked or the writer has stopped.
    fn refuse(&self, first: Job, error: &StoreError) {
        let again = || match error {
            StoreError::Unavailable(cause) => StoreError::Unavailable(cause.clone()),
            other => StoreError::Unavailable(format!("{other:?}")),
        };
        for job in [first].into_iter().chain(iter::from_fn(|| self.jobs.next_waiting())) {
            if !job.claimed.swap(true, Ordering::AcqRel) {
                send_all([(job.answer, Err(again()))]);
            }
        }
    }

    fn alone(&self, job: Job) {
        if let Err(error) = self.begin() {
            return send_all([(job.answer, Err(error))]);
        }
        match self.run(job, Pace::Alone) {
            // It was refused, and is rolled back.
            Ran::Done(answer, outcome) if self.connection.is_autocommit() => {
                send_all([(answer, outcome)]);
            }
            Ran::Done(answer, outcome) => drop(self.commit(vec![(answer, outcome)])),
            Ran::Skipped | Ran::TooLong(_) => drop(self.commit(Vec::new())),
            Ran::Failed(answer, cause) => self.undo(Vec::new(), answer, &cause),
        }
    }

    pub(super) fn begin(&self) -> Result<(), StoreError> {
        if self.stopped.load(Ordering::Relaxed) {
            return Err(stopped());
        }
        // IMMEDIATE: a transaction that reads before it writes would fail instead of waiting for the write
        // lock.
        self.statement("BEGIN IMMEDIATE").map_err(|error| failure(error).into())
    }

    fn statement(&self, sql: &str) -> rusqlite::Result<()> {
        #[cfg(test)]
        crate::store::faulty::statement(sql)?;
        self.connection.prepare_cached(sql)?.raw_execute().map(|_| ())
    }

    fn run(&self, job: Job, pace: Pace) -> Ran {
        let Job { write, bytes, claimed, answer, memory } = job;
        let is_mine = pace == Pace::Alone || !claimed.swap(true, Ordering::AcqRel);
        if !is_mine || answer.is_closed() {
            return Ran::Skipped;
        }
        let undoing = Undoing::of(&write, pace);
        if let Err(error) = self.begin_request(undoing) {
            return Ran::Failed(answer, error.to_string());
        }
        let changes_before = self.connection.total_changes();
        let mut driver = self.driver();
        let work = transaction::write(&mut driver, &self.context, Given::Whole(write), pace);
        let outcome = match catch_unwind(AssertUnwindSafe(|| at_once(work))) {
            Ok(Some(outcome)) => outcome,
            Ok(None) => Err(broken("SQLite made a write wait")),
            Err(panic) => Err(broken(&fault::words(&*panic))),
        };
        match outcome {
            Err(Halt::Error(StoreError::Unavailable(cause))) => return Ran::Failed(answer, cause),
            Err(Halt::Error(StoreError::OutcomeUnknown(cause))) => {
                self.stop(&cause);
                return Ran::Failed(answer, cause);
            }
            Err(Halt::Error(error)) if self.is_past_undoing(undoing, changes_before) => {
                return Ran::Failed(answer, format!("{error:?}"));
            }
            Ok(_) | Err(_) => {}
        }
        if let Err(error) = self.end_request(undoing, outcome.is_ok()) {
            return Ran::Failed(answer, error.to_string());
        }
        match outcome {
            Ok(outcome) => Ran::Done(answer, Ok(outcome)),
            Err(Halt::Error(error)) => Ran::Done(answer, Err(error)),
            Err(Halt::TooLong(write)) => {
                Ran::TooLong(Job { write, bytes, claimed, answer, memory })
            }
        }
    }

    /// Whether a failed request cannot be rolled back alone: it wrote a row without its change log entry,
    /// which is a bug; or SQLite has rolled back the whole group by itself.
    fn is_past_undoing(&self, undoing: Undoing, changes_before: u64) -> bool {
        self.connection.is_autocommit()
            || (undoing == Undoing::Statement && self.connection.total_changes() != changes_before)
    }

    fn begin_request(&self, undoing: Undoing) -> rusqlite::Result<()> {
        match undoing {
            Undoing::Statement | Undoing::Transaction => Ok(()),
            Undoing::Savepoint => self.statement(SAVEPOINT),
        }
    }

    fn end_request(&self, undoing: Undoing, is_done: bool) -> rusqlite::Result<()> {
        match undoing {
            Undoing::Statement => Ok(()),
            Undoing::Savepoint if is_done => self.statement(RELEASE),
            Undoing::Savepoint => {
                self.statement(ROLLBACK_TO)?;
                self.statement(RELEASE)
            }
            Undoing::Transaction if is_done => Ok(()),
            Undoing::Transaction => self.statement("ROLLBACK"),
        }
    }

    /// Commits the group with one fsync, then sends the answers. Returns whether it succeeded.
    pub(super) fn commit(&self, done: Done) -> bool {
        let began = clock::now();
        let committed = self.statement("COMMIT");
        self.counted.commit.observe_time(clock::now().saturating_duration_since(began));
        if !done.is_empty() {
            self.counted.group_requests.observe(u64::try_from(done.len()).unwrap_or(u64::MAX));
        }
        match &committed {
            Ok(()) => {
                send_all(done);
                self.checkpoint_when_due();
            }
            Err(error) => self.commit_failed(done, error),
        }
        committed.is_ok()
    }

    /// Makes a checkpoint once the WAL has grown, after the answers. SQLite's automatic checkpoint would not
    /// report a failed fsync of the database.
    fn checkpoint_when_due(&self) {
        fault::point("checkpoint");
        let pages = self.log_pages.load(Ordering::Relaxed);
        self.counted.log_pages.set(pages);
        self.exports.relieve(pages);
        match self.log_reset.next_action(pages) {
            LogAction::Nothing => {}
            LogAction::Checkpoint => {
                self.checkpoint("PRAGMA wal_checkpoint(PASSIVE)");
                self.log_reset.hold_when_due(pages, self.exports.is_any());
            }
            LogAction::Reset => self.reset_log(pages),
            LogAction::GiveUp(blocker) => self.give_up_reset(pages, blocker),
        }
    }

    /// Makes a checkpoint; returns whether it was complete. A reader may block it, or the disk may be full:
    /// the WAL then grows until the next one.
    fn checkpoint(&self, pragma: &str) -> bool {
        let began = clock::now();
        let busy = self.connection.query_row(pragma, [], |row| row.get::<_, i64>(0));
        self.counted.checkpoint.observe_time(clock::now().saturating_duration_since(began));
        if let Err(error) = &busy
            && error.sqlite_error_code() == Some(ErrorCode::SystemIoFailure)
        {
            self.stop(&error.to_string());
        }
        busy.is_ok_and(|busy| busy == 0)
    }

    /// No scan is in flight: makes the checkpoint that resets the WAL.
    fn reset_log(&self, pages: usize) {
        if self.stopped.load(Ordering::Relaxed) {
            return self.log_reset.give_up(pages, LogBlocker::Others);
        }
        let wait = |busy_max| self.connection.busy_timeout(busy_max);
        let is_reset =
            wait(RESET_BUSY_MAX).is_ok() && self.checkpoint("PRAGMA wal_checkpoint(RESTART)");
        // Fails only for an invalid value, which is a bug; the shorter timeout then stays.
        let _ = wait(BUSY_MAX);
        if is_reset {
            self.log_pages.store(0, Ordering::Relaxed);
            self.counted.log_pages.set(0);
            self.counted.log_resets.add(1);
            self.log_reset.finish();
        } else if self.log_reset.is_last_try() {
            self.give_up_reset(pages, LogBlocker::Others);
        }
    }

    fn give_up_reset(&self, pages: usize, blocker: LogBlocker) {
        self.counted.log_resets_given_up.add(1);
        if blocker == LogBlocker::Others {
            let message = "the log file cannot begin anew: another process reads the database";
            self.log.event(Level::Warning, message, &[("pages", &pages)]);
        }
        self.log_reset.give_up(pages, blocker);
    }

    fn commit_failed(&self, done: Done, error: &Error) {
        let cause = error.to_string();
        let rolled_back = self.connection.is_autocommit() || self.statement("ROLLBACK").is_ok();
        let outcome: fn(String) -> StoreError = match error.sqlite_error_code() {
            // These are detected before anything is durable.
            Some(ErrorCode::DiskFull | ErrorCode::DatabaseBusy) if rolled_back => {
                StoreError::Unavailable
            }
            Some(ErrorCode::ConstraintViolation) if rolled_back => {
                |cause| StoreError::broken(cause)
            }
            // After a failed fsync, a second one may succeed although the data is lost: it is never retried.
            // A restart finds out what is on disk.
            _ => {
                self.stop(&cause);
                StoreError::OutcomeUnknown
            }
        };
        self.log.event(Level::Error, "a commit failed", &[("cause", &cause)]);
        send_all(done.into_iter().map(|(answer, _)| (answer, Err(outcome(cause.clone())))));
    }

    /// The storage failed before the commit: rolls back the group and fails all its requests.
    fn undo(&self, done: Done, failed: Ticket, cause: &str) {
        self.log.event(Level::Error, "a write failed", &[("cause", &cause)]);
        self.roll_back(cause);
        let all = done.into_iter().map(|(answer, _)| answer).chain([failed]);
        send_all(all.map(|answer| (answer, Err(StoreError::Unavailable(cause.to_owned())))));
    }

    /// SQLite may have rolled back by itself. If the rollback fails, the writer stops.
    pub(super) fn roll_back(&self, cause: &str) {
        let clean = self.connection.is_autocommit() || self.statement("ROLLBACK").is_ok();
        if !clean || !self.connection.is_autocommit() {
            self.stop(cause);
        }
    }

    fn stop(&self, cause: &str) {
        self.stopped.store(true, Ordering::Relaxed);
        let message = "writing has stopped; reads go on; check the disk and start the server again";
        self.log.event(Level::Error, message, &[("cause", &cause)]);
    }

    /// A driver for one transaction.
    pub(super) fn driver(&self) -> impl Driver {
        let driver = SqliteDriver { connection: &self.connection, ids: &self.ids };
        #[cfg(test)]
        let driver = crate::store::faulty::Faulty(driver);
        driver
    }
}

struct Ended(Arc<AtomicBool>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
