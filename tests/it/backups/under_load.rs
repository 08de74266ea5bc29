//! Backups while clients create items: every item that was answered before the backup began is in it, and its
//! change log is a prefix of the server's.
//!
//! `NOUNS_SOAK=1` copies a larger database under more clients, and prints the latencies of creates.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::run;
use crate::exports::{NDJSON, start_with_entries};
use crate::harness::{
    Backend, Client, Folder, Postgres, Process, Server, Setup, is_soak, run_nouns, wait_until,
};

/// The size of a run.
struct LoadSize {
    rows: usize,
    clients: usize,
    creates_before: usize,
    creates_after: usize,
}

impl LoadSize {
    fn choose() -> Self {
        match is_soak() {
            false => Self { rows: 5_000, clients: 4, creates_before: 200, creates_after: 100 },
            true => {
                Self { rows: 300_000, clients: 64, creates_before: 20_000, creates_after: 20_000 }
            }
        }
    }
}

/// Answered creates, in the order of their answers.
#[derive(Default)]
struct AnsweredCreates {
    paths: Mutex<Vec<(String, Duration)>>,
    is_over: AtomicBool,
}

impl AnsweredCreates {
    fn count(&self) -> usize {
        self.paths.lock().unwrap().len()
    }

    /// Waits until so many more were answered.
    fn wait_for_more(&self, more: usize) {
        let target = self.count() + more;
        wait_until("more creates are answered", || (self.count() >= target).then_some(()));
    }

    fn run_client(&self, client: &mut Client) {
        let body = json!({"entry": {"number": 1, "text": "x".repeat(200)}}).to_string();
        while !self.is_over.load(Ordering::Relaxed) {
            let began = Instant::now();
            let answer = client.request("POST /entries", &[], &body);
            assert_eq!(answer.status, 201, "{answer:?}");
            let path = answer.header("Location").unwrap().to_owned();
            self.paths.lock().unwrap().push((path, began.elapsed()));
        }
    }

    /// The 99th percentile of the creates with these numbers.
    fn describe(&self, range: std::ops::Range<usize>) -> String {
        let mut times: Vec<_> =
            self.paths.lock().unwrap()[range].iter().map(|(_, time)| *time).collect();
        times.sort();
        let at = |part: usize| times.get(times.len() * part / 1_000).copied().unwrap_or_default();
        let last = times.last().copied().unwrap_or_default();
        format!(
            "{} creates, median {:?}, 99 % {:?}, longest {last:?}",
            times.len(),
            at(500),
            at(990)
        )
    }
}

/// Ends the clients, also when the test fails.
struct EndOnDrop<'a>(&'a AtomicBool);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Copies the database of the server in the documented way.
fn copy_database(server: &Server, place: &Folder) {
    let file = place.path().join("copy");
    let file = file.to_str().unwrap();
    match server.backend() {
        Backend::Sqlite => drop(run(server.folder(), &["backup", file])),
        Backend::Postgres => run_shell(&postgres_commands(server, file)[0]),
    }
}

/// The lines that `nouns backup` prints: the dump, and its restore.
fn postgres_commands(server: &Server, file: &str) -> [String; 2] {
    let ended = run_nouns(server.folder(), &["backup", file, "--database", &server.database()]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    let lines = ended.stderr.lines().filter_map(|line| line.strip_prefix("  "));
    lines.map(str::to_owned).collect::<Vec<_>>().try_into().unwrap()
}

fn run_shell(line: &str) {
    let ended = Process::spawn(Command::new("sh").args(["-ec", line])).end();
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{line}");
}

/// Restores the copy and serves it.
fn serve_copy(server: &Server, place: Folder) -> Server {
    let file = place.path().join("copy");
    let file = file.to_str().unwrap();
    match server.backend() {
        Backend::Sqlite => drop(run(place.path(), &["restore", file])),
        Backend::Postgres => {
            place.with_database(Postgres::create_database);
            let url = Postgres::shared().database_url(&Postgres::database_name(place.path()));
            let restore = &postgres_commands(server, file)[1];
            run_shell(&restore.replace("postgres://USER@HOST/NEW", &url));
        }
    }
    let model = fs::read_to_string(server.folder().join("model.toml")).unwrap();
    Setup::new(server.backend()).model(&model).start_in(place)
}

fn change_log(server: &Server) -> Vec<String> {
    let log = run(server.folder(), &["changes", "model.toml", "--database", &server.database()]);
    log.lines().map(str::to_owned).collect()
}

fn entries(server: &Server) -> BTreeSet<String> {
    let answer = server.request("GET /entries", &[("Accept", NDJSON)], "");
    assert_eq!(answer.status, 200);
    answer.text().lines().map(str::to_owned).collect()
}

fn member(line: &str, name: &str) -> Value {
    serde_json::from_str::<Value>(line).unwrap()[name].clone()
}

on_every_backend! {
    fn backup_during_creates_has_all_answered_items(backend: Backend) {
        let size = LoadSize::choose();
        let server = start_with_entries(backend, size.rows, "");
        let answered = AnsweredCreates::default();
        let place = Folder::new();
        let (began, ended) = thread::scope(|scope| {
            let _end = EndOnDrop(&answered.is_over);
            for _ in 0..size.clients {
                scope.spawn(|| answered.run_client(&mut Client::connect(server.address)));
            }
            answered.wait_for_more(size.creates_before);
            let began = answered.count();
            copy_database(&server, &place);
            let ended = answered.count();
            answered.wait_for_more(size.creates_after);
            (began, ended)
        });
        println!("{backend:?} before the backup: {}", answered.describe(0..began));
        println!("{backend:?} during the backup: {}", answered.describe(began..ended));
        println!("{backend:?} after the backup: {}", answered.describe(ended..answered.count()));
        println!("{backend:?} copy: {} bytes", fs::metadata(place.path().join("copy")).unwrap().len());

        let copy = serve_copy(&server, place);
        let (copied, all) = (entries(&copy), entries(&server));
        assert!(copied.is_subset(&all), "the copy has other items");
        let ids: BTreeSet<String> = copied.iter().map(|line| format!("/entries/{}", member(line, "id"))).collect();
        for (path, _) in &answered.paths.lock().unwrap()[..began] {
            assert!(ids.contains(path), "{path} was answered before the backup began");
        }
        let (log, whole_log) = (change_log(&copy), change_log(&server));
        assert_eq!(log.len() + size.rows, copied.len(), "a change for each created item");
        assert!(log.len() < whole_log.len(), "the creates went on after the backup");
        match backend {
            Backend::Sqlite => {
                assert!(whole_log.starts_with(&log), "the log is a prefix");
                let numbers: Vec<_> = log.iter().map(|line| member(line, "sequence")).collect();
                assert_eq!(numbers, (1..=log.len()).map(Value::from).collect::<Vec<_>>());
            }
            // Transactions commit in another order than that of their numbers.
            Backend::Postgres => {
                let whole_log: BTreeSet<_> = whole_log.iter().collect();
                assert!(log.iter().all(|line| whole_log.contains(line)));
            }
        }
        // The copy is a database like any other.
        let last = log.last().map(|line| member(line, "sequence")).unwrap();
        copy.create("/entries", r#"{"entry":{"number":2}}"#);
        let next = member(change_log(&copy).last().unwrap(), "sequence");
        assert!(next.as_i64() > last.as_i64(), "{next} after {last}");
    }
}
