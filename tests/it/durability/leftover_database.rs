//! A leftover database of a stopped or killed server, from which tests start again and again.

use std::fs;
use std::path::Path;

use super::ledger::{CHECKPOINT_PAGES, FRAME_BYTES, Ledger};
use super::seeded_random::print_seed;
use super::serving::{judge_running_server, run_burst, start};
use crate::harness::{Folder, wait_until};

#[derive(Debug)]
pub struct LeftoverDatabase {
    pub folder: Folder,
    /// The ledger of its responses.
    pub ledger: Ledger,
    /// The seed, for messages.
    pub seed_text: String,
}

impl LeftoverDatabase {
    fn new() -> Self {
        let seed = print_seed("left");
        let ledger = Ledger::new(seed);
        Self {
            folder: start(Folder::new()).stop(),
            ledger,
            seed_text: format!("NOUNS_SEED={seed}"),
        }
    }

    /// A store with empty tables, stopped gracefully.
    pub fn empty() -> Self {
        Self::new()
    }

    /// A store that was killed when its WAL was nearly long enough for a checkpoint.
    pub fn grown() -> Self {
        let Self { folder, mut ledger, seed_text: of } = Self::new();
        let server = start(folder);
        let log = server.folder().join("nouns.db-wal");
        wait_until("the log file has grown", || {
            run_burst(&server, &mut ledger, 1);
            (fs::metadata(&log).unwrap().len() > CHECKPOINT_PAGES * 4 / 5 * FRAME_BYTES)
                .then_some(())
        });
        judge_running_server(&server, &mut ledger, &of);
        Self { folder: server.kill(), ledger, seed_text: of }
    }
}

/// A copy of a folder.
pub fn copy_folder(from: &Path) -> Folder {
    let folder = Folder::new();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        fs::copy(&path, folder.path().join(path.file_name().unwrap())).unwrap();
    }
    folder
}
