//! A leftover database of a stopped or killed server, from which tests start again and again.

use std::fs;
use std::path::Path;

use super::chance::seed;
use super::ledger::{CHECKPOINT_PAGES, FRAME_BYTES, Ledger};
use super::serving::{burst, check, start};
use crate::harness::{Folder, wait_until};

#[derive(Debug)]
pub struct Left {
    pub folder: Folder,
    /// The ledger of its responses.
    pub ledger: Ledger,
    /// The seed, for messages.
    pub of: String,
}

impl Left {
    fn new() -> Self {
        let seed = seed("left");
        let ledger = Ledger::new(seed);
        Self { folder: start(Folder::new()).stop(), ledger, of: format!("NOUNS_SEED={seed}") }
    }

    /// A store with empty tables, stopped gracefully.
    pub fn empty() -> Self {
        Self::new()
    }

    /// A store that was killed when its WAL was nearly long enough for a checkpoint.
    pub fn grown() -> Self {
        let Self { folder, mut ledger, of } = Self::new();
        let server = start(folder);
        let log = server.folder().join("nouns.db-wal");
        wait_until("the log file has grown", || {
            burst(&server, &mut ledger, 1);
            (fs::metadata(&log).unwrap().len() > CHECKPOINT_PAGES * 4 / 5 * FRAME_BYTES)
                .then_some(())
        });
        check(&server, &mut ledger, &of);
        Self { folder: server.kill(), ledger, of }
    }
}

/// A copy of a folder.
pub fn copy(from: &Path) -> Folder {
    let folder = Folder::new();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
    }
    folder
}
