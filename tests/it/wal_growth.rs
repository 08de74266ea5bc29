//! Growth of SQLite's WAL: it stays bounded while lists that read every row are requested without a
//! pause, and other clients write.
//!
//! `NOUNS_SOAK=1` runs the load for ten minutes; the short version writes as much as would make the WAL
//! exceed its bound.

use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use serde_json::json;

use crate::exports::start_with_entries;
use crate::harness::{Backend, Client, Server, is_soak, wait_until};

const ROWS: usize = 40_000;
const CLIENTS: usize = 4;
/// The server delays long reads from 32 MiB on; writes during those in flight come on top of it. Without
/// the delay the WAL has 170 MB in the end.
const LOG_BYTES_MAX: u64 = 96 << 20;

/// The durations of requests of one kind.
#[derive(Default)]
struct Latencies(Mutex<Vec<Duration>>);

impl Latencies {
    fn measure(&self, client: &mut Client, line: &str, body: &str, expected: &[u16]) {
        let began = Instant::now();
        let answer = client.request(line, &[], body);
        assert!(expected.contains(&answer.status), "{line}: {answer:?}");
        self.0.lock().unwrap().push(began.elapsed());
    }

    fn summary(&self) -> String {
        let mut all = self.0.lock().unwrap().clone();
        all.sort();
        let at = |part: usize| all.get(all.len() * part / 1_000).copied().unwrap_or_default();
        let last = all.last().copied().unwrap_or_default();
        format!(
            "{} requests, median {:?}, 99 % {:?}, longest {last:?}",
            all.len(),
            at(500),
            at(990)
        )
    }
}

/// The load: when it ends, and the items of each write.
struct WriteLoad {
    writes_max: usize,
    until: Option<Instant>,
    text_bytes: usize,
    list_statuses: &'static [u16],
}

/// Runs the load and returns the largest size of the WAL.
fn run_load(server: &Server, load: &WriteLoad) -> u64 {
    let (lists, writes, reads) =
        (&Latencies::default(), &Latencies::default(), &Latencies::default());
    let (is_over, written) = (&AtomicBool::new(false), &AtomicUsize::new(0));
    let body = &json!({"entry": {"number": 1, "text": "z".repeat(load.text_bytes)}}).to_string();
    let (address, log) = (server.address, server.folder().join("nouns.db-wal"));
    let mut largest = 0;
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(move || {
                let mut client = Client::connect(address);
                while !is_over.load(Ordering::Relaxed) {
                    lists.measure(
                        &mut client,
                        "GET /entries?sort=updated_at&limit=1",
                        "",
                        load.list_statuses,
                    );
                }
            });
        }
        scope.spawn(move || {
            let mut client = Client::connect(address);
            while !is_over.load(Ordering::Relaxed) {
                reads.measure(&mut client, "GET /entries/7", "", &[200]);
            }
        });
        let writers: Vec<_> = (0..CLIENTS)
            .map(|_| {
                scope.spawn(move || {
                    let mut client = Client::connect(address);
                    while written.fetch_add(1, Ordering::Relaxed) < load.writes_max
                        && load.until.is_none_or(|until| Instant::now() < until)
                    {
                        writes.measure(&mut client, "POST /entries", body, &[201]);
                    }
                })
            })
            .collect();
        while writers.iter().any(|writer| !writer.is_finished()) {
            largest = largest.max(fs::metadata(&log).map_or(0, |file| file.len()));
            thread::park_timeout(Duration::from_millis(20));
        }
        is_over.store(true, Ordering::Relaxed);
    });
    println!("log file: {largest} bytes at most");
    println!(
        "lists: {}\nwrites: {}\nitems: {}",
        lists.summary(),
        writes.summary(),
        reads.summary()
    );
    let resets = |outcome| {
        server.metric::<u64>(&format!("nouns_sqlite_wal_resets_total{{outcome=\"{outcome}\"}}"))
    };
    println!("resets: {:?} done, {:?} given up", resets("done"), resets("given_up"));
    largest
}

#[test]
fn wal_growth_during_sorted_lists_is_bounded() {
    // The long version keeps the default statement limit, at which a list on a busy machine may end in 503.
    let (limits, load) = match is_soak() {
        true => (
            "",
            WriteLoad {
                writes_max: usize::MAX,
                until: Some(Instant::now() + Duration::from_secs(600)),
                text_bytes: 300,
                list_statuses: &[200, 503],
            },
        ),
        false => (
            "statement_seconds_max = 30",
            WriteLoad { writes_max: 3_000, until: None, text_bytes: 20_000, list_statuses: &[200] },
        ),
    };
    let server = start_with_entries(Backend::Sqlite, ROWS, limits);
    let largest = run_load(&server, &load);
    assert!(largest < LOG_BYTES_MAX, "the log file had {largest} bytes");
}

/// A reader of another process blocks the reset of the WAL for as long as it wants. Writes must not wait for it, and the
/// WAL is reset after it has left.
#[test]
fn wal_reset_does_not_wait_for_a_reader_of_another_process() {
    let server = start_with_entries(Backend::Sqlite, 10, "export_wal_bytes_max = 8388608");
    let body = json!({"entry": {"number": 1, "text": "z".repeat(20_000)}}).to_string();
    let create = || assert_eq!(server.post("/entries", &body).status, 201);
    (0..30).for_each(|_| create());
    let reader = Connection::open(server.folder().join("nouns.db")).unwrap();
    reader.execute_batch("BEGIN").unwrap();
    reader.query_row("SELECT count(*) FROM entries", [], |_| Ok(())).unwrap();
    // A checkpoint between the two requests counts as a fast one.
    let checkpoints = |which: &str| {
        server.metric::<u64>(&format!("nouns_sqlite_checkpoint_seconds_{which}")).unwrap()
    };
    let slow_checkpoints =
        || checkpoints("count").saturating_sub(checkpoints("bucket{le=\"0.1\"}"));
    let before = slow_checkpoints();
    (0..500).for_each(|_| create());
    wait_until("a reset is given up", || {
        let outcome = "nouns_sqlite_wal_resets_total{outcome=\"given_up\"}";
        server.metric::<u64>(outcome).filter(|count| *count > 0)
    });
    // Each RESTART waits a tenth of a second for the reader, and there is one for each write of a hold, which takes a
    // second: without the condition 59 were counted. A busy machine makes some checkpoints slow in any case.
    let slow = slow_checkpoints().saturating_sub(before);
    assert!(slow < 25, "{slow} checkpoints took more than a tenth of a second");
    drop(reader);
    wait_until("the WAL begins again", || {
        create();
        let pages: u64 = server.metric("nouns_sqlite_wal_pages").unwrap();
        (pages < 512).then_some(())
    });
}
