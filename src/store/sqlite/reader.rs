//! Read-only connections with a deadline, and a small pool of them for slow reads.

use std::fmt;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rusqlite::{Connection, OpenFlags};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::plan::{Outcome, ReadPlan};
use crate::store::context::StoreContext;
use crate::store::driver::poll_once;
use crate::store::error::{OpenError, StoreError};
use crate::store::read;
use crate::store::sqlite::connection::configure_connection;
use crate::store::sqlite::driver::SqliteDriver;
use crate::store::sqlite::wal_reset::ReadGate;
use crate::{clock, fault};

/// How many steps of SQLite's VM run between two checks of the deadline. Fewer in the pool: one step of a
/// filter may scan a long text.
pub const PROGRESS_STEPS: i32 = 4_000;
const POOL_PROGRESS_STEPS: i32 = 200;
const QUEUED_READS_MAX: usize = 1_024;
/// The page cache of a pooled connection is small: its reads are slow because they miss the cache.
const CACHE_KIB: u32 = 1_000;

/// A read-only connection.
pub struct SqliteReader {
    connection: Connection,
    context: Arc<StoreContext>,
    /// When the running statement is interrupted, in milliseconds since `began`.
    deadline: Arc<AtomicU64>,
    began: Instant,
}

impl fmt::Debug for SqliteReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SqliteReader")
    }
}

impl SqliteReader {
    pub fn open(
        path: &Path,
        context: &Arc<StoreContext>,
        (cache_kib, steps): (u32, i32),
    ) -> Result<Self, OpenError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let (deadline, began) = (Arc::new(AtomicU64::new(u64::MAX)), clock::now());
        let seen = Arc::clone(&deadline);
        let is_over = move || millis_since(began, clock::now()) >= seen.load(Ordering::Relaxed);
        let connection = Connection::open_with_flags(path, flags).and_then(|mut connection| {
            configure_connection(&connection, cache_kib)?;
            connection.pragma_update(None, "query_only", true)?;
            connection.progress_handler(steps, Some(is_over))?;
            Ok(connection)
        });
        let connection = connection
            .map_err(|error| OpenError::new(format!("{}: cannot read: {error}", path.display())))?;
        Ok(Self { connection, context: Arc::clone(context), deadline, began })
    }

    /// Opens a snapshot for all reads from now on, until the reader is dropped. A statement is interrupted
    /// when `is_over` holds. Sorts spill to disk.
    pub fn begin_snapshot(
        &mut self,
        is_over: impl Fn() -> bool + Send + 'static,
    ) -> Result<(), OpenError> {
        let (seen, began) = (Arc::clone(&self.deadline), self.began);
        let is_over =
            move || is_over() || millis_since(began, clock::now()) >= seen.load(Ordering::Relaxed);
        let begin =
            self.connection.progress_handler(POOL_PROGRESS_STEPS, Some(is_over)).and_then(|()| {
                self.connection.pragma_update(None, "temp_store", "file")?;
                self.connection.execute_batch("BEGIN")
            });
        begin.map_err(|error| OpenError::new(format!("cannot read: {error}")))
    }

    pub fn driver(&self) -> SqliteDriver<'_> {
        SqliteDriver { connection: &self.connection }
    }

    /// Sets the deadline at which a running statement is interrupted.
    pub fn set_deadline(&self, until: Instant) {
        // Rounded up, so that no statement is interrupted before its time.
        self.deadline.store(millis_since(self.began, until).saturating_add(1), Ordering::Relaxed);
    }

    /// Runs one read, interrupted at the deadline. Each statement reads its own snapshot, unless the read needs one for
    /// all of them.
    pub fn read(&mut self, read: &ReadPlan, until: Instant) -> Result<Outcome, StoreError> {
        fault::point("read");
        self.set_deadline(until);
        // Ends when it is dropped, also by a panic.
        let _snapshot = match read.needs_snapshot() {
            true => Some(self.connection.unchecked_transaction().map_err(|error| {
                StoreError::Unavailable(format!("cannot begin to read: {error}"))
            })?),
            false => None,
        };
        let mut driver = self.driver();
        poll_once(read::read(&mut driver, &self.context, read))
            .unwrap_or_else(|| Err(StoreError::internal("the SQLite driver blocked in a read")))
    }
}

fn millis_since(began: Instant, now: Instant) -> u64 {
    u64::try_from(now.saturating_duration_since(began).as_millis()).unwrap_or(u64::MAX)
}

/// A read queued for the pool.
struct QueuedRead {
    read: ReadPlan,
    until: Instant,
    answer: oneshot::Sender<PooledReadResult>,
    /// The admission permit; held until the read has ended.
    place: Option<OwnedSemaphorePermit>,
}

/// The result of a pooled read, and its duration.
#[derive(Debug)]
pub struct PooledReadResult {
    pub outcome: Result<Outcome, StoreError>,
    pub duration: Duration,
}

/// The reads that a pool is for. Each kind has its own threads, so that none delays another.
#[derive(Debug, Clone, Copy)]
pub enum PoolKind<'a> {
    /// Short reads of requests on a slow disk, and long lists.
    Requests,
    /// Scans of unknown length. Their sorts spill to disk, and they are held back before a reset of the WAL.
    Scans(&'a Arc<ReadGate>),
    /// The reads of the change feed and of the webhooks.
    Feed,
}

impl PoolKind<'_> {
    /// The name of its threads, and how many.
    fn threads(self) -> (&'static str, usize) {
        match self {
            Self::Requests => ("reader", 4),
            Self::Scans(_) => ("lister", 2),
            Self::Feed => ("feed-reader", 2),
        }
    }

    fn gate(self) -> Option<Arc<ReadGate>> {
        match self {
            Self::Scans(gate) => Some(Arc::clone(gate)),
            Self::Requests | Self::Feed => None,
        }
    }
}

