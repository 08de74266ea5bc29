//! Validation of the request head beyond what the HTTP parser checks: step 1 of the order of checks.
//!
//! Pure. Requests that hyper itself refuses (broken header lines, contradictory lengths) never get here. What
//! may surprise is the order inside: 400 before 414 and 431, as the specification promises, then 501 and 417,
//! whose order it leaves open.

use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Version, header};

use super::host::Authority;
use crate::model::settings::ServerLimits;
use crate::problem::{self, Problem};

/// Set in the extensions of a request whose target has a fragment, since the URI parser drops it.
#[derive(Debug, Clone, Copy)]
pub struct TargetFragment;

/// Returns the authority that the request names. A refusal closes the connection: a client that frames one
/// message wrongly may do so with the next, and two parsers of one stream must never disagree about where a
/// request begins (request smuggling, RFC 9112 §11.2).
pub fn check_head<'a>(
    parts: &'a Parts,
    limits: &ServerLimits,
) -> Result<Option<Authority<'a>>, Problem> {
    crate::fault::point("head");
    check_parts(parts, limits)
        .map_err(|problem| problem.header(header::CONNECTION, HeaderValue::from_static("close")))
}

fn check_parts<'a>(
    parts: &'a Parts,
    limits: &ServerLimits,
) -> Result<Option<Authority<'a>>, Problem> {
    check_target(parts)?;
    if parts.version == Version::HTTP_2 {
        check_values(&parts.headers)?;
    }
    let whom = check_host(parts)?;
    let coding = transfer_coding(&parts.headers);
    if coding == TransferCoding::ChunkedTwice {
        return Err(Problem::new(&problem::BAD_REQUEST)
            .detail("expected chunked once in Transfer-Encoding"));
    }
    check_size(parts, limits)?;
    if coding == TransferCoding::Unknown {
        // RFC 9112 §6.1: a transfer coding that is not understood should be answered with 501.
        return Err(Problem::new(&problem::UNKNOWN_TRANSFER_CODING)
            .detail("expected a single chunked in Transfer-Encoding"));
    }
    check_expectation(parts)?;
    Ok(whom)
}

/// RFC 9112 §3.2: which form of target is valid for which method.
fn check_target(parts: &Parts) -> Result<(), Problem> {
    let uri = &parts.uri;
    let fault = match (uri.scheme_str(), uri.authority()) {
        // §3.2.3: authority form is only for CONNECT, which no route allows: 405.
        (None, Some(_)) if parts.method != Method::CONNECT => {
            "expected a target that begins with /, got a host alone"
        }
        (Some(scheme), _) if scheme != "http" && scheme != "https" => {
            "expected a target with the scheme http or https"
        }
        // RFC 3986 §2: everything outside ASCII is percent-encoded.
        _ if !uri.path_and_query().is_none_or(|target| target.as_str().is_ascii()) => {
            "expected a target in ASCII, with other characters percent-encoded"
        }
        // RFC 9110 §7.1: a target has no fragment.
        _ if parts.extensions.get::<TargetFragment>().is_some() => {
            "expected a target without a fragment, with # percent-encoded"
        }
        _ if uri.path() == "*" && parts.method != Method::OPTIONS => {
            "expected a target that begins with /, got *, which is for OPTIONS"
        }
        _ => return Ok(()),
    };
    Err(Problem::new(&problem::BAD_REQUEST).detail(fault))
}

/// RFC 9113 §8.2.1: a field value does not begin or end with a space or a tab. HTTP/1 strips them.
pub(super) fn check_values(fields: &HeaderMap) -> Result<(), Problem> {
    let is_space = |byte: Option<&u8>| matches!(byte, Some(b' ' | b'\t'));
    match fields
        .iter()
        .find(|(_, value)| is_space(value.as_bytes().first()) || is_space(value.as_bytes().last()))
    {
        Some((name, _)) => Err(Problem::new(&problem::BAD_REQUEST)
            .detail(format!("expected no space around the value of {name}"))),
        None => Ok(()),
    }
}

