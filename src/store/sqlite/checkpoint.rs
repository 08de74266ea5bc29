//! Checkpoints: copying the frames of the WAL into the database file.

use rusqlite::config::DbConfig;
use rusqlite::{Connection, Error, ErrorCode, Row};

/// A checkpoint that waits for no reader and no writer.
pub const PASSIVE: &str = "PRAGMA wal_checkpoint(PASSIVE)";
/// A checkpoint that waits for all readers, so that the next commit begins the WAL again.
pub const RESTART: &str = "PRAGMA wal_checkpoint(RESTART)";

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

/// Whether a checkpoint failed because of the disk. After a failed sync, nobody knows what is on disk.
pub fn is_disk_failure(error: &Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::SystemIoFailure)
}

/// For a connection after a failed sync: closing it makes no checkpoint and leaves the WAL to the next start. SQLite's
/// checkpoint at the close would copy only the frames that no earlier one has copied, and then delete the WAL.
pub fn keep_wal_on_close(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes to a new database and closes its only connection; returns whether the WAL is left.
    fn close_leaves_wal(name: &str, prepare: impl Fn(&Connection)) -> bool {
        let name = format!("nouns-checkpoint-{name}-{}.db", std::process::id());
        let path = std::env::temp_dir().join(name);
        let connection = Connection::open(&path).unwrap();
        connection.pragma_update(None, "journal_mode", "wal").unwrap();
        connection.execute_batch("CREATE TABLE t (a); INSERT INTO t VALUES (1)").unwrap();
        prepare(&connection);
        drop(connection);
        let wal = path.with_extension("db-wal");
        let is_left = wal.metadata().is_ok_and(|file| file.len() > 0);
        for file in [path.with_extension("db-shm"), wal, path] {
            let _ = std::fs::remove_file(file);
        }
        is_left
    }

    #[test]
    fn wal_is_deleted_on_close_unless_it_is_kept() {
        assert!(!close_leaves_wal("closed", |_| ()));
        assert!(close_leaves_wal("kept", |connection| keep_wal_on_close(connection).unwrap()));
    }
}
