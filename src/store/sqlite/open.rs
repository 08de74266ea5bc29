//! Opening a database file for serving: lock, checks, migration, threads.
//!
//! Every failure is one message with a remedy, and leaves nothing behind: a file that did not exist before
//! does not exist after a failed start.

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::hooks::Wal;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use super::driver::SqliteDriver;
use super::export::Exports;
use super::files::{Files, LOCK, MODE};
use super::log_reset::{LogReset, ReadGate};
use super::queue::Queue;
use super::reader::Pool;
use super::recovery::{self, StartupCheckpoint};
use super::writer::Writer;
use super::{OpenError, Shared};
use crate::log::{Level, Log};
use crate::metrics::Metrics;
use crate::model::Model;
use crate::store::claims::Claims;
use crate::store::driver::{Driver, Failure, at_once};
use crate::store::ids::Ids;
use crate::store::schema::{self, Mismatch};
use crate::store::sql::SQLITE;
use crate::store::sweep::DoubtLog;
use crate::store::transaction::Context;

/// "NOUN": marks a database as ours.
const APPLICATION_ID: i64 = 0x4E4F_554E;
/// The format of our system tables; a larger number was written by a newer version.
const FORMAT: i64 = 1;
/// How long to wait for another process's lock.
pub(super) const BUSY_MAX: Duration = Duration::from_secs(5);
/// Databases up to this size get an integrity check at every start.
const CHECKED_BYTES_MAX: u64 = 16 << 20;
/// The page cache of the writer's connection.
pub(super) const CACHE_KIB: u32 = 16_000;

pub(in crate::store) fn open(
    path: &Path,
    model: &Arc<Model>,
    log: &Log,
    metrics: &Arc<Metrics>,
) -> Result<Arc<Shared>, OpenError> {
    let file = Files::find(path)?;
    locked(&file, |lock| open_locked(&file, model, (log, metrics), lock))
}

/// Opens something with the lock of a server.
pub(super) fn locked<T>(
    file: &Files,
    open: impl FnOnce(File) -> Result<T, OpenError>,
) -> Result<T, OpenError> {
    let (lock, lock_is_new) = lock(file)?;
    let was_there = Files::ENDS.map(|end| file.beside(end).symlink_metadata().is_ok());
    let opened = file.check().and_then(|()| open(lock));
    if opened.is_err() {
        // Beside an existing database, a WAL may hold what a command has committed meanwhile: SQLite removes
        // the WAL when the last connection is closed.
        let [database_was_there, ..] = was_there;
        for (end, was_there) in Files::ENDS.iter().zip(was_there) {
            if !database_was_there && !was_there {
                let _ = fs::remove_file(file.beside(end));
            }
        }
        if lock_is_new {
            let _ = fs::remove_file(file.beside(LOCK));
        }
    }
    opened
}

fn open_locked(
    files: &Files,
    model: &Arc<Model>,
    (log, metrics): (&Log, &Arc<Metrics>),
    lock: File,
) -> Result<Arc<Shared>, OpenError> {
    let Connected { connection, log_pages, checkpoint } = connect(files, model)?;
    if checkpoint == StartupCheckpoint::Blocked {
        let message =
            "another process reads the database, so the log file an earlier server left stays";
        log.event(Level::Warning, message, &[("database", &files.shown)]);
    }
    if let Some(mode) = files.mode_for_others() {
        let (shown, mode) = (&files.shown, format!("{mode:03o}"));
        let remedy = format!("chmod 600 {shown} {shown}-wal {shown}-shm");
        let message = "others on this machine can read the database, which holds password hashes";
        log.event(Level::Warning, message, &[("mode", &mode), ("remedy", &remedy)]);
    }
    let context = Context::counted(model, &SQLITE, Arc::clone(&metrics.damaged_items));
    let (pool, mut readers) = Pool::start(&files.real, &context)?;
    let gate = Arc::new(ReadGate::default());
    let (wide, listers) = Pool::start_wide(&files.real, &context, &gate)?;
    readers.extend(listers);
    let exports = Exports::new(files.real.clone(), &context, metrics, &gate);
    let counted = metrics.writer();
    let (queue, jobs) = Queue::new(&counted);
    let stopped = Arc::clone(&counted.stopped);
    let writer = Writer {
        connection,
        context: Arc::clone(&context),
        ids: Ids::default(),
        jobs,
        stopped: Arc::clone(&stopped),
        log_pages,
        log_reset: LogReset::new(gate, &model.server.limits),
        exports: Arc::clone(&exports),
        log: log.clone(),
        metrics: Arc::clone(metrics),
        counted,
        doubts: DoubtLog::default(),
    };
    let thread = std::thread::Builder::new().name("writer".to_owned()).spawn(move || writer.work());
    let thread = thread.map_err(|error| OpenError(format!("cannot start a thread: {error}")))?;
    let limits = &model.server.limits;
    Ok(Arc::new(Shared {
        path: files.real.clone(),
        context,
        queue,
        pool,
        wide,
        exports,
        stopped,
        readers: readers.into(),
        writer: vec![thread].into(),
        statement_max: Duration::from_secs(limits.statement_seconds_max.into()),
        claims: Claims::new().map_err(|error| OpenError(format!("no randomness: {error}")))?,
        _lock: lock,
    }))
}

