//! Memory of an export, which does not depend on the size of the collection.
//!
//! `NOUNS_SOAK` selects a million rows.

use std::fs;

use super::{CSV, Export, ExportEnd, NDJSON, PATIENT, start_with_entries, wait_for_metric};
use crate::harness::{Backend, Server, is_soak};

const GROWTH_MAX: u64 = 16 << 20;

/// A figure of the process's memory, in bytes.
fn process_memory_bytes(server: &Server, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.process_id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
}

/// Resets the peak memory.
fn reset_peak_memory(server: &Server) {
    fs::write(format!("/proc/{}/clear_refs", server.process_id()), "5").unwrap();
}

fn count_rows_and_bytes(server: &Server, accept: &str) -> (usize, usize) {
    let mut export = Export::begin(server, accept);
    let (mut lines, mut bytes) = (0, 0);
    loop {
        match export.next() {
            Ok(piece) => {
                lines += piece.iter().filter(|byte| **byte == b'\n').count();
                bytes += piece.len();
            }
            Err(end) => {
                assert_eq!(end, ExportEnd::Complete);
                return (lines, bytes);
            }
        }
    }
}

on_every_backend! {
    fn export_memory_is_bounded(backend: Backend) {
        let rows = if is_soak() { 1_000_000 } else { 50_000 };
        let server = start_with_entries(backend, rows, "stream_seconds_max = 3600");
        // Warm-up, for allocations that are made once.
        assert_eq!(server.get("/entries?limit=1").status, 200);
        let before = process_memory_bytes(&server, "VmRSS");
        reset_peak_memory(&server);
        let (lines, bytes) = count_rows_and_bytes(&server, NDJSON);
        assert!(lines == rows && bytes > rows * 400, "{lines} lines, {bytes} bytes");
        assert_eq!(count_rows_and_bytes(&server, CSV).0, rows + 1);
        let most = process_memory_bytes(&server, "VmHWM");
        let growth = most.saturating_sub(before);
        println!("{rows} rows, {bytes} bytes: memory from {before} to {most}, {growth} more");
        assert!(growth < GROWTH_MAX, "{growth} bytes more");
    }

    /// Each has a connection and, with SQLite, a thread, and a few buffered chunks.
    fn export_memory_is_small_for_each_of_many(backend: Backend) {
        let server = start_with_entries(backend, 40_000, &format!("streams_per_caller_max = 100\n{PATIENT}"));
        assert_eq!(server.get("/entries?limit=1").status, 200);
        let before = process_memory_bytes(&server, "VmRSS");
        reset_peak_memory(&server);
        let exports: Vec<Export> = (0..32).map(|_| Export::begin(&server, NDJSON)).collect();
        assert!(exports.iter().all(|export| export.status() == 200));
        wait_for_metric(&server, "nouns_exports_in_flight", 32);
        let each = process_memory_bytes(&server, "VmHWM").saturating_sub(before) / 32;
        println!("{each} bytes for each of 32");
        assert!(each < 2 << 20, "{each} bytes for each");
        drop(exports);
        wait_for_metric(&server, "nouns_exports_in_flight", 0);
    }
}
