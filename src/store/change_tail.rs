//! The tail of the change log: waiting for new entries, and reading them in order.
//!
//! It never reads beyond the low-water mark, so no entry appears later with a smaller number. The mark that the
//! database reports may fall (a transaction announces an old number before it draws a new one), although no
//! smaller number can commit; so a position never moves back.
//!
//! Commits of this process wake it by `ChangeHint`; those of other processes it finds by polling.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch::Receiver;
use tokio::time::sleep;

use crate::plan::{ChangeBatch, Outcome, ReadPlan};
use crate::store::error::{OpenError, StoreError};
use crate::store::postgres::worker::{PostgresStore, PostgresWorker};
use crate::store::sqlite::worker::{SqliteStore, SqliteWorker};
use crate::value::Change;

/// How often the tail polls while entries are visible above the low-water mark.
const IN_FLIGHT_POLLS_MS: [u64; 4] = [5, 10, 20, 50];

/// How often the log is polled for commits that gave no hint: on SQLite only the commands of the operator write
/// beside the server.
const SQLITE_POLL: Duration = Duration::from_secs(1);
/// On PostgreSQL other servers write too.
const POSTGRES_POLL: Duration = Duration::from_millis(100);

/// Entries of the change log, in order.
#[derive(Debug)]
pub struct TailBatch {
    pub changes: Vec<Change>,
    /// The next position: the log has no other entries up to this number.
    pub end: i64,
    /// Whether the log has more to read at once.
    pub has_more: bool,
}

/// Reads the change log as it grows.
#[derive(Debug)]
pub struct ChangeTail {
    reader: TailReader,
    hint: Receiver<u64>,
    poll: Duration,
    /// How often in a row a read found entries that transactions in flight hold back.
    in_flight_reads: usize,
}

/// The backend, with connections for the tail alone.
#[derive(Debug)]
enum TailReader {
    Sqlite(Box<SqliteWorker>),
    Postgres(PostgresWorker),
}

impl ChangeTail {
    pub fn on_sqlite(shared: &Arc<SqliteStore>) -> Result<Self, OpenError> {
        let reader = TailReader::Sqlite(Box::new(SqliteWorker::for_feed(shared)?));
        let hint = shared.context.change_hint.subscribe();
        Ok(Self { reader, hint, poll: SQLITE_POLL, in_flight_reads: 0 })
    }

    pub fn on_postgres(shared: &Arc<PostgresStore>) -> Self {
        let reader = TailReader::Postgres(PostgresWorker::with_connections(shared, 1));
        let hint = shared.context.change_hint.subscribe();
        Self { reader, hint, poll: POSTGRES_POLL, in_flight_reads: 0 }
    }

    /// Waits until the log may have new entries.
    pub async fn wait(&mut self) {
        let last = self.in_flight_reads.checked_sub(1);
        let soon = last.map(|last| {
            let [.., longest] = IN_FLIGHT_POLLS_MS;
            Duration::from_millis(IN_FLIGHT_POLLS_MS.get(last).copied().unwrap_or(longest))
        });
        let poll = sleep(soon.map_or(self.poll, |soon| soon.min(self.poll)));
        tokio::pin!(poll);
        tokio::select! {
            changed = self.hint.changed() => if changed.is_err() {
                // The store is closed.
                poll.await;
            },
            () = &mut poll => {}
        }
    }

    /// The position of the log's end.
    pub async fn mark(&mut self) -> Result<i64, StoreError> {
        Ok(self.read(i64::MAX).await?.marks.settled)
    }

    /// Reads the entries after a position, up to the low-water mark.
    pub async fn read_after(&mut self, position: i64) -> Result<TailBatch, StoreError> {
        let batch = self.read(position).await?;
        let has_in_flight = batch.marks.reached > batch.marks.settled;
        self.in_flight_reads = if has_in_flight { self.in_flight_reads + 1 } else { 0 };
        let has_more = batch.has_more();
        Ok(TailBatch { changes: batch.changes, end: batch.end, has_more })
    }

    async fn read(&mut self, after: i64) -> Result<ChangeBatch, StoreError> {
        let read = ReadPlan::ChangeBatch { after };
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
