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

use super::database_files::{DatabaseFiles, FILE_MODE, LOCK_SUFFIX};
use super::driver::SqliteDriver;
use super::export::SqliteExports;
use super::reader::ReaderPool;
use super::recovery::{self, StartupCheckpoint};
use super::wal_reset::{ReadGate, WalReset};
use super::write_queue::WriteQueue;
use super::writer::SqliteWriter;
use super::{OpenError, SqliteStore};
use crate::log::{Level, Logger};
use crate::metrics::Metrics;
use crate::model::Model;
use crate::store::driver::{DatabaseDriver, StatementError, poll_once};
use crate::store::replay_protection::UsedNonces;
use crate::store::retention::ClockDoubtLog;
use crate::store::schema_migration::{self, MigrationError};
use crate::store::sql::SQLITE;
use crate::store::transaction::StoreContext;
use crate::store::uuid_v7::UuidGenerator;

/// "NOUN": marks a database as ours.
const APPLICATION_ID: i64 = 0x4E4F_554E;
/// The format of our system tables; a larger number was written by a newer version.
const FORMAT: i64 = 1;
/// How long to wait for another process's lock.
pub(super) const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// Databases up to this size get an integrity check at every start.
const CHECKED_BYTES_MAX: u64 = 16 << 20;
/// The page cache of the writer's connection.
pub(super) const CACHE_KIB: u32 = 16_000;

pub(in crate::store) fn open(
    path: &Path,
    model: &Arc<Model>,
    log: &Logger,
    metrics: &Arc<Metrics>,
) -> Result<Arc<SqliteStore>, OpenError> {
    let file = DatabaseFiles::find(path)?;
    with_server_lock(&file, |lock| open_locked(&file, model, (log, metrics), lock))
}

/// Opens something with the lock of a server.
pub(super) fn with_server_lock<T>(
    file: &DatabaseFiles,
    open: impl FnOnce(File) -> Result<T, OpenError>,
) -> Result<T, OpenError> {
    let (lock, lock_is_new) = lock_for_server(file)?;
    let was_there = DatabaseFiles::SUFFIXES.map(|end| file.sibling(end).symlink_metadata().is_ok());
    let opened = file.check().and_then(|()| open(lock));
    if opened.is_err() {
        // Beside an existing database, a WAL may hold commits of a command that ran meanwhile: SQLite removes
        // the WAL when the last connection is closed.
        let [database_was_there, ..] = was_there;
        for (end, was_there) in DatabaseFiles::SUFFIXES.iter().zip(was_there) {
            if !database_was_there && !was_there {
                let _ = fs::remove_file(file.sibling(end));
            }
        }
        if lock_is_new {
            let _ = fs::remove_file(file.sibling(LOCK_SUFFIX));
        }
    }
    opened
}

