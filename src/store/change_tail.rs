//! The tail of the change log: waiting for new entries, and reading them in order.
//!
//! It never reads beyond the low-water mark, so no entry appears later with a smaller number. The mark that the
//! database reports may fall (a transaction announces an old number before it draws a new one), although no
//! smaller number can commit; so a position never moves back.
//!
//! After a failover to a standby that was behind, the log lacks entries that were read, and gets others with their
//! numbers. The tail notices that by the largest number of the log, and by the last entry that it has read, which it
//! looks for when the database is another incarnation.
//!
//! Commits wake it by `ChangeHint`; those that give no hint it finds by polling.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch::Receiver;
use tokio::time::sleep;

use crate::plan::{ChangeBatch, LogMarks, Outcome, ReadPlan};
use crate::store::change_hint::ChangeHint;
use crate::store::error::StoreError;
use crate::store::postgres::worker::{PostgresStore, PostgresWorker};
use crate::store::sqlite::worker::{SqliteStore, SqliteWorker};
use crate::value::{Change, Moment};

/// How often the tail polls while transactions in flight hold entries back and give no hint: less often after each
/// poll that finds the same.
const IN_FLIGHT_POLLS_MS: [u64; 8] = [5, 10, 20, 50, 100, 200, 500, 1_000];

/// A batch of large items ends early.
const BATCH_BYTES_MAX: usize = 1 << 20;

/// How often the log is polled for commits that gave no hint.
#[derive(Debug, Clone, Copy)]
pub struct PollIntervals {
    pub with_remote_hints: Duration,
    pub without_remote_hints: Duration,
}

/// Only the commands of the operator write beside the server.
pub const SQLITE_POLL: PollIntervals = PollIntervals {
    with_remote_hints: Duration::from_secs(1),
    without_remote_hints: Duration::from_secs(1),
};
/// Other servers write too, and notify this one unless a proxy prevents it.
pub const POSTGRES_POLL: PollIntervals = PollIntervals {
    with_remote_hints: Duration::from_secs(5),
    without_remote_hints: Duration::from_millis(50),
};

/// Entries of the change log, in order.
#[derive(Debug)]
pub struct TailBatch {
    pub changes: Vec<Change>,
    /// The next position: the log has no other entries up to this number.
    pub end: i64,
    /// Whether the log has more to read at once.
    pub has_more: bool,
    /// The largest number that was deleted.
    pub swept: i64,
    /// Whether the database has lost entries that were read before, so that the batch continues another log.
    pub is_other_log: bool,
}

/// Reads the change log as it grows.
#[derive(Debug)]
pub struct ChangeTail {
    reader: TailReader,
    hint: Arc<ChangeHint>,
    /// `None` while nobody follows the log, so that commits need not tell.
    commits: Option<Receiver<u64>>,
    poll: PollIntervals,
    /// How often in a row a read found nothing but entries that transactions in flight hold back.
    in_flight_reads: usize,
    reached: i64,
    /// The incarnation of the database at the last read; `None` before the first one.
    incarnation: Option<i64>,
    last_entry: Option<EntryIdentity>,
}

/// What tells an entry from another one with its number.
#[derive(Debug, Clone, PartialEq, Eq)]
struct EntryIdentity {
    sequence: i64,
    time: Moment,
    subject: String,
    request_id: String,
}

impl EntryIdentity {
    fn new(change: &Change) -> Self {
        let Change { sequence, time, subject, request_id, .. } = change;
        let (subject, request_id) = (subject.clone(), request_id.clone());
        Self { sequence: *sequence, time: *time, subject, request_id }
    }
}

/// The backend, with connections for the tail alone.
#[derive(Debug)]
enum TailReader {
    Sqlite(Box<SqliteWorker>),
    Postgres(PostgresWorker),
}

impl ChangeTail {
    pub fn on_sqlite(shared: &Arc<SqliteStore>) -> Self {
        let reader = TailReader::Sqlite(Box::new(SqliteWorker::for_feed(shared)));
        Self::new(reader, &shared.context.change_hint, SQLITE_POLL)
    }

    pub fn on_postgres(shared: &Arc<PostgresStore>) -> Self {
        let reader = TailReader::Postgres(PostgresWorker::with_connections(shared, 1));
        Self::new(reader, &shared.context.change_hint, POSTGRES_POLL)
    }

    fn new(reader: TailReader, hint: &Arc<ChangeHint>, poll: PollIntervals) -> Self {
        Self {
            reader,
            hint: Arc::clone(hint),
            commits: None,
            poll,
            in_flight_reads: 0,
            reached: 0,
            incarnation: None,
            last_entry: None,
        }
    }

