//! Limits of bytes, and of the lines of a head: exactly that many, and one more.

use super::start_limited;
use crate::harness::{Answer, Backend, Client};

/// A body of exactly this many bytes.
fn padded(body: &str, bytes: usize) -> String {
    format!("{body}{}", " ".repeat(bytes - body.len()))
}

fn status_and_problem(answer: &Answer) -> (u16, String) {
    (answer.status, if answer.status < 400 { String::new() } else { answer.problem() })
}

fn chunked(client: &mut Client, body: &str) -> Answer {
    let (one, other) = body.split_at(body.len() / 2);
    let head = "POST /customers HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
    let chunk = |text: &str| format!("{:x}\r\n{text}\r\n", text.len());
    client.send(format!("{head}{}{}0\r\n\r\n", chunk(one), chunk(other)).as_bytes())
}

const ONE_ITEM: &str = r#"{"customer":{"text":"x"}}"#;
const ITEM_LIST: &str = r#"{"customers":[{"text":"x"}]}"#;

on_every_backend! {
    fn body_bytes_limit(backend: Backend) {
        let server = start_limited(backend, "body_bytes_max = 100\nbulk_bytes_max = 100");
        let path = server.create("/customers", padded(ONE_ITEM, 100));
        assert_eq!(server.put(&path, padded(ONE_ITEM, 100)).status, 200);
        assert_eq!(chunked(&mut server.client(), &padded(ONE_ITEM, 100)).status, 201);
        let too_large = (413, "too-large".to_owned());
        assert_eq!(status_and_problem(&server.post("/customers", padded(ONE_ITEM, 101))), too_large);
        assert_eq!(status_and_problem(&server.put(&path, padded(ONE_ITEM, 101))), too_large);
        assert_eq!(status_and_problem(&server.request(&format!("PATCH {path}"), &[], padded(ONE_ITEM, 101))), too_large);
        assert_eq!(status_and_problem(&server.request(&format!("DELETE {path}"), &[], padded(ONE_ITEM, 101))), too_large);
        assert_eq!(status_and_problem(&chunked(&mut server.client(), &padded(ONE_ITEM, 101))), too_large);
    }

    /// A body that is not a list has the smaller limit there too.
    fn bulk_bytes_limit(backend: Backend) {
        let server = start_limited(backend, "body_bytes_max = 100\nbulk_bytes_max = 200");
        assert_eq!(server.post("/customers", padded(ITEM_LIST, 200)).status, 201);
        assert_eq!(chunked(&mut server.client(), &padded(ITEM_LIST, 200)).status, 201);
        let too_large = (413, "too-large".to_owned());
        assert_eq!(status_and_problem(&server.post("/customers", padded(ITEM_LIST, 201))), too_large);
        assert_eq!(status_and_problem(&chunked(&mut server.client(), &padded(ITEM_LIST, 201))), too_large);
        assert_eq!(server.post("/customers", padded(ONE_ITEM, 100)).status, 201);
        assert_eq!(status_and_problem(&server.post("/customers", padded(ONE_ITEM, 101))), too_large);
    }

    fn target_bytes_limit(backend: Backend) {
        let server = start_limited(backend, "target_bytes_max = 100");
        let target = |bytes: usize| format!("/customers?limit={}7", "0".repeat(bytes - "/customers?limit=7".len()));
        assert_eq!(server.get(&target(100)).json()["page"]["limit"], 7);
        assert_eq!(status_and_problem(&server.get(&target(101))), (414, "target-too-long".to_owned()));
    }

    /// A header line counts as its name, its value and four bytes more.
    fn headers_bytes_limit(backend: Backend) {
        let server = start_limited(backend, "headers_bytes_max = 300");
        let head = |bytes: usize| {
            let value = "v".repeat(bytes - "host".len() - "localhost".len() - 4 - "x".len() - 4);
            format!("GET /customers HTTP/1.1\r\nHost: localhost\r\nX: {value}\r\n\r\n")
        };
        assert_eq!(server.send(head(300)).status, 200);
        assert_eq!(status_and_problem(&server.send(head(301))), (431, "headers-too-large".to_owned()));
    }

    fn headers_count_limit(backend: Backend) {
        let server = start_limited(backend, "headers_max = 5");
        let head = |count: usize| {
            format!("GET /customers HTTP/1.1\r\nHost: localhost\r\n{}\r\n", "X: y\r\n".repeat(count - 1))
        };
        assert_eq!(server.send(head(5)).status, 200);
        assert_eq!(status_and_problem(&server.send(head(6))), (431, "headers-too-large".to_owned()));
    }
}
