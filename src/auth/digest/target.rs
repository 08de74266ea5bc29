//! Comparison of the `uri` of Digest credentials with the target of their request.
//!
//! RFC 7616 §3.4.6. The comparison is textual: two spellings of one path are different paths here, because a
//! client sends the same text twice. Only one difference is allowed: one of the two may be in absolute form,
//! which has a scheme and a host before the path.

/// The target of a request.
#[derive(Debug, Clone, Copy)]
pub struct DigestTarget<'r> {
    /// As it was sent: `/customers?limit=1`, `http://example.com/customers?limit=1` or `*`.
    pub text: &'r str,
    /// The host that the request was sent to, with its port if any; an absolute target names a host itself.
    pub host: &'r str,
}

impl DigestTarget<'_> {
    pub fn matches_uri(&self, uri: &[u8]) -> bool {
        if self.text.as_bytes() == uri {
            return true;
        }
        let Ok(uri) = str::from_utf8(uri) else { return false };
        let (ours, theirs) = (split_uri(self.text), split_uri(uri));
        if ours.path != theirs.path || ours.query != theirs.query {
            return false;
        }
        // One of the two may be in absolute form.
        match (ours.scheme, theirs.scheme) {
            (None, None) => true,
            (None, Some(scheme)) => is_same_host(scheme, self.host, theirs.host),
            (Some(_), None) => true,
            (Some(scheme), Some(_)) => is_same_host(scheme, ours.host, theirs.host),
        }
    }
}

#[derive(Debug)]
struct UriParts<'t> {
    scheme: Option<UriScheme>,
    host: &'t str,
    path: &'t str,
    query: Option<&'t str>,
}

#[derive(Debug, Clone, Copy)]
enum UriScheme {
    Http,
    Https,
}

fn split_uri(text: &str) -> UriParts<'_> {
    let (scheme, rest) = match (
        strip_prefix_ignore_case(text, "http://"),
        strip_prefix_ignore_case(text, "https://"),
    ) {
        (Some(rest), _) => (Some(UriScheme::Http), rest),
        (None, Some(rest)) => (Some(UriScheme::Https), rest),
        (None, None) => (None, text),
    };
    let start = match scheme {
        Some(_) => rest.find(['/', '?']).unwrap_or(rest.len()),
        None => 0,
    };
    let (host, rest) = rest.split_at_checked(start).unwrap_or((rest, ""));
    let (path, query) = match rest.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (rest, None),
    };
    // RFC 9112 §3.2.1: an empty path is sent as `/`.
    let path = if path.is_empty() && scheme.is_some() { "/" } else { path };
    UriParts { scheme, host, path, query }
}

fn strip_prefix_ignore_case<'t>(text: &'t str, prefix: &str) -> Option<&'t str> {
    let (start, rest) = text.split_at_checked(prefix.len())?;
    start.eq_ignore_ascii_case(prefix).then_some(rest)
}

/// TLS may end at a proxy: the scheme only says which port may be omitted.
fn is_same_host(scheme: UriScheme, ours: &str, theirs: &str) -> bool {
    let port = match scheme {
        UriScheme::Http => ":80",
        UriScheme::Https => ":443",
    };
    let bare = |host: &'_ str| host.strip_suffix(port).map_or(host.len(), str::len);
    let (ours, theirs) = (ours.get(..bare(ours)), theirs.get(..bare(theirs)));
    ours.zip(theirs).is_some_and(|(ours, theirs)| ours.eq_ignore_ascii_case(theirs))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_uri_matches_the_request_target() {
        let check = |text: &str, uri: &str, expected: bool| {
            let target = DigestTarget { text, host: "Example.com" };
            assert_eq!(target.matches_uri(uri.as_bytes()), expected, "{text} by {uri}");
        };
        for (text, uri) in [
            ("/", "/"),
            ("*", "*"),
            ("/a?b=1", "/a?b=1"),
            ("/a?b=1", "http://example.COM/a?b=1"),
            ("/a?b=1", "HTTPS://example.com/a?b=1"),
            ("/a?b=1", "http://example.com:80/a?b=1"),
            ("/a", "https://example.com:443/a"),
            ("/", "http://example.com"),
            ("/?b", "http://example.com?b"),
            ("http://other:81/a", "/a"),
            ("http://other:81/a", "http://other:81/a"),
            ("http://other/a", "http://OTHER:80/a"),
            ("/é", "/é"),
        ] {
            check(text, uri, true);
        }
        for (text, uri) in [
            ("/a?b=1", "/a"),
            ("/a", "/a?"),
            ("/a", "/a?b=1"),
            ("/a", "/b"),
            ("/a", "/A"),
            ("/~a", "/%7Ea"),
            ("/a", ""),
            ("/", ""),
            ("/a", "a"),
            ("/a", "http://elsewhere.com/a"),
            ("/a", "http://example.com:81/a"),
            ("/a", "http://example.com:443/a"),
            ("/a", "ftp://example.com/a"),
            ("http://other:81/a", "http://example.com/a"),
            ("/", "*"),
        ] {
            check(text, uri, false);
        }
        assert!(!DigestTarget { text: "/a", host: "h" }.matches_uri(b"/\xff"));
    }
}
