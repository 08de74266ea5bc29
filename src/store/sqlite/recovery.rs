//! Crash recovery at startup: the frames that an earlier process left in the write-ahead log (WAL) are made
//! durable and checkpointed before anything is appended to the WAL.
//!
//! A failed fsync leaves its pages in the page cache, marked clean: every process continues to read them, no
//! later fsync writes them, and a power cut loses them (the kernel's behaviour after EIO on fsync). A server
//! that was killed after such a failure leaves a WAL whose last frames may exist only in the page cache. Two
//! mistakes are possible from there:
//!
//! - Frames appended behind the lost ones are synced, and still lost: after a power cut SQLite reads the WAL
//!   up to the first frame whose checksum does not fit, and discards all that follows.
//! - A checkpoint writes the lost frames into the database. Until the WAL is truncated, durably, the disk has
//!   a new database and an older WAL that SQLite would replay over it: pages of two states.
//!
//! So the bytes of the WAL are written once more, in place, which makes their pages dirty again, and synced.
//! A power cut in between leaves each sector as it was or as it is, and the checksums tell how far the WAL is
//! valid. Only then does a new connection recover and checkpoint it.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};

use crate::store::error::OpenError;
use crate::store::sqlite::connection::{
    CACHE_KIB, check_pages, configure_connection, create_error, disk_full_message, explain_error,
    inspect,
};
use crate::store::sqlite::database_files::DatabaseFiles;
use crate::store::sqlite::database_lock::{DatabaseLock, LockHolder, stopped_server_error};

/// How much of the WAL is copied in one step.
const BLOCK_BYTES: usize = 1 << 20;

/// The result of the checkpoint at startup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartupCheckpoint {
    /// The WAL is empty.
    Done,
    /// Another process reads from the WAL. All of it is durable, and the writer checkpoints it later.
    Blocked,
}

/// Whether an earlier process left frames in the WAL.
pub fn has_wal(files: &DatabaseFiles) -> bool {
    fs::metadata(files.sibling("-wal")).is_ok_and(|metadata| metadata.len() > 0)
}

/// Writes the bytes of the WAL over themselves and syncs them. No other process can append: the connection
/// holds SQLite's write lock. The caller then closes it, so that the WAL is read again.
pub fn rewrite_wal(files: &DatabaseFiles, connection: &Connection) -> Result<(), OpenError> {
    let explain = |error: rusqlite::Error| explain_error(&files.display_path, &error);
    connection.execute_batch("BEGIN IMMEDIATE").map_err(explain)?;
    rewrite_file(files).map_err(|error| {
        let shown = &files.display_path;
        OpenError::new(match error.kind() {
            io::ErrorKind::StorageFull => disk_full_message(shown),
            _ => format!("{shown}-wal cannot be read or written ({error}); check the disk"),
        })
    })?;
    connection.execute_batch("ROLLBACK").map_err(explain)
}

fn rewrite_file(files: &DatabaseFiles) -> io::Result<()> {
    let log = File::options().read(true).write(true).open(files.sibling("-wal"))?;
    let (mut block, mut offset) = (vec![0; BLOCK_BYTES], 0);
    loop {
        let count = log.read_at(&mut block, offset)?;
        let Some(bytes) = block.get(..count).filter(|bytes| !bytes.is_empty()) else { break };
        log.write_all_at(bytes, offset)?;
        offset += u64::try_from(count).unwrap_or(u64::MAX);
    }
    log.sync_data()
}

/// Moves every frame into the database, syncs the database and truncates the WAL.
pub fn truncate_wal(
    files: &DatabaseFiles,
    connection: &Connection,
) -> Result<StartupCheckpoint, OpenError> {
    let explain = |error: rusqlite::Error| explain_error(&files.display_path, &error);
    // SQLite returns: whether a reader blocked it, the frames in the WAL, and the frames moved.
    let row: (i64, i64, i64) = connection
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })
        .map_err(explain)?;
    match row {
        (0, frames, moved) if frames == moved && !has_wal(files) => Ok(StartupCheckpoint::Done),
        (1, ..) => Ok(StartupCheckpoint::Blocked),
        (_, frames, moved) => Err(OpenError::new(format!(
            "{shown}-wal cannot be checkpointed into {shown} ({moved} of {frames} frames were); check the disk",
            shown = files.display_path
        ))),
    }
}

/// Opens the database and checks that it is ours. An existing WAL is left alone if the connection is closed
/// before recovery.
fn open_inspected(files: &DatabaseFiles) -> Result<(Connection, bool), OpenError> {
    let explain = |error: rusqlite::Error| explain_error(&files.display_path, &error);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    files.create_private().map_err(|error| create_error(&files.display_path, &error))?;
    let has_log = has_wal(files);
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
pub fn open_recovered(
    files: &DatabaseFiles,
) -> Result<(Connection, bool, StartupCheckpoint), OpenError> {
    let (connection, is_empty) = open_inspected(files)?;
    if !has_wal(files) {
        check_pages(files, &connection)?;
        return Ok((connection, is_empty, StartupCheckpoint::Done));
    }
    rewrite_wal(files, &connection)?;
    drop(connection);
    let (connection, is_empty) = open_inspected(files)?;
    check_pages(files, &connection)?;
    let checkpoint = truncate_wal(files, &connection)?;
    Ok((connection, is_empty, checkpoint))
}

/// Recovery for commands, before they append to the WAL, while no server has the database open. A server that
/// has it open has recovered it already. Returns whether the WAL belongs to a server.
pub fn recover_unserved(files: &DatabaseFiles) -> Result<bool, OpenError> {
    if !has_wal(files) {
        return Ok(false);
    }
    match DatabaseLock::acquire(files)? {
        Ok(_lock) => open_recovered(files).map(|_| false),
        Err(LockHolder::Command) => Err(OpenError::new(format!(
            "another command, or a server that is starting, is using {}; try again when it is done",
            files.display_path
        ))),
        Err(LockHolder::Server) => Ok(true),
        Err(LockHolder::StoppedServer) => Err(stopped_server_error(files)),
    }
}
