//! Opening a database file for serving: lock, checks, migration, threads.
//!
//! Every failure is one message with a remedy, and leaves nothing behind: a file that did not exist before
//! does not exist after a failed start.

use std::cell::RefCell;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use rusqlite::Connection;
use rusqlite::config::DbConfig;

use crate::log::{Level, Logger};
use crate::metrics::Metrics;
use crate::model::Model;
use crate::store::context::StoreContext;
use crate::store::driver::{Driver, poll_once};
use crate::store::error::{MigrationError, OpenError, StatementError};
use crate::store::replay_protection::UsedNonces;
use crate::store::retention::ClockDoubtLog;
use crate::store::sql::dialect::SQLITE;
use crate::store::sqlite::connection::{
    APPLICATION_ID, FORMAT, count_wal_pages, explain_error, sync_fully,
};
use crate::store::sqlite::database_files::{DatabaseFiles, LOCK_SUFFIX};
use crate::store::sqlite::database_lock::{DatabaseLock, LockHolder};
use crate::store::sqlite::driver::SqliteDriver;
use crate::store::sqlite::export::SqliteExports;
use crate::store::sqlite::reader::{PoolKind, ReaderPool};
use crate::store::sqlite::recovery::{StartupCheckpoint, open_recovered};
use crate::store::sqlite::wal_file::{self, WalFile};
use crate::store::sqlite::wal_maintenance::WalMaintenance;
use crate::store::sqlite::wal_reset::{ReadGate, WalReset};
use crate::store::sqlite::worker::SqliteStore;
use crate::store::sqlite::write_queue::WriteQueue;
use crate::store::sqlite::writer::SqliteWriter;
use crate::store::{schema, system_values};

pub fn open(
    path: &Path,
    model: &Arc<Model>,
    log: &Logger,
    metrics: &Arc<Metrics>,
) -> Result<Arc<SqliteStore>, OpenError> {
    let file = DatabaseFiles::find(path)?;
    with_server_lock(&file, |lock| open_locked(&file, model, (log, metrics), lock))
}

/// Opens something with the lock of a server.
pub fn with_server_lock<T>(
    file: &DatabaseFiles,
    open: impl FnOnce(Arc<DatabaseLock>) -> Result<T, OpenError>,
) -> Result<T, OpenError> {
    // Held until the files of a failed start are removed.
    let lock = Arc::new(lock_for_server(file)?);
    let was_there = DatabaseFiles::SUFFIXES.map(|end| file.sibling(end).symlink_metadata().is_ok());
    let opened = file.check().and_then(|()| open(Arc::clone(&lock)));
    if opened.is_err() {
        // Beside an existing database, a WAL may hold commits of a command that ran meanwhile: SQLite removes
        // the WAL when the last connection is closed.
        let [database_was_there, ..] = was_there;
        for (end, was_there) in DatabaseFiles::SUFFIXES.iter().zip(was_there) {
            if !database_was_there && !was_there {
                let _ = fs::remove_file(file.sibling(end));
            }
        }
        if lock.is_new {
            let _ = fs::remove_file(file.sibling(LOCK_SUFFIX));
        }
    }
    opened
}

