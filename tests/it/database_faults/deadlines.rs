//! PostgreSQL responses that arrive after the deadline, or never.

use std::time::Duration;

use super::ProxiedServer;
use super::proxy::{Fault, FaultKind, MessagePosition, MessageSender};
use crate::harness::Stopwatch;
use crate::harness::wait_until;

/// Requests that meet no fault end within the deadline on a busy machine too.
const LIMITS: &str = "request_seconds_max = 3\nstatement_seconds_max = 10";

fn person(name: &str) -> (String, String) {
    ("POST /people".to_owned(), format!(r#"{{"person":{{"name":"{name}"}}}}"#))
}

/// A commit whose confirmation is late is not awaited beyond the deadline, and not cancelled.
#[test]
fn commit_confirmed_after_the_deadline_is_outcome_unknown() {
    let mut bench = ProxiedServer::start_with(LIMITS, "sslmode=prefer");
    bench.create("/people", person("Ann").1);
    let connection = bench.find_connection(&person("Ann"));
    let way = FaultKind::Delay(Duration::from_secs(6));
    let fault = Fault {
        side: MessageSender::Database,
        number: 1,
        position: MessagePosition::Before,
        kind: way,
    };
    bench.proxy.plant_fault_on(Some(connection), fault);
    bench.proxy.accept_silently();
    let answer = bench.request(&person("Bob"));
    assert!(!bench.proxy.is_planted());
    assert_eq!((answer.status, answer.problem().as_str()), (503, "outcome-unknown"), "{answer:?}");
    bench.close_database_connections();
    let stored = bench.session.value("SELECT count(*) FROM people WHERE name = 'Bob'");
    assert_eq!(stored, "1");
}

/// A refusal does not wait for a rollback whose confirmation never arrives.
#[test]
fn rollback_without_confirmation_does_not_delay_the_refusal() {
    let mut bench = ProxiedServer::start(LIMITS);
    let missing = "PUT /people/00000000-0000-7000-8000-000000000000";
    let request = (missing.to_owned(), r#"{"person":{"name":"Nobody"}}"#.to_owned());
    assert_eq!(bench.retry_unavailable(&request).status, 404);
    let connection = bench.find_connection(&request);
    // Begin, bind, execute, sync, and then the rollback.
    let fault = Fault {
        side: MessageSender::Server,
        number: 5,
        position: MessagePosition::Before,
        kind: FaultKind::Blackhole,
    };
    bench.proxy.plant_fault_on(Some(connection), fault);
    let start = Stopwatch::start();
    let answer = bench.request(&request);
    assert!(!bench.proxy.is_planted());
    assert_eq!(answer.status, 404, "{answer:?}");
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    bench.close_database_connections();
    bench.create("/people", person("Ann").1);
}

/// A write that waits for a row lock is cancelled at the request's deadline, in PostgreSQL too.
#[test]
fn write_waiting_for_a_lock_is_cancelled_at_its_deadline() {
    let mut bench = ProxiedServer::start(LIMITS);
    let path = bench.create("/people", person("Ann").1);
    bench.session.rows("BEGIN");
    bench.session.rows("SELECT * FROM people FOR UPDATE");
    let start = Stopwatch::start();
    let answer = bench.request(&(format!("PUT {path}"), person("Bob").1));
    assert!(start.elapsed() < Duration::from_secs(9), "{:?}", start.elapsed());
    assert_eq!((answer.status, answer.problem().as_str()), (503, "timed-out"), "{answer:?}");
    assert!(answer.header("Retry-After").is_some());
    let session = &mut bench.session;
    wait_until("nobody waits for the lock", || {
        let waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
             AND wait_event_type = 'Lock'";
        (session.value(waiting) == "0").then_some(())
    });
    bench.session.rows("COMMIT");
    let again = (format!("PUT {path}"), person("Bob").1);
    assert_eq!(bench.retry_unavailable(&again).status, 200);
}