fn open_locked(
    files: &DatabaseFiles,
    model: &Arc<Model>,
    (log, metrics): (&Logger, &Arc<Metrics>),
    lock: File,
) -> Result<Arc<SqliteStore>, OpenError> {
    let WriterConnection { connection, wal_pages: log_pages, checkpoint } =
        open_for_writer(files, model)?;
    if checkpoint == StartupCheckpoint::Blocked {
        let message = "another process reads the database, so the WAL of an earlier server cannot be checkpointed yet";
        log.event(Level::Warning, message, &[("database", &files.display_path)]);
    }
    if let Some(mode) = files.mode_for_others() {
        let (shown, mode) = (&files.display_path, format!("{mode:03o}"));
        let remedy = format!("chmod 600 {shown} {shown}-wal {shown}-shm");
        let message =
            "other users of this machine can read the database, which holds password hashes";
        log.event(Level::Warning, message, &[("mode", &mode), ("remedy", &remedy)]);
    }
    let context = StoreContext::with_metrics(model, &SQLITE, Arc::clone(&metrics.damaged_items));
    let (pool, mut readers) = ReaderPool::start(&files.real_path, &context)?;
    let gate = Arc::new(ReadGate::default());
    let (wide, listers) = ReaderPool::start_for_scans(&files.real_path, &context, &gate)?;
    readers.extend(listers);
    let exports = SqliteExports::new(files.real_path.clone(), &context, metrics, &gate);
    let counted = metrics.writer();
    let (queue, jobs) = WriteQueue::new(&counted);
    let stopped = Arc::clone(&counted.stopped);
    let writer = SqliteWriter {
        connection,
        context: Arc::clone(&context),
        ids: UuidGenerator::default(),
        queue: jobs,
        stopped: Arc::clone(&stopped),
        wal_pages: log_pages,
        wal_reset: WalReset::new(gate, &model.server.limits),
        exports: Arc::clone(&exports),
        log: log.clone(),
        metrics: Arc::clone(metrics),
        writer_metrics: counted,
        doubt_log: ClockDoubtLog::default(),
    };
    let thread =
        std::thread::Builder::new().name("writer".to_owned()).spawn(move || writer.run_loop());
    let thread = thread.map_err(|error| OpenError(format!("cannot start a thread: {error}")))?;
    let limits = &model.server.limits;
    Ok(Arc::new(SqliteStore {
        path: files.real_path.clone(),
        context,
        queue,
        pool,
        scan_pool: wide,
        exports,
        is_stopped: stopped,
        readers: readers.into(),
        writer: vec![thread].into(),
        statement_max: Duration::from_secs(limits.statement_seconds_max.into()),
        used_nonces: UsedNonces::new()
            .map_err(|error| OpenError(format!("no randomness: {error}")))?,
        _lock: lock,
    }))
}

/// Locks the database: only one server at a time may open it.
fn lock_for_server(files: &DatabaseFiles) -> Result<(File, bool), OpenError> {
    let shown = &files.display_path;
    try_lock(files)?.ok_or_else(|| {
        OpenError(format!(
            "another server is using {shown}; stop it first, or name another --database"
        ))
    })
}

/// The lock of a server, and whether its file is new; `None` when another process holds it. The lock is on a
/// separate file, because closing any handle on the database file would release SQLite's own locks.
fn try_lock(files: &DatabaseFiles) -> Result<Option<(File, bool)>, OpenError> {
    let path = files.sibling(LOCK_SUFFIX);
    let shown = &files.display_path;
    loop {
        let is_new = path.symlink_metadata().is_err();
        let open =
            File::options().create(true).truncate(false).write(true).mode(FILE_MODE).open(&path);
        let file = open.map_err(|error| {
            OpenError(match error.kind() {
                ErrorKind::ReadOnlyFilesystem | ErrorKind::PermissionDenied => format!(
                    "cannot write beside {shown} ({error}); make the folder writable, or name another --database"
                ),
                ErrorKind::StorageFull => disk_full_message(shown),
                _ => format!("cannot open {shown}{LOCK_SUFFIX} ({error}); name another --database"),
            })
        })?;
        match file.try_lock() {
            // A server that failed to start may have removed the file in the meantime.
            Ok(()) if !is_same_file(&file, &path) => {}
            Ok(()) => return Ok(Some((file, is_new))),
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => {
                return Err(OpenError(format!(
                    "cannot lock {shown}{LOCK_SUFFIX} ({error}); file locks do not work in a network folder: name another --database"
                )));
            }
        }
    }
}

fn create_error(shown: &str, error: &io::Error) -> OpenError {
    OpenError(match error.kind() {
        ErrorKind::StorageFull => disk_full_message(shown),
        _ => format!(
            "cannot open {shown} ({error}); check that the folder exists and is writable, or name another --database"
        ),
    })
}

fn is_same_file(file: &File, path: &Path) -> bool {
    let (held, named) = (file.metadata(), path.metadata());
    held.ok()
        .zip(named.ok())
        .is_some_and(|(held, named)| (held.dev(), held.ino()) == (named.dev(), named.ino()))
}