fn open_locked(
    files: &DatabaseFiles,
    model: &Arc<Model>,
    (log, metrics): (&Logger, &Arc<Metrics>),
    lock: Arc<DatabaseLock>,
) -> Result<Arc<SqliteStore>, OpenError> {
    let WriterConnection { connection, wal_pages, checkpoint } = open_for_writer(files, model)?;
    // From here on commands may write to a WAL that they find.
    lock.announce_server(files)?;
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
    let context = StoreContext::new(model, &SQLITE, Arc::clone(&metrics.store.damaged_items));
    let gate = Arc::new(ReadGate::default());
    let mut readers = Vec::new();
    let mut start_pool = |kind| {
        let (pool, threads) = ReaderPool::start(&files.real_path, &context, kind)?;
        readers.extend(threads);
        Ok(pool)
    };
    let pool = start_pool(PoolKind::Requests)?;
    let scan_pool = start_pool(PoolKind::Scans(&gate))?;
    let feed_pool = start_pool(PoolKind::Feed)?;
    let exports = SqliteExports::new(files.real_path.clone(), &context, metrics, &gate);
    let counted = metrics.writer();
    let (queue, jobs) = WriteQueue::new(&counted);
    let stopped = Arc::clone(&counted.stopped);
    let writer = SqliteWriter {
        connection,
        context: Arc::clone(&context),
        queue: jobs,
        stopped: Arc::clone(&stopped),
        wal: WalMaintenance {
            pages: wal_pages,
            reset: WalReset::new(gate, &model.server.limits),
            file: WalFile::default(),
            exports: Arc::clone(&exports),
            log: log.clone(),
            metrics: Arc::clone(&counted),
            last_error: RefCell::default(),
        },
        lock: Arc::clone(&lock),
        log: log.clone(),
        metrics: Arc::clone(metrics),
        writer_metrics: counted,
        doubt_log: ClockDoubtLog::default(),
    };
    let thread =
        std::thread::Builder::new().name("writer".to_owned()).spawn(move || writer.run_loop());
    let thread =
        thread.map_err(|error| OpenError::new(format!("cannot start a thread: {error}")))?;
    let limits = &model.server.limits;
    Ok(Arc::new(SqliteStore {
        path: files.real_path.clone(),
        context,
        queue,
        pool,
        scan_pool,
        feed_pool,
        exports,
        is_stopped: stopped,
        readers: readers.into(),
        writer: vec![thread].into(),
        statement_max: Duration::from_secs(limits.statement_seconds_max.into()),
        used_nonces: UsedNonces::new()
            .map_err(|error| OpenError::new(format!("no randomness: {error}")))?,
        _lock: lock,
    }))
}

/// Locks the database: only one server at a time may open it.
fn lock_for_server(files: &DatabaseFiles) -> Result<DatabaseLock, OpenError> {
    let shown = &files.display_path;
    DatabaseLock::acquire(files)?.map_err(|holder| {
        let holder = match holder {
            LockHolder::Command => "a command, or a server that is starting,",
            LockHolder::Server | LockHolder::StoppedServer => "another server",
        };
        OpenError::new(format!(
            "{holder} is using {shown}; stop it first, or name another --database"
        ))
    })
}

/// The writer's connection to a migrated database.
struct WriterConnection {
    connection: Connection,
    /// Pages in the WAL, as of the last commit.
    wal_pages: Arc<AtomicUsize>,
    checkpoint: StartupCheckpoint,
}

fn open_for_writer(files: &DatabaseFiles, model: &Model) -> Result<WriterConnection, OpenError> {
    let explain = |error: rusqlite::Error| explain_error(&files.display_path, &error);
    let (mut connection, is_empty, checkpoint) = open_recovered(files)?;
    if enable_wal(&connection).map_err(explain)? != "wal" {
        let shown = &files.display_path;
        return Err(OpenError::new(format!(
            "{shown}: the file system cannot share memory (a network folder?); name another --database"
        )));
    }
    sync_fully(&connection).map_err(explain)?;
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, false).map_err(explain)?;
    wal_file::set_first_limit(&connection).map_err(explain)?;
    let wal_pages = count_wal_pages(&mut connection).map_err(explain)?;
    create_or_migrate(files, &connection, model, is_empty)?;
    Ok(WriterConnection { connection, wal_pages, checkpoint })
}

/// Enables WAL mode and returns the resulting mode. It reads to the end: SQLite returns the row first and
/// then commits the change, which may fail.
fn enable_wal(connection: &Connection) -> rusqlite::Result<String> {
    let mut pragma = connection.prepare("PRAGMA journal_mode = wal")?;
    let modes = pragma.query_map([], |row| row.get(0))?.collect::<Result<Vec<String>, _>>()?;
    Ok(modes.into_iter().next().unwrap_or_default())
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
    let driver = SqliteDriver { connection };
    #[cfg(test)]
    let driver = crate::store::fault_injection::FaultyDriver(driver);
    let mut driver = driver;
    let done = poll_once(async {
        match is_empty {
            true => schema::create(&mut driver, model).await?,
            // One server owns the file, so there are no other models.
            false => drop(schema::migrate(&mut driver, model, &[]).await?),
        }
        let now = driver.now().to_string();
        system_values::write(&mut driver, "started_at", &now).await?;
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
