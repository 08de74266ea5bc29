//! Responses that bypass the pipeline: to heads that cannot be parsed or do not arrive, and to connections
//! over the limit.
//!
//! They are serialized by hand, since there is no request for hyper to answer. Each of these responses closes
//! the connection, because it is unknown where the next request would begin.

use std::sync::Arc;

use http::{HeaderValue, header};

use crate::clock;
use crate::fault::OrBug;
use crate::formats::accept::{self, Accept};
use crate::formats::json::ProblemContext;
use crate::log::Logger;
use crate::metrics::Metrics;
use crate::model::settings::ServerLimits;
use crate::problem::{self, Problem, ProblemKind};
use crate::reply::{self, Reply};
use crate::wire::{PeerConnection, RequestId, add_cross_origin_isolation};

/// Maps hyper's error to a problem. `unparsed` has the bytes that the parser has not consumed.
pub(super) fn from_parser_error(
    error: &hyper::Error,
    unparsed: &[u8],
    limits: &ServerLimits,
) -> Problem {
    if error.is_parse_too_large() {
        return Problem::new(too_large_kind(unparsed, limits.target_bytes_max));
    }
    let refused = Problem::new(&problem::BAD_REQUEST).cause(error.to_string());
    // RFC 9113 §3.4: the first line of the HTTP/2 preface.
    if unparsed.starts_with(b"PRI * HTTP/2.0\r\n") {
        return refused.detail("HTTP/2 without TLS is not offered here");
    }
    match version_token(unparsed) {
        // RFC 9110 §15.6.6: another major version.
        Some((
            _,
            [b'H', b'T', b'T', b'P', b'/', major @ b'0'..=b'9', b'.', minor @ b'0'..=b'9'],
        )) if *major != b'1' => {
            let (major, minor) = (char::from(*major), char::from(*minor));
            Problem::new(&problem::HTTP_VERSION_NOT_SUPPORTED)
                .cause(error.to_string())
                .detail(format!("expected HTTP/1.1 or HTTP/1.0, got HTTP/{major}.{minor}"))
        }
        _ => refused,
    }
}

/// The head with HTTP/1.1 instead of HTTP/1.2 to HTTP/1.9, which hyper does not parse. RFC 9110 §2.5: a
/// request with an unknown minor version is processed as the highest known one.
pub(super) fn as_http_1_1(unparsed: &[u8]) -> Option<Vec<u8>> {
    let (start, token) = version_token(unparsed)?;
    let [b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'2'..=b'9', ..] = token else { return None };
    let mut head = unparsed.to_vec();
    *head.get_mut(start + "HTTP/1.".len())? = b'1';
    Some(head)
}

/// The position of the version in the request line, and its text as far as it has arrived.
fn version_token(unparsed: &[u8]) -> Option<(usize, &[u8])> {
    let line = unparsed.split(|byte| *byte == b'\n').next()?;
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let mut parts = line.splitn(3, |byte| *byte == b' ');
    let (method, target, version) = (parts.next()?, parts.next()?, parts.next()?);
    Some((method.len() + target.len() + 2, version))
}

/// hyper reports only that something is too large. The head tells what it is, unless it is the
/// Content-Length, which is parsed later.
fn too_large_kind(unparsed: &[u8], target_bytes_max: usize) -> &'static ProblemKind {
    let mut lines = unparsed.split(|byte| *byte == b'\n');
    let line = lines.next().or_bug("a split yields at least one part");
    // RFC 9112 §3: a method, which is a token, a target and a version. A body may end like one, but JSON
    // does not begin like one.
    let is_request_line = line.first().is_some_and(u8::is_ascii_alphabetic)
        && matches!(line.trim_ascii_end(), [.., b'H', b'T', b'T', b'P', b'/', b'1', b'.', _]);
    // RFC 9112 §3: a request line without an end has a target that is too long.
    if line.len() > target_bytes_max {
        &problem::TARGET_TOO_LONG
    } else if is_request_line {
        &problem::HEADERS_TOO_LARGE
    } else {
        &problem::TOO_LARGE
    }
}

/// The client's `Accept`, as far as its head can be read.
pub(super) fn find_accept(head: &[u8]) -> Accept<'_> {
    let head = head.trim_ascii_start().split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let lines = head.take_while(|line| !line.is_empty()).filter_map(|line| {
        let (name, value) = line.split_at_checked(b"accept:".len())?;
        name.eq_ignore_ascii_case(b"accept:").then_some(value.trim_ascii())
    });
    accept::parse(lines.collect::<Vec<_>>())
}

/// State that the refusals of all connections share.
#[derive(Debug, Clone)]
pub(super) struct RefusalContext {
    pub(super) log: Logger,
    pub(super) base_path: Arc<str>,
    pub(super) metrics: Arc<Metrics>,
    /// Sent over secure connections only.
    pub(super) hsts: Option<HeaderValue>,
}

