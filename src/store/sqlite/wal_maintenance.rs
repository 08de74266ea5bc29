//! Keeping the write-ahead log (WAL) small: checkpoints, resets and the length of its file, after commits.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use rusqlite::Connection;

use crate::clock;
use crate::log::{Level, Logger};
use crate::metrics::WriterMetrics;
use crate::store::sqlite::checkpoint::{self, CheckpointResult};
use crate::store::sqlite::connection::BUSY_TIMEOUT;
use crate::store::sqlite::export::SqliteExports;
use crate::store::sqlite::wal_file::WalFile;
use crate::store::sqlite::wal_reset::{RESET_BUSY_MAX, WalAction, WalBlocker, WalReset};

/// A failed sync, with the message of its cause. It is unknown which writes are on disk, so the writer has to stop.
#[derive(Debug)]
pub struct DiskFailure(pub String);

/// Owned by the writer thread.
#[derive(Debug)]
pub struct WalMaintenance {
    /// Pages in the WAL, as of the last commit.
    pub pages: Arc<AtomicUsize>,
    pub reset: WalReset,
    pub file: WalFile,
    pub exports: Arc<SqliteExports>,
    pub log: Logger,
    pub metrics: Arc<WriterMetrics>,
    /// The error of the last checkpoint, which is logged once; empty if it did not fail.
    pub last_error: RefCell<String>,
}

impl WalMaintenance {
    /// Whether scans are held back, so that a reset should be tried soon.
    pub fn is_holding(&self) -> bool {
        self.reset.is_holding()
    }

    /// Makes a checkpoint once the WAL has grown.
    pub fn run(&self, connection: &Connection) -> Result<(), DiskFailure> {
        let pages = self.pages.load(Ordering::Relaxed);
        self.metrics.wal_pages.set(pages);
        self.exports.cancel_for_wal(pages);
        // Fails only without memory; the WAL file is then cut to an earlier limit.
        let _ = self.file.limit_size(connection, pages);
        match self.reset.next_action(pages) {
            WalAction::Nothing => {}
            WalAction::Checkpoint => {
                self.checkpoint(connection, checkpoint::PASSIVE)?;
                self.reset.hold_when_due(pages, self.exports.in_flight.has_any());
            }
            WalAction::Reset => self.reset_wal(connection, pages)?,
            WalAction::GiveUp(blocker) => self.give_up(blocker),
        }
        Ok(())
    }

    /// Admits scans again without a reset.
    pub fn end_hold(&self) {
        self.reset.give_up(self.pages.load(Ordering::Relaxed), WalBlocker::Others);
    }

    /// `None` if it was not made: another connection makes one, or there is no space; the WAL then grows until the next
    /// one.
    fn checkpoint(
        &self,
        connection: &Connection,
        pragma: &str,
    ) -> Result<Option<CheckpointResult>, DiskFailure> {
        let began = clock::now();
        let result = checkpoint::checkpoint(connection, pragma);
        self.metrics.checkpoint.observe_time(clock::now().saturating_duration_since(began));
        match result {
            Ok(result) => {
                self.last_error.take();
                Ok(result)
            }
            Err(error) if checkpoint::is_disk_failure(&error) => {
                Err(DiskFailure(error.to_string()))
            }
            Err(error) => {
                let cause = error.to_string();
                if *self.last_error.borrow() != cause {
                    let message = "a checkpoint failed; the WAL grows until one succeeds";
                    self.log.event(Level::Warning, message, &[("cause", &cause)]);
                    self.last_error.replace(cause);
                }
                Ok(None)
            }
        }
    }

    /// No scan is in flight: resets the WAL, unless that would wait for a reader of another process.
    fn reset_wal(&self, connection: &Connection, pages: usize) -> Result<(), DiskFailure> {
        if let Some(passive) = self.checkpoint(connection, checkpoint::PASSIVE)? {
            if self.reset.is_reset(passive.frames) {
                self.reset.finish();
                return Ok(());
            }
            if self.reset.can_restart(passive.checkpointed) {
                if self.restart(connection)? {
                    self.pages.store(0, Ordering::Relaxed);
                    self.metrics.wal_pages.set(0);
                    self.metrics.wal_resets.add(1);
                    self.reset.finish();
                    return Ok(());
                }
                // Other processes may have appended frames that `pages` does not count.
                self.reset.restart_was_blocked(pages.max(passive.frames));
            }
        }
        if self.reset.is_last_try() {
            self.give_up(WalBlocker::Others);
        }
        Ok(())
    }

    fn restart(&self, connection: &Connection) -> Result<bool, DiskFailure> {
        let wait = |busy_max| connection.busy_timeout(busy_max);
        let result = match wait(RESET_BUSY_MAX) {
            Ok(()) => self.checkpoint(connection, checkpoint::RESTART),
            Err(_) => Ok(None),
        };
        // Fails only for an invalid value, which is a bug; the shorter timeout then stays.
        let _ = wait(BUSY_TIMEOUT);
        Ok(result?.is_some_and(|result| !result.is_blocked))
    }

    fn give_up(&self, blocker: WalBlocker) {
        let pages = self.pages.load(Ordering::Relaxed);
        self.metrics.wal_resets_given_up.add(1);
        if blocker == WalBlocker::Others && self.last_error.borrow().is_empty() {
            let message = "the WAL cannot be reset: another process reads the database";
            self.log.event(Level::Warning, message, &[("pages", &pages)]);
        }
        self.reset.give_up(pages, blocker);
    }
}
