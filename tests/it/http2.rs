//! HTTP/2 without TLS, for clients that begin with it: the same answers as over HTTP/1.1.
//!
//! `curl` speaks it; what a frame looks like is hyper's business.
//! The one surprising thing: nothing is checked frame by frame, since curl fails by itself when an
//! answer breaks the protocol.

use std::process::Command;

use crate::harness::{Backend, Process, Server, Setup};

const ANN: &str = r#"{"customer":{"name":"Ann"}}"#;
const MODEL: &str = r#"
    title = "Two"
    [server]
    http2_prior_knowledge = true
    [resources.customer.fields]
    name = { type = "text", required = true }
"#;

/// What curl got: the status and the headers as lines, and the body.
fn curl(server: &Server, args: &[&str], target: &str) -> (String, String) {
    let mut command = Command::new("curl");
    command.args(["--disable", "--silent", "--show-error", "--max-time", "20"]);
    command.args(["--http2-prior-knowledge", "--include", "--path-as-is"]).args(args);
    command.arg(format!("http://{}{target}", server.address)).env_clear();
    let ended = Process::spawn(&mut command).end();
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{args:?} {target}");
    let (head, body) = ended.stdout.split_once("\r\n\r\n").unwrap();
    (head.to_owned(), body.trim_end().to_owned())
}

fn header<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

on_every_backend! {
    fn the_same_answers_as_over_http_1(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let (head, body) = curl(&server, &["--json", ANN], "/customers");
        assert!(head.starts_with("HTTP/2 201"), "{head}");
        let path = header(&head, "location").unwrap().to_owned();
        let (head, shown) = curl(&server, &[], &path);
        assert!(head.starts_with("HTTP/2 200"), "{head}");
        assert_eq!(shown, body);
        let over_http_1 = server.get(&path);
        assert_eq!((over_http_1.status, over_http_1.text()), (200, body.as_str()));
        assert_eq!(header(&head, "etag"), over_http_1.header("ETag"));

        let (head, body) = curl(&server, &[], "/nothing");
        assert!(head.starts_with("HTTP/2 404"), "{head}");
        assert!(body.contains("\"/-/problems/no-such-path\""), "{body}");
        let (head, body) = curl(&server, &["--request", "DELETE"], &path);
        assert!(head.starts_with("HTTP/2 204") && body.is_empty(), "{head}{body}");
    }

    /// The stream was reset before a small body was read, and curl lost the answer now and then.
    fn a_refused_body_does_not_cost_the_answer(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        for _ in 0..10 {
            let (head, body) = curl(&server, &["--json", ANN], "/nothing");
            assert!(head.starts_with("HTTP/2 404") && body.contains("no-such-path"), "{head}{body}");
        }
    }

    /// The answer to HEAD had the body of GET behind it, which HTTP/2 calls malformed.
    fn head_had_a_body_over_http_2(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let path = server.create("/customers", ANN);
        for target in [path.as_str(), "/customers", "/", "/nothing"] {
            let (head, body) = curl(&server, &["--head"], target);
            let get = server.get(target);
            assert!(head.starts_with(&format!("HTTP/2 {}", get.status)), "{target}: {head}");
            assert_eq!(body, "", "{target}");
            assert_eq!(header(&head, "content-length"), get.header("Content-Length"), "{target}");
        }
    }

    /// The name of the host was counted as part of the target.
    fn a_path_of_just_the_limit_was_too_long_over_http_2(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let target = |length: usize| format!("/?{}", "a".repeat(length - "/?".len()));
        let (head, body) = curl(&server, &[], &target(8192));
        assert!(head.starts_with("HTTP/2 400") && body.contains("bad-query"), "{head}{body}");
        let (head, body) = curl(&server, &[], &target(8193));
        assert!(head.starts_with("HTTP/2 414") && body.contains("target-too-long"), "{head}{body}");
    }

    /// It is offered only where the model says so.
    fn not_offered_unless_declared(server: Server) {
        let mut client = server.client();
        client.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        let answer = client.read_answer(false);
        assert_eq!((answer.status, answer.problem().as_str()), (400, "bad-request"));
        assert_eq!(answer.json()["detail"], "HTTP/2 without TLS is not offered here");
    }
}
