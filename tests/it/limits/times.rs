//! Timeouts: nothing is cancelled earlier, and what takes longer is.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{setup, start_limited};
use crate::harness::{Answer, Backend, Server, run_sql, wait_until};

const SECOND: Duration = Duration::from_secs(1);

fn cancelled_reads(server: &Server) -> usize {
    server.metric("nouns_connections_aborted_total{reason=\"unread\"}").unwrap_or(0)
}

/// The response to a list that is within its limit. A busy machine may exceed a limit of one second, and then the
/// list is requested again; a server that cancels such lists never sends it.
fn list_within_limit(server: &Server) -> Answer {
    wait_until("the list is not cancelled", || {
        Some(server.get("/customers")).filter(|answer| answer.status != 503)
    })
}

/// A view in place of the table, which returns its rows late.
fn slow_view_sql(backend: Backend, is_endless: bool) -> &'static str {
    match (backend, is_endless) {
        (Backend::Sqlite, true) => {
            "CREATE VIEW customers AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT hidden.* FROM hidden, n WHERE n.i < 0"
        }
        (Backend::Sqlite, false) => {
            "CREATE VIEW customers AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) SELECT hidden.* FROM hidden, n WHERE n.i = 1"
        }
        (Backend::Postgres, true) => {
            "CREATE VIEW customers AS SELECT hidden.* FROM hidden, pg_sleep(60)"
        }
        (Backend::Postgres, false) => {
            "CREATE VIEW customers AS SELECT hidden.* FROM hidden, pg_sleep(0.1)"
        }
    }
}

on_every_backend! {
    fn statement_timeout_cancels_a_slow_read(backend: Backend) {
        let server = start_limited(backend, "");
        server.create("/customers", r#"{"customer":{"text":"x"}}"#);
        // Only the lists are limited.
        let server = setup(backend, "statement_seconds_max = 1").start_in(server.stop());
        let change = |text: &str| run_sql(backend, server.folder(), text);
        change("ALTER TABLE customers RENAME TO hidden");
        change(slow_view_sql(backend, false));
        assert_eq!(list_within_limit(&server).json()["customers"].as_array().unwrap().len(), 1);
        change("DROP VIEW customers");
        change(slow_view_sql(backend, true));
        // The limit also applies to the opening of a connection to PostgreSQL, when none is idle.
        let (answer, began) = wait_until("the database has the list", || {
            let began = Instant::now();
            let answer = server.get("/customers");
            let is_unavailable = answer.status == 503 && answer.problem() == "unavailable";
            (backend == Backend::Sqlite || !is_unavailable).then_some((answer, began))
        });
        assert_eq!((answer.status, answer.problem().as_str()), (503, "timed-out"), "{answer:?}");
        assert!(began.elapsed() >= SECOND, "{:?}", began.elapsed());
        assert_eq!(answer.header("Retry-After"), Some("1"));
        change("DROP VIEW customers");
        change("ALTER TABLE hidden RENAME TO customers");
        assert_eq!(list_within_limit(&server).status, 200);
    }
}

/// A client that reads gets the whole response, one that does not is disconnected.
#[test]
fn sending_timeout_disconnects_a_client_that_does_not_read() {
    const LIST: &[u8] = b"GET /customers HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let server = start_limited(Backend::Sqlite, "body_bytes_max = 2000000");
    let words = "x".repeat(1 << 20);
    for _ in 0..7 {
        server.create("/customers", json!({"customer": {"text": words}}).to_string());
    }
    // Only the list is tested with the limit: the large responses of the creates could exceed it too.
    let server = setup(Backend::Sqlite, "send_seconds_max = 1").start_in(server.stop());
    // A reader that the machine stops for a second is disconnected as well. A server that disconnects every
    // reader of so much never sends all of it.
    wait_until("a client that reads has all of it", || {
        (server.send_raw(LIST).len() > 7 * words.len()).then_some(())
    });
    let before = cancelled_reads(&server);
    let began = Instant::now();
    let mut client = server.client();
    client.write(LIST);
    wait_until("it is cut", || (cancelled_reads(&server) == before + 1).then_some(()));
    assert!(began.elapsed() >= SECOND, "{:?}", began.elapsed());
    drop(client);
}