/// Threads that read, each with its own connection.
#[derive(Debug)]
pub struct ReaderPool {
    queue: Mutex<Option<SyncSender<QueuedRead>>>,
}

impl ReaderPool {
    pub fn start(
        path: &Path,
        context: &Arc<StoreContext>,
        kind: PoolKind<'_>,
    ) -> Result<(Self, Vec<JoinHandle<()>>), OpenError> {
        let (name, count) = kind.threads();
        let (queue, asked) = sync_channel(QUEUED_READS_MAX);
        let asked = Arc::new(Mutex::new(asked));
        let mut threads = Vec::new();
        for number in 0..count {
            let reader = SqliteReader::open(path, context, (CACHE_KIB, POOL_PROGRESS_STEPS))?;
            let gate = kind.gate();
            if gate.is_some() {
                let set = reader.connection.pragma_update(None, "temp_store", "file");
                set.map_err(|error| OpenError::new(format!("cannot read: {error}")))?;
            }
            let asked = Arc::clone(&asked);
            let thread = std::thread::Builder::new().name(format!("{name}-{number}"));
            let thread = thread.spawn(move || run_reader(reader, &asked, gate.as_deref()));
            let failed =
                |error: std::io::Error| OpenError::new(format!("cannot start a thread: {error}"));
            threads.push(thread.map_err(failed)?);
        }
        Ok((Self { queue: Mutex::new(Some(queue)) }, threads))
    }

    pub fn read(
        &self,
        read: ReadPlan,
        until: Instant,
        place: Option<OwnedSemaphorePermit>,
    ) -> Result<oneshot::Receiver<PooledReadResult>, StoreError> {
        let (answer, answered) = oneshot::channel();
        let queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let queue = queue.as_ref().ok_or(StoreError::Busy)?;
        match queue.try_send(QueuedRead { read, until, answer, place }) {
            Ok(()) => Ok(answered),
            Err(TrySendError::Full(_)) => Err(StoreError::Busy),
            Err(TrySendError::Disconnected(_)) => {
                Err(StoreError::Unavailable("the reader threads ended".to_owned()))
            }
        }
    }

    pub fn close(&self) {
        *self.queue.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

fn run_reader(
    mut reader: SqliteReader,
    asked: &Mutex<Receiver<QueuedRead>>,
    gate: Option<&ReadGate>,
) {
    // A panic outside a read loses one result; the thread continues.
    while !matches!(
        catch_unwind(AssertUnwindSafe(|| serve_next(&mut reader, asked, gate))),
        Ok(ControlFlow::Break(()))
    ) {}
}

fn serve_next(
    reader: &mut SqliteReader,
    asked: &Mutex<Receiver<QueuedRead>>,
    gate: Option<&ReadGate>,
) -> ControlFlow<()> {
    // The mutex is held while waiting: one thread waits for work, the others for the mutex.
    let next = asked.lock().unwrap_or_else(PoisonError::into_inner).recv();
    let Ok(QueuedRead { read, until, answer, place }) = next else { return ControlFlow::Break(()) };
    fault::point("pool");
    // Held back past its deadline, the read times out below.
    let _permit = gate.and_then(|gate| gate.admit(until));
    if answer.is_closed() {
        return ControlFlow::Continue(());
    }
    let began = clock::now();
    let outcome = match began >= until {
        true => Err(StoreError::TimedOut),
        false => catch_unwind(AssertUnwindSafe(|| reader.read(&read, until)))
            .unwrap_or_else(|panic| Err(StoreError::internal(fault::panic_message(&*panic)))),
    };
    let took = clock::now().saturating_duration_since(began);
    drop(place);
    // The client may have left.
    let _ = answer.send(PooledReadResult { outcome, duration: took });
    ControlFlow::Continue(())
}

#[cfg(test)]
mod tests {
    use tokio::sync::Semaphore;

    use super::*;
    use crate::model;
    use crate::store::sql::dialect::SQLITE;

    /// An abandoned read still occupies a thread until it ends, so it must hold its permit until then.
    #[test]
    fn abandoned_read_holds_its_permit_until_it_ends() {
        let name = format!("nouns-reader-{}.db", std::process::id());
        let path = std::env::temp_dir().join(name);
        Connection::open(&path).and_then(|made| made.execute_batch("VACUUM")).unwrap();
        let model = model::read("nouns.toml", "title = \"T\"\n[resources.room]\n").unwrap();
        let context = StoreContext::new(&Arc::new(model), &SQLITE, Arc::default());
        let mut reader =
            SqliteReader::open(&path, &context, (CACHE_KIB, POOL_PROGRESS_STEPS)).unwrap();
        let (queue, asked) = sync_channel(QUEUED_READS_MAX);
        let (pool, asked) = (ReaderPool { queue: Mutex::new(Some(queue)) }, Mutex::new(asked));
        let places = Arc::new(Semaphore::new(2));
        let until = clock::now() + Duration::from_secs(600);
        let ask = || {
            let place = Arc::clone(&places).try_acquire_owned().ok();
            pool.read(ReadPlan::Ready, until, place).unwrap()
        };
        let (abandoned, mut waited_for) = (ask(), ask());
        drop(abandoned);
        assert_eq!(places.available_permits(), 0);
        assert_eq!(serve_next(&mut reader, &asked, None), ControlFlow::Continue(()));
        assert_eq!(places.available_permits(), 1);
        assert_eq!(serve_next(&mut reader, &asked, None), ControlFlow::Continue(()));
        assert!(waited_for.try_recv().is_ok());
        assert_eq!(places.available_permits(), 2);
        std::fs::remove_file(&path).unwrap();
    }
}
