//! The end of a connection: by its client, by timeouts, by limits; and its line in the log.
//!
//! `framing` tests the messages.
//! Timeouts are set to one second, or to three where a busy machine may need one between two steps of a test. A
//! test only asserts that no connection is closed earlier; how much later depends on the machine.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use crate::framing::ConnectionAfter::Closed;
use crate::framing::{HOST, check, check_answer, get, post, start};
use crate::harness::{ANN, Backend, Client, Server, Setup, wait_until};

/// A server with one small resource and these lines in `[server.limits]`.
fn start_with(limits: &str) -> Server {
    let model = format!(
        "title = \"Framing\"\n\n[resources.customer.fields]\nname = {{ type = \"text\" }}\n\
         email = {{ type = \"email\" }}\n\n[server.limits]\n{limits}\n"
    );
    Setup::new(Backend::Sqlite).model(&model).start()
}

/// RFC 9112 §9.6: the server reads on for a while after its last response. Otherwise the kernel would
/// reset the connection, and the response might be lost.
#[test]
fn connection_of_a_client_still_sending_is_not_reset() {
    let server = start();
    for request in [
        format!(
            "POST /nothing HTTP/1.1\r\n{HOST}Content-Length: 600000\r\n\r\n{}",
            "a".repeat(600_000)
        ),
        format!("X : y\r\n\r\n{}", "a".repeat(600_000)),
    ] {
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 40"), "{answer}");
    }
}

/// A client may half-close the connection after the request and still get the response.
#[test]
fn connection_half_closed_by_the_client_gets_its_response() {
    let server = start();
    for (request, status, slug) in [
        (get(""), 200, ""),
        (post("Content-Length: 500\r\n", ANN), 400, "bad-request"),
        (post("Transfer-Encoding: chunked\r\n", "50\r\n{"), 400, "bad-request"),
    ] {
        let mut client = server.client();
        client.write(request.as_bytes());
        client.finish_writing();
        let answer = client.read_answer(false);
        assert_eq!(answer.status, status, "{request:?} got {answer:?}");
        check_answer(&answer, slug, &request);
        assert!(client.is_closed());
    }
    let mut client = server.client();
    client.write(b"GET / HT");
    client.finish_writing();
    assert_eq!(client.read_to_close(), b"", "half a head is no request");
}

/// Waits for the end of a connection; returns the bytes received and the time it took.
fn wait_for_close(mut client: Client, began: Instant) -> (String, Duration) {
    let text = String::from_utf8(client.read_to_close()).unwrap();
    (text, began.elapsed())
}

#[test]
fn head_timeout_is_408_or_a_silent_close() {
    let server = start_with("header_seconds_max = 3");
    let limit = Duration::from_secs(3);
    // A connection that never sent a byte is closed without a response.
    let began = Instant::now();
    let (text, took) = wait_for_close(server.client(), began);
    assert!(text.is_empty() && took >= limit, "{took:?} {text}");

    let began = Instant::now();
    let mut client = server.client();
    client.write(b"GET / HTTP/1.1\r\nHos");
    let answer = client.read_answer(false);
    assert!(began.elapsed() >= limit);
    assert_eq!((answer.status, answer.problem().as_str()), (408, "too-slow"));
    assert!(client.is_closed());
}

/// Slowloris: the timeout runs from the first byte, so single bytes do not extend it.
#[test]
fn head_timeout_is_not_extended_by_single_bytes() {
    let server = start_with("header_seconds_max = 3");
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.set_nonblocking(true).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nX: ").unwrap();
    let answer = wait_until("the head is cut", || {
        let mut bytes = [0; 1024];
        // The connection may be closed already: then there is a response to read.
        let _ = stream.write(b"x");
        match stream.read(&mut bytes) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            read => Some(String::from_utf8_lossy(&bytes[..read.unwrap()]).into_owned()),
        }
    });
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
}

#[test]
fn body_timeout_is_408() {
    let server = start_with("body_seconds_max = 1");
    for request in
        [post("Content-Length: 50\r\n", "{"), post("Transfer-Encoding: chunked\r\n", "50\r\n{")]
    {
        let began = Instant::now();
        check(&server, request.as_bytes(), (408, "too-slow", Closed));
        assert!(began.elapsed() >= Duration::from_secs(1));
    }
}

#[test]
fn idle_timeout_closes_the_connection() {
    let server = start_with("idle_seconds_max = 1");
    let mut client = server.client();
    // Measured from before the request, so that the time is never shorter than the server's own.
    let began = Instant::now();
    assert_eq!(client.send(get("").as_bytes()).status, 200);
    let (text, took) = wait_for_close(client, began);
    assert!(text.is_empty() && took >= Duration::from_secs(1), "{took:?} {text}");
}

#[test]
fn connection_limit_exceeded_is_503() {
    let server = start_with("connections_max = 4");
    let mut held: Vec<Client> = (0..4).map(|_| server.client()).collect();
    for client in &mut held {
        assert_eq!(client.send(get("").as_bytes()).status, 200);
    }
    let mut client = server.client();
    client.write(get("").as_bytes());
    let answer = client.read_answer(false);
    assert_eq!((answer.status, answer.problem().as_str()), (503, "busy"));
    assert_eq!(answer.header("Retry-After"), Some("1"));
    assert!(client.is_closed());
    drop(held);
    wait_until("there is room again", || {
        let mut client = server.client();
        (client.send(get("").as_bytes()).status == 200).then_some(())
    });
}

/// Nothing that a client sends can forge a line of the log, and personal data is not in it.
#[test]
fn request_log_has_one_line_per_request_and_omits_the_query_string() {
    let server = start();
    assert_eq!(server.get("/customers?secret=hunter2").status, 400);
    check(&server, b"GET / HTTP/1.1\r\nX: a\rb\r\n\r\n", (400, "bad-request", Closed));
    let lines = wait_until("both requests are logged", || {
        let log = server.log();
        let lines: Vec<serde_json::Value> = log
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .filter(|line: &serde_json::Value| line["message"] == "request")
            .collect();
        (lines.len() == 2).then_some(lines)
    });
    assert_eq!((&lines[0]["path"], &lines[0]["status"]), (&"/customers".into(), &400.into()));
    assert_eq!(lines[1]["problem"], "bad-request");
    assert!(!server.log().contains("hunter2"));
}