/// Only one server at a time.
fn lock(files: &Files) -> Result<(File, bool), OpenError> {
    let shown = &files.shown;
    try_lock(files)?.ok_or_else(|| {
        OpenError(format!(
            "another server is using {shown}; stop it first, or name another --database"
        ))
    })
}

/// The lock of a server, and whether its file is new; nothing when another process has it. A file of its own
/// holds the lock, because closing any handle on the database file would let go of SQLite's own locks.
fn try_lock(files: &Files) -> Result<Option<(File, bool)>, OpenError> {
    let path = files.beside(LOCK);
    let shown = &files.shown;
    loop {
        let is_new = path.symlink_metadata().is_err();
        let open = File::options().create(true).truncate(false).write(true).mode(MODE).open(&path);
        let file = open.map_err(|error| {
            OpenError(match error.kind() {
                ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied => format!(
                    "cannot write beside {shown} ({error}); make the folder writable, or name another --database"
                ),
                ErrorKind::StorageFull => full(shown),
                _ => format!("cannot open {shown}{LOCK} ({error}); name another --database"),
            })
        })?;
        match file.try_lock() {
            // A server that failed to start may have removed the file in the meantime.
            Ok(()) if !is_same(&file, &path) => {}
            Ok(()) => return Ok(Some((file, is_new))),
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => {
                return Err(OpenError(format!(
                    "cannot lock {shown}{LOCK} ({error}); a network folder is no place for it: name another --database"
                )));
            }
        }
    }
}

fn cannot_create(shown: &str, error: &io::Error) -> OpenError {
    OpenError(match error.kind() {
        ErrorKind::StorageFull => full(shown),
        _ => format!(
            "cannot open {shown} ({error}); check that the folder exists and is writable, or name another --database"
        ),
    })
}

fn is_same(file: &File, path: &Path) -> bool {
    let (held, named) = (file.metadata(), path.metadata());
    held.ok()
        .zip(named.ok())
        .is_some_and(|(held, named)| (held.dev(), held.ino()) == (named.dev(), named.ino()))
}

pub(super) fn full(shown: &str) -> String {
    format!("the disk that holds {shown} is full; free some space and start again")
}

/// The settings of every connection; `cache_kib` is the size of its page cache.
pub(super) fn prepare(connection: &Connection, cache_kib: u32) -> rusqlite::Result<()> {
    connection.busy_timeout(BUSY_MAX)?;
    connection.set_prepared_statement_cache_capacity(512);
    // Without it SQLite prepares a statement with a bound LIMIT again at every use.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "temp_store", "memory")?;
    connection.pragma_update(None, "cache_size", -i64::from(cache_kib))
}

/// The writer's connection to a migrated database.
struct Connected {
    connection: Connection,
    /// Pages in the WAL, as of the last commit.
    log_pages: Arc<AtomicUsize>,
    checkpoint: StartupCheckpoint,
}

