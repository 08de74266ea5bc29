//! `url`: an absolute http or https URL with a host, stored as it was sent.
//!
//! It is not resolved, normalized or fetched.

use http::Uri;

use super::read::expect_form;
use crate::model::field::{FieldType, StorageClass};
use crate::model::ip_network::is_port;

pub static URL: FieldType = FieldType {
    is_searchable_text: true,
    keys: &["min_length", "max_length", "pattern", "one_of", "unique", "filter", "match", "order"],
    synonyms: &["uri"],
    json_format: Some("uri"),
    json_pattern: Some("^https?://[^/?#]"),
    example: Some("https://example.com/"),
    ..FieldType::new("url", "an http or https address", StorageClass::Text, |_, json, faults| {
        expect_form(json, "an http or https address", is_url, faults)
    })
};

/// Whether `text` is an absolute http or https URL with a host.
pub fn is_url(text: &str) -> bool {
    // RFC 3986 §2: other characters must be percent-encoded; `Uri` is laxer.
    let allowed = |b: u8| b.is_ascii_alphanumeric() || b"-._~:/?#[]@!$&'()*+,;=%".contains(&b);
    if !text.bytes().all(allowed) || invalid_escape_position(text).is_some() {
        return false;
    }
    let Ok(uri) = text.parse::<Uri>() else { return false };
    let Some(authority) = uri.authority() else { return false };
    let host = authority.host();
    let after_user =
        authority.as_str().rsplit_once('@').map_or(authority.as_str(), |(_, rest)| rest);
    let rest = after_user.strip_prefix(host).unwrap_or(after_user);
    let port_fits = rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port);
    matches!(uri.scheme_str(), Some("http" | "https")) && !host.is_empty() && port_fits
}

/// Whether `text` is a URL of a scheme, a host and maybe a port alone.
pub fn is_origin_url(text: &str) -> bool {
    let plain = |uri: Uri| uri.path().trim_start_matches('/').is_empty() && uri.query().is_none();
    let has_tail = text.ends_with('/') || text.contains(['#', '@']);
    is_url(text) && !has_tail && text.parse().is_ok_and(plain)
}

/// The position of a percent sign that does not begin an escape.
pub fn invalid_escape_position(text: &str) -> Option<usize> {
    // RFC 3986 §2.1: a percent sign is followed by two hex digits.
    let is_whole = |at: usize| {
        let digits = text.as_bytes().get(at + 1..at + 3);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    let mut bytes = text.bytes().enumerate();
    bytes.find(|(at, b)| *b == b'%' && !is_whole(*at)).map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::is_url;

    #[test]
    fn is_url_requires_absolute_http_url_with_host() {
        for good in [
            "http://a",
            "https://example.com/",
            "https://example.com:8443/a/b?c=d&e=%20#f",
            "http://[::1]:80/",
            "http://127.0.0.1",
            "https://user@example.com/x",
            "http://0:8080",
        ] {
            assert!(is_url(good), "{good}");
        }
        for bad in [
            "",
            "example.com",
            "/path",
            "ftp://a",
            "http://",
            "http:///x",
            "http://a b",
            "http://a/\u{e4}",
            "http://a/%2",
            "http://a/%zz",
            "javascript:alert(1)",
            "http://a:99999/",
            "http://a:+80/",
            "http://:80/",
            "mailto:a@b",
            "http://a/<b>",
            "//a/b",
        ] {
            assert!(!is_url(bad), "{bad}");
        }
    }
}
