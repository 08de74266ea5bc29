//! PostgreSQL outages while 16 clients write: restarted, stopped with SIGSTOP, sessions terminated.
//!
//! Every response is compared with what is stored in the end; the server is never restarted.

use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use super::session::PostgresSession;
use super::{ProxiedServer, model, postgres_address};
use crate::harness::{Client, OwnPostgres, Setup, Stopwatch, wait_until};

const CLIENTS: usize = 16;
const LIMITS: &str = "request_seconds_max = 2\nstatement_seconds_max = 2";
/// The limit, five seconds more, and an allowance for a slow machine.
const ANSWER_MAX: Duration = Duration::from_secs(17);

/// The responses so far, as counters.
#[derive(Debug, Default)]
struct LoadProgress {
    is_over: AtomicBool,
    done: AtomicUsize,
    unavailable: AtomicUsize,
}

/// A name, and whether it is stored: `None` when the outcome is unknown.
type WriteRecord = (String, Option<bool>);

/// Writes until the test is over.
fn write_until_over(
    address: SocketAddr,
    number: usize,
    progress: &LoadProgress,
) -> Vec<WriteRecord> {
    let mut client = Client::connect(address);
    let mut told = Vec::new();
    while !progress.is_over.load(Ordering::Relaxed) {
        let name = format!("w{number}-{}", told.len());
        let body = format!(r#"{{"person":{{"name":"{name}"}}}}"#);
        let start = Stopwatch::start();
        let answer = client.request("POST /people", &[], body);
        assert!(start.elapsed() < ANSWER_MAX, "{:?} for {answer:?}", start.elapsed());
        if answer.status == 201 {
            progress.done.fetch_add(1, Ordering::Relaxed);
            told.push((name, Some(true)));
            continue;
        }
        assert_eq!(answer.status, 503, "{answer:?}");
        assert!(answer.header("Retry-After").is_some(), "{answer:?}");
        progress.unavailable.fetch_add(1, Ordering::Relaxed);
        let is_unknown = answer.problem() == "outcome-unknown";
        told.push((name, if is_unknown { None } else { Some(false) }));
    }
    told
}

/// Runs the clients during an outage, and compares their responses with what is stored.
fn run_under_load(
    address: SocketAddr,
    happens: impl FnOnce(&LoadProgress),
    beside: impl FnOnce() -> PostgresSession,
) {
    let progress = &LoadProgress::default();
    let told: Vec<WriteRecord> = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|number| scope.spawn(move || write_until_over(address, number, progress)))
            .collect();
        // A failure here must not leave the clients running.
        let over = StopWritersOnDrop(progress);
        progress.wait_for_progress("before");
        happens(progress);
        progress.wait_for_progress("afterwards");
        drop(over);
        clients.into_iter().flat_map(|client| client.join().unwrap()).collect()
    });
    let stored = beside().rows("SELECT name, count(*) FROM people GROUP BY name");
    let count = |name: &str| stored.iter().find(|row| row[0] == name).map_or("0", |row| &*row[1]);
    let unknown = told.iter().filter(|(_, is_stored)| is_stored.is_none()).count();
    println!(
        "{} told, {} refused, {unknown} unknown",
        told.len(),
        progress.unavailable.load(Ordering::Relaxed)
    );
    for (name, is_stored) in &told {
        match (is_stored, count(name)) {
            (Some(true), "1") | (Some(false), "0") | (None, "0" | "1") => {}
            (said, found) => panic!("{name}: told {said:?}, and it is there {found} times"),
        }
    }
}

struct StopWritersOnDrop<'a>(&'a LoadProgress);

impl Drop for StopWritersOnDrop<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, Ordering::Relaxed);
    }
}

impl LoadProgress {
    /// Waits until all clients write again.
    fn wait_for_progress(&self, when: &str) {
        let before = self.done.load(Ordering::Relaxed);
        wait_until(&format!("writes go on {when}"), || {
            (self.done.load(Ordering::Relaxed) >= before + 4 * CLIENTS).then_some(())
        });
    }
}

#[test]
fn postgres_restarted_or_paused_under_load_responses_are_true() {
    let database = OwnPostgres::start();
    let server = Setup::replica(database.database_url("postgres")).model(&model(LIMITS)).start();
    let beside = || PostgresSession::open(postgres_address(&database), "postgres");
    let happens = |progress: &LoadProgress| {
        database.restart("fast");
        progress.wait_for_progress("after a restart");
        database.restart("immediate");
        progress.wait_for_progress("after a crash");
        let refused = progress.unavailable.load(Ordering::Relaxed);
        let paused = pause(&database);
        wait_until("clients are refused", || {
            (progress.unavailable.load(Ordering::Relaxed) >= refused + CLIENTS).then_some(())
        });
        signal("CONT", &paused);
    };
    run_under_load(server.address, happens, beside);
    server.stop();
}

/// Stops all processes of a server with SIGSTOP.
fn pause(database: &OwnPostgres) -> Vec<String> {
    let mut session = PostgresSession::open(postgres_address(database), "postgres");
    let first = database.process_id();
    // It starts no further processes from here on.
    signal("STOP", std::slice::from_ref(&first));
    let rows = session.rows("SELECT pid FROM pg_stat_activity WHERE pid <> pg_backend_pid()");
    let others: Vec<_> = rows.into_iter().flatten().collect();
    signal("STOP", &others);
    [vec![first], others].concat()
}

fn signal(name: &str, processes: &[String]) {
    let line = format!("kill -{name} {}", processes.join(" "));
    // One of them may have ended by itself.
    let _ended = Command::new("sh").args(["-c", &line]).status().unwrap();
}

#[test]
fn postgres_sessions_terminated_under_load_responses_are_true() {
    let ProxiedServer { server, session, .. } = &mut ProxiedServer::start(LIMITS);
    let name = session.value("SELECT current_database()");
    let end_all = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
         WHERE datname = current_database() AND application_name <> 'beside'";
    let happens = |progress: &LoadProgress| {
        for _ in 0..20 {
            session.rows(end_all);
            progress.wait_for_progress("after the end of all sessions");
        }
    };
    let beside =
        || PostgresSession::open(postgres_address(&crate::harness::Postgres::shared()), &name);
    run_under_load(server.address, happens, beside);
}