/// Opens the database and checks whose it is. An existing WAL is left alone if the connection is closed
/// before recovery.
fn open_inspected(files: &Files) -> Result<(Connection, bool), OpenError> {
    let explain = |error: rusqlite::Error| explain(&files.shown, &error);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    files.create_private().map_err(|error| cannot_create(&files.shown, &error))?;
    let has_log = recovery::has_log(files);
    let connection = Connection::open_with_flags(&files.real, flags).map_err(explain)?;
    connection
        .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, has_log)
        .map_err(explain)?;
    prepare(&connection, CACHE_KIB).map_err(explain)?;
    let is_empty = inspect(files, &connection)?;
    Ok((connection, is_empty))
}

/// Opens the database after recovery: what an earlier process left in the WAL is made durable and
/// checkpointed first.
fn open_recovered(files: &Files) -> Result<(Connection, bool, StartupCheckpoint), OpenError> {
    let (connection, is_empty) = open_inspected(files)?;
    if !recovery::has_log(files) {
        check_pages(files, &connection)?;
        return Ok((connection, is_empty, StartupCheckpoint::Done));
    }
    recovery::rewrite_log(files, &connection)?;
    drop(connection);
    let (connection, is_empty) = open_inspected(files)?;
    check_pages(files, &connection)?;
    let checkpoint = recovery::checkpoint(files, &connection)?;
    Ok((connection, is_empty, checkpoint))
}

/// For commands, before they append to the log: the same while no server has the database. A server that
/// has it has done it; where nobody can tell whether one has it, nothing may be appended.
pub(super) fn recover_unserved(files: &Files) -> Result<(), OpenError> {
    if !recovery::has_log(files) {
        return Ok(());
    }
    match try_lock(files)? {
        Some(_lock) => open_recovered(files).map(drop),
        None => Ok(()),
    }
}

fn connect(files: &Files, model: &Model) -> Result<Connected, OpenError> {
    let explain = |error: rusqlite::Error| explain(&files.shown, &error);
    let (mut connection, is_empty, checkpoint) = open_recovered(files)?;
    if journal_in_log(&connection).map_err(explain)? != "wal" {
        let shown = &files.shown;
        return Err(OpenError(format!(
            "{shown}: the file system cannot share memory (a network folder?); name another --database"
        )));
    }
    sync_fully(&connection).map_err(explain)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false).map_err(explain)?;
    connection.pragma_update(None, "journal_size_limit", 64 << 20).map_err(explain)?;
    // Replaces SQLite's automatic checkpoints: the writer makes them, and handles their errors.
    let log_pages = Arc::new(AtomicUsize::new(0));
    let pages = Arc::clone(&log_pages);
    let count = move |_: &mut Wal, count: i32| {
        pages.store(usize::try_from(count).unwrap_or(0), Ordering::Relaxed);
        Ok(())
    };
    connection.wal_hook(Some(count)).map_err(explain)?;
    bring_up(files, &connection, model, is_empty)?;
    Ok(Connected { connection, log_pages, checkpoint })
}

/// Durability: an acknowledged write is on disk, because every commit is synced.
pub(super) fn sync_fully(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "synchronous", "full")?;
    // macOS only: its fsync leaves data in the drive's cache.
    connection.pragma_update(None, "fullfsync", true)?;
    connection.pragma_update(None, "checkpoint_fullfsync", true)
}

/// Enables WAL mode and returns the resulting mode. It reads to the end: SQLite returns the row first and
/// then commits the change, which may fail.
fn journal_in_log(connection: &Connection) -> rusqlite::Result<String> {
    let mut pragma = connection.prepare("PRAGMA journal_mode = wal")?;
    let modes = pragma.query_map([], |row| row.get(0))?.collect::<Result<Vec<String>, _>>()?;
    Ok(modes.into_iter().next().unwrap_or_default())
}

/// Checks whose database it is. True if it is empty.
pub(super) fn inspect(files: &Files, connection: &Connection) -> Result<bool, OpenError> {
    let explain = |error: rusqlite::Error| explain(&files.shown, &error);
    let number =
        |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0)).map_err(explain);
    let shown = &files.shown;
    match (number("PRAGMA application_id")?, number("PRAGMA user_version")?) {
        (APPLICATION_ID, FORMAT) => Ok(false),
        (APPLICATION_ID, format) if format > FORMAT => Err(schema::newer(shown, format, FORMAT)),
        (0, 0) if number("SELECT count(*) FROM sqlite_master")? == 0 => Ok(true),
        _ => Err(OpenError(format!(
            "{shown} is a database of another program; name another --database"
        ))),
    }
}

