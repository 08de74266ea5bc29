//! Exports on SQLite: each runs on its own thread and connection, in one read transaction (snapshot).
//!
//! Their number is bounded, and they do not use the reader pool, so they cannot starve it.
//! While an export is in flight, its snapshot keeps the WAL from being reset, so the WAL grows with every
//! write. So the writer cancels exports: first those whose clients do not read, later all.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::slice;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::runtime::Builder;

use crate::metrics::Metrics;
use crate::store::context::StoreContext;
use crate::store::driver::{Driver, poll_once};
use crate::store::error::StoreError;
use crate::store::export::{ChunkBuffer, ExportRequest};
use crate::store::export_stream::{Cancelled, ExportBody, ExportSink, Exports};
use crate::store::sqlite::reader::{PROGRESS_STEPS, SqliteReader};
use crate::store::sqlite::wal_reset::{ReadGate, wal_pages_max};
use crate::store::statement::Columns;
use crate::{clock, fault};

/// The page cache of an export is small: it reads each page once.
const CACHE_KIB: u32 = 256;
/// A client that has read nothing for this long is stalled.
const STALL_TIMEOUT: Duration = Duration::from_secs(1);
/// Stalled exports are cancelled when the WAL reaches this fraction of its limit.
const STALLED_WAL_DIVISOR: usize = 16;

/// Starts and cancels the exports.
#[derive(Debug)]
pub struct SqliteExports {
    path: PathBuf,
    context: Arc<StoreContext>,
    pub in_flight: Arc<Exports>,
    statement_max: Duration,
    /// The WAL size, in pages, at which all exports are cancelled.
    wal_pages_max: usize,
    /// Closed while the WAL is about to be reset.
    gate: Arc<ReadGate>,
}

impl SqliteExports {
    pub fn new(
        path: PathBuf,
        context: &Arc<StoreContext>,
        metrics: &Arc<Metrics>,
        gate: &Arc<ReadGate>,
    ) -> Arc<Self> {
        let limits = &context.model.server.limits;
        Arc::new(Self {
            path,
            context: Arc::clone(context),
            in_flight: Exports::new(limits, metrics),
            statement_max: Duration::from_secs(limits.statement_seconds_max.into()),
            wal_pages_max: wal_pages_max(limits),
            gate: Arc::clone(gate),
        })
    }

    /// Starts an export; returns when its first chunk is ready.
    pub async fn begin(self: &Arc<Self>, export: ExportRequest) -> Result<ExportBody, StoreError> {
        let (sink, stream) = self.in_flight.begin()?;
        let exports = Arc::clone(self);
        let thread = std::thread::Builder::new().name("export".to_owned());
        let started = thread.spawn(move || exports.run(export, sink));
        started.map_err(|error| {
            StoreError::Unavailable(format!("cannot start a thread for an export: {error}"))
        })?;
        stream.into_body().await
    }

    /// Called with the WAL size after each commit: cancels exports that keep the WAL growing.
    pub fn cancel_for_wal(&self, log_pages: usize) {
        if log_pages >= self.wal_pages_max.div_ceil(STALLED_WAL_DIVISOR) {
            let is_over = log_pages >= self.wal_pages_max;
            let stalled_min = if is_over { Duration::ZERO } else { STALL_TIMEOUT };
            let why = "the WAL of the database has grown too large";
            self.in_flight.cancel_stalled(stalled_min, why);
        }
    }

    /// Runs a whole export. Its connection is closed before the client sees the end.
    fn run(&self, export: ExportRequest, sink: ExportSink) {
        let work = AssertUnwindSafe(|| self.produce(export, &sink));
        let last = catch_unwind(work)
            .unwrap_or_else(|panic| Err(StoreError::internal(fault::panic_message(&*panic))));
        sink.finish(last);
    }

    fn produce(&self, mut export: ExportRequest, sink: &ExportSink) -> Result<Bytes, StoreError> {
        let Self { path, context, statement_max, gate, .. } = self;
        // An export that starts now would block the reset of the WAL for minutes.
        drop(gate.admit(clock::now() + *statement_max).ok_or(StoreError::TimedOut)?);
        // For the time limits while the client does not read.
        let runtime = Builder::new_current_thread().enable_time().build();
        let runtime = runtime.map_err(|error| StoreError::Unavailable(error.to_string()))?;
        let control = Arc::clone(sink.control());
        let reader = SqliteReader::open(path, context, (CACHE_KIB, PROGRESS_STEPS))
            .and_then(|mut reader| {
                reader.begin_snapshot(move || control.is_cancelled()).map(|()| reader)
            })
            .map_err(|error| StoreError::Unavailable(error.to_string()))?;
        let mut driver = reader.driver();
        reader.set_deadline(clock::now() + *statement_max);
        poll_once(export.record_start(&mut driver, None)).unwrap_or_else(blocked_error)?;
        poll_once(export.require_parents(&mut driver, context)).unwrap_or_else(blocked_error)?;
        let mut buffer = ChunkBuffer::new(&mut export.head);
        let is_halted = Cell::new(false);
        let mut write = |_: usize, row: &dyn Columns| {
            fault::point("export");
            buffer.write_item(&export, context, row)?;
            if let Some(piece) = buffer.take_full_chunk() {
                is_halted.set(runtime.block_on(sink.send(piece)) == Err(Cancelled));
                // The time limit of a statement applies to each chunk; the client's time does not count.
                reader.set_deadline(clock::now() + *statement_max);
            }
            Ok(if is_halted.get() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
        };
        let source = export.statements(context);
        for statement in source.to_vec() {
            let read = driver.read_rows(slice::from_ref(&statement), &mut write);
            poll_once(read).map_or_else(blocked_error, |read| read.map_err(StoreError::from))?;
            if is_halted.get() {
                break;
            }
        }
        Ok(buffer.into_last_chunk())
    }
}

fn blocked_error<T>() -> Result<T, StoreError> {
    Err(StoreError::internal("the SQLite driver blocked in an export"))
}
