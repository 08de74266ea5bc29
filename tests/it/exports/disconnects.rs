//! Export clients that disconnect or stall: their resources are freed, and no writer waits for them.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Export, ExportEnd, NDJSON, start_with_entries, wait_for_metric};
use crate::harness::{Backend, Server, run_sql, wait_until};

const ROWS: usize = 60_000;

fn threads(server: &Server) -> usize {
    fs::read_dir(format!("/proc/{}/task", server.process_id())).unwrap().count()
}

/// Sends bulk creates; returns the duration of each.
fn bulk_create_times(server: &Server, times: usize, mut after: impl FnMut()) -> Vec<Duration> {
    let text = "y".repeat(300);
    let new: Vec<Value> = (0..500).map(|number| json!({"number": number, "text": text})).collect();
    let body = json!({"entries": new}).to_string();
    let mut client = server.client();
    let mut took = Vec::new();
    for _ in 0..times {
        let began = Instant::now();
        let answer = client.request("POST /entries", &[], &body);
        took.push(began.elapsed());
        assert_eq!(answer.status, 201, "{answer:?}");
        after();
    }
    took.sort();
    took
}

on_every_backend! {
    fn export_client_disconnect_frees_all_resources(backend: Backend) {
        let server = start_with_entries(backend, ROWS, "");
        assert_eq!(Export::begin(&server, NDJSON).rest().1, ExportEnd::Complete);
        wait_for_metric(&server, "nouns_exports_in_flight", 0);
        wait_until("the thread of the first one is gone", || (server.metric("nouns_streams_in_flight") == Some(0)).then_some(()));
        let before = threads(&server);
        let exports: Vec<Export> = (0..8).map(|_| Export::begin(&server, NDJSON)).collect();
        wait_for_metric(&server, "nouns_exports_in_flight", 8);
        assert_eq!(server.metric("nouns_streams_in_flight"), Some(8));
        drop(exports);
        wait_for_metric(&server, "nouns_exports_in_flight", 0);
        wait_for_metric(&server, "nouns_streams_in_flight", 0);
        wait_for_metric(&server, "nouns_streams_ended_total{end=\"left\"}", 8);
        wait_until("the threads are gone", || (threads(&server) <= before).then_some(()));
        if backend == Backend::Postgres {
            // The pool may have grown meanwhile; the connection of an export is not in use any more.
            wait_until("the connections are closed", || {
                let open: Option<u64> = server.metric("nouns_pool_connections_open");
                (open.is_some() && server.metric("nouns_pool_connections_idle") == open).then_some(())
            });
            wait_until("the database has no transaction left open", || {
                let left = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in%'";
                (run_sql(backend, server.folder(), left).trim() == "0").then_some(())
            });
        }
    }
}

fn wal_bytes(server: &Server) -> u64 {
    fs::metadata(server.folder().join("nouns.db-wal")).map_or(0, |file| file.len())
}

/// A stalled reader keeps SQLite from restarting the WAL; the server ends the export before the WAL has
/// grown far, and writers do not wait for it.
#[test]
fn export_stalled_is_cut_before_the_wal_grows_or_writers_wait() {
    // Clients that do not read may make it grow to a sixteenth of the limit: 16 MiB.
    let server = start_with_entries(
        Backend::Sqlite,
        ROWS,
        "export_wal_bytes_max = 268435456\nstream_idle_seconds_max = 600\nsend_seconds_max = 600",
    );
    let alone = bulk_create_times(&server, 60, || ());
    let mut stalled = Export::begin(&server, NDJSON);
    wait_for_metric(&server, "nouns_exports_in_flight", 1);
    let mut most = 0;
    let beside = bulk_create_times(&server, 60, || most = most.max(wal_bytes(&server)));
    println!("log file {most} bytes at most; writes {:?} and {:?}", alone[30], beside[30]);
    wait_until("it is ended", || {
        bulk_create_times(&server, 1, || most = most.max(wal_bytes(&server)));
        (server.metric("nouns_exports_in_flight") == Some(0)).then_some(())
    });
    assert!(most < 64 << 20, "the log file had {most} bytes");
    assert_eq!(stalled.rest().1, ExportEnd::Cut);
    wait_until("the log says why", || {
        server.log().contains("the WAL of the database has grown too large").then_some(())
    });
    // Other programs may begin or end meanwhile, so that the machine is as slow as before the export or as after it.
    let after = bulk_create_times(&server, 20, || ());
    let slower = alone[30].max(after[10]);
    assert!(
        beside[30] < slower * 3 + Duration::from_millis(50),
        "{:?} beside it, {:?} before, {:?} after",
        beside[30],
        alone[30],
        after[10]
    );
    // Once the export is gone, the WAL restarts.
    wait_until("the file begins anew", || {
        bulk_create_times(&server, 1, || ());
        (server.metric("nouns_sqlite_wal_pages") < Some(4_000)).then_some(())
    });
}

/// A client that reads may continue, up to the whole limit.
#[test]
fn export_being_read_may_let_the_wal_grow_further() {
    let server = start_with_entries(Backend::Sqlite, ROWS, "export_wal_bytes_max = 67108864");
    let mut export = Export::begin(&server, NDJSON);
    wait_for_metric(&server, "nouns_exports_in_flight", 1);
    // It reads a few MB/s, whatever the writes take, and so never stalls. When they have ended, it need not take long.
    let have_writes_ended = Arc::new(AtomicBool::new(false));
    let is_reader_fast = Arc::clone(&have_writes_ended);
    let reader = thread::spawn(move || {
        let mut bytes = 0;
        loop {
            match export.next() {
                Ok(piece) => bytes += piece.len(),
                Err(end) => return (bytes, end),
            }
            if !is_reader_fast.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(5));
            }
        }
    });
    wait_until("the WAL has grown beyond what a stalled export may cause", || {
        bulk_create_times(&server, 1, || ());
        (wal_bytes(&server) > 5 << 20).then_some(())
    });
    have_writes_ended.store(true, Ordering::Relaxed);
    let (bytes, end) = reader.join().unwrap();
    assert_eq!(end, ExportEnd::Complete);
    assert!(bytes > ROWS * 400);
}
