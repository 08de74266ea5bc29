//! Limits of exports: their number and their duration, and the response to those that exceed them.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{CSV, Export, ExportEnd, NDJSON, PATIENT, model, start_with_entries, wait_for_metric};
use crate::harness::{Backend, Postgres, Server, Setup, run_sql, wait_until};

/// More than the socket buffers hold for a client that does not read.
const ROWS: usize = 60_000;

/// For requests in flight.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(10);

/// An export under a limit of one second. If that is over before the first row is there, as it may be on a slow machine,
/// the response is an error, and the next attempt counts.
fn begin_in_time(server: &Server) -> Export {
    wait_until("an export has begun in time", || {
        let export = Export::begin(server, NDJSON);
        match export.status() {
            200 => Some(export),
            status => {
                assert_eq!(status, 503);
                None
            }
        }
    })
}

/// The log lines about exports that were cut.
fn logged_cuts(server: &Server) -> Vec<Value> {
    let log = server.log();
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["cut"] == true).collect()
}

fn wait_for_cut(server: &Server, words: &str) -> Value {
    let cut = wait_until("the cut is in the log", || logged_cuts(server).pop());
    let cause = cut["cause"].as_str().unwrap();
    assert!(cause.contains(words), "{cut}");
    assert_eq!(
        (&cut["level"], &cut["status"], &cut["path"]),
        (&"warning".into(), &200.into(), &"/entries".into())
    );
    assert!(cut["bytes"].as_u64().unwrap() > 0 && cut["stages_us"]["stream"].is_u64(), "{cut}");
    cut
}

