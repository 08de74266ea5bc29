//! Checkpoints: copying the frames of the WAL into the database file.
//!
//! The writer makes them itself while the WAL is short, between two commits, so that SQLite can begin the WAL
//! again. A reader that keeps its snapshot for long (a backup, an export) lets the WAL grow to any length, and
//! the checkpoint after it would hold up all writes for as long as it copies. Such a checkpoint runs beside the
//! writes (`LongCheckpoint`): a PASSIVE checkpoint takes no lock that a commit needs. It goes on until few
//! frames are left, which the writer then copies.
//!
//! SQLite syncs the database file only with a checkpoint that reaches the end of the WAL, which one beside
//! writes does not. So it syncs the file by itself, and the writer's sync after that has little to write.
//! Durability does not depend on it: frames are overwritten only after SQLite's own sync.

use std::cell::{Cell, OnceCell, RefCell};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, Error, ErrorCode, OpenFlags, Row};

use crate::clock;
use crate::store::sqlite::connection::{configure_connection, sync_fully};

/// A checkpoint that waits for no reader and no writer.
pub const PASSIVE: &str = "PRAGMA wal_checkpoint(PASSIVE)";
/// A checkpoint that waits for all readers, so that the next commit begins the WAL again.
pub const RESTART: &str = "PRAGMA wal_checkpoint(RESTART)";
/// Each round copies what was written during the one before. A server that writes faster than the disk copies
/// would never be done.
const ROUNDS_MAX: usize = 16;
/// The page cache of its connection: a checkpoint reads no page of the database.
const CACHE_KIB: u32 = 64;

/// The row that a checkpoint returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CheckpointResult {
    /// Whether a RESTART could not reset the WAL.
    pub is_blocked: bool,
    /// The frames in the WAL.
    pub frames: usize,
    /// How many of them are in the database file, from the first one on.
    pub checkpointed: usize,
}

impl CheckpointResult {
    fn read(row: &Row<'_>) -> rusqlite::Result<Option<Self>> {
        let (frames, checkpointed): (i64, i64) = (row.get(1)?, row.get(2)?);
        // Negative while another connection makes a checkpoint.
        let counts = usize::try_from(frames).ok().zip(usize::try_from(checkpointed).ok());
        let is_blocked = row.get(0)?;
        Ok(counts.map(|(frames, checkpointed)| Self { is_blocked, frames, checkpointed }))
    }
}

/// Makes a checkpoint; `None` if another connection makes one at this moment.
pub fn checkpoint(
    connection: &Connection,
    pragma: &str,
) -> rusqlite::Result<Option<CheckpointResult>> {
    connection.query_row(pragma, [], CheckpointResult::read)
}

/// Whether a checkpoint failed because of the disk: after a failed sync, it is unknown what the file has.
pub fn is_disk_failure(error: &Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::SystemIoFailure)
}

/// The checkpoint that runs beside the writes, at most one at a time. Owned by the writer thread.
#[derive(Debug)]
pub struct LongCheckpoint {
    path: PathBuf,
    /// The number of frames that the writer copies by itself.
    frames_max: usize,
    running: RefCell<Option<JoinHandle<LongCheckpointResult>>>,
    /// The frames that are in the database file, as far as the writer knows.
    checkpointed: Cell<usize>,
    /// The length of the WAL at which the next one begins, after one that a reader has blocked.
    next_frames: Cell<usize>,
    /// To sync the database file. It is never closed before the connections of this process are: closing any
    /// handle on the file would release SQLite's locks.
    file: OnceCell<Arc<File>>,
}

/// A checkpoint that has ended: how far it came, and how long it took.
type LongCheckpointResult = Result<(CheckpointResult, Duration), LongCheckpointError>;

#[derive(Debug)]
enum LongCheckpointError {
    Engine(Error),
    File(io::Error),
}

impl From<Error> for LongCheckpointError {
    fn from(error: Error) -> Self {
        Self::Engine(error)
    }
}