impl RefusalContext {
    /// A complete HTTP/1.1 message.
    pub(super) fn render(
        &self,
        problem: &Problem,
        accept: &Accept<'_>,
        id: &RequestId,
        way: PeerConnection,
    ) -> Vec<u8> {
        let occasion =
            ProblemContext { base_path: &self.base_path, path: None, request_id: id.as_str() };
        let Reply { status, mut headers, body } = reply::problem(problem, accept, occasion);
        add_cross_origin_isolation(&mut headers);
        if let Some(hsts) = self.hsts.as_ref().filter(|_| way.is_tls) {
            headers.insert(header::STRICT_TRANSPORT_SECURITY, hsts.clone());
        }
        let mut text = format!(
            "HTTP/1.1 {} {}\r\ncontent-length: {}\r\nconnection: close\r\ndate: {}\r\nx-request-id: {}\r\n",
            status.as_str(),
            reply::reason_phrase(status).or(status.canonical_reason()).unwrap_or_default(),
            body.len(),
            httpdate::fmt_http_date(clock::system_time()),
            id.as_str(),
        )
        .into_bytes();
        for (name, value) in &headers {
            text.extend_from_slice(name.as_str().as_bytes());
            text.extend_from_slice(b": ");
            text.extend_from_slice(value.as_bytes());
            text.extend_from_slice(b"\r\n");
        }
        text.extend_from_slice(b"\r\n");
        text.extend_from_slice(&body);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_of_a_too_large_head_says_what_is_too_large() {
        let line = |length: usize| format!("GET /{} HTTP/1.1\r\n", "a".repeat(length));
        for (unparsed, expected) in [
            (line(9000) + "X: y\r\n", "target-too-long"),
            ("GET /".to_owned() + &"a".repeat(9000), "target-too-long"),
            (line(10) + &"X: y\r\n".repeat(200), "headers-too-large"),
            (line(10).replace('\r', "") + &"a".repeat(9000), "headers-too-large"),
            ("{\n\"customer\": 1}".to_owned(), "too-large"),
            ("{\"customer\": 1}GET / HTTP/1.1\r\n".to_owned(), "too-large"),
            (String::new(), "too-large"),
        ] {
            let found = too_large_kind(unparsed.as_bytes(), 8192).slug;
            assert_eq!(found, expected, "{}", &unparsed[..unparsed.len().min(40)]);
        }
    }

    #[test]
    fn refusal_minor_versions_become_1_1_and_no_others() {
        for (unparsed, expected) in [
            ("GET / HTTP/1.2", Some("GET / HTTP/1.1")),
            ("GET / HTTP/1.9\r\nX: HTTP/1.2\r\n", Some("GET / HTTP/1.1\r\nX: HTTP/1.2\r\n")),
            ("GET / HTTP/1.23\n", Some("GET / HTTP/1.13\n")),
            ("GET / HTTP/1.1\r\n", None),
            ("GET / HTTP/1.0\r\n", None),
            ("GET / HTTP/2.2\r\n", None),
            ("GET / HTTP/1.", None),
            ("GET /HTTP/1.2\r\n", None),
            ("GET  / HTTP/1.2\r\n", None),
            ("", None),
        ] {
            let found = as_http_1_1(unparsed.as_bytes());
            assert_eq!(found.as_deref(), expected.map(str::as_bytes), "{unparsed:?}");
        }
    }

    #[test]
    fn refusal_finds_accept_in_an_unparsable_head() {
        let only_json =
            b"GET / HTTP/1.1\r\nX : a\r\nACCEPT:  application/json\r\n\r\nAccept: text/plain";
        let expected = accept::parse([b"application/json".as_slice()]);
        assert_eq!(find_accept(only_json), expected);
        assert_eq!(find_accept(&[b"\r\n\n", &only_json[..]].concat()), expected);
        assert_eq!(find_accept(b"garbage"), Accept::ANYTHING);
    }

    #[test]
    fn refusal_is_a_complete_message_with_a_json_body() {
        let id = RequestId::new();
        let log = Logger::start_to(crate::log::LogStyle::Json, std::io::sink()).unwrap();
        let model =
            crate::model::read("nouns.toml", include_str!("../../examples/store/nouns.toml"));
        let metrics = Metrics::new(&model.unwrap());
        let hsts = Some(HeaderValue::from_static("max-age=60"));
        let refusals = RefusalContext { log, base_path: "/v1".into(), metrics, hsts };
        let way = |is_tls| PeerConnection { peer: ([127, 0, 0, 1], 1).into(), is_tls };
        for problem in [
            Problem::new(&problem::BAD_REQUEST).detail("a \"quoted\" \\ word\r\n"),
            Problem::new(&problem::BUSY),
            Problem::new(&problem::HEADERS_TOO_LARGE),
        ] {
            let text =
                String::from_utf8(refusals.render(&problem, &Accept::ANYTHING, &id, way(true)))
                    .unwrap();
            let plain = refusals.render(&problem, &Accept::ANYTHING, &id, way(false));
            assert!(!String::from_utf8(plain).unwrap().contains("strict-transport-security"));
            assert!(text.contains("strict-transport-security: max-age=60\r\n"), "{text}");
            let (head, body) = text.split_once("\r\n\r\n").unwrap();
            assert!(
                head.starts_with(&format!("HTTP/1.1 {} ", problem.kind().status.as_u16())),
                "{head}"
            );
            assert!(head.contains(&format!("content-length: {}\r\n", body.len())), "{head}");
            assert!(head.contains("connection: close\r\n"), "{head}");
            assert_eq!(head.contains("retry-after: 1"), problem.kind().slug == "busy");
            let json: serde_json::Value = serde_json::from_str(body).unwrap();
            assert_eq!(json["type"], format!("/v1/-/problems/{}", problem.kind().slug));
            assert_eq!(json["status"], problem.kind().status.as_u16());
            assert_eq!(json["request_id"], id.as_str());
        }
    }
}
