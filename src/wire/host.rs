//! Host and origin checks: protection against DNS rebinding and cross-site requests (CSRF).
//!
//! Pure. The addresses that the server listens on are arguments. Host is never used to build a URL, except in
//! the redirect to HTTPS (`https_redirect`); otherwise it can only lead to a refusal.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::request::Parts;
use http::{Method, header};

use crate::fault::OrBug;
use crate::model::types::invalid_escape_position;
use crate::problem::{self, Problem};

/// The host and port that the request names. RFC 9112 §3.2.2: the host of an absolute target overrides Host.
pub fn authority(parts: &Parts) -> Option<&str> {
    match parts.uri.authority() {
        Some(authority) => Some(authority.as_str()),
        None => parts.headers.get(header::HOST).and_then(|host| host.to_str().ok()),
    }
}

/// A host and an optional port.
#[derive(Debug, PartialEq, Eq)]
pub struct Authority<'a> {
    pub(super) host: AuthorityHost<'a>,
    pub(super) port: Option<u16>,
}

#[derive(Debug, Clone, Copy)]
pub enum AuthorityHost<'a> {
    Address(IpAddr),
    Name(&'a str),
}

/// RFC 9110 §4.2.3: host names are compared without regard to case.
impl PartialEq for AuthorityHost<'_> {
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Address(mine), Self::Address(theirs)) => mine == theirs,
            (Self::Name(mine), Self::Name(theirs)) => mine.eq_ignore_ascii_case(theirs),
            (Self::Address(_), Self::Name(_)) | (Self::Name(_), Self::Address(_)) => false,
        }
    }
}

impl Eq for AuthorityHost<'_> {}

const HOST_BYTES_MAX: usize = 255;

impl<'a> Authority<'a> {
    /// RFC 3986 §3.2.2: a name, an IPv4 address or an IPv6 address in brackets; no user, no zone.
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        let (host, rest) = match text.strip_prefix('[') {
            Some(inner) => {
                let (address, rest) = inner.split_once(']')?;
                (AuthorityHost::Address(IpAddr::V6(address.parse::<Ipv6Addr>().ok()?)), rest)
            }
            None => {
                let end = text.bytes().position(|b| b == b':').unwrap_or(text.len());
                let (name, rest) = text.split_at(end);
                let host = match name.parse::<Ipv4Addr>() {
                    Ok(address) => AuthorityHost::Address(IpAddr::V4(address)),
                    Err(_) if is_host_name(name) => AuthorityHost::Name(name),
                    Err(_) => return None,
                };
                (host, rest)
            }
        };
        let port = match rest.strip_prefix(':') {
            None if rest.is_empty() => None,
            None => return None,
            // RFC 3986 §3.2.3: the port may be empty.
            Some("") => None,
            Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => {
                Some(digits.parse().ok()?)
            }
            Some(_) => return None,
        };
        Some(Self { host, port })
    }
}

