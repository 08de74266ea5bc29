//! Message boundaries that guard hyper's parser: messages split anywhere, bare LF in trailers, HTTP
//! versions, fragments.
//!
//! `framing` tests the rest.

use crate::framing::ConnectionAfter::{Closed, Open};
use crate::framing::{HOST, check, check_all, chunked_ann, get, post, start};
use crate::harness::ANN;

/// RFC 9110 §2.5: an unknown minor version is read as the highest known one; §15.6.6: another major
/// version is 505. Anything else is malformed.
#[test]
fn http_version_unsupported_is_505_and_minor_ones_are_read_as_1_1() {
    let line = |version: &str| format!("GET / {version}\r\n{HOST}\r\n");
    check_all(&[
        (&line("HTTP/1.2"), 200, "", Open),
        (&line("HTTP/1.9"), 200, "", Open),
        ("\r\nGET / HTTP/1.3\nHost: localhost\n\n", 200, "", Open),
        // The rules of HTTP/1.1 apply to it.
        ("GET / HTTP/1.2\r\n\r\n", 400, "bad-host", Closed),
        (&line("HTTP/2.0"), 505, "http-version-not-supported", Closed),
        (&line("HTTP/3.0"), 505, "http-version-not-supported", Closed),
        (&line("HTTP/0.9"), 505, "http-version-not-supported", Closed),
        (&line("HTTP/x"), 400, "bad-request", Closed),
        (&line("HTTP/1.10"), 400, "bad-request", Closed),
        (&line("HTTP/1.25"), 400, "bad-request", Closed),
        (&line("HTTP/2"), 400, "bad-request", Closed),
        (&line("HTTP/3.0.1"), 400, "bad-request", Closed),
        (&line("HTTPS/3.0"), 400, "bad-request", Closed),
        (&line("HTTP/1.2 "), 400, "bad-request", Closed),
    ]);
    let server = start();
    let later = post("Transfer-Encoding: chunked\r\n", &chunked_ann()).replace("1.1", "1.7");
    let mut client = server.client();
    client.write([get(""), later.clone(), get(""), later, line("HTTP/3.0")].concat().as_bytes());
    for status in [200, 201, 200, 201, 505] {
        assert_eq!(client.read_answer(false).status, status);
    }
    assert!(client.is_closed());
    // The version arrives in two pieces.
    let mut client = server.client();
    client.write(b"GET / HTTP/1.");
    client.write(format!("2\r\n{HOST}").as_bytes());
    client.write(b"\r\n");
    assert_eq!(client.read_answer(false).status, 200);
}

/// RFC 9110 §7.1: the fragment is no part of a target. Regression: it was dropped silently.
#[test]
fn request_target_with_fragment_is_refused() {
    let target = |target: &str| format!("GET {target} HTTP/1.1\r\n{HOST}\r\n");
    check_all(&[
        (&target("/customers#top"), 400, "bad-request", Closed),
        (&target("/#"), 400, "bad-request", Closed),
        (&target("/customers?limit=1#limit=2"), 400, "bad-request", Closed),
        (&target("http://localhost/#top"), 400, "bad-request", Closed),
        (&target("/customers?name=%23"), 200, "", Open),
        // In a method it is a character like any other.
        ("G#T / HTTP/1.1\r\nHost: localhost\r\n\r\n", 501, "unknown-method", Open),
        ("GET / HTTP/1.1\r\nHost: localhost\r\nX: /#\r\n\r\n", 200, "", Open),
    ]);
    let server = start();
    let mut client = server.client();
    client.write(b"GET /cus");
    client.write(format!("tomers#a HTTP/1.1\r\n{HOST}").as_bytes());
    client.write(b"\r\n");
    assert_eq!(client.read_answer(false).problem(), "bad-request");
}

/// Regression: a trailer line that ended with a bare LF made the next request on the connection part of
/// the trailer section, so that it was never answered (request smuggling): RFC 9112 §11.2.
#[test]
fn chunked_trailer_with_bare_lf_is_refused_and_swallows_nothing() {
    let coded = |end: &str| {
        let first = format!("{:x}\r\n{ANN}\r\n", ANN.len());
        post("Transfer-Encoding: chunked\r\n", &format!("{first}{end}"))
    };
    let server = start();
    let count = || server.get("/customers?count=exact").json()["page"]["total"].clone();
    for end in [
        "0\r\nA: b\n\n",
        "0\r\nA: b\n\r\n",
        "0\r\nA: b\nC: d\r\n\r\n",
        "0\r\nA: b\r\nC: d\n\r\n",
        "0\r\nA: b\r\n\n",
        "0\r\n\n",
        "0\r\n\r\r\n",
        "0\r\nA: b\r\r\n\r\n",
        "0\r\nA\r\n\r\n",
        "0\n\r\n",
        "0;a\n\r\n",
    ] {
        let next = post(&format!("Content-Length: {}\r\n", ANN.len()), ANN);
        let request = coded(end) + &next;
        check(&server, request.as_bytes(), (400, "bad-request", Closed));
        assert_eq!(count(), 0, "after {end:?}");
        // The same where the server ignores the body.
        let unread = request.replacen("/customers", "/nothing", 1);
        check(&server, unread.as_bytes(), (404, "no-such-path", Closed));
        assert_eq!(count(), 0, "after {end:?}");
    }
    // A well-formed section ends where it says.
    let mut client = server.client();
    let good = ["0\r\n\r\n", "0\r\nA: b\r\n\r\n", "00 ;x=y\r\nA: b\r\nC:\r\n\r\n"];
    for end in good {
        client.write([coded(end), get("")].concat().as_bytes());
    }
    for _ in good {
        assert_eq!(client.read_answer(false).status, 201);
        assert_eq!(client.read_answer(false).status, 200);
    }
    assert_eq!(count(), good.len());
}

/// However the bytes are split, each message ends where it says and the next one begins there.
#[test]
fn pipelined_messages_split_anywhere_are_answered_in_order() {
    let server = start();
    let messages = [
        (get(""), 200),
        (post(&format!("Content-Length: {}\r\n", ANN.len()), ANN), 201),
        ("\r\n\r\n".to_owned() + &get("X: \n"), 200),
        (post("Transfer-Encoding: chunked\r\n", &chunked_ann()), 201),
        (post("Transfer-Encoding: chunked\r\n", "0\r\nA: b\r\n\r\n"), 400),
        (get("").replace("\r\n", "\n"), 200),
        (post("Content-Length: 9\r\n", "GET / HTT"), 400),
        (get("").replace("1.1", "1.2"), 200),
    ];
    let all: String = messages.iter().map(|(message, _)| message.as_str()).collect();
    for size in (1..40).chain([100, 500, all.len()]) {
        let mut client = server.client();
        for piece in all.as_bytes().chunks(size) {
            client.write(piece);
        }
        for (message, status) in &messages {
            assert_eq!(client.read_answer(false).status, *status, "{message:?} by {size}");
        }
    }
}
