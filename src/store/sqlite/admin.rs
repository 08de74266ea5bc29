//! The connection of a command on SQLite: opens the file beside a server that holds its lock, briefly, for
//! small writes or for reads only.
//!
//! SQLite's own locks serialize the two: a write acquires the write lock first, and waits for the server's
//! commit. The model may differ from the server's. The users table is the same for all models, and no table
//! is migrated here.
//!
//! Many commits, as those of a resumable import, make checkpoints between them: no server may be there to do so, and one
//! that writes nothing does not.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::store::driver::poll_once;
use crate::store::error::{MigrationError, OpenError, StoreError, missing_users_error};
use crate::store::sqlite::checkpoint;
use crate::store::sqlite::connection::{
    CACHE_KIB, configure_connection, count_wal_pages, explain_error, inspect, open_for_reading,
    sync_fully,
};
use crate::store::sqlite::database_files::{DatabaseFiles, LOCK_SUFFIX};
use crate::store::sqlite::database_lock::{DatabaseLock, refuse_stopped_server};
use crate::store::sqlite::driver::{SqliteDriver, classify_error};
use crate::store::sqlite::recovery::recover_unserved;
use crate::store::sqlite::wal_reset::CHECKPOINT_PAGES;
use crate::store::system_values;
use crate::store::users::STAMP_KEY;

/// One connection, for one blocking caller.
#[derive(Debug)]
pub struct SqliteAdmin {
    connection: Connection,
    files: DatabaseFiles,
    /// Pages in the WAL, as of the last commit.
    wal_pages: Arc<AtomicUsize>,
}

impl SqliteAdmin {
    /// `None` if the file is missing or empty.
    pub fn find(path: &Path) -> Result<Option<Self>, OpenError> {
        let files = DatabaseFiles::find(path)?;
        files.check()?;
        if files.is_empty() {
            return Ok(None);
        }
        let is_served = recover_unserved(&files)?;
        let explain = |error: rusqlite::Error| explain_error(&files.display_path, &error);
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&files.real_path, flags);
        let mut connection = connection.map_err(explain)?;
        configure_connection(&connection, CACHE_KIB).map_err(explain)?;
        if inspect(&files, &connection)? {
            return Ok(None);
        }
        // The server may stop writing after a failed sync, and end before this command.
        if is_served {
            checkpoint::keep_wal_on_close(&connection).map_err(explain)?;
        }
        let wal_pages = count_wal_pages(&mut connection).map_err(explain)?;
        let mut admin = Self { connection, files, wal_pages };
        admin.check_users()?;
        sync_fully(&admin.connection)
            .map_err(|error| explain_error(&admin.files.display_path, &error))?;
        Ok(Some(admin))
    }

    /// As `find`, for reads only: no recovery, and the database may have no users.
    pub fn find_read_only(path: &Path) -> Result<Option<Self>, OpenError> {
        let files = DatabaseFiles::find(path)?;
        files.check()?;
        if files.is_empty() {
            return Ok(None);
        }
        let connection = open_for_reading(&files.real_path, CACHE_KIB)
            .map_err(|error| explain_error(&files.display_path, &error))?;
        let is_empty = inspect(&files, &connection)?;
        Ok((!is_empty).then(|| Self { connection, files, wal_pages: Arc::default() }))
    }

    /// Whether a server has the database open.
    pub fn is_served(path: &Path) -> Result<bool, OpenError> {
        let files = DatabaseFiles::find(path)?;
        Ok(files.sibling(LOCK_SUFFIX).exists() && DatabaseLock::try_acquire(&files)?.is_err())
    }

    /// Checks that the users table exists.
    fn check_users(&mut self) -> Result<(), OpenError> {
        let stamp = self.read(async |driver| Ok(system_values::read(driver, STAMP_KEY).await));
        let stamp = stamp.map_err(|error| OpenError::new(error.to_string()))?;
        let shown = &self.files.display_path;
        let stamp = stamp.map_err(|failure| MigrationError::Failed(failure).describe(shown))?;
        stamp.map(drop).ok_or_else(|| missing_users_error(shown))
    }

    /// Runs statements that read, each its own transaction.
    pub fn read<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut SqliteDriver<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut driver = SqliteDriver { connection: &self.connection };
        poll_once(work(&mut driver))
            .unwrap_or_else(|| Err(StoreError::internal("the SQLite driver blocked in a command")))
    }

    /// Runs statements that read, all from one snapshot.
    pub fn snapshot<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut SqliteDriver<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.connection.execute_batch("BEGIN").map_err(classify_error)?;
        let done = self.read(work);
        // Nothing was written; closing the connection ends the snapshot too.
        let _ = self.connection.execute_batch("ROLLBACK");
        done
    }

    /// Runs statements that write, in one transaction.
    pub fn write<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut SqliteDriver<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.write_unless_refused(async |driver| work(driver).await.map(|done| (done, true)))
    }

    /// As `write`, for many rows. The transaction is rolled back unless the work says that it is to be committed.
    pub fn write_unless_refused<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut SqliteDriver<'_>) -> Result<(T, bool), StoreError>,
    ) -> Result<T, StoreError> {
        self.checkpoint_when_due()?;
        self.connection.execute_batch("BEGIN IMMEDIATE").map_err(classify_error)?;
        // The writer of a server may have stopped since this connection was opened.
        let may_write = refuse_stopped_server(&self.files)
            .map_err(|error| StoreError::Unavailable(error.to_string()));
        let done = may_write.and_then(|()| self.read(work));
        let done = done.and_then(|(done, is_to_commit)| {
            if !is_to_commit {
                return Ok(done);
            }
            match self.connection.execute_batch("COMMIT") {
                Ok(()) => Ok(done),
                // Detected before anything was written; any other error leaves the outcome unknown.
                Err(error) => Err(match error.sqlite_error_code() {
                    Some(ErrorCode::DatabaseBusy | ErrorCode::DiskFull) => {
                        classify_error(error).into()
                    }
                    _ => StoreError::OutcomeUnknown(error.to_string()),
                }),
            }
        });
        if !self.connection.is_autocommit() {
            // If this fails, closing the connection rolls back.
            let _ = self.connection.execute_batch("ROLLBACK");
        }
        done
    }

    /// Makes a checkpoint once the WAL has grown, so that the next write begins at its start. A reader may keep a part of
    /// it: the WAL then grows until a later one. A failed fsync is not retried: the command ends.
    fn checkpoint_when_due(&mut self) -> Result<(), StoreError> {
        if self.wal_pages.load(Ordering::Relaxed) < CHECKPOINT_PAGES {
            return Ok(());
        }
        refuse_stopped_server(&self.files)
            .map_err(|error| StoreError::Unavailable(error.to_string()))?;
        match checkpoint::checkpoint(&self.connection, checkpoint::PASSIVE) {
            Err(error) if checkpoint::is_disk_failure(&error) => {
                let _ = checkpoint::keep_wal_on_close(&self.connection);
                let cause = format!("a checkpoint of the database failed: {error}");
                Err(StoreError::Unavailable(cause))
            }
            _ => Ok(()),
        }
    }
}