on_every_backend! {
    fn export_limit_per_caller_refuses_further_exports(backend: Backend) {
        let server = start_with_entries(backend, ROWS, &format!("streams_per_caller_max = 2\n{PATIENT}"));
        let mut exports = [(); 2].map(|()| Export::begin(&server, NDJSON));
        wait_for_metric(&server, "nouns_streams_in_flight", 2);
        let headers = [("Accept", "text/csv, application/json;q=0.1")];
        let third = server.request("GET /entries", &headers, "");
        assert_eq!((third.status, third.problem()), (429, "too-many-streams".to_owned()));
        assert_eq!(third.header("Retry-After"), Some("1"));
        // Other requests are served as usual.
        assert_eq!(server.get("/entries").status, 200);
        assert_eq!(server.request("GET /entries?limit=1", &headers, "").status, 200);
        assert_eq!(exports[0].rest().1, ExportEnd::Complete);
        wait_for_metric(&server, "nouns_streams_in_flight", 1);
        assert_eq!(Export::begin(&server, CSV).status(), 200);
    }

    fn export_limit_in_total_refuses_further_exports(backend: Backend) {
        for limit in ["streams_max = 1", "exports_max = 1"] {
            let server = start_with_entries(backend, ROWS, &format!("{limit}\n{PATIENT}"));
            let mut first = Export::begin(&server, NDJSON);
            wait_for_metric(&server, "nouns_exports_in_flight", 1);
            let headers = [("Accept", "text/csv, application/json;q=0.1")];
            let second = server.request("GET /entries", &headers, "");
            assert_eq!((second.status, second.problem()), (503, "busy".to_owned()), "{limit}");
            assert_eq!(second.header("Retry-After"), Some("1"));
            assert_eq!(first.rest().1, ExportEnd::Complete);
            wait_for_metric(&server, "nouns_streams_in_flight", 0);
            assert_eq!(Export::begin(&server, CSV).status(), 200, "{limit}");
        }
    }

    fn export_is_cut_when_the_client_does_not_read(backend: Backend) {
        let server = start_with_entries(backend, ROWS, "stream_idle_seconds_max = 1\nsend_seconds_max = 20");
        let mut stalled = begin_in_time(&server);
        // All its resources are freed, although the client has not noticed yet.
        wait_for_metric(&server, "nouns_exports_in_flight", 0);
        assert_eq!(stalled.rest().1, ExportEnd::Cut);
        wait_for_cut(&server, "the client read nothing for 1 second");
        wait_for_metric(&server, "nouns_streams_ended_total{end=\"cut\"}", 1);
    }

    fn export_aborted_with_its_connection_is_logged_with_the_cause(backend: Backend) {
        let server = start_with_entries(backend, ROWS, "stream_idle_seconds_max = 600\nsend_seconds_max = 1");
        let mut stalled = Export::begin(&server, NDJSON);
        wait_for_cut(&server, "the client did not read the response in time");
        wait_for_metric(&server, "nouns_streams_ended_total{end=\"cut\"}", 1);
        assert_eq!(stalled.rest().1, ExportEnd::Cut);
    }

    /// It reads all the time, but not all of it in time.
    fn export_is_cut_when_it_takes_too_long(backend: Backend) {
        let server = start_with_entries(backend, ROWS, "stream_seconds_max = 1");
        let mut slow = begin_in_time(&server);
        let began = Instant::now();
        let end = loop {
            match slow.next() {
                // Simulates the client's own work; the test waits for nothing.
                Ok(_) => thread::sleep(Duration::from_millis(2)),
                Err(end) => break end,
            }
        };
        assert_eq!(end, ExportEnd::Cut, "after {:?}", began.elapsed());
        wait_for_cut(&server, "it took longer than 1 second");
    }

    fn export_is_cut_by_a_storage_fault(backend: Backend) {
        let folder = start_with_entries(backend, ROWS, "").stop();
        let server = Setup::new(backend).model(&model("")).fault("export:5000").start_in(folder);
        let (body, end) = Export::begin(&server, NDJSON).rest();
        assert_eq!(end, ExportEnd::Cut);
        assert!(body.iter().filter(|byte| **byte == b'\n').count() < 5_000);
        wait_for_cut(&server, "planted at export");
        wait_for_metric(&server, "nouns_exports_in_flight", 0);
        assert_eq!(Export::begin(&server, NDJSON).rest().1, ExportEnd::Complete);
    }

    /// HTTP/1.0 has no chunks: a cut is a reset there, not a clean end.
    fn export_cut_over_http_1_0_is_a_reset(backend: Backend) {
        let folder = start_with_entries(backend, 20_000, "").stop();
        let server = Setup::new(backend).model(&model("")).fault("export:15000").start_in(folder);
        let curl = || {
            let mut command = std::process::Command::new("curl");
            command.args(["--disable", "--silent", "--http1.0", "--output", "/dev/null", "--max-time", "100"]);
            command.args(["--header", "Accept: text/csv"]).arg(format!("http://{}/entries", server.address)).env_clear();
            crate::harness::Process::spawn(&mut command).end().code
        };
        assert_eq!(curl(), Some(56), "curl: failure in receiving network data");
        assert_eq!(curl(), Some(0), "the next one is whole");
    }

    /// Exports in flight get the grace period of other requests; then they are cut.
    fn export_is_cut_by_a_graceful_shutdown(backend: Backend) {
        let server = start_with_entries(backend, ROWS, "");
        let mut stalled = Export::begin(&server, NDJSON);
        let mut whole = Export::begin(&server, NDJSON);
        wait_for_metric(&server, "nouns_exports_in_flight", 2);
        let began = Instant::now();
        server.terminate();
        wait_until("it is ending", || server.log().contains("shutting down: finishing").then_some(()));
        // On a machine that is too slow for the rest, the grace period may pass.
        let end = whole.rest().1;
        assert!(end == ExportEnd::Complete || began.elapsed() >= SHUTDOWN_GRACE, "{end:?} after {:?}", began.elapsed());
        let (status, _folder) = server.wait();
        assert_eq!(status.code(), Some(0));
        assert_eq!(stalled.rest().1, ExportEnd::Cut);
    }
}

#[test]
fn export_is_cut_by_a_lost_database_connection() {
    let backend = Backend::Postgres;
    let server = start_with_entries(backend, ROWS, "");
    let mut export = Export::begin(&server, NDJSON);
    wait_for_metric(&server, "nouns_exports_in_flight", 1);
    let name = Postgres::database_name(server.folder());
    let end = format!(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
         WHERE datname = '{name}' AND state = 'idle in transaction' AND query LIKE 'FETCH%'"
    );
    wait_until("it waits for its client, and is ended", || {
        (run_sql(backend, server.folder(), &end).trim() == "1").then_some(())
    });
    assert_eq!(export.rest().1, ExportEnd::Cut);
    wait_for_cut(&server, "");
    wait_for_metric(&server, "nouns_exports_in_flight", 0);
    assert_eq!(Export::begin(&server, NDJSON).rest().1, ExportEnd::Complete);
}
