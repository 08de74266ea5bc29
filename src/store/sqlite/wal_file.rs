//! The size of the file of the write-ahead log (WAL).
//!
//! A backup or an export lets the WAL grow. At the first commit after a reset, SQLite cuts the file to a limit
//! (`journal_size_limit`). To free hundreds of megabytes at once takes file systems a tenth of a
//! second and more, especially those that discard freed blocks (TRIM), and all writes wait. So each reset cuts off
//! a part only.

use std::cell::Cell;

use rusqlite::Connection;

use crate::store::sqlite::wal_reset::PAGE_BYTES;

/// The size of a frame: a page and its header.
const FRAME_BYTES: usize = PAGE_BYTES + 24;

/// The length below which no reset cuts the file (64 MiB): the WAL would soon need that space again.
const KEPT_FRAMES: usize = 16_384;
/// How much one reset cuts off (2 MiB).
const STEP_FRAMES: usize = 512;

/// Sets the limit before each reset. Owned by the writer thread.
#[derive(Debug)]
pub struct WalFile {
    /// The frames of the WAL at the last commit.
    used: Cell<usize>,
    /// The length of the file, in frames: SQLite overwrites it from its beginning after a reset.
    allocated: Cell<usize>,
    /// The length to which the next reset cuts the file, in frames.
    limit: Cell<usize>,
}

impl Default for WalFile {
    fn default() -> Self {
        Self { used: Cell::default(), allocated: Cell::default(), limit: Cell::new(KEPT_FRAMES) }
    }
}

impl WalFile {
    /// Updates the limit for a WAL of this many frames; returns it if it has changed.
    fn update_limit(&self, frames: usize) -> Option<usize> {
        if frames < self.used.replace(frames) {
            // The WAL was reset.
            self.allocated.set(self.allocated.get().min(self.limit.get()));
        }
        let allocated = self.allocated.get().max(frames);
        self.allocated.set(allocated);
        let limit = (allocated / STEP_FRAMES).saturating_sub(1) * STEP_FRAMES;
        let limit = limit.max(KEPT_FRAMES);
        (self.limit.replace(limit) != limit).then_some(limit)
    }

    /// After a commit that leaves this many frames in the WAL.
    pub fn limit_size(&self, connection: &Connection, frames: usize) -> rusqlite::Result<()> {
        self.update_limit(frames).map_or(Ok(()), |limit| set_limit(connection, limit))
    }
}

/// The limit of a new connection.
pub fn set_first_limit(connection: &Connection) -> rusqlite::Result<()> {
    set_limit(connection, KEPT_FRAMES)
}

fn set_limit(connection: &Connection, frames: usize) -> rusqlite::Result<()> {
    let bytes = i64::try_from(frames * FRAME_BYTES).unwrap_or(i64::MAX);
    connection.pragma_update(None, "journal_size_limit", bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::sqlite::checkpoint;

    #[test]
    fn wal_file_shrinks_by_one_step_at_each_reset() {
        let file = WalFile::default();
        assert_eq!(file.update_limit(2_000), None);
        assert_eq!(file.update_limit(KEPT_FRAMES + STEP_FRAMES), None);
        let longest = KEPT_FRAMES + 4 * STEP_FRAMES;
        assert_eq!(file.update_limit(longest), Some(longest - STEP_FRAMES));
        assert_eq!(file.update_limit(longest + 1), None, "less than a step longer");
        for cut in 1..=3 {
            let limit = longest - (cut + 1) * STEP_FRAMES;
            assert_eq!(file.update_limit(10), Some(limit), "reset {cut}");
            assert_eq!(file.update_limit(2_000), None);
        }
        assert_eq!(file.update_limit(10), None, "it has its normal length again");
    }

    #[test]
    fn wal_file_has_the_size_of_its_limit_after_a_reset() {
        let path = std::env::temp_dir().join(format!("nouns-wal-file-{}.db", std::process::id()));
        let connection = Connection::open(&path).unwrap();
        connection.pragma_update(None, "journal_mode", "wal").unwrap();
        connection.pragma_update(None, "wal_autocheckpoint", 0).unwrap();
        set_first_limit(&connection).unwrap();
        connection.execute_batch("CREATE TABLE t (a)").unwrap();
        let (file, wal) = (WalFile::default(), path.with_extension("db-wal"));
        let frames = || usize::try_from(wal.metadata().unwrap().len()).unwrap() / FRAME_BYTES;
        let write = |count: usize| {
            let sql = format!(
                "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count}) \
                 INSERT INTO t SELECT zeroblob(4000) FROM n"
            );
            connection.execute_batch(&sql).unwrap();
        };
        write(KEPT_FRAMES + 3 * STEP_FRAMES);
        let longest = frames();
        file.limit_size(&connection, longest).unwrap();
        let mut lengths = vec![longest];
        for _ in 0..4 {
            checkpoint::checkpoint(&connection, checkpoint::PASSIVE).unwrap();
            write(1);
            lengths.push(frames());
            file.limit_size(&connection, 2).unwrap();
            write(1);
            file.limit_size(&connection, 3).unwrap();
        }
        drop(connection);
        let _ = std::fs::remove_file(&path);
        let cuts = lengths.windows(2).map(|pair| pair[0] - pair[1]).collect::<Vec<_>>();
        assert!(cuts.iter().all(|cut| *cut <= 2 * STEP_FRAMES), "{lengths:?}");
        assert_eq!(lengths.last(), Some(&KEPT_FRAMES), "{lengths:?}");
    }
}
