//! The limit on the memory that all clients together make the server hold.

use super::start_limited;
use crate::harness::{Backend, Client, OpenTransaction, Server, Setup, run_sql, wait_until};

fn padded(bytes: usize) -> String {
    let body = r#"{"customers":[{"text":"x"}]}"#;
    format!("{body}{}", " ".repeat(bytes - body.len()))
}

/// The status of the response on a new connection; 0 when it is closed without a response.
fn status_of_new_connection(server: &Server) -> u16 {
    let mut client = server.client();
    client.write(b"GET /-/health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    let answer = client.read_to_close();
    let digits = answer.get(9..12).and_then(|digits| str::from_utf8(digits).ok());
    digits.map_or(0, |digits| digits.parse().unwrap())
}

on_every_backend! {
    fn memory_bytes_max_refuses_what_does_not_fit(backend: Backend) {
        let server = start_limited(backend, "memory_bytes_max = 400000");
        assert_eq!(server.post("/customers", padded(200_000)).status, 201);
        let refused = server.post("/customers", padded(500_000));
        assert_eq!((refused.status, refused.problem().as_str()), (503, "busy"), "{refused:?}");
        assert_eq!(server.post("/customers", padded(200_000)).status, 201);
    }

    /// A cell is parsed when the table becomes JSON, before the items are.
    fn memory_bytes_max_counts_json_in_csv_cells(backend: Backend) {
        let model = "title = \"Cells\"\n[resources.thing.fields]\ndata = { type = \"json\" }\n";
        let server = Setup::new(backend).model(model).start();
        let post = |count: usize| {
            let body = format!("data\n\"[{}]\"\n", vec!["[0]"; count].join(","));
            server.client().request("POST /things", &[("Content-Type", "text/csv")], &body)
        };
        let refused = post(1_000_000);
        assert_eq!((refused.status, refused.problem().as_str()), (413, "too-large"), "{refused:?}");
        assert!(refused.json()["detail"].as_str().unwrap().contains("JSON values"), "{refused:?}");
        let taken = post(20_000);
        assert_eq!(taken.status, 201, "{taken:?}");
    }
}

/// Small bodies that never end, each far below what is refused for its size.
#[test]
fn memory_bytes_max_ends_small_requests_that_are_slow() {
    let server = start_limited(Backend::Sqlite, "memory_bytes_max = 400000");
    let begin = |_| -> Client {
        let mut client = server.client();
        let head = "POST /customers HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{";
        client.write(head.as_bytes());
        client
    };
    let mut slow: Vec<Client> = (0..30).map(begin).collect();
    wait_until("connections are refused", || {
        (status_of_new_connection(&server) == 503).then_some(())
    });
    wait_until("it is logged", || server.log().contains("memory is exhausted").then_some(()));
    for client in &mut slow {
        let status = client.read_answer(false).status;
        // Bodies that began when memory was exhausted are not waited for.
        assert!([408, 503].contains(&status), "{status}");
    }
    wait_until("there is memory again", || {
        (status_of_new_connection(&server) == 200).then_some(())
    });
}

/// Regression: the values of a patch were counted while it was planned, and not when the transaction parsed
/// it again.
#[test]
fn memory_bytes_max_counts_the_values_of_a_patch_until_it_is_applied() {
    // The patch waits for the row until the test has seen it wait.
    let model = "title = \"Values\"\n[server.limits]\nstatement_seconds_max = 60\n\
        [resources.thing.fields]\ndata = { type = \"json\" }\n";
    let server = Setup::new(Backend::Postgres).model(model).start();
    let path = server.create("/things", r#"{"thing":{"data":1}}"#);
    let lock = "BEGIN; SELECT 1 FROM things FOR UPDATE;\n";
    let late = OpenTransaction::begin(server.folder(), lock);
    let body = format!(r#"{{"thing":{{"data":[{}]}}}}"#, vec!["[0]"; 20_000].join(","));
    let mut client = server.client();
    client.write(
        format!("PATCH {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/merge-patch+json\r\nContent-Length: {}\r\n\r\n{body}", body.len()).as_bytes(),
    );
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
                   AND wait_event_type = 'Lock'";
    wait_until("the patch waits for the row", || {
        (run_sql(Backend::Postgres, server.folder(), waiting).trim() != "0").then_some(())
    });
    // Two values for each `[0]`.
    let held: f64 = server.metric("nouns_buffered_bytes").unwrap();
    assert!(held > 40_000.0 * 90.0, "{held}");
    late.commit();
    assert_eq!(client.read_answer(false).status, 200);
    wait_until("it is released", || {
        (server.metric::<f64>("nouns_buffered_bytes") == Some(0.0)).then_some(())
    });
}
