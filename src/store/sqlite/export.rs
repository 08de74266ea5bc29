//! Exports on SQLite: each runs on its own thread and connection, in one read transaction (snapshot).
//!
//! Their number is bounded, and they do not use the reader pool, so they cannot starve it.
//! While an export is in flight, its snapshot keeps the WAL from being reset, so the WAL grows with every
//! write. So the writer cancels exports: first those whose clients do not read, later all.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;

use crate::metrics::Metrics;
use crate::store::byte_channel::{
    ByteChannel, Cancelled, ChannelTimeouts, Producer, cancelled_error,
};
use crate::store::context::StoreContext;
use crate::store::driver::{Driver, poll_once};
use crate::store::error::StoreError;
use crate::store::export::{ChunkBuffer, ExportBody, ExportCountGuard, ExportRequest};
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
/// How long the shutdown waits for cancelled exports.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The exports in flight.
#[derive(Debug)]
pub struct SqliteExports {
    path: PathBuf,
    context: Arc<StoreContext>,
    metrics: Arc<Metrics>,
    timeouts: ChannelTimeouts,
    statement_max: Duration,
    exports_max: usize,
    /// The WAL size, in pages, at which all exports are cancelled.
    wal_pages_max: usize,
    /// Closed while the WAL is about to be reset.
    gate: Arc<ReadGate>,
    count: AtomicUsize,
    list: Mutex<Vec<Arc<ByteChannel>>>,
    one_ended: Condvar,
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
            timeouts: ChannelTimeouts::from_limits(limits),
            statement_max: Duration::from_secs(limits.statement_seconds_max.into()),
            exports_max: limits.exports_max,
            wal_pages_max: wal_pages_max(limits),
            gate: Arc::clone(gate),
            context: Arc::clone(context),
            metrics: Arc::clone(metrics),
            count: AtomicUsize::new(0),
            list: Mutex::default(),
            one_ended: Condvar::new(),
        })
    }

    fn channels(&self) -> MutexGuard<'_, Vec<Arc<ByteChannel>>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts an export; returns when its first chunk is ready.
    pub async fn begin(self: &Arc<Self>, export: ExportRequest) -> Result<ExportBody, StoreError> {
        let (maker, fetcher) = ByteChannel::new_pair(self.timeouts);
        let place = SqliteExportSlot::acquire(self, maker.channel())?;
        let thread = std::thread::Builder::new().name("export".to_owned());
        let started = thread.spawn(move || place.run(export, maker));
        started.map_err(|error| {
            StoreError::Unavailable(format!("cannot start a thread for an export: {error}"))
        })?;
        ExportBody::from_first_chunk(fetcher).await
    }

    /// Whether exports are in flight.
    pub fn has_any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Called with the WAL size after each commit: cancels exports that keep the WAL growing.
    pub fn cancel_for_wal(&self, log_pages: usize) {
        if self.count.load(Ordering::Relaxed) == 0
            || log_pages < self.wal_pages_max.div_ceil(STALLED_WAL_DIVISOR)
        {
            return;
        }
        let (now, is_over) = (clock::now(), log_pages >= self.wal_pages_max);
        for pipe in self.channels().iter() {
            if is_over || pipe.stalled_for(now) >= STALL_TIMEOUT {
                pipe.cancel(cancelled_error("the WAL of the database has grown too large"));
            }
        }
    }

    /// Cancels all exports in flight, and waits until their connections are closed.
    pub fn close(&self) {
        let until = clock::now() + CLOSE_TIMEOUT;
        let mut list = self.channels();
        for pipe in list.iter() {
            pipe.cancel(cancelled_error("the server is shutting down"));
        }
        while !list.is_empty() {
            let wait = until.saturating_duration_since(clock::now());
            if wait.is_zero() {
                return;
            }
            list =
                self.one_ended.wait_timeout(list, wait).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// A slot of the limit, released however the export ends.
struct SqliteExportSlot {
    exports: Arc<SqliteExports>,
    channel: Arc<ByteChannel>,
    _count_guard: ExportCountGuard,
}

impl SqliteExportSlot {
    fn acquire(exports: &Arc<SqliteExports>, pipe: &Arc<ByteChannel>) -> Result<Self, StoreError> {
        let mut list = exports.channels();
        if list.len() >= exports.exports_max {
            return Err(StoreError::Busy);
        }
        list.push(Arc::clone(pipe));
        exports.count.store(list.len(), Ordering::Relaxed);
        let _counted = ExportCountGuard::new(&exports.metrics);
        Ok(Self { exports: Arc::clone(exports), channel: Arc::clone(pipe), _count_guard: _counted })
    }

    /// Runs a whole export. Its connection is closed before the client sees the end.
    fn run(self, export: ExportRequest, maker: Producer) {
        let work = AssertUnwindSafe(|| self.produce(export, &maker));
        let last = catch_unwind(work)
            .unwrap_or_else(|panic| Err(StoreError::internal(fault::panic_message(&*panic))));
        drop(self);
        maker.finish(last);
    }

    fn produce(&self, mut export: ExportRequest, maker: &Producer) -> Result<Bytes, StoreError> {
        let SqliteExports { path, context, statement_max, gate, .. } = &*self.exports;
        // An export that starts now would block the reset of the WAL for minutes.
        drop(gate.admit(clock::now() + *statement_max).ok_or(StoreError::TimedOut)?);
        let pipe = Arc::clone(&self.channel);
        let reader = SqliteReader::open(path, context, (CACHE_KIB, PROGRESS_STEPS))
            .and_then(|mut reader| {
                reader.begin_snapshot(move || pipe.is_cancelled()).map(|()| reader)
            })
            .map_err(|error| StoreError::Unavailable(error.to_string()))?;
        let mut driver = reader.driver();
        reader.set_deadline(clock::now() + *statement_max);
        poll_once(export.require_parents(&mut driver, context)).unwrap_or_else(blocked_error)?;
        let press = RefCell::new(ChunkBuffer::new(&mut export.head));
        let is_halted = Cell::new(false);
        let write = |row: &dyn Columns| {
            fault::point("export");
            let mut press = press.borrow_mut();
            press.write_item(&export, context, row)?;
            if let Some(piece) = press.take_full_chunk() {
                is_halted.set(maker.blocking_send(piece) == Err(Cancelled));
                // The time limit of a statement applies to each chunk; the client's time does not count.
                reader.set_deadline(clock::now() + *statement_max);
            }
            Ok(())
        };
        let source = export.statements(context);
        for stroke in source.to_vec() {
            let read = driver.query_uncached(&stroke, write, |()| is_halted.get());
            poll_once(read).map_or_else(blocked_error, |read| read.map_err(StoreError::from))?;
            if is_halted.get() {
                break;
            }
        }
        Ok(press.into_inner().into_last_chunk())
    }
}

impl Drop for SqliteExportSlot {
    fn drop(&mut self) {
        let mut list = self.exports.channels();
        list.retain(|pipe| !Arc::ptr_eq(pipe, &self.channel));
        self.exports.count.store(list.len(), Ordering::Relaxed);
        drop(list);
        self.exports.one_ended.notify_all();
    }
}

fn blocked_error<T>() -> Result<T, StoreError> {
    Err(StoreError::internal("the SQLite driver blocked in an export"))
}
