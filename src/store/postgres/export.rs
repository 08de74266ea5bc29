//! Exports from PostgreSQL: each on a connection of its own, in one transaction that reads, step by step
//! through a cursor.
//!
//! So many at most at one server, apart from the pool, which they can therefore never keep busy. Each step
//! is a statement with the time of one; what the client takes in between does not count.
//! The one surprising thing: as long as one is under way, the database cannot clean up what others change,
//! so the limits of time are what protects it from a client that does not read.

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

/// Rows of the first step, and the most of any.
const ROWS_FIRST: usize = 64;
const ROWS_MAX: usize = 2_000;

/// How many there may be, for all worker threads.
#[derive(Debug)]
pub(super) struct Exports {
    places: Arc<Semaphore>,
    patience: Patience,
    metrics: Arc<Metrics>,
}

/// One of the places, given back however the export ends.
type Place = (Counted, OwnedSemaphorePermit);

impl Exports {
    pub(super) fn new(limits: &Limits, metrics: &Arc<Metrics>) -> Self {
        let places = Arc::new(Semaphore::new(limits.exports_max));
        Self { places, patience: Patience::of(limits), metrics: Arc::clone(metrics) }
    }
}

impl Worker {
    /// Begins one, and answers when its first piece is there. The rest is read by a task beside it.
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
    /// The whole of an export. Its connection is gone before its client hears of the end.
    async fn export(self: Arc<Self>, export: Export, maker: Maker, place: Place) {
        let work = AssertUnwindSafe(self.read_or_halt(export, &maker)).catch_unwind();
        let last = work
            .await
            .unwrap_or_else(|panic| Err(Stop::Failed(StoreError::broken(fault::words(&*panic)))));
        drop(place);
        match last {
            Ok(piece) => maker.finish(Ok(piece)),
            Err(Stop::Failed(error)) => maker.finish(Err(error)),
            // There is nobody left to tell, or they know.
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
            // What it may still be doing is for nobody.
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
                // As many as make two pieces, by what the last ones had; the next may be longer.
                let rows_max = ROWS_MAX.min(2 * rows_wanted);
                rows_wanted = (2 * PIECE_BYTES * rows / bytes.max(1)).clamp(1, rows_max);
            }
            within(step_max, client.batch_execute("CLOSE nouns_export")).await?;
        }
        // Nothing was changed; how it ends makes no difference to what was read.
        let _ = timeout(GRACE, client.batch_execute("COMMIT")).await;
        Ok(press.rest())
    }

    /// Fetches some rows, and says how many there were and how many bytes they made.
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
    /// The session's own limit for idle transactions is shorter than a client may take.
    fn begin(&self) -> String {
        let idle = self.patience.idle + GRACE;
        format!(
            "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; \
             SET LOCAL idle_in_transaction_session_timeout = {}",
            idle.as_millis()
        )
    }
}

/// Why an export goes no further.
enum Stop {
    /// Nobody fetches it any more, or it was cut.
    Halted,
    Failed(StoreError),
}

/// The database stops a statement by itself; a network that hangs does not.
async fn within<T>(
    time: Duration,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, Stop> {
    match timeout(time, work).await {
        Ok(done) => done.map_err(|error| Stop::Failed(sort(&error).0.into())),
        Err(_) => Err(Stop::Failed(StoreError::TimedOut)),
    }
}