/// Checks for damage, without reading a large file whole.
fn check_pages(files: &Files, connection: &Connection) -> Result<(), OpenError> {
    let explain = |error: rusqlite::Error| explain(&files.shown, &error);
    let number =
        |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0)).map_err(explain);
    let bytes = fs::metadata(&files.real).map_or(0, |metadata| metadata.len());
    let pages = number("PRAGMA page_count")?.saturating_mul(number("PRAGMA page_size")?);
    let has_log = fs::metadata(files.beside("-wal")).is_ok_and(|metadata| metadata.len() > 0);
    if !has_log && bytes < u64::try_from(pages).unwrap_or(0) {
        return Err(damaged(&files.shown, "it has been cut off"));
    }
    if bytes <= CHECKED_BYTES_MAX {
        let verdict: String =
            connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(explain)?;
        if verdict != "ok" {
            return Err(damaged(&files.shown, &verdict));
        }
    }
    Ok(())
}

/// Migrates in one transaction, all or nothing. It always writes, so that a full or read-only disk is found
/// now and not by the first request.
fn bring_up(
    files: &Files,
    connection: &Connection,
    model: &Model,
    is_empty: bool,
) -> Result<(), OpenError> {
    let explain = |error: rusqlite::Error| explain(&files.shown, &error);
    let run = |sql: &str| {
        #[cfg(test)]
        crate::store::faulty::statement(sql)?;
        connection.execute_batch(sql)
    };
    run("BEGIN IMMEDIATE").map_err(explain)?;
    let ids = Ids::default();
    let driver = SqliteDriver { connection, ids: &ids };
    #[cfg(test)]
    let driver = crate::store::faulty::Faulty(driver);
    let mut driver = driver;
    let done = at_once(async {
        match is_empty {
            true => schema::create(&mut driver, model, &SQLITE).await?,
            // One server owns the file, so there are no other models.
            false => drop(schema::extend(&mut driver, model, &SQLITE, &[]).await?),
        }
        let now = driver.now().to_string();
        schema::remember(&mut driver, &SQLITE, "started_at", &now).await?;
        Ok::<(), Mismatch>(())
    });
    let done = done.unwrap_or(Err(Mismatch::Failed(Failure::TimedOut)));
    let done = done.map_err(|mismatch| mismatch.describe(&files.shown));
    let done = done.and_then(|()| {
        if is_empty {
            connection.pragma_update(None, "application_id", APPLICATION_ID).map_err(explain)?;
            connection.pragma_update(None, "user_version", FORMAT).map_err(explain)?;
        }
        run("COMMIT").map_err(explain)
    });
    // Statements prepared before the migration are obsolete.
    connection.flush_prepared_statement_cache();
    if done.is_err() && !connection.is_autocommit() {
        let _ = connection.execute_batch("ROLLBACK");
    }
    done
}

fn damaged(shown: &str, how: &str) -> OpenError {
    OpenError(format!(
        "{shown} is damaged ({how}); restore it from a backup, or name another --database"
    ))
}

/// SQLite's error, with a remedy.
pub(super) fn explain(shown: &str, error: &rusqlite::Error) -> OpenError {
    OpenError(match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => {
            format!("{shown} is not an SQLite database; name another --database")
        }
        Some(ErrorCode::DatabaseCorrupt) => return damaged(shown, &error.to_string()),
        Some(ErrorCode::DiskFull) => full(shown),
        Some(ErrorCode::ReadOnly | ErrorCode::PermissionDenied) => {
            format!(
                "{shown} cannot be written ({error}); make it writable, or name another --database"
            )
        }
        Some(ErrorCode::CannotOpen) => {
            format!(
                "cannot open {shown} ({error}); check that the folder exists and is writable, or name another --database"
            )
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            format!("{shown} is locked by another process; wait until it is done, then start again")
        }
        Some(ErrorCode::SystemIoFailure) => {
            format!("{shown} cannot be read or written ({error}); check the disk")
        }
        _ => format!("cannot use {shown} ({error}); name another --database"),
    })
}
