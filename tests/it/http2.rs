//! HTTP/2 with prior knowledge, without TLS: the same responses as over HTTP/1.1.
//!
//! `curl` is the client; hyper is responsible for the frames, except for requests that no client sends.
//! Responses are not checked frame by frame, since curl itself fails when one breaks the protocol.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use crate::harness::{Backend, Process, Server, Setup, TIMEOUT};

const ANN: &str = r#"{"customer":{"name":"Ann"}}"#;
const MODEL: &str = r#"
    title = "Two"
    [server]
    http2_prior_knowledge = true
    [resources.customer.fields]
    name = { type = "text", required = true }
"#;

/// The response to curl: the status and the headers as lines, and the body.
fn curl(server: &Server, args: &[&str], target: &str) -> (String, String) {
    let mut command = Command::new("curl");
    command.args(["--disable", "--silent", "--show-error", "--max-time", "100"]);
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

/// RFC 9113 §4.1.
fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
    let stream = u8::from(kind != 4);
    let length = u8::try_from(payload.len()).unwrap();
    [&[0, 0, length, kind, flags, 0, 0, 0, stream][..], payload].concat()
}

/// RFC 7541 §6.2.2: a literal that is not indexed.
fn literal(name: &str, value: &str) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    [&[0][..], &text(name), &text(value)].concat()
}

/// The head of a request with these additional fields.
fn head_block(method: &str, path: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    let pseudo =
        [(":method", method), (":scheme", "http"), (":authority", "localhost"), (":path", path)];
    pseudo.iter().chain(fields).flat_map(|(name, value)| literal(name, value)).collect()
}

/// Sends hand-made frames. Returns the response on stream 1: the first byte of its head, which is the
/// index of its status (RFC 7541, appendix A: 8 is 200, 12 is 400), or 0 when it is reset; and its
/// data.
fn exchange(server: &Server, frames: &[Vec<u8>]) -> (u8, String) {
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
    stream.write_all(&[frame(4, 0, b""), frames.concat()].concat()).unwrap();
    let (mut status, mut data) = (0, Vec::new());
    loop {
        let mut head = [0; 9];
        stream.read_exact(&mut head).unwrap();
        let [high, middle, low, kind, flags, _, _, _, number] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, high, middle, low]).try_into().unwrap()];
        stream.read_exact(&mut payload).unwrap();
        match (kind, number) {
            (0, 1) => data.extend(payload),
            (1, 1) => status = payload[0] & 0x7f,
            (3, 1) => return (0, String::new()),
            _ => continue,
        }
        if flags & 1 == 1 {
            return (status, String::from_utf8(data).unwrap());
        }
    }
}

const HEADERS: u8 = 1;
const DATA: u8 = 0;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

on_every_backend! {
    /// RFC 9113 §8.2.1: a value must not begin or end with a space or a tab.
    fn http2_field_value_with_outer_space_is_refused(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let get = |value: &str| {
            let block = head_block("GET", "/customers", &[("x-note", value)]);
            exchange(&server, &[frame(HEADERS, END_STREAM | END_HEADERS, &block)])
        };
        assert_eq!(get("a b").0, 8);
        assert_eq!(get("").0, 8);
        for value in [" a", "a ", "\ta", "a\t", " "] {
            let (status, body) = get(value);
            assert!(status == 12 && body.contains("bad-request"), "{value:?}: {status} {body}");
        }
        // The same in the trailers.
        let post = |value: &str| {
            let block = head_block("POST", "/customers", &[("content-type", "application/json")]);
            exchange(&server, &[
                frame(HEADERS, END_HEADERS, &block),
                frame(DATA, 0, ANN.as_bytes()),
                frame(HEADERS, END_STREAM | END_HEADERS, &literal("x-note", value)),
            ])
        };
        let (status, body) = post(" a");
        assert!(status == 12 && body.contains("bad-request"), "{status} {body}");
        assert_eq!(server.get("/customers?count=exact").json()["page"]["total"], 0);
        let (_, body) = post("a");
        assert!(body.contains("\"Ann\""), "{body}");
    }

    fn http2_responses_equal_those_over_http_1(backend: Backend) {
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

    /// Regression: the stream was reset before a small body was read, and curl sometimes lost the
    /// response.
    fn http2_refused_body_still_gets_its_response(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        for _ in 0..10 {
            let (head, body) = curl(&server, &["--json", ANN], "/nothing");
            assert!(head.starts_with("HTTP/2 404") && body.contains("no-such-path"), "{head}{body}");
        }
    }

    /// Regression: the response to HEAD had the body of GET, which HTTP/2 calls malformed.
    fn http2_head_response_has_no_body(backend: Backend) {
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

    /// Regression: the host name was counted as part of the target.
    fn http2_path_at_the_size_limit_is_accepted(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let target = |length: usize| format!("/?{}", "a".repeat(length - "/?".len()));
        let (head, body) = curl(&server, &[], &target(8192));
        assert!(head.starts_with("HTTP/2 400") && body.contains("bad-query"), "{head}{body}");
        let (head, body) = curl(&server, &[], &target(8193));
        assert!(head.starts_with("HTTP/2 414") && body.contains("target-too-long"), "{head}{body}");
    }

    /// It is offered only where the model declares it.
    fn http2_is_not_offered_unless_declared(server: Server) {
        let mut client = server.client();
        client.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        let answer = client.read_answer(false);
        assert_eq!((answer.status, answer.problem().as_str()), (400, "bad-request"));
        assert_eq!(answer.json()["detail"], "HTTP/2 without TLS is not offered here");
    }
}
