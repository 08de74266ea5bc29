//! Exports on SQLite: each runs on its own thread and connection, in one read transaction (snapshot).
//!
//! Their number is bounded, and they do not use the reader pool, so they cannot starve it.
//! The one surprising thing: while an export is in flight, its snapshot keeps the WAL from being reset, so
//! the WAL grows with every write. So the writer cancels exports: first those whose clients do not read,
//! later all.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;

use super::log_reset::{ReadGate, log_pages_max};
use super::reader::{Reader, STEPS};
use crate::clock;
use crate::fault;
use crate::metrics::Metrics;
use crate::store::StoreError;
use crate::store::driver::{Columns, Driver, at_once};
use crate::store::export::{Counted, Export, Exported, Press};
use crate::store::pipe::{Halted, Maker, Patience, Pipe, cut};
use crate::store::transaction::Context;

/// The page cache of an export is small: it reads each page once.
const CACHE_KIB: u32 = 256;
/// A client that has read nothing for this long is stalled.
const STALLED: Duration = Duration::from_secs(1);
/// Stalled exports are cancelled when the WAL reaches this fraction of its limit.
const STALLED_PART: usize = 16;
/// How long the shutdown waits for cancelled exports.
const CLOSE_MAX: Duration = Duration::from_secs(1);

/// The exports in flight.
#[derive(Debug)]
pub(super) struct Exports {
    path: PathBuf,
    context: Arc<Context>,
    metrics: Arc<Metrics>,
    patience: Patience,
    statement_max: Duration,
    exports_max: usize,
    /// The WAL size, in pages, at which all exports are cancelled.
    log_pages_max: usize,
    /// Closed while the WAL is about to be reset.
    gate: Arc<ReadGate>,
    count: AtomicUsize,
    list: Mutex<Vec<Arc<Pipe>>>,
    one_ended: Condvar,
}

impl Exports {
    pub(super) fn new(
        path: PathBuf,
        context: &Arc<Context>,
        metrics: &Arc<Metrics>,
        gate: &Arc<ReadGate>,
    ) -> Arc<Self> {
        let limits = &context.model.server.limits;
        Arc::new(Self {
            path,
            patience: Patience::of(limits),
            statement_max: Duration::from_secs(limits.statement_seconds_max.into()),
            exports_max: limits.exports_max,
            log_pages_max: log_pages_max(limits),
            gate: Arc::clone(gate),
            context: Arc::clone(context),
            metrics: Arc::clone(metrics),
            count: AtomicUsize::new(0),
            list: Mutex::default(),
            one_ended: Condvar::new(),
        })
    }

    fn list(&self) -> MutexGuard<'_, Vec<Arc<Pipe>>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts an export; returns when its first chunk is ready.
    pub(super) async fn begin(self: &Arc<Self>, export: Export) -> Result<Exported, StoreError> {
        let (maker, fetcher) = Pipe::open(self.patience);
        let place = Place::take(self, maker.pipe())?;
        let thread = std::thread::Builder::new().name("export".to_owned());
        let started = thread.spawn(move || place.run(export, maker));
        started.map_err(|error| {
            StoreError::Unavailable(format!("cannot start a thread for an export: {error}"))
        })?;
        Exported::begin(fetcher).await
    }

    /// Whether exports are in flight.
    pub(super) fn is_any(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Called with the WAL size after each commit: cancels exports that keep the WAL growing.
    pub(super) fn relieve(&self, log_pages: usize) {
        if self.count.load(Ordering::Relaxed) == 0
            || log_pages < self.log_pages_max.div_ceil(STALLED_PART)
        {
            return;
        }
        let (now, is_over) = (clock::now(), log_pages >= self.log_pages_max);
        for pipe in self.list().iter() {
            if is_over || pipe.stalled_for(now) >= STALLED {
                pipe.cut(cut("the log file of the database has grown too large meanwhile"));
            }
        }
    }

    /// Cancels all exports in flight, and waits until their connections are closed.
    pub(super) fn close(&self) {
        let until = clock::now() + CLOSE_MAX;
        let mut list = self.list();
        for pipe in list.iter() {
            pipe.cut(cut("the server is ending"));
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
struct Place {
    exports: Arc<Exports>,
    pipe: Arc<Pipe>,
    _counted: Counted,
}

impl Place {
    fn take(exports: &Arc<Exports>, pipe: &Arc<Pipe>) -> Result<Self, StoreError> {
        let mut list = exports.list();
        if list.len() >= exports.exports_max {
            return Err(StoreError::Busy);
        }
        list.push(Arc::clone(pipe));
        exports.count.store(list.len(), Ordering::Relaxed);
        let _counted = Counted::new(&exports.metrics);
        Ok(Self { exports: Arc::clone(exports), pipe: Arc::clone(pipe), _counted })
    }

    /// Runs a whole export. Its connection is closed before the client sees the end.
    fn run(self, export: Export, maker: Maker) {
        let work = AssertUnwindSafe(|| self.read(export, &maker));
        let last = catch_unwind(work)
            .unwrap_or_else(|panic| Err(StoreError::broken(fault::words(&*panic))));
        drop(self);
        maker.finish(last);
    }

    fn read(&self, mut export: Export, maker: &Maker) -> Result<Bytes, StoreError> {
        let Exports { path, context, statement_max, gate, .. } = &*self.exports;
        // An export that starts now would block the reset of the WAL for minutes.
        drop(gate.enter(clock::now() + *statement_max).ok_or(StoreError::TimedOut)?);
        let pipe = Arc::clone(&self.pipe);
        let reader = Reader::open(path, context, (CACHE_KIB, STEPS))
            .and_then(|mut reader| reader.begin_long(move || pipe.is_halted()).map(|()| reader))
            .map_err(|error| StoreError::Unavailable(error.to_string()))?;
        let mut driver = reader.driver();
        reader.cut_at(clock::now() + *statement_max);
        at_once(export.check(&mut driver, context)).unwrap_or_else(waited)?;
        let press = RefCell::new(Press::new(&mut export.head));
        let is_halted = Cell::new(false);
        let write = |row: &dyn Columns| {
            fault::point("export");
            let mut press = press.borrow_mut();
            press.write(&export, context, row)?;
            if let Some(piece) = press.piece() {
                is_halted.set(maker.send_here(piece) == Err(Halted));
                // The time limit of a statement applies to each chunk; the client's time does not count.
                reader.cut_at(clock::now() + *statement_max);
            }
            Ok(())
        };
        let source = export.source(context);
        for stroke in source.strokes() {
            let read = driver.rows_once(&stroke, write, |()| is_halted.get());
            at_once(read).map_or_else(waited, |read| read.map_err(StoreError::from))?;
            if is_halted.get() {
                break;
            }
        }
        Ok(press.into_inner().rest())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut list = self.exports.list();
        list.retain(|pipe| !Arc::ptr_eq(pipe, &self.pipe));
        self.exports.count.store(list.len(), Ordering::Relaxed);
        drop(list);
        self.exports.one_ended.notify_all();
    }
}

fn waited<T>() -> Result<T, StoreError> {
    Err(StoreError::broken("SQLite made an export wait"))
}