fn is_host_name(name: &str) -> bool {
    let bytes = name.as_bytes();
    // RFC 9110 §4.2.1: an empty host identifier is invalid in http.
    (1..=HOST_BYTES_MAX).contains(&bytes.len())
        && bytes.iter().all(|b| b.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=%".contains(b))
        && invalid_escape_position(name).is_none()
}

/// Without authentication, Host must be a name that only this machine can have: otherwise a web page could
/// reach the server through its own name that resolves to this machine (DNS rebinding). `listen` has the
/// addresses given with `--listen`.
pub fn check_host_is_local(
    parts: &Parts,
    whom: Option<&Authority<'_>>,
    listen: &[String],
) -> Result<(), Problem> {
    let ours = match whom.map(|whom| whom.host) {
        // Only HTTP/1.0 requests get here without a Host, and no browser sends them.
        None => true,
        Some(AuthorityHost::Address(address)) if address.to_canonical().is_loopback() => true,
        Some(AuthorityHost::Name(name)) if name.eq_ignore_ascii_case("localhost") => true,
        Some(host) => {
            listen.iter().filter_map(|own| Authority::parse(own)).any(|own| own.host == host)
        }
    };
    if ours {
        return Ok(());
    }
    let named = authority(parts).unwrap_or_default();
    Err(Problem::new(&problem::WRONG_HOST).detail(format!(
        "expected localhost, a loopback address or a --listen name, got \"{named}\""
    )))
}

/// Refuses a change that a page of another site makes a browser send (CSRF). `is_https` tells whether the
/// request was sent by https, if that is known.
pub fn check_cross_site(
    parts: &Parts,
    base_url: Option<&str>,
    is_https: Option<bool>,
) -> Result<(), Problem> {
    if matches!(parts.method, Method::GET | Method::HEAD | Method::OPTIONS) {
        return Ok(());
    }
    let refuse = |detail: String| Err(Problem::new(&problem::CROSS_SITE).detail(detail));
    let mut sites = parts.headers.get_all("sec-fetch-site").iter().peekable();
    if sites.peek().is_some() {
        return if sites.all(|site| matches!(site.as_bytes(), b"same-origin" | b"none")) {
            Ok(())
        } else {
            refuse("expected Sec-Fetch-Site to be same-origin or none".to_owned())
        };
    }
    for origin in parts.headers.get_all(header::ORIGIN) {
        let origin = origin.to_str().unwrap_or_default();
        let is_ours = authority(parts).is_some_and(|own| is_same_host(origin, own, is_https))
            || base_url.is_some_and(|base| is_same_origin(origin, base));
        if !is_ours {
            return refuse(format!("expected this server's own origin, got \"{origin}\""));
        }
    }
    Ok(())
}

/// Splits off the scheme, `http` or `https`; returns its default port and the rest of the URL.
fn split_scheme(url: &str) -> Option<(u16, &str)> {
    let (scheme, rest) = url.split_once("://")?;
    match scheme.to_ascii_lowercase().as_str() {
        "http" => Some((80, rest)),
        "https" => Some((443, rest)),
        _ => None,
    }
}

/// Whether an origin has this host and port, and, if it is known, the scheme that the request was sent with.
fn is_same_host(origin: &str, own: &str, is_https: Option<bool>) -> bool {
    let Some((port_default, rest)) = split_scheme(origin) else { return false };
    if is_https.is_some_and(|is_https| is_https != (port_default == 443)) {
        return false;
    }
    match (Authority::parse(rest), Authority::parse(own)) {
        (Some(theirs), Some(own)) => {
            theirs.host == own.host
                && theirs.port.unwrap_or(port_default) == own.port.unwrap_or(port_default)
        }
        (None, _) | (_, None) => false,
    }
}

fn is_same_origin(origin: &str, base_url: &str) -> bool {
    let (Some((theirs, _)), Some((own, rest))) = (split_scheme(origin), split_scheme(base_url))
    else {
        return false;
    };
    let mut parts = rest.split(['/', '?', '#']);
    let own_authority = parts.next().or_bug("a split yields at least one part");
    theirs == own && is_same_host(origin, own_authority, None)
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    #[test]
    fn host_authority_is_parsed_strictly() {
        for good in [
            "localhost",
            "LOCALHOST:8080",
            "a.example.",
            "127.0.0.1",
            "127.0.0.1:80",
            "[::1]",
            "[::1]:8080",
            "[::ffff:127.0.0.1]",
            "a:",
            "x-y_z~1",
            "%41b",
            "a!$&'()*+,;=b",
            "1.2.3",
        ] {
            assert!(Authority::parse(good).is_some(), "{good}");
        }
        let long = "a".repeat(256);
        for bad in [
            "",
            ":80",
            "a b",
            "a/b",
            "a?b",
            "a#b",
            "user@a",
            "a:b",
            "a:80:80",
            "a:65536",
            "a:+80",
            "a:-1",
            "[::1",
            "::1",
            "[::1]80",
            "[::1]x",
            "[fe80::1%eth0]",
            "[v1.a]",
            "[127.0.0.1]",
            "a%4",
            "a%zz",
            "é",
            "a\\b",
            "a,b c",
            "\"a\"",
            "<a>",
            "[]",
            "[]:80",
            "a\tb",
            long.as_str(),
        ] {
            assert_eq!(Authority::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn host_of_open_server_must_be_this_machine() {
        let listen =
            ["dev.test:8080".to_owned(), "127.0.0.1:0".to_owned(), "192.0.2.7:80".to_owned()];
        let parts = Request::new(()).into_parts().0;
        let ours = |host: Option<&str>| match host.map(Authority::parse) {
            // Refused by an earlier check.
            Some(None) => false,
            whom => check_host_is_local(&parts, whom.flatten().as_ref(), &listen).is_ok(),
        };
        for good in [
            "localhost",
            "LocalHost:3000",
            "127.0.0.1",
            "127.9.8.7:1",
            "[::1]",
            "[::1]:8080",
            "[::ffff:127.0.0.1]:1",
            "dev.test",
            "DEV.test:9",
            "192.0.2.7",
        ] {
            assert!(ours(Some(good)), "{good}");
        }
        assert!(ours(None));
        for bad in [
            "example.com",
            "localhost.example.com",
            "localhost.",
            "xlocalhost",
            "127.0.0.1.example.com",
            "127.1",
            "2130706433",
            "0x7f.0.0.1",
            "0.0.0.0",
            "[::]",
            "192.0.2.8",
            "dev.test.evil",
            "",
            "[::1",
            "user@localhost",
        ] {
            assert!(!ours(Some(bad)), "{bad}");
        }
    }

    #[test]
    fn cross_site_check_refuses_changes_from_other_sites() {
        let check = |method: &str, headers: &[(&str, &str)], base_url: Option<&str>| {
            let mut request =
                Request::builder().method(method).uri("/a").header("host", "shop.example:8080");
            for (name, value) in headers {
                request = request.header(*name, *value);
            }
            check_cross_site(&request.body(()).unwrap().into_parts().0, base_url, None).is_ok()
        };
        let (site, origin) = ("sec-fetch-site", "origin");
        for (headers, base_url, expected) in [
            (&[][..], None, true),
            (&[(site, "same-origin")], None, true),
            (&[(site, "none")], None, true),
            (&[(site, "same-site")], None, false),
            (&[(site, "cross-site")], None, false),
            (&[(site, "anything")], None, false),
            (&[(site, "same-origin"), (site, "cross-site")], None, false),
            // A page cannot forge Sec-Fetch-Site, so Origin is not checked.
            (&[(site, "same-origin"), (origin, "http://evil.example")], None, true),
            (&[(site, "cross-site"), (origin, "http://shop.example:8080")], None, false),
            (&[(origin, "http://shop.example:8080")], None, true),
            (&[(origin, "https://SHOP.example:8080")], None, true),
            (&[(origin, "http://shop.example")], None, false),
            (&[(origin, "http://shop.example:8081")], None, false),
            (&[(origin, "http://shop.example.evil:8080")], None, false),
            (&[(origin, "null")], None, false),
            (&[(origin, "")], None, false),
            (&[(origin, "file://")], None, false),
            (&[(origin, "http://shop.example:8080"), (origin, "http://evil.example")], None, false),
            (&[(origin, "https://front.example")], Some("https://front.example/api"), true),
            (&[(origin, "https://front.example")], Some("https://front.example:443"), true),
            (&[(origin, "http://front.example")], Some("https://front.example"), false),
            (&[(origin, "https://other.example")], Some("https://front.example"), false),
        ] {
            assert_eq!(check("POST", headers, base_url), expected, "{headers:?} {base_url:?}");
            assert!(check("GET", headers, base_url), "{headers:?}: reading is free");
        }
        assert!(!check("DELETE", &[(site, "cross-site")], None));
        assert!(check("OPTIONS", &[(site, "cross-site")], None), "a preflight must get through");
    }

    #[test]
    fn cross_site_check_treats_default_port_as_equal() {
        assert!(is_same_host("http://a", "a:80", None));
        assert!(is_same_host("https://a", "a:443", None));
        assert!(is_same_host("https://a:443", "a", None));
        assert!(!is_same_host("https://a", "a:80", None));
        assert!(is_same_host("http://[::1]:80", "[0:0:0:0:0:0:0:1]", None));
    }

    #[test]
    fn cross_site_check_requires_the_known_scheme() {
        for (origin, host) in [("http://a", "a"), ("http://a:8080", "a:8080"), ("HTTP://a", "a:80")]
        {
            assert!(is_same_host(origin, host, Some(false)), "{origin}");
            assert!(!is_same_host(origin, host, Some(true)), "{origin}");
        }
        for (origin, host) in [("https://a", "a"), ("https://a:8080", "a:8080")] {
            assert!(is_same_host(origin, host, Some(true)), "{origin}");
            assert!(!is_same_host(origin, host, Some(false)), "{origin}");
        }
        let request = Request::post("/a").header("host", "a").header("origin", "https://a");
        let parts = request.body(()).unwrap().into_parts().0;
        assert!(check_cross_site(&parts, None, Some(false)).is_err());
        assert!(
            check_cross_site(&parts, Some("https://a"), Some(false)).is_ok(),
            "it was declared"
        );
    }

    proptest::proptest! {
        #[test]
        fn host_authority_of_arbitrary_text_never_panics(text in ".{0,40}") {
            let _ = Authority::parse(&text);
            let _ = is_same_origin(&text, &text);
            let _ = is_same_host(&text, &text, Some(true));
        }
    }
}
