//! Streaming exports from PostgreSQL: each on its own connection, in one read-only transaction with a
//! consistent snapshot, read in batches through a cursor.
//!
//! The number of concurrent exports per server is limited. They do not use the pool, so they cannot exhaust
//! it. Each fetch is a statement with its own timeout; the time that the client takes in between does not
//! count.
//! The one surprising thing: while an export is in flight, the database cannot vacuum rows that others
//! change, so the timeouts protect it from a client that does not read.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{FutureExt, TryStreamExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_postgres::{Client, Error};

use super::driver::{PostgresDriver, Stage};
use super::failure::sort;
use super::message::{Message, execute, query};
use super::pool::Connection;
use super::{GRACE, Inner, Worker};
use crate::clock;
use crate::fault;
use crate::metrics::Metrics;
use crate::model::settings::Limits;
use crate::store::StoreError;
use crate::store::export::{Counted, Export, Exported, Press};
use crate::store::pipe::{Halted, Maker, PIECE_BYTES, Patience, Pipe};

/// Rows of the first fetch, and the most of any.
const ROWS_FIRST: usize = 64;
const ROWS_MAX: usize = 2_000;

/// Admission of exports, for all worker threads.
#[derive(Debug)]
pub(super) struct Exports {
    places: Arc<Semaphore>,
    patience: Patience,
    metrics: Arc<Metrics>,
}

/// One export's slot, released however the export ends.
type Place = (Counted, OwnedSemaphorePermit);

impl Exports {
    pub(super) fn new(limits: &Limits, metrics: &Arc<Metrics>) -> Self {
        let places = Arc::new(Semaphore::new(limits.exports_max));
        Self { places, patience: Patience::of(limits), metrics: Arc::clone(metrics) }
    }
}

impl Worker {
    /// Starts an export, and returns when its first chunk is ready. A separate task reads the rest.
    pub(in crate::store) async fn export(&self, export: Export) -> Result<Exported, StoreError> {
        let exports = &self.0.exports;
        let place = Arc::clone(&exports.places).try_acquire_owned();
        let place = place.map_err(|_| StoreError::Busy)?;
        let (maker, fetcher) = Pipe::open(exports.patience);
        let place = (Counted::new(&exports.metrics), place);
        tokio::task::spawn_local(Arc::clone(&self.0).export(export, maker, place));
        Exported::begin(fetcher).await
    }
}

impl Inner {
    /// Runs a whole export. Its connection is closed before its client sees the end.
    async fn export(self: Arc<Self>, export: Export, maker: Maker, place: Place) {
        let work = AssertUnwindSafe(self.read_or_halt(export, &maker)).catch_unwind();
        let last = work
            .await
            .unwrap_or_else(|panic| Err(Stop::Failed(StoreError::broken(fault::words(&*panic)))));
        drop(place);
        match last {
            Ok(piece) => maker.finish(Ok(piece)),
            Err(Stop::Failed(error)) => maker.finish(Err(error)),
            // The consumer is gone, or knows that the export was cancelled.
            Err(Stop::Halted) => {}
        }
    }

    async fn read_or_halt(&self, export: Export, maker: &Maker) -> Result<Bytes, Stop> {
        let connection = self.pool.connection(clock::now() + self.statement_max).await;
        let connection = connection.map_err(|error| {
            let cause = format!("no connection to the database: {error}");
            Stop::Failed(StoreError::Unavailable(cause))
        })?;
        let cancel = Arc::clone(&connection.cancel);
        let last = tokio::select! {
            biased;
            () = maker.halted() => Err(Stop::Halted),
            last = self.read_all(&connection, export, maker) => last,
        };
        if last.is_err() {
            // The result of the running statement is not needed.
            self.pool.cancel(&cancel);
        }
        last
    }

    async fn read_all(
        &self,
        connection: &Connection,
        mut export: Export,
        maker: &Maker,
    ) -> Result<Bytes, Stop> {
        let step_max = self.statement_max + GRACE;
        let begin = self.exports.begin();
        within(step_max, connection.client.batch_execute(&begin)).await?;
        let mut driver = PostgresDriver::new(connection, &self.ids, self.pooling, Stage::Open);
        let check = timeout(step_max, export.check(&mut driver, &self.context));
        check.await.unwrap_or(Err(StoreError::TimedOut)).map_err(Stop::Failed)?;
        let client = &connection.client;
        let mut press = Press::new(&mut export.head);
        let mut rows_wanted = ROWS_FIRST;
        let source = export.source(&self.context);
        for stroke in source.strokes() {
            let sql = format!("DECLARE nouns_export NO SCROLL CURSOR FOR {}", stroke.sql);
            let declare = execute(client, Message::Unprepared(&sql, &stroke.binds));
            within(step_max, declare).await?;
            loop {
                let made = (&export, &mut press);
                let (rows, bytes) = self.step(client, made, maker, rows_wanted).await?;
                if rows < rows_wanted {
                    break;
                }
                // Aims at two chunks per fetch, by the size of the last rows; the next may be larger.
                let rows_max = ROWS_MAX.min(2 * rows_wanted);
                rows_wanted = (2 * PIECE_BYTES * rows / bytes.max(1)).clamp(1, rows_max);
            }
            within(step_max, client.batch_execute("CLOSE nouns_export")).await?;
        }
        // Nothing was changed, so the outcome of the commit does not matter.
        let _ = timeout(GRACE, client.batch_execute("COMMIT")).await;
        Ok(press.rest())
    }

    /// Fetches a batch of rows. Returns how many there were, and how many bytes they became.
    async fn step(
        &self,
        client: &Client,
        (export, press): (&Export, &mut Press),
        maker: &Maker,
        rows_wanted: usize,
    ) -> Result<(usize, usize), Stop> {
        let step_max = self.statement_max + GRACE;
        let fetch = format!("FETCH FORWARD {rows_wanted} FROM nouns_export");
        let mut rows =
            pin!(within(step_max, query(client, Message::Unprepared(&fetch, &[]))).await?);
        let (mut count, mut bytes) = (0, 0);
        loop {
            let row = within(step_max, rows.as_mut().try_next()).await?;
            let Some(row) = row else { return Ok((count, bytes)) };
            fault::point("export");
            let written = press.write(export, &self.context, &row);
            bytes += written.map_err(|broken| Stop::Failed(StoreError::Broken(broken)))?;
            count += 1;
            if let Some(piece) = press.piece() {
                maker.send(piece).await.map_err(|Halted| Stop::Halted)?;
            }
        }
    }
}

impl Exports {
    /// Extends the session's idle-in-transaction timeout, which is shorter than a client may pause.
    fn begin(&self) -> String {
        let idle = self.patience.idle + GRACE;
        format!(
            "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; \
             SET LOCAL idle_in_transaction_session_timeout = {}",
            idle.as_millis()
        )
    }
}

/// Why an export ends early.
enum Stop {
    /// The client stopped reading, or the export was cut off.
    Halted,
    Failed(StoreError),
}

/// Adds a timeout: PostgreSQL enforces `statement_timeout`, but a hung network does not.
async fn within<T>(
    time: Duration,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Stop> {
    match timeout(time, work).await {
        Ok(done) => done.map_err(|error| Stop::Failed(sort(&error).0.into())),
        Err(_) => Err(Stop::Failed(StoreError::TimedOut)),
    }
}
