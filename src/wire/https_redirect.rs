//! Redirects from HTTP to HTTPS, and HSTS (RFC 6797).
//!
//! Pure. Runs after `check_head`, so target and Host are valid. The client chooses the Host, so it can have
//! itself redirected anywhere; an operator who sets `base_url` fixes the redirect's host.

use std::time::Duration;

use http::request::Parts;
use http::{HeaderValue, Method};

use super::host::{Authority, AuthorityHost, authority};
use crate::fault::OrBug;
use crate::problem::{self, Problem};

const HTTPS_PORT: u16 = 443;

/// The HTTPS URL of the request. `port` is the TLS port, for hosts taken from the request.
pub fn https_url(parts: &Parts, base_url: Option<&str>, port: u16) -> Result<String, Problem> {
    let refuse = |kind, detail: String| Err(Problem::new(kind).detail(detail));
    if parts.method == Method::CONNECT {
        let detail = "expected a request for a path, which CONNECT does not have".to_owned();
        return refuse(&problem::BAD_REQUEST, detail);
    }
    let origin = match base_url {
        Some(base) => base.to_owned(),
        None => match request_host(parts) {
            Ok(host) if port == HTTPS_PORT => format!("https://{host}"),
            Ok(host) => format!("https://{host}:{port}"),
            Err(detail) => return refuse(&problem::BAD_HOST, detail),
        },
    };
    // RFC 9110 §9.3.7: `*` stands for the server as a whole.
    let target = parts.uri.path_and_query().map_or("/", |target| target.as_str());
    let target = if target == "*" { "/" } else { target };
    Ok(format!("{origin}{target}"))
}

/// The `Strict-Transport-Security` header (RFC 6797 §6.1): how long clients must use HTTPS only.
pub fn hsts_header(time: Option<Duration>) -> Option<HeaderValue> {
    let value = HeaderValue::try_from(format!("max-age={}", time?.as_secs()));
    Some(value.or_bug("a name and a number are ASCII"))
}

/// The host that the request names, without its port.
fn request_host(parts: &Parts) -> Result<String, String> {
    let sent = authority(parts).ok_or("expected a Host header, got none")?;
    let unfit = || format!("expected a host name or address, got \"{sent}\"");
    let host = Authority::parse(sent).ok_or_else(unfit)?.host;
    // An absolute target overrides Host, and no page can make a browser send one; so the two must name the
    // same host.
    let header = parts.headers.get(http::header::HOST).and_then(|host| host.to_str().ok());
    if header.and_then(Authority::parse).is_some_and(|header| header.host != host) {
        return Err("expected Host to be the host of the target".to_owned());
    }
    match host {
        AuthorityHost::Address(std::net::IpAddr::V4(address)) => Ok(address.to_string()),
        AuthorityHost::Address(std::net::IpAddr::V6(address)) => Ok(format!("[{address}]")),
        // RFC 3986 §3.2.2 allows characters that host names do not have.
        AuthorityHost::Name(name)
            if name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)) =>
        {
            Ok(name.to_ascii_lowercase())
        }
        AuthorityHost::Name(_) => Err(unfit()),
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn check(method: &str, target: &str, host: Option<&str>) -> Result<String, String> {
        address(method, target, host, None, 8443)
    }

    fn address(
        method: &str,
        target: &str,
        host: Option<&str>,
        base_url: Option<&str>,
        port: u16,
    ) -> Result<String, String> {
        let mut request = Request::builder().method(method).uri(target);
        if let Some(host) = host {
            request = request.header("host", host);
        }
        let parts = request.body(()).unwrap().into_parts().0;
        https_url(&parts, base_url, port)
            .map_err(|problem| problem.parts().detail.as_deref().unwrap_or_default().to_owned())
    }

    #[test]
    fn https_redirect_keeps_path_and_query() {
        for (target, host, expected) in [
            ("/", "a.example", "https://a.example:8443/"),
            ("/a/b?c=d&e=%20", "a.example:80", "https://a.example:8443/a/b?c=d&e=%20"),
            ("/a?", "A.Example", "https://a.example:8443/a?"),
            ("//evil.example/x", "a.example", "https://a.example:8443//evil.example/x"),
            ("/\\evil.example", "a.example", "https://a.example:8443/\\evil.example"),
            ("/@evil.example", "a.example", "https://a.example:8443/@evil.example"),
            ("/..//evil", "a.example", "https://a.example:8443/..//evil"),
            ("/", "192.0.2.1:80", "https://192.0.2.1:8443/"),
            ("/", "[2001:db8::1]:80", "https://[2001:db8::1]:8443/"),
            ("http://a.example/x?y", "a.example", "https://a.example:8443/x?y"),
            ("http://a.example", "a.example:80", "https://a.example:8443/"),
            ("*", "a.example", "https://a.example:8443/"),
        ] {
            assert_eq!(check("GET", target, Some(host)), Ok(expected.to_owned()), "{target}");
        }
        let plain = address("GET", "/x", Some("a.example:80"), None, 443);
        assert_eq!(plain.as_deref(), Ok("https://a.example/x"));
    }

    #[test]
    fn https_redirect_with_invalid_or_conflicting_host_is_refused() {
        for (method, target, host) in [
            ("GET", "/", None),
            ("GET", "http://evil.example/x", Some("a.example")),
            ("CONNECT", "evil.example:443", Some("evil.example:443")),
            ("GET", "/", Some("a!b")),
            ("GET", "/", Some("%65vil")),
        ] {
            assert!(check(method, target, host).is_err(), "{method} {target}");
        }
    }

    #[test]
    fn https_redirect_uses_base_url_if_set() {
        let base = Some("https://shop.example:444");
        for (target, host) in [
            ("/x?y", Some("a.example")),
            ("/x?y", None),
            ("http://evil.example/x?y", Some("evil.example")),
        ] {
            let found = address("GET", target, host, base, 8443);
            assert_eq!(found.as_deref(), Ok("https://shop.example:444/x?y"), "{target} {host:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn https_redirect_host_is_independent_of_the_target(path in "/[!-~]{0,40}", host in "[a-z]{1,10}") {
            if let Ok(uri) = path.parse::<http::Uri>() && uri.authority().is_none() {
                let found = check("GET", &path, Some(&host)).unwrap();
                let there: http::Uri = found.parse().unwrap();
                let expected = format!("{host}:8443");
                proptest::prop_assert_eq!(there.authority().map(|a| a.as_str()), Some(expected.as_str()));
            }
        }
    }
}