pub(super) fn disk_full_message(shown: &str) -> String {
    format!("the disk that holds {shown} is full; free some space and start again")
}

/// The settings of every connection; `cache_kib` is the size of its page cache.
pub(super) fn configure_connection(
    connection: &Connection,
    cache_kib: u32,
) -> rusqlite::Result<()> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(512);
    // Without it SQLite prepares a statement with a bound LIMIT again at every use.
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "foreign_keys", true)?;
    connection.pragma_update(None, "temp_store", "memory")?;
    connection.pragma_update(None, "cache_size", -i64::from(cache_kib))
}

/// The writer's connection to a migrated database.
struct WriterConnection {
    connection: Connection,
    /// Pages in the WAL, as of the last commit.
    wal_pages: Arc<AtomicUsize>,
    checkpoint: StartupCheckpoint,
}

/// Opens the database and checks that it is ours. An existing WAL is left alone if the connection is closed
/// before recovery.
fn open_inspected(files: &DatabaseFiles) -> Result<(Connection, bool), OpenError> {
    let explain = |error: rusqlite::Error| explain_error(&files.display_path, &error);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    files.create_private().map_err(|error| create_error(&files.display_path, &error))?;
    let has_log = recovery::has_wal(files);
    let connection = Connection::open_with_flags(&files.real_path, flags).map_err(explain)?;
    connection
        .set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, has_log)
        .map_err(explain)?;
    configure_connection(&connection, CACHE_KIB).map_err(explain)?;
    let is_empty = inspect(files, &connection)?;
    Ok((connection, is_empty))
}

/// Opens the database after recovery: the frames that an earlier process left in the WAL are made durable and
/// checkpointed first.
fn open_recovered(
    files: &DatabaseFiles,
) -> Result<(Connection, bool, StartupCheckpoint), OpenError> {
    let (connection, is_empty) = open_inspected(files)?;
    if !recovery::has_wal(files) {
        check_pages(files, &connection)?;
        return Ok((connection, is_empty, StartupCheckpoint::Done));
    }
    recovery::rewrite_wal(files, &connection)?;
    drop(connection);
    let (connection, is_empty) = open_inspected(files)?;
    check_pages(files, &connection)?;
    let checkpoint = recovery::checkpoint(files, &connection)?;
    Ok((connection, is_empty, checkpoint))
}

/// Recovery for commands, before they append to the WAL, while no server has the database open. A server that
/// has it open has recovered it already; if it is unknown whether one has, nothing may be appended.
pub(super) fn recover_unserved(files: &DatabaseFiles) -> Result<(), OpenError> {
    if !recovery::has_wal(files) {
        return Ok(());
    }
    match try_lock(files)? {
        Some(_lock) => open_recovered(files).map(drop),
        None => Ok(()),
    }
}

fn open_for_writer(files: &DatabaseFiles, model: &Model) -> Result<WriterConnection, OpenError> {
    let explain = |error: rusqlite::Error| explain_error(&files.display_path, &error);
    let (mut connection, is_empty, checkpoint) = open_recovered(files)?;
    if enable_wal(&connection).map_err(explain)? != "wal" {
        let shown = &files.display_path;
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
    create_or_migrate(files, &connection, model, is_empty)?;
    Ok(WriterConnection { connection, wal_pages: log_pages, checkpoint })
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
fn enable_wal(connection: &Connection) -> rusqlite::Result<String> {
    let mut pragma = connection.prepare("PRAGMA journal_mode = wal")?;
    let modes = pragma.query_map([], |row| row.get(0))?.collect::<Result<Vec<String>, _>>()?;
    Ok(modes.into_iter().next().unwrap_or_default())
}

/// Checks that the database is ours. True if it is empty.
pub(super) fn inspect(files: &DatabaseFiles, connection: &Connection) -> Result<bool, OpenError> {
    let explain = |error: rusqlite::Error| explain_error(&files.display_path, &error);
    let number =
        |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0)).map_err(explain);
    let shown = &files.display_path;
    match (number("PRAGMA application_id")?, number("PRAGMA user_version")?) {
        (APPLICATION_ID, FORMAT) => Ok(false),
        (APPLICATION_ID, format) if format > FORMAT => {
            Err(schema_migration::newer_format_error(shown, format, FORMAT))
        }
        (0, 0) if number("SELECT count(*) FROM sqlite_master")? == 0 => Ok(true),
        _ => Err(OpenError(format!(
            "{shown} is a database of another program; name another --database"
        ))),
    }
}