fn check_host(parts: &Parts) -> Result<Option<Authority<'_>>, Problem> {
    let refuse = |detail: String| Err(Problem::new(&problem::BAD_HOST).detail(detail));
    let mut lines = parts.headers.get_all(header::HOST).iter();
    let line = lines.next();
    // RFC 9112 §3.2: more than one Host line, or one that is not valid, must be refused.
    if lines.next().is_some() {
        return refuse("expected one Host, got several".to_owned());
    }
    let host = line.and_then(|line| line.to_str().ok()).and_then(Authority::parse);
    if let (Some(line), None) = (line, &host) {
        let text = String::from_utf8_lossy(line.as_bytes());
        return refuse(format!("expected a host name or address and maybe a port, got \"{text}\""));
    }
    // RFC 9112 §3.2: HTTP/1.1 without Host must be refused, also when the target names the host.
    if host.is_none() && parts.version == Version::HTTP_11 {
        return refuse("expected a Host header, got none".to_owned());
    }
    let Some(target) = parts.uri.authority().map(http::uri::Authority::as_str) else {
        return match (parts.version, host) {
            // RFC 9113 §8.3.1: a request must name an authority, here or in Host.
            (Version::HTTP_2, None) => refuse("expected :authority, got none".to_owned()),
            (_, host) => Ok(host),
        };
    };
    let Some(target_host) = Authority::parse(target) else {
        return refuse(format!("expected a host name or address in the target, got \"{target}\""));
    };
    // RFC 9113 §8.3.1: a Host that differs from :authority makes the request malformed.
    if parts.version == Version::HTTP_2 && host.is_some_and(|host| host != target_host) {
        return refuse("expected Host to equal :authority".to_owned());
    }
    // RFC 9112 §3.2.2: an absolute target's host wins over Host.
    Ok(Some(target_host))
}

fn check_size(parts: &Parts, limits: &ServerLimits) -> Result<(), Problem> {
    let uri = &parts.uri;
    // HTTP/2 always has an authority, separate from the target.
    let authority = uri.authority().filter(|_| parts.version != Version::HTTP_2);
    let target_bytes = uri.path_and_query().map_or(0, |target| target.as_str().len())
        + authority.map_or(0, |authority| authority.as_str().len());
    if target_bytes > limits.target_bytes_max {
        return Err(Problem::new(&problem::TARGET_TOO_LONG).detail(format!(
            "expected at most {} bytes, got {target_bytes}",
            limits.target_bytes_max
        )));
    }
    let count = parts.headers.len();
    if count > limits.headers_max {
        return Err(Problem::new(&problem::HEADERS_TOO_LARGE)
            .detail(format!("expected at most {} headers, got {count}", limits.headers_max)));
    }
    // For each line: a colon, mostly a space, and CR LF.
    let bytes: usize =
        parts.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    if bytes > limits.headers_bytes_max {
        return Err(Problem::new(&problem::HEADERS_TOO_LARGE).detail(format!(
            "expected at most {} bytes of headers, got {bytes}",
            limits.headers_bytes_max
        )));
    }
    Ok(())
}

#[derive(Debug, PartialEq, Eq)]
enum TransferCoding {
    None,
    Chunked,
    ChunkedTwice,
    Unknown,
}

/// The parser guarantees that chunked comes last; here it must also be the only one.
fn transfer_coding(headers: &HeaderMap) -> TransferCoding {
    let mut coding = TransferCoding::None;
    let lines = headers.get_all(header::TRANSFER_ENCODING).iter();
    for name in lines.flat_map(|line| line.to_str().unwrap_or("?").split(',')) {
        let name = name.trim_matches([' ', '\t']);
        coding = match coding {
            // RFC 9110 §5.6.1.2: empty list elements are to be ignored.
            coding if name.is_empty() => coding,
            TransferCoding::None if name.eq_ignore_ascii_case("chunked") => TransferCoding::Chunked,
            // RFC 9112 §6.1: chunked must not be applied more than once.
            TransferCoding::Chunked | TransferCoding::ChunkedTwice
                if name.eq_ignore_ascii_case("chunked") =>
            {
                TransferCoding::ChunkedTwice
            }
            TransferCoding::ChunkedTwice => TransferCoding::ChunkedTwice,
            TransferCoding::None | TransferCoding::Chunked | TransferCoding::Unknown => {
                TransferCoding::Unknown
            }
        };
    }
    coding
}

