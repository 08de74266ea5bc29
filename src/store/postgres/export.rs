//! Streaming exports from PostgreSQL: each on its own connection, in one read-only transaction with a
//! consistent snapshot, read in batches through a cursor.
//!
//! The number of concurrent exports per server is limited. They do not use the pool, so they cannot exhaust
//! it. Each fetch is a statement with its own timeout; the time that the client takes in between does not
//! count.
//! While an export is in flight, the database cannot vacuum rows that others change, so the timeouts protect
//! it from a client that does not read.

use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{FutureExt, TryStreamExt};
use tokio::time::timeout;
use tokio_postgres::{Client, Error};

use crate::store::error::StoreError;
use crate::store::export::{CHUNK_BYTES, ChunkBuffer, ExportRequest};
use crate::store::export_stream::{Cancelled, ExportBody, ExportSink, Exports};
use crate::store::postgres::attempt::{NETWORK_GRACE, PostgresWorkerState};
use crate::store::postgres::driver::{PostgresDriver, TransactionStage};
use crate::store::postgres::error_class::classify;
use crate::store::postgres::outgoing_statement::{OutgoingStatement, execute, query};
use crate::store::postgres::pool::DatabaseConnection;
use crate::{clock, fault};

/// The rows of the first fetch, and the maximum of any fetch.
const FETCH_ROWS_FIRST: usize = 64;
const FETCH_ROWS_MAX: usize = 2_000;

/// Starts an export, and returns when its first chunk is ready. A separate task reads the rest.
pub async fn begin(
    exports: &Arc<Exports>,
    state: &Arc<PostgresWorkerState>,
    export: ExportRequest,
) -> Result<ExportBody, StoreError> {
    let (sink, stream) = exports.begin()?;
    // Extends the session's idle-in-transaction timeout, which is shorter than a client may pause.
    let idle = exports.timeouts.idle + NETWORK_GRACE;
    let begin = format!(
        "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; \
         SET LOCAL idle_in_transaction_session_timeout = {}",
        idle.as_millis()
    );
    let task = ExportTask { state: Arc::clone(state), begin };
    tokio::task::spawn_local(task.run(export, sink));
    stream.into_body().await
}

/// One export.
struct ExportTask {
    state: Arc<PostgresWorkerState>,
    /// Begins its transaction.
    begin: String,
}

impl ExportTask {
    /// Runs a whole export. Its connection is closed before its client sees the end.
    async fn run(self, export: ExportRequest, sink: ExportSink) {
        let work = AssertUnwindSafe(self.export_until_cancelled(export, &sink)).catch_unwind();
        let last = work
            .await
            .unwrap_or_else(|panic| Err(StoreError::internal(fault::panic_message(&*panic))));
        sink.finish(last);
    }

    async fn export_until_cancelled(
        &self,
        export: ExportRequest,
        sink: &ExportSink,
    ) -> Result<Bytes, StoreError> {
        let connection =
            self.state.pool.open_connection(clock::now() + self.state.statement_max).await;
        let connection = connection.map_err(|error| {
            StoreError::Unavailable(format!("no connection to the database: {error}"))
        })?;
        let cancel = Arc::clone(&connection.cancel);
        let last = tokio::select! {
            biased;
            () = sink.control().cancelled() => Err(Cancelled.into()),
            last = self.export_rows(&connection, export, sink) => last,
        };
        if last.is_err() {
            // The result of the running statement is not needed.
            self.state.pool.spawn_cancel(&cancel);
        }
        last
    }

    async fn export_rows(
        &self,
        connection: &DatabaseConnection,
        mut export: ExportRequest,
        sink: &ExportSink,
    ) -> Result<Bytes, StoreError> {
        let step_max = self.state.statement_max + NETWORK_GRACE;
        let mut driver = PostgresDriver::new(connection, TransactionStage::Autocommit);
        let low_watermark = timeout(step_max, export.read_low_watermark(&mut driver));
        let low_watermark = low_watermark.await.unwrap_or(Err(StoreError::TimedOut))?;
        with_timeout(step_max, connection.client.batch_execute(&self.begin)).await?;
        let mut driver = PostgresDriver::new(connection, TransactionStage::Open);
        let record = timeout(step_max, export.record_start(&mut driver, low_watermark));
        record.await.unwrap_or(Err(StoreError::TimedOut))?;
        let check = timeout(step_max, export.require_parents(&mut driver, &self.state.context));
        check.await.unwrap_or(Err(StoreError::TimedOut))?;
        let client = &connection.client;
        let mut buffer = ChunkBuffer::new(&mut export.head);
        let mut rows_wanted = FETCH_ROWS_FIRST;
        let source = export.statements(&self.state.context);
        for statement in source.to_vec() {
            let sql = format!("DECLARE nouns_export NO SCROLL CURSOR FOR {}", statement.sql);
            let declare = execute(client, OutgoingStatement::Unprepared(&sql, &statement.binds));
            with_timeout(step_max, declare).await?;
            loop {
                let made = (&export, &mut buffer);
                let (rows, bytes) = self.fetch_rows(client, made, sink, rows_wanted).await?;
                if rows < rows_wanted {
                    break;
                }
                // Aims at two chunks per fetch, by the size of the last rows; the next may be larger.
                let rows_max = FETCH_ROWS_MAX.min(2 * rows_wanted);
                rows_wanted = (2 * CHUNK_BYTES * rows / bytes.max(1)).clamp(1, rows_max);
            }
            with_timeout(step_max, client.batch_execute("CLOSE nouns_export")).await?;
        }
        // Nothing was changed, so the outcome of the commit does not matter.
        let _ = timeout(NETWORK_GRACE, client.batch_execute("COMMIT")).await;
        Ok(buffer.into_last_chunk())
    }

    /// Fetches a batch of rows. Returns how many there were, and how many bytes they became.
    async fn fetch_rows(
        &self,
        client: &Client,
        (export, buffer): (&ExportRequest, &mut ChunkBuffer),
        sink: &ExportSink,
        rows_wanted: usize,
    ) -> Result<(usize, usize), StoreError> {
        let step_max = self.state.statement_max + NETWORK_GRACE;
        let fetch = format!("FETCH FORWARD {rows_wanted} FROM nouns_export");
        let mut rows = pin!(
            with_timeout(step_max, query(client, OutgoingStatement::Unprepared(&fetch, &[])))
                .await?
        );
        let (mut count, mut bytes) = (0, 0);
        loop {
            let row = with_timeout(step_max, rows.as_mut().try_next()).await?;
            let Some(row) = row else { return Ok((count, bytes)) };
            fault::point("export");
            let written = buffer.write_item(export, &self.state.context, &row);
            bytes += written.map_err(StoreError::Broken)?;
            count += 1;
            if let Some(piece) = buffer.take_full_chunk() {
                sink.send(piece).await?;
            }
        }
    }
}

/// Adds a timeout: PostgreSQL enforces `statement_timeout`, but a hung network does not.
async fn with_timeout<T>(
    time: Duration,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<T, StoreError> {
    match timeout(time, work).await {
        Ok(done) => done.map_err(|error| classify(&error).0.into()),
        Err(_) => Err(StoreError::TimedOut),
    }
}
