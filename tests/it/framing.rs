//! HTTP/1.1 message framing: RFC 9112 and the limits of a head, byte by byte.
//!
//! Other files test the meaning of well-framed requests.
//! A test checks whether the connection stays open by using it, since a server may say one thing and
//! do another.

use crate::harness::{ANN, Answer, Backend, Client, Server};

pub(crate) const HOST: &str = "Host: localhost\r\n";

/// The state of the connection after the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConnectionAfter {
    Open,
    Closed,
}
use ConnectionAfter::{Closed, Open};

/// A request, the status of its response, the slug of the problem ("" for none), and the state of the
/// connection.
pub(crate) type FramingCase<'a> = (&'a str, u16, &'a str, ConnectionAfter);

pub(crate) fn start() -> Server {
    Server::on(Backend::Sqlite)
}

pub(crate) fn check_all(cases: &[FramingCase<'_>]) {
    let server = start();
    for (request, status, slug, after) in cases {
        check(&server, request.as_bytes(), (*status, slug, *after));
    }
}

pub(crate) fn check(
    server: &Server,
    request: &[u8],
    (status, slug, after): (u16, &str, ConnectionAfter),
) {
    let shown: String = String::from_utf8_lossy(request).chars().take(200).collect();
    let mut client = server.client();
    client.write(request);
    let answer = client.read_answer(request.starts_with(b"HEAD "));
    assert_eq!(answer.status, status, "{shown:?} got {answer:?}");
    check_answer(&answer, slug, &shown);
    check_after(&mut client, &answer, after, &shown);
}

pub(crate) fn check_answer(answer: &Answer, slug: &str, shown: &str) {
    // RFC 9110 §6.6.1: Date on every 2xx, 3xx and 4xx.
    let date = answer.header("Date").unwrap_or_else(|| panic!("{shown:?} got no Date: {answer:?}"));
    assert!(date.ends_with(" GMT") && date.len() == 29, "{date}");
    assert_eq!(answer.header("X-Request-Id").map(str::len), Some(26), "{shown:?} got {answer:?}");
    assert_eq!(answer.header("Cross-Origin-Resource-Policy"), Some("same-origin"), "{shown:?}");
    if !slug.is_empty() {
        assert_eq!(answer.header("Content-Type"), Some("application/problem+json"), "{shown:?}");
        assert_eq!(answer.problem(), slug, "{shown:?}");
    }
}

fn check_after(client: &mut Client, answer: &Answer, after: ConnectionAfter, shown: &str) {
    let says_close = answer.header("Connection").is_some_and(|value| value == "close");
    assert_eq!(says_close, after == Closed, "{shown:?} got {answer:?}");
    match after {
        Open => {
            let next = client.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
            assert_eq!(next.status, 200, "after {shown:?}: {next:?}");
        }
        Closed => assert!(client.is_closed(), "after {shown:?}"),
    }
}

/// A request with a body, framed as the headers say.
pub(crate) fn post(headers: &str, body: &str) -> String {
    format!("POST /customers HTTP/1.1\r\n{HOST}{headers}\r\n{body}")
}

pub(crate) fn get(headers: &str) -> String {
    format!("GET / HTTP/1.1\r\n{HOST}{headers}\r\n")
}

/// ANN as one chunk.
pub(crate) fn chunked_ann() -> String {
    format!("{:x}\r\n{ANN}\r\n0\r\n\r\n", ANN.len())
}

#[test]
fn framing_line_ends() {
    check_all(&[
        ("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", 200, "", Open),
        // RFC 9112 §2.2: a single LF may be taken for the end of a line.
        ("GET / HTTP/1.1\nHost: localhost\n\n", 200, "", Open),
        ("GET / HTTP/1.1\r\nHost: localhost\n\r\n", 200, "", Open),
        // §2.2: at least one empty line before the request line should be ignored.
        ("\r\n\r\nGET / HTTP/1.1\r\nHost: localhost\r\n\r\n", 200, "", Open),
        // §2.2: a bare CR is invalid.
        ("GET / HTTP/1.1\rHost: localhost\r\n\r\n", 400, "bad-request", Closed),
        ("GET / HTTP/1.1\r\nHost: localhost\r\nX: a\rb\r\n\r\n", 400, "bad-request", Closed),
        // §2.2: white space between the request line and the first header.
        ("GET / HTTP/1.1\r\n Host: localhost\r\n\r\n", 400, "bad-request", Closed),
    ]);
}

#[test]
fn framing_request_lines() {
    check_all(&[
        ("GET  / HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "bad-request", Closed),
        ("GET /\r\n\r\n", 400, "bad-request", Closed),
        ("G@T / HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "bad-request", Closed),
        ("GET / http/1.1\r\nHost: localhost\r\n\r\n", 400, "bad-request", Closed),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "bad-request", Closed),
        ("\x16\x03\x01\x02\r\n\r\n", 400, "bad-request", Closed),
        // RFC 9112 §3.2: the four forms of a target, each with its methods.
        ("GET customers HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "bad-request", Closed),
        ("GET localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "bad-request", Closed),
        ("GET * HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "bad-request", Closed),
        ("GET ftp://localhost/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "bad-request", Closed),
        ("OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", 204, "", Open),
        (
            "CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n",
            405,
            "method-not-allowed",
            Open,
        ),
        // RFC 9110 §9.1: methods are case-sensitive; an unknown one should be 501.
        ("get / HTTP/1.1\r\nHost: localhost\r\n\r\n", 501, "unknown-method", Open),
        ("BREW / HTTP/1.1\r\nHost: localhost\r\n\r\n", 501, "unknown-method", Open),
    ]);
}

/// RFC 9112 §3.2: one valid Host, or 400.
#[test]
fn framing_hosts() {
    check_all(&[
        ("GET / HTTP/1.1\r\n\r\n", 400, "bad-host", Closed),
        ("GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", 400, "bad-host", Closed),
        ("GET / HTTP/1.1\r\nHost:\r\n\r\n", 400, "bad-host", Closed),
        ("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400, "bad-host", Closed),
        ("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", 400, "bad-host", Closed),
        ("GET / HTTP/1.1\r\nHost: user@localhost\r\n\r\n", 400, "bad-host", Closed),
        ("GET / HTTP/1.1\r\nHost: localhost:x\r\n\r\n", 400, "bad-host", Closed),
        ("GET / HTTP/1.1\r\nHost: localhost:65536\r\n\r\n", 400, "bad-host", Closed),
        ("GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", 400, "bad-host", Closed),
        ("GET / HTTP/1.1\r\nHost: ::1\r\n\r\n", 400, "bad-host", Closed),
        ("GET / HTTP/1.1\r\nHost: LOCALHOST:1\r\n\r\n", 200, "", Open),
        ("GET / HTTP/1.1\r\nHost: [::1]:8080\r\n\r\n", 200, "", Open),
        // §3.2.2: the host of an absolute target wins, but Host must still be there.
        ("GET http://localhost/ HTTP/1.1\r\nHost: example.com\r\n\r\n", 200, "", Open),
        ("GET http://example.com/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 421, "wrong-host", Open),
        ("GET http://localhost/ HTTP/1.1\r\n\r\n", 400, "bad-host", Closed),
        ("GET http://user@localhost/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "bad-host", Closed),
    ]);
}

#[test]
fn framing_header_lines() {
    check_all(&[
        // RFC 9112 §5.1: no space before the colon.
        (&get("X : y\r\n"), 400, "bad-request", Closed),
        // §5.2: obs-fold.
        (&get("X: y\r\n z\r\n"), 400, "bad-request", Closed),
        (&get("X\r\n"), 400, "bad-request", Closed),
        (&get(": y\r\n"), 400, "bad-request", Closed),
        // RFC 9110 §5.5: NUL is dangerous.
        (&get("X: a\0b\r\n"), 400, "bad-request", Closed),
        (&get("X:y\r\nY: \t z \t\r\nZ:\r\n"), 200, "", Open),
    ]);
}

#[test]
fn framing_head_size_limits() {
    let target =
        |length: usize| format!("GET /?{} HTTP/1.1\r\n{HOST}\r\n", "a".repeat(length - "/?".len()));
    let many = |count: usize| get(&"X: y\r\n".repeat(count));
    let large = |length: usize| get(&format!("X: {}\r\n", "a".repeat(length)));
    check_all(&[
        // One byte below the limit is merely an unknown parameter.
        (&target(8192), 400, "bad-query", Open),
        (&target(8193), 414, "target-too-long", Closed),
        (&target(70_000), 414, "target-too-long", Closed),
        (&target(300_000), 414, "target-too-long", Closed),
        (&format!("GET /{}", "a".repeat(300_000)), 414, "target-too-long", Closed),
        (&many(99), 200, "", Open),
        (&many(100), 431, "headers-too-large", Closed),
        (&many(5_000), 431, "headers-too-large", Closed),
        (&large(32_000), 200, "", Open),
        (&large(33_000), 431, "headers-too-large", Closed),
        (&large(300_000), 431, "headers-too-large", Closed),
    ]);
}

/// RFC 9112 §6.3: a Content-Length that is not one number leaves the end of the message unknown.
#[test]
fn framing_content_lengths() {
    let length = ANN.len();
    let lines = |value: &str| post(&format!("Content-Length: {value}\r\n"), ANN);
    check_all(&[
        (&lines(&length.to_string()), 201, "", Open),
        (&lines(&format!("{length}\r\nContent-Length: {length}")), 201, "", Open),
        (&lines(&format!("{length}\r\nContent-Length: 4")), 400, "bad-request", Closed),
        (&lines("+3"), 400, "bad-request", Closed),
        (&lines("-3"), 400, "bad-request", Closed),
        (&lines("0x3"), 400, "bad-request", Closed),
        (&lines("3 3"), 400, "bad-request", Closed),
        (&lines(""), 400, "bad-request", Closed),
        (&lines("99999999999999999999"), 400, "bad-request", Closed),
        (&lines("18446744073709551615"), 413, "too-large", Closed),
        // Refused by the number alone: the body never arrives.
        (&lines("9000000"), 413, "too-large", Closed),
    ]);
}

#[test]
fn framing_transfer_codings() {
    let body = chunked_ann();
    let coded = |value: &str| post(&format!("Transfer-Encoding: {value}\r\n"), &body);
    check_all(&[
        (&coded("chunked"), 201, "", Open),
        (&coded("Chunked"), 201, "", Open),
        // RFC 9112 §6.1: chunked must not be applied twice; an unknown coding should be 501.
        (&coded("chunked, chunked"), 400, "bad-request", Closed),
        (&coded("chunked\r\nTransfer-Encoding: chunked"), 400, "bad-request", Closed),
        (&coded("gzip, chunked"), 501, "unknown-transfer-coding", Closed),
        (&coded("gzip\r\nTransfer-Encoding: chunked"), 501, "unknown-transfer-coding", Closed),
        // §6.3: chunked must come last.
        (&coded("gzip"), 400, "bad-request", Closed),
        (&coded("chunked, gzip"), 400, "bad-request", Closed),
        (&coded("xchunked"), 400, "bad-request", Closed),
        (&coded(""), 400, "bad-request", Closed),
        // §6.1: with both, Transfer-Encoding wins and the connection is closed, so that what one reader
        // takes for a body never becomes another's request (request smuggling).
        (&coded("chunked\r\nContent-Length: 4"), 201, "", Closed),
        (&post("Content-Length: 4\r\nTransfer-Encoding: chunked\r\n", &body), 201, "", Closed),
    ]);
}

#[test]
fn framing_chunks() {
    let length = ANN.len();
    let (front, back) = ANN.split_at(20);
    let sent = |body: &str| post("Transfer-Encoding: chunked\r\n", body);
    check_all(&[
        (&sent(&format!("{length:X};a=b;c=\"d\"\r\n{ANN}\r\n0\r\n\r\n")), 201, "", Open),
        (&sent(&format!("000{length:x}\r\n{ANN}\r\n0\r\nX-Trailer: y\r\n\r\n")), 201, "", Open),
        (
            &sent(&format!("14\r\n{front}\r\n{:x}\r\n{back}\r\n0\r\n\r\n", back.len())),
            201,
            "",
            Open,
        ),
        (&sent(&format!("zz\r\n{ANN}\r\n0\r\n\r\n")), 400, "bad-request", Closed),
        (&sent(&format!("0x{length:x}\r\n{ANN}\r\n0\r\n\r\n")), 400, "bad-request", Closed),
        (&sent(&format!("-{length:x}\r\n{ANN}\r\n0\r\n\r\n")), 400, "bad-request", Closed),
        (&sent(&format!("fffffffffffffffff\r\n{ANN}\r\n0\r\n\r\n")), 400, "bad-request", Closed),
        (&sent(&format!("{:x}\r\n{ANN}\r\n0\r\n\r\n", length - 1)), 400, "bad-request", Closed),
        (&sent(&format!("{length:x}\n{ANN}\n0\n\n")), 400, "bad-request", Closed),
        (&sent(&format!("\r\n{ANN}\r\n0\r\n\r\n")), 400, "bad-request", Closed),
    ]);
}

/// RFC 9110 §10.1.1.
#[test]
fn framing_expect_continue() {
    let length = ANN.len();
    let server = start();
    let mut client = server.client();
    client.write(
        post(&format!("Expect: 100-continue\r\nContent-Length: {length}\r\n"), "").as_bytes(),
    );
    let interim = client.read_answer(false);
    assert_eq!((interim.status, &interim.headers[..]), (100, &[][..]));
    client.write(ANN.as_bytes());
    let answer = client.read_answer(false);
    assert_eq!(answer.status, 201, "{answer:?}");
    check_after(&mut client, &answer, Open, "a body that was waited for");

    // Refused before the body: no 100 is sent first.
    let unwanted = format!(
        "POST /nothing HTTP/1.1\r\n{HOST}Expect: 100-continue\r\nContent-Length: 3\r\n\r\n"
    );
    check(&server, unwanted.as_bytes(), (404, "no-such-path", Closed));
    let too_large = post("Expect: 100-continue\r\nContent-Length: 9000000\r\n", "");
    check(&server, too_large.as_bytes(), (413, "too-large", Closed));
    let unknown = post("Expect: 200-ok\r\nContent-Length: 3\r\n", "");
    check(&server, unknown.as_bytes(), (417, "expectation-failed", Closed));
}

/// RFC 9112 §9.3: a body is read completely, or the connection closed. A client that is still sending
/// gets its response nevertheless (§9.6).
#[test]
fn framing_unread_bodies() {
    let server = start();
    let refused = |headers: &str, body: &str| {
        format!("POST /nothing HTTP/1.1\r\n{HOST}{headers}\r\n{body}").into_bytes()
    };
    let sized =
        |length: usize| refused(&format!("Content-Length: {length}\r\n"), &"a".repeat(length));
    let coded = |body: &str| refused("Transfer-Encoding: chunked\r\n", body);
    for (request, after) in [
        (sized(3), Open),
        // Enough for more than one read, little enough to have arrived when the server looks for it.
        (sized(20_000), Open),
        (sized(600_000), Closed),
        (sized(6_000_000), Closed),
        (coded("3\r\nabc\r\n0\r\n\r\n"), Open),
        (coded(&format!("20000\r\n{}\r\n0\r\n\r\n", "a".repeat(0x2_0000))), Closed),
        (coded("zz\r\n"), Closed),
        // It is announced and never sent.
        (refused("Content-Length: 3\r\n", ""), Closed),
    ] {
        check(&server, &request, (404, "no-such-path", after));
    }
}

#[test]
fn framing_many_requests_on_one_connection() {
    let server = start();
    let mut client = server.client();
    client.write(get("").repeat(20).as_bytes());
    for _ in 0..20 {
        assert_eq!(client.read_answer(false).status, 200);
    }
    // A request that cannot be parsed is answered in order, after those before it.
    client.write(format!("{}\x01\r\n\r\n{}", get(""), get("")).as_bytes());
    assert_eq!(client.read_answer(false).status, 200);
    let last = client.read_answer(false);
    assert_eq!((last.status, last.problem().as_str()), (400, "bad-request"));
    assert!(client.is_closed());

    // RFC 9112 §9.6: close is honoured, and what follows it is not read.
    let mut client = server.client();
    client.write(format!("{}{}", get("Connection: close\r\n"), get("")).as_bytes());
    let answer = client.read_answer(false);
    assert_eq!((answer.status, answer.header("Connection")), (200, Some("close")));
    assert!(client.is_closed());
}

/// RFC 9110 §9.3.2: the head of GET and nothing else, also on the wire.
#[test]
fn framing_head_response_has_no_body() {
    let server = start();
    let mut client = server.client();
    let whole = client.send(get("").as_bytes());
    let head = client.send(get("").replacen("GET", "HEAD", 1).as_bytes());
    assert_eq!((head.status, head.header("Content-Length")), (200, whole.header("Content-Length")));
    assert_eq!(client.send(get("").as_bytes()).status, 200);
}

#[test]
fn framing_http_1_0() {
    let server = start();
    let text = |request: &str| String::from_utf8(server.send_raw(request)).unwrap();
    let status = |request: &str| text(request).split(' ').nth(1).unwrap().to_owned();
    assert_eq!(status("GET / HTTP/1.0\r\n\r\n"), "200", "Host is not asked of HTTP/1.0");
    assert_eq!(status("GET / HTTP/1.0\r\nHost: localhost\r\n\r\n"), "200");
    assert_eq!(status("GET / HTTP/1.0\r\nHost: a b\r\n\r\n"), "400");
    // RFC 9112 §6.1: Transfer-Encoding in HTTP/1.0 is faulty framing.
    assert_eq!(
        status("POST /customers HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        "400"
    );
    // RFC 9110 §10.1.1: HTTP/1.0 expects no 100.
    let expecting = format!(
        "POST /customers HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: {}\r\n\r\n{ANN}",
        ANN.len()
    );
    assert_eq!(status(&expecting), "201");
    let twice =
        format!("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n{}", "GET / HTTP/1.0\r\n\r\n");
    assert_eq!(text(&twice).matches("200 OK").count(), 2);
}