/// What the writer has to know of the checkpoint beside it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LongCheckpointState {
    Idle,
    Running,
    Ended(Duration),
    /// The disk failed.
    Failed(String),
}

impl LongCheckpoint {
    pub fn new(path: PathBuf, frames_max: usize) -> Self {
        Self {
            path,
            frames_max,
            running: RefCell::new(None),
            checkpointed: Cell::new(0),
            next_frames: Cell::new(0),
            file: OnceCell::new(),
        }
    }

    /// The state, and the result of one that has ended since the last call.
    pub fn poll(&self) -> LongCheckpointState {
        let mut running = self.running.borrow_mut();
        match running.take() {
            None => LongCheckpointState::Idle,
            Some(thread) if !thread.is_finished() => {
                *running = Some(thread);
                LongCheckpointState::Running
            }
            Some(thread) => self.finish(thread),
        }
    }

    fn finish(&self, thread: JoinHandle<LongCheckpointResult>) -> LongCheckpointState {
        match thread.join() {
            Ok(Ok((result, took))) => {
                self.record(result);
                self.next_frames.set(result.frames.saturating_add(self.frames_max / 4));
                LongCheckpointState::Ended(took)
            }
            Ok(Err(LongCheckpointError::Engine(error))) if !is_disk_failure(&error) => {
                // Such as too many open files: the next one may succeed.
                self.next_frames.set(self.next_frames.get().saturating_add(self.frames_max));
                LongCheckpointState::Idle
            }
            Ok(Err(LongCheckpointError::Engine(error))) => {
                LongCheckpointState::Failed(error.to_string())
            }
            Ok(Err(LongCheckpointError::File(error))) => {
                LongCheckpointState::Failed(error.to_string())
            }
            // It has logged the panic.
            Err(_) => LongCheckpointState::Idle,
        }
    }

    /// Waits for one that runs, so that its connection closes before that of the writer.
    pub fn wait(&self) {
        if let Some(thread) = self.running.borrow_mut().take() {
            self.finish(thread);
        }
    }

    pub fn is_running(&self) -> bool {
        self.running.borrow().is_some()
    }

    /// Records the result of a checkpoint.
    pub fn record(&self, result: CheckpointResult) {
        self.checkpointed.set(result.checkpointed);
    }

    /// Whether the frames that are not in the database file are too many for the writer.
    pub fn is_long(&self, frames: usize) -> bool {
        if frames < self.checkpointed.get() {
            // The WAL has begun again.
            self.checkpointed.set(0);
            self.next_frames.set(0);
        }
        frames - self.checkpointed.get() > self.frames_max
    }

    /// Starts one for a WAL of this length, unless a reader has blocked the last one and the WAL has not grown much
    /// since. Fails where no thread can be started.
    pub fn start(&self, frames: usize) -> io::Result<()> {
        if frames < self.next_frames.get() {
            return Ok(());
        }
        let file = self.file()?;
        let (path, left_max) = (self.path.clone(), self.frames_max / 4);
        let thread = std::thread::Builder::new().name("checkpoint".to_owned());
        let started = thread.spawn(move || {
            let began = clock::now();
            let result = run(&path, &file, left_max)?;
            Ok((result, clock::now().saturating_duration_since(began)))
        })?;
        *self.running.borrow_mut() = Some(started);
        Ok(())
    }

    fn file(&self) -> io::Result<Arc<File>> {
        if let Some(file) = self.file.get() {
            return Ok(Arc::clone(file));
        }
        let opened = Arc::new(File::options().write(true).open(&self.path)?);
        Ok(Arc::clone(self.file.get_or_init(|| opened)))
    }
}

