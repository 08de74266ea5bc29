//! Partial writes: the disk takes only a part of a write.
//!
//! strace could only pretend that a part was written; the kernel does it, with a limit on the size of
//! files: the write that crosses the limit ends there, at any byte, and the next one fails. This stands
//! for a file system that runs out in the middle of a page, with another error than ENOSPC.
//! The signal that comes with it (SIGXFSZ) has to be ignored, or it ends the server.

use std::fs;

use super::faults::check_writing_stopped;
use super::leftover_database::{LeftoverDatabase, copy_folder};
use super::seeded_random::{SeededRandom, print_seed};
use super::serving::{VerdictTotals, judge_running_server, run_burst, setup, start};
use crate::harness::is_soak;

/// Runs the server with files of at most `$0` bytes.
const LIMITED: &str = "trap '' XFSZ; exec prlimit --fsize=\"$0\" \"$@\"";

fn rounds() -> usize {
    if is_soak() { 100 } else { 3 }
}

#[test]
fn partial_write_at_any_byte_loses_nothing() {
    let left = LeftoverDatabase::empty();
    let mut chance = SeededRandom::new(print_seed("short"));
    let mut figures = VerdictTotals::default();
    for _ in 0..rounds() {
        // More than the database has; less than the WAL would reach before its first checkpoint.
        let bytes = 80_000 + chance.below(1_500_000);
        let of = format!("{}, files of at most {bytes} bytes", left.seed_text);
        let mut ledger = left.ledger.clone();
        let limit = bytes.to_string();
        let limited = setup().run_under(&["bash", "-c", LIMITED, &limit]);
        let server = limited.start_in(copy_folder(left.folder.path()));
        run_burst(&server, &mut ledger, 100);
        check_writing_stopped(&server, &of);
        let folder = server.kill();
        let log = fs::metadata(folder.path().join("nouns.db-wal")).unwrap();
        assert_eq!(log.len(), u64::try_from(bytes).unwrap(), "{of}: the write was not cut there");
        let server = start(folder);
        let verdict = judge_running_server(&server, &mut ledger, &of);
        figures.add(&verdict);
        run_burst(&server, &mut ledger, 1);
        judge_running_server(&server, &mut ledger, &of);
    }
    println!("short writes: {figures}");
}
