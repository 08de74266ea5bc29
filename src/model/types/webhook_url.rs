//! The URL of a webhook; not available in model files.
//!
//! Stricter than `url`: only hosts whose spelling says whether they are a name or an address, no user
//! information, no fragment. Pure: the connector checks the addresses that a name leads to. Whether http and
//! private hosts are allowed depends on the settings of the server, so `plan` checks that.

// Only the address types, without the sockets of `std::net`.
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::Uri;

use super::read::expect_text;
use super::url::is_url;
use super::webhook_address::AddressPolicy;
use crate::model::field::{FieldType, StorageClass};
use crate::problem::FaultCode;
use crate::value::Value;

const CHARS_MAX: usize = 2000;

pub static WEBHOOK_URL: FieldType = FieldType {
    json_format: Some("uri"),
    json_pattern: Some("^https?://[^/?#]"),
    example: Some("https://example.com/hook"),
    ..FieldType::new("url", "an https address", StorageClass::Text, |_, json, faults| {
        let text = expect_text(json, "an https address", faults)?;
        if let Some(fault) = find_url_fault(text, true) {
            faults.add(FaultCode::Format, fault);
            return None;
        }
        Some(Value::text(text))
    })
};

/// Why a text is not the URL of a webhook, as what was expected instead.
pub fn find_url_fault(text: &str, allows_http: bool) -> Option<&'static str> {
    let uri = text.parse::<Uri>().ok().filter(|_| is_url(text));
    let Some(uri) = uri else {
        return Some("expected an absolute URL, such as https://example.com/hook");
    };
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    if uri.scheme_str() != Some("https") && !allows_http {
        return Some("expected https; http is for private targets alone");
    }
    if text.len() > CHARS_MAX {
        return Some("expected at most 2000 characters");
    }
    if authority.contains('@') {
        return Some("expected no user name in the URL");
    }
    if text.contains('#') {
        return Some("expected no fragment in the URL");
    }
    match is_plain_host(uri.host().unwrap_or_default()) {
        true => None,
        false => Some("expected a host name, or an address in its usual spelling"),
    }
}

/// Whether the host of a valid URL is refused before its name is resolved: an address that the policy refuses or, if
/// it refuses private ones, a name of this machine (RFC 6761 §6.3).
pub fn is_host_refused(url: &str, policy: AddressPolicy) -> bool {
    let uri = url.parse::<Uri>().ok();
    let host = uri.as_ref().and_then(Uri::host).unwrap_or_default();
    let address = match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(address) => address.parse().ok().map(IpAddr::V6),
        None => host.parse().ok().map(IpAddr::V4),
    };
    let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    let is_local_name = name == "localhost" || name.ends_with(".localhost");
    (is_local_name && policy == AddressPolicy::PublicOnly)
        || address.is_some_and(|address| !policy.allows(address))
}

/// A name, or an address that has one reading: resolvers also read 2130706433, 0x7f.1 and 127.1 as addresses.
fn is_plain_host(host: &str) -> bool {
    if let Some(address) = host.strip_prefix('[') {
        return address.strip_suffix(']').is_some_and(|text| text.parse::<Ipv6Addr>().is_ok());
    }
    let is_name_byte = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
    let last = host.strip_suffix('.').unwrap_or(host).rsplit('.').next().unwrap_or_default();
    // WHATWG URL, "ends in a number".
    let hex = last.strip_prefix("0x").or_else(|| last.strip_prefix("0X"));
    let is_number = last.bytes().all(|b| b.is_ascii_digit())
        || hex.is_some_and(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
    host.bytes().all(is_name_byte) && (!is_number || host.parse::<Ipv4Addr>().is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn webhook_url_is_https_with_a_plain_host() {
        for good in [
            "https://example.com",
            "https://example.com/hook?token=1",
            "https://example.com:8443/",
            "https://a_b.example.",
            "https://8.8.8.8/x",
            "https://[2606:4700::1111]:444/x",
            "https://127.0.0.1/",
        ] {
            assert_eq!(find_url_fault(good, false), None, "{good}");
        }
        for (bad, word) in [
            ("", "absolute"),
            ("example.com/hook", "absolute"),
            ("ftp://example.com/", "absolute"),
            ("http://example.com/", "https"),
            ("https://user@example.com/", "user name"),
            ("https://user:word@example.com/", "user name"),
            ("https://example.com/#a", "fragment"),
            ("https://2130706433/", "spelling"),
            ("https://0x7f000001/", "spelling"),
            ("https://0X7f.1/", "spelling"),
            ("https://017700000001/", "spelling"),
            ("https://127.1/", "spelling"),
            ("https://127.0.0.1./", "spelling"),
            ("https://0177.0.0.1/", "spelling"),
            ("https://[::1/", "absolute"),
            ("https://[1]/", "spelling"),
            ("https://[fe80::1%25lo]/", "spelling"),
            ("https://%31%32%37.0.0.1/", "absolute"),
            ("https://ex*mple.com/", "spelling"),
        ] {
            let fault = find_url_fault(bad, false).unwrap_or_else(|| panic!("{bad}"));
            assert!(fault.contains(word), "{bad}: {fault}");
        }
        assert_eq!(find_url_fault("http://127.0.0.1:8000/", true), None);
        for (url, is_private) in [
            ("https://example.com/", false),
            ("https://8.8.8.8/", false),
            ("https://[2606:4700::1111]/", false),
            ("https://localhost.example.com/", false),
            ("https://localhost:8443/", true),
            ("https://LOCALHOST./", true),
            ("https://a.localhost/", true),
            ("https://127.0.0.1:444/", true),
            ("https://0.0.0.0/", true),
            ("https://169.254.169.254/latest/meta-data", true),
            ("https://[::1]/", true),
            ("https://[::ffff:127.0.0.1]:444/", true),
            ("https://[64:ff9b::a00:1]/", true),
            ("https://[fd00:ec2::254]/", true),
        ] {
            assert_eq!(find_url_fault(url, false), None, "{url}");
            assert_eq!(is_host_refused(url, AddressPolicy::PublicOnly), is_private, "{url}");
            let is_unspecified = url.contains("0.0.0.0");
            assert_eq!(is_host_refused(url, AddressPolicy::AllowPrivate), is_unspecified, "{url}");
        }
        let long = format!("https://example.com/{}", "a".repeat(1980));
        assert_eq!(long.len(), 2000);
        assert_eq!(find_url_fault(&long, false), None);
        assert!(find_url_fault(&(long + "a"), false).unwrap().contains("2000"));
    }
}