/// Copies frames until at most `left_max` are left, or a reader still needs the others.
fn run(path: &Path, file: &File, left_max: usize) -> Result<CheckpointResult, LongCheckpointError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    configure_connection(&connection, CACHE_KIB)?;
    sync_fully(&connection)?;
    // Only the writer's connection makes the last checkpoint.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    let mut before = 0;
    let mut result = CheckpointResult { is_blocked: false, frames: 0, checkpointed: 0 };
    for _ in 0..ROUNDS_MAX {
        let Some(round) = checkpoint(&connection, PASSIVE)? else { break };
        result = round;
        if result.checkpointed == before {
            break;
        }
        file.sync_data().map_err(LongCheckpointError::File)?;
        if result.frames - result.checkpointed <= left_max {
            break;
        }
        before = result.checkpointed;
    }
    Ok(result)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::sqlite::connection::count_wal_pages;

    const FRAMES_MAX: usize = 40;

    struct Database {
        path: PathBuf,
        writer: Connection,
        wal_pages: Arc<std::sync::atomic::AtomicUsize>,
    }

    impl Database {
        fn create(name: &str) -> Self {
            let file = format!("nouns-checkpoint-{name}-{}.db", std::process::id());
            let path = std::env::temp_dir().join(file);
            let mut writer = Connection::open(&path).unwrap();
            writer.pragma_update(None, "journal_mode", "wal").unwrap();
            let wal_pages = count_wal_pages(&mut writer).unwrap();
            writer.execute_batch("CREATE TABLE texts (text TEXT)").unwrap();
            Self { path, writer, wal_pages }
        }

        fn wal_frames(&self) -> usize {
            self.wal_pages.load(std::sync::atomic::Ordering::Relaxed)
        }

        fn write(&self) {
            self.writer.execute("INSERT INTO texts VALUES (hex(randomblob(9000)))", []).unwrap();
        }

        /// Writes more frames than the writer copies itself; returns the length of the WAL.
        fn write_many(&self) -> usize {
            let enough = self.wal_frames() + FRAMES_MAX + 1;
            while self.wal_frames() < enough {
                self.write();
            }
            self.wal_frames()
        }

        fn read_snapshot(&self) -> Connection {
            let reader = Connection::open(&self.path).unwrap();
            reader.execute_batch("BEGIN").unwrap();
            reader.query_row("SELECT count(*) FROM texts", [], |_| Ok(())).unwrap();
            reader
        }
    }

    impl Drop for Database {
        fn drop(&mut self) {
            for end in ["", "-wal", "-shm"] {
                let _ = std::fs::remove_file(format!("{}{end}", self.path.display()));
            }
        }
    }

    fn wait(long: &LongCheckpoint) -> LongCheckpointState {
        loop {
            match long.poll() {
                LongCheckpointState::Running => std::thread::yield_now(),
                state => return state,
            }
        }
    }

    #[test]
    fn long_checkpoint_copies_what_no_reader_needs() {
        let database = Database::create("reader");
        let long = LongCheckpoint::new(database.path.clone(), FRAMES_MAX);
        let first = database.write_many();
        let reader = database.read_snapshot();
        let frames = database.write_many();
        assert!(long.is_long(frames));
        long.start(frames).unwrap();
        assert!(matches!(wait(&long), LongCheckpointState::Ended(_)));
        assert_eq!(long.checkpointed.get(), first, "up to the snapshot of the reader");
        assert_eq!(wait(&long), LongCheckpointState::Idle);
        // The reader blocks the others, so that another attempt waits for a longer WAL.
        long.start(frames).unwrap();
        assert!(!long.is_running());
        drop(reader);
        let frames = database.write_many();
        assert!(long.is_long(frames));
        long.start(frames).unwrap();
        assert!(matches!(wait(&long), LongCheckpointState::Ended(_)));
        assert!(!long.is_long(frames));
        // The writer begins the WAL again.
        database.write();
        assert!(database.wal_frames() < FRAMES_MAX, "{}", database.wal_frames());
        assert!(!long.is_long(database.wal_frames()));
        assert_eq!(long.checkpointed.get(), 0);
    }

    #[test]
    fn long_checkpoint_without_its_file_fails_and_starts_nothing() {
        let long = LongCheckpoint::new(PathBuf::from("/nouns/none.db"), FRAMES_MAX);
        assert!(long.start(FRAMES_MAX).is_err());
        assert_eq!(long.poll(), LongCheckpointState::Idle);
    }
}