    /// Asks for no more hints, until the next read.
    pub fn rest(&mut self) {
        self.commits = None;
    }

    /// Waits until the log may have new entries.
    pub async fn wait(&mut self) {
        let usual = match self.hint.want_remote() {
            true => self.poll.with_remote_hints,
            false => self.poll.without_remote_hints,
        };
        let last = self.in_flight_reads.checked_sub(1);
        let soon = last.map(|last| {
            let [.., longest] = IN_FLIGHT_POLLS_MS;
            Duration::from_millis(IN_FLIGHT_POLLS_MS.get(last).copied().unwrap_or(longest))
        });
        let poll = sleep(soon.map_or(usual, |soon| soon.min(usual)));
        tokio::pin!(poll);
        let Some(commits) = &mut self.commits else { return poll.await };
        tokio::select! {
            changed = commits.changed() => if changed.is_err() {
                // The store is closed.
                poll.await;
            },
            () = &mut poll => {}
        }
    }

    /// What announces commits.
    pub fn hint(&self) -> Arc<ChangeHint> {
        Arc::clone(&self.hint)
    }

    /// The largest number that the log had drawn at the last read.
    pub fn reached(&self) -> i64 {
        self.reached
    }

    /// The position of the log's end, as a batch without entries.
    pub async fn read_mark(&mut self) -> Result<TailBatch, StoreError> {
        let marks = self.read(i64::MAX, BATCH_BYTES_MAX).await?.marks;
        let (end, swept) = (marks.low_watermark, marks.swept);
        let last = self.read(end - 1, 0).await?.changes.into_iter().next();
        self.last_entry = last.filter(|last| last.sequence == end).as_ref().map(EntryIdentity::new);
        self.incarnation = Some(marks.incarnation);
        Ok(TailBatch { changes: Vec::new(), end, has_more: false, swept, is_other_log: false })
    }

    /// Reads the entries after a position, up to the low-water mark.
    pub async fn read_after(&mut self, position: i64) -> Result<TailBatch, StoreError> {
        let batch = self.read(position, BATCH_BYTES_MAX).await?;
        let is_other_log = self.is_other_log(position, batch.marks).await?;
        self.incarnation = Some(batch.marks.incarnation);
        self.reached = batch.marks.reached;
        if is_other_log {
            self.last_entry = None;
        }
        self.in_flight_reads = match batch.marks.has_in_flight {
            true if batch.end == position => self.in_flight_reads + 1,
            is_held_back => usize::from(is_held_back),
        };
        let last = batch.changes.last().filter(|_| !is_other_log).map(EntryIdentity::new);
        let known = self.last_entry.as_ref().map_or(0, |known| known.sequence);
        if let Some(last) = last.filter(|last| last.sequence > known) {
            self.last_entry = Some(last);
        }
        let has_more = batch.has_more();
        let swept = batch.marks.swept;
        let (changes, end) = (batch.changes, batch.end);
        Ok(TailBatch { changes, end, has_more, swept, is_other_log })
    }

    /// Whether the log has lost entries that were read. Those up to the last one are there if that one is: it was
    /// visible, so the numbers below it are not drawn again.
    async fn is_other_log(&mut self, position: i64, marks: LogMarks) -> Result<bool, StoreError> {
        if marks.reached < position {
            return Ok(true);
        }
        let is_known = self.incarnation.is_none_or(|known| known == marks.incarnation);
        let last = self.last_entry.clone().filter(|last| !is_known && last.sequence > marks.swept);
        let Some(last) = last else { return Ok(false) };
        let found = self.read(last.sequence - 1, 0).await?.changes.into_iter().next();
        Ok(found.as_ref().map(EntryIdentity::new) != Some(last))
    }

    async fn read(&mut self, after: i64, bytes_max: usize) -> Result<ChangeBatch, StoreError> {
        // Before the read, so that what it does not see gives a hint.
        self.commits.get_or_insert_with(|| self.hint.subscribe());
        let read = ReadPlan::ChangeBatch { after, bytes_max };
        let outcome = match &self.reader {
            TailReader::Sqlite(worker) => worker.read(read, None).await?,
            TailReader::Postgres(worker) => worker.read(read, None).await?,
        };
        match outcome {
            Outcome::ChangeBatch(batch) => Ok(batch),
            _ => Err(StoreError::internal("a read of the change log had another outcome")),
        }
    }
}