fn check_expectation(parts: &Parts) -> Result<(), Problem> {
    let lines = parts.headers.get_all(header::EXPECT).iter();
    for expectation in lines.flat_map(|line| line.to_str().unwrap_or("?").split(',')) {
        let expectation = expectation.trim_matches([' ', '\t']);
        if !expectation.is_empty() && !expectation.eq_ignore_ascii_case("100-continue") {
            return Err(Problem::new(&problem::EXPECTATION_FAILED)
                .detail(format!("expected 100-continue, got \"{expectation}\"")));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn slug(
        method: &str,
        target: &str,
        version: Version,
        headers: &[(&str, &str)],
    ) -> &'static str {
        let mut request = Request::builder().method(method).uri(target).version(version);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let parts = request.body(()).unwrap().into_parts().0;
        check_head(&parts, &ServerLimits::default())
            .map_or_else(|problem| problem.kind().slug, |_| "fine")
    }

    #[test]
    fn request_head_host_is_checked() {
        let (v0, v1, v2) = (Version::HTTP_10, Version::HTTP_11, Version::HTTP_2);
        let a = ("host", "a");
        for (target, version, headers, expected) in [
            ("/", v1, &[a][..], "fine"),
            ("/", v1, &[], "bad-host"),
            ("/", v1, &[a, a], "bad-host"),
            ("/", v1, &[("host", "")], "bad-host"),
            ("/", v1, &[("host", "a b")], "bad-host"),
            ("/", v0, &[], "fine"),
            ("/", v0, &[a], "fine"),
            ("/", v0, &[a, a], "bad-host"),
            ("/", v0, &[("host", "a/b")], "bad-host"),
            ("http://b/", v1, &[a], "fine"),
            ("http://b/", v1, &[], "bad-host"),
            ("http://user@b/", v1, &[a], "bad-host"),
            ("http://b/", v2, &[], "fine"),
            ("http://b/", v2, &[a], "bad-host"),
            ("http://a:80/", v2, &[("host", "A:80")], "fine"),
            ("/", v2, &[], "bad-host"),
            ("/", v2, &[a], "fine"),
        ] {
            assert_eq!(
                slug("GET", target, version, headers),
                expected,
                "{target} {version:?} {headers:?}"
            );
        }
    }

    #[test]
    fn request_head_target_form_is_checked() {
        for (method, target, expected) in [
            ("OPTIONS", "*", "fine"),
            ("GET", "*", "bad-request"),
            ("POST", "*", "bad-request"),
            ("CONNECT", "a:80", "fine"),
            ("GET", "a:80", "bad-request"),
            ("GET", "ftp://a/", "bad-request"),
            ("GET", "https://a/", "fine"),
        ] {
            assert_eq!(
                slug(method, target, Version::HTTP_11, &[("host", "a")]),
                expected,
                "{method} {target}"
            );
        }
    }

    #[test]
    fn request_head_transfer_coding_and_expect_are_checked() {
        let host = ("host", "a");
        let coding = |value| ("transfer-encoding", value);
        let expect = |value| ("expect", value);
        for (headers, expected) in [
            (&[host, coding("chunked")][..], "fine"),
            (&[host, coding("CHUNKED ,")], "fine"),
            (&[host, coding("chunked, chunked")], "bad-request"),
            (&[host, coding("chunked"), coding("chunked")], "bad-request"),
            (&[host, coding("gzip, chunked")], "unknown-transfer-coding"),
            (&[host, coding("gzip"), coding("chunked")], "unknown-transfer-coding"),
            (&[host, coding("identity, chunked")], "unknown-transfer-coding"),
            (&[host, coding("chunked;a=b")], "unknown-transfer-coding"),
            (&[host, expect("100-continue")], "fine"),
            (&[host, expect("100-Continue")], "fine"),
            (&[host, expect("200-ok")], "expectation-failed"),
            (&[host, expect("100-continue, more")], "expectation-failed"),
            // The lower status takes precedence.
            (&[coding("gzip, chunked")], "bad-host"),
        ] {
            assert_eq!(slug("POST", "/", Version::HTTP_11, headers), expected, "{headers:?}");
        }
    }

    #[test]
    fn request_head_sizes_are_limited() {
        let limits = ServerLimits::default();
        let get = |target: &str, headers: &[(&str, &str)]| {
            let mut all = vec![("host", "a")];
            all.extend(headers);
            slug("GET", target, Version::HTTP_11, &all)
        };
        let target = |bytes: usize| format!("/{}", "a".repeat(bytes - 1));
        assert_eq!(get(&target(limits.target_bytes_max), &[]), "fine");
        assert_eq!(get(&target(limits.target_bytes_max + 1), &[]), "target-too-long");
        let fits =
            "v".repeat(limits.headers_bytes_max - "host".len() - "a".len() - 4 - "x".len() - 4);
        assert_eq!(get("/", &[("x", &fits)]), "fine");
        assert_eq!(get("/", &[("xy", &fits)]), "headers-too-large");
        let many = vec![("x", "y"); limits.headers_max];
        assert_eq!(get("/", &many), "headers-too-large");
        assert_eq!(get("/", &many[1..]), "fine");
        assert_eq!(get(&target(limits.target_bytes_max + 1), &many), "target-too-long");
    }
}
