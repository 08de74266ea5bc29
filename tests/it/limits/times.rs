//! Timeouts: nothing is cancelled earlier, and what takes longer is.

use std::time::{Duration, Instant};

use serde_json::json;

use super::start_limited;
use crate::harness::{Backend, Server, run_sql, wait_until};

const SECOND: Duration = Duration::from_secs(1);

fn cancelled_reads(server: &Server) -> usize {
    server.metric("nouns_connections_aborted_total{reason=\"unread\"}").unwrap_or(0)
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
        let server = start_limited(backend, "statement_seconds_max = 1");
        server.create("/customers", r#"{"customer":{"text":"x"}}"#);
        let change = |text: &str| run_sql(backend, server.folder(), text);
        change("ALTER TABLE customers RENAME TO hidden");
        change(slow_view_sql(backend, false));
        assert_eq!(server.get("/customers").json()["customers"].as_array().unwrap().len(), 1);
        change("DROP VIEW customers");
        change(slow_view_sql(backend, true));
        let began = Instant::now();
        let answer = server.get("/customers");
        assert_eq!((answer.status, answer.problem().as_str()), (503, "timed-out"), "{answer:?}");
        assert!(began.elapsed() >= SECOND, "{:?}", began.elapsed());
        assert_eq!(answer.header("Retry-After"), Some("1"));
        change("DROP VIEW customers");
        change("ALTER TABLE hidden RENAME TO customers");
        assert_eq!(server.get("/customers").status, 200);
    }
}

/// A client that reads gets the whole response, one that does not is disconnected.
#[test]
fn sending_timeout_disconnects_a_client_that_does_not_read() {
    let server = start_limited(Backend::Sqlite, "send_seconds_max = 1\nbody_bytes_max = 2000000");
    let words = "x".repeat(1 << 20);
    for _ in 0..7 {
        server.create("/customers", json!({"customer": {"text": words}}).to_string());
    }
    assert_eq!(server.get("/customers").json()["customers"].as_array().unwrap().len(), 7);
    assert_eq!(cancelled_reads(&server), 0);
    let began = Instant::now();
    let mut client = server.client();
    client.write(b"GET /customers HTTP/1.1\r\nHost: localhost\r\n\r\n");
    wait_until("it is cut", || (cancelled_reads(&server) == 1).then_some(()));
    assert!(began.elapsed() >= SECOND, "{:?}", began.elapsed());
    drop(client);
}
