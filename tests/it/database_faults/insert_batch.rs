//! Faults during insert batches: concurrent creates, with a fault at any message of their exchange with
//! PostgreSQL.
//!
//! Which creates share a batch is not determined; each client's response is compared with what is
//! stored under the name that it sent.

use std::thread;
use std::time::Duration;

use super::ProxiedServer;
use super::locks::metric_value;
use super::proxy::{Fault, FaultKind, MessagePosition, MessageSender};
use crate::harness::{Answer, Client, Stopwatch, is_soak, wait_until};

const MODEL: &str = r#"
title = "Groups"
[server]
changes_keep = "forever"
[server.limits]
request_seconds_max = 60
statement_seconds_max = 50
database_connections_max = CONNECTIONS
[resources.note.fields]
name = { type = "text", required = true }
[resources.label.fields]
name = { type = "text", required = true }
"#;

/// Enough that each thread of the server sends some individually and the others in a batch.
fn clients() -> usize {
    20 * threads()
}

fn threads() -> usize {
    thread::available_parallelism().unwrap().get()
}

struct InsertBatchFixture {
    server: ProxiedServer,
    rounds: usize,
}

/// The responses, by the names that the clients sent.
type CreateResponses = Vec<(String, Answer)>;

impl InsertBatchFixture {
    fn start() -> Self {
        let model = MODEL.replace("CONNECTIONS", &(16 * threads()).to_string());
        Self { server: ProxiedServer::start_model(&model, "sslmode=disable"), rounds: 0 }
    }

    /// Has all clients create at the same time; `then` runs while they wait.
    fn create_concurrently(&mut self, then: impl FnOnce(&mut Self)) -> CreateResponses {
        self.rounds += 1;
        let (address, round) = (self.server.server.address, self.rounds);
        let clients = (0..clients()).map(|number| {
            let name = format!("n{round}-{number}");
            let body = format!(r#"{{"note":{{"name":"{name}"}}}}"#);
            let ask = move || Client::connect(address).request("POST /notes", &[], body);
            (name, thread::spawn(ask))
        });
        let clients: Vec<_> = clients.collect();
        then(self);
        clients.into_iter().map(|(name, client)| (name, client.join().unwrap())).collect()
    }

    /// Has all clients create while a session holds a lock on the table, until all wait and `then` has
    /// run.
    fn create_behind_a_lock(&mut self, then: impl FnOnce(&mut Self)) -> CreateResponses {
        self.server.session.rows("BEGIN");
        self.server.session.rows("LOCK TABLE notes IN EXCLUSIVE MODE");
        self.create_concurrently(|fixture| {
            wait_until("all are there", || {
                let under_way = metric_value(&fixture.server, "nouns_requests_in_flight");
                (under_way >= clients() as f64).then_some(())
            });
            // Creates that wait for their batch wait no longer than that.
            thread::sleep(Duration::from_millis(50));
            then(fixture);
            fixture.server.session.rows("COMMIT");
        })
    }

    /// Each create is done once, with its entry, or not at all, and its response says so. Returns a
    /// summary of the responses.
    fn check_outcomes(&mut self, told: &CreateResponses) -> String {
        self.server.close_database_connections();
        let judge = |(name, answer): &(String, Answer)| {
            let stored = self.server.session.value(&format!(
                "SELECT (SELECT count(*) FROM notes WHERE name = '{name}') || ' ' || \
                 (SELECT count(*) FROM nouns_changes WHERE after LIKE '%\"{name}\"%' AND kind = 'created')"
            ));
            let is_there = match &*stored {
                "0 0" => false,
                "1 1" => true,
                other => panic!("{name}: {other} rows and entries"),
            };
            match answer.status {
                201 => {
                    assert!(is_there, "{name} was told as created, and is not there");
                    'o'
                }
                503 if answer.problem() == "outcome-unknown" => '?',
                503 => {
                    assert!(!is_there, "{name} was told that nothing was done: {answer:?}");
                    'n'
                }
                _ => panic!("{name}: {answer:?}"),
            }
        };
        let mut words: Vec<char> = told.iter().map(judge).collect();
        words.sort_unstable();
        words.into_iter().collect()
    }
}

#[test]
fn insert_batch_any_fault_each_client_gets_the_true_outcome() {
    let mut fixture = InsertBatchFixture::start();
    let mut said = String::new();
    let one_of = if is_soak() { 1 } else { 7 };
    let ways = [
        (MessagePosition::Before, FaultKind::Close),
        (MessagePosition::Middle, FaultKind::Reset),
        (MessagePosition::After, FaultKind::Close),
    ];
    let faults = (1..=30).flat_map(|number| ways.map(|(place, way)| (number, place, way)));
    for (number, place, way) in faults.step_by(one_of) {
        // A fault in the response, behind the lock: the statement is done, and the outcome is unknown.
        let fault = Fault { side: MessageSender::Database, number, position: place, kind: way };
        let told = fixture.create_behind_a_lock(|fixture| fixture.server.proxy.plant_fault(fault));
        said += &fixture.check_outcomes(&told);
        // A fault in the request.
        fixture.server.proxy.plant_fault(Fault { side: MessageSender::Server, ..fault });
        let told = fixture.create_concurrently(|_| {});
        said += &fixture.check_outcomes(&told);
        // All connections at once, while some have committed and some have not.
        let told = fixture.create_behind_a_lock(|fixture| {
            fixture.server.session.rows("COMMIT; BEGIN");
            thread::sleep(Duration::from_micros(300) * (number as u32 % 5));
            fixture.server.proxy.close_all();
        });
        said += &fixture.check_outcomes(&told);
    }
    let count = |word| said.chars().filter(|said| *said == word).count();
    println!("{} created, {} unknown, {} not done", count('o'), count('?'), count('n'));
    assert!(count('o') > clients() && count('?') > clients(), "{said}");
    let statements = metric_value(&fixture.server, "nouns_pool_batch_requests_count");
    let creates = metric_value(&fixture.server, "nouns_pool_batch_requests_sum");
    println!("{creates} creates in {statements} statements");
    assert!(creates >= 1.5 * statements, "{creates} in {statements}: they did not go together");
}

/// Creates into a locked table do not delay creates into another table.
#[test]
fn insert_batch_of_a_locked_table_does_not_delay_other_tables() {
    let mut fixture = InsertBatchFixture::start();
    let told = fixture.create_behind_a_lock(|fixture| {
        let address = fixture.server.server.address;
        let began = Stopwatch::start();
        let clients = (0..clients()).map(|number| {
            let body = format!(r#"{{"label":{{"name":"{number}"}}}}"#);
            thread::spawn(move || Client::connect(address).request("POST /labels", &[], body))
        });
        for client in clients.collect::<Vec<_>>() {
            let answer = client.join().unwrap();
            assert_eq!(answer.status, 201, "{answer:?}");
        }
        // Far less than the creates into the locked table wait.
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    });
    assert_eq!(fixture.check_outcomes(&told), "o".repeat(clients()));
}