/// Checks for damage, without reading a large file whole.
fn check_pages(files: &DatabaseFiles, connection: &Connection) -> Result<(), OpenError> {
    let explain = |error: rusqlite::Error| explain_error(&files.display_path, &error);
    let number =
        |sql: &str| connection.query_row(sql, [], |row| row.get::<_, i64>(0)).map_err(explain);
    let bytes = fs::metadata(&files.real_path).map_or(0, |metadata| metadata.len());
    let pages = number("PRAGMA page_count")?.saturating_mul(number("PRAGMA page_size")?);
    let has_log = fs::metadata(files.sibling("-wal")).is_ok_and(|metadata| metadata.len() > 0);
    if !has_log && bytes < u64::try_from(pages).unwrap_or(0) {
        return Err(damaged_error(&files.display_path, "it is truncated"));
    }
    if bytes <= CHECKED_BYTES_MAX {
        let verdict: String =
            connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(explain)?;
        if verdict != "ok" {
            return Err(damaged_error(&files.display_path, &verdict));
        }
    }
    Ok(())
}

/// Migrates in one transaction, all or nothing. It always writes, so that a full or read-only disk is found
/// now and not by the first request.
fn create_or_migrate(
    files: &DatabaseFiles,
    connection: &Connection,
    model: &Model,
    is_empty: bool,
) -> Result<(), OpenError> {
    let explain = |error: rusqlite::Error| explain_error(&files.display_path, &error);
    let run = |sql: &str| {
        #[cfg(test)]
        crate::store::fault_injection::count_statement(sql)?;
        connection.execute_batch(sql)
    };
    run("BEGIN IMMEDIATE").map_err(explain)?;
    let ids = UuidGenerator::default();
    let driver = SqliteDriver { connection, ids: &ids };
    #[cfg(test)]
    let driver = crate::store::fault_injection::FaultyDriver(driver);
    let mut driver = driver;
    let done = poll_once(async {
        match is_empty {
            true => schema_migration::create(&mut driver, model, &SQLITE).await?,
            // One server owns the file, so there are no other models.
            false => drop(schema_migration::migrate(&mut driver, model, &SQLITE, &[]).await?),
        }
        let now = driver.now().to_string();
        schema_migration::write_system_value(&mut driver, &SQLITE, "started_at", &now).await?;
        Ok::<(), MigrationError>(())
    });
    let done = done.unwrap_or(Err(MigrationError::Failed(StatementError::TimedOut)));
    let done = done.map_err(|mismatch| mismatch.describe(&files.display_path));
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

fn damaged_error(shown: &str, how: &str) -> OpenError {
    OpenError(format!(
        "{shown} is damaged ({how}); restore it from a backup, or name another --database"
    ))
}

/// SQLite's error, with a remedy.
pub(super) fn explain_error(shown: &str, error: &rusqlite::Error) -> OpenError {
    OpenError(match error.sqlite_error_code() {
        Some(ErrorCode::NotADatabase) => {
            format!("{shown} is not an SQLite database; name another --database")
        }
        Some(ErrorCode::DatabaseCorrupt) => return damaged_error(shown, &error.to_string()),
        Some(ErrorCode::DiskFull) => disk_full_message(shown),
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
