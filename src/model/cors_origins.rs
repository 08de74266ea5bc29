//! The `cors_origins` setting: origins whose pages may use the server.
//!
//! Origins are stored exactly as browsers send them, so that a request's Origin is compared byte by byte; an
//! origin that no browser sends is a mistake, with the correct one as help. No wildcard, no `null`.

use core::net::Ipv6Addr;

use http::Uri;

use super::ip_network::is_port;

/// The origin of a URL as a browser sends it, or a message that says what to write instead.
pub fn normalize_origin(text: &str) -> Result<String, &'static str> {
    const ORIGIN_FORM: &str =
        "scheme, host and maybe port, such as https://app.example or http://localhost:3000";
    if text == "null" {
        return Err("null is sent for every file and every sandboxed frame, whoever made it: \
            give the page an address of its own");
    }
    if text.contains('*') {
        return Err("each origin is named: one that anybody can have would let anybody in");
    }
    if !text.is_ascii() {
        return Err("a browser sends the host in punycode, which begins with xn--");
    }
    let uri: Uri = text.parse().map_err(|_| ORIGIN_FORM)?;
    let scheme =
        uri.scheme_str().filter(|scheme| matches!(*scheme, "http" | "https")).ok_or(ORIGIN_FORM)?;
    let authority = uri.authority().filter(|authority| !authority.as_str().contains('@'));
    let authority = authority.ok_or(ORIGIN_FORM)?;
    let host = normalize_host(authority.host()).ok_or(ORIGIN_FORM)?;
    let port_text = authority.as_str().strip_prefix(authority.host()).ok_or(ORIGIN_FORM)?;
    let port = match port_text.strip_prefix(':') {
        None | Some("") => None,
        Some(digits) if is_port(digits) => digits.parse::<u16>().ok(),
        Some(_) => return Err(ORIGIN_FORM),
    };
    let port = port.filter(|port| !matches!((scheme, *port), ("http", 80) | ("https", 443)));
    Ok(match port {
        Some(port) => format!("{scheme}://{host}:{port}"),
        None => format!("{scheme}://{host}"),
    })
}

fn normalize_host(host: &str) -> Option<String> {
    if let Some(inner) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        let address: Ipv6Addr = inner.parse().ok()?;
        // Browsers write the last 32 bits in hex where Rust writes an IPv4 address.
        return Some(match address.to_ipv4_mapped().map(|address| address.octets()) {
            Some([a, b, c, d]) => {
                let (high, low) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
                format!("[::ffff:{high:x}:{low:x}]")
            }
            None => format!("[{address}]"),
        });
    }
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-._".contains(&b);
    (!host.is_empty() && host.bytes().all(is_plain)).then(|| host.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origin_is_normalized_to_what_browsers_send() {
        for good in [
            "https://app.example",
            "http://localhost:3000",
            "http://127.0.0.1:5173",
            "https://[::1]:8443",
            "https://[::ffff:7f00:1]",
            "https://xn--bcher-kva.example",
        ] {
            assert_eq!(normalize_origin(good).as_deref(), Ok(good));
        }
        for (written, sent) in [
            ("https://App.Example", "https://app.example"),
            ("HTTPS://app.example", "https://app.example"),
            ("https://app.example/", "https://app.example"),
            ("https://app.example/admin?x", "https://app.example"),
            ("https://app.example:443", "https://app.example"),
            ("http://app.example:80", "http://app.example"),
            ("http://app.example:0080", "http://app.example"),
            ("http://app.example:443", "http://app.example:443"),
            ("https://app.example:", "https://app.example"),
            ("https://[0:0::1]", "https://[::1]"),
            ("https://[::FFFF:127.0.0.1]", "https://[::ffff:7f00:1]"),
        ] {
            assert_eq!(normalize_origin(written).as_deref(), Ok(sent), "{written}");
        }
        for bad in [
            "",
            "*",
            "null",
            "https://*",
            "https://*.example",
            "app.example",
            "//app.example",
            "/app",
            "https://",
            "https://:80",
            "https://ann@app.example",
            "https://app.example:x",
            "https://app.example:99999",
            "https://bücher.example",
            "https://a b",
            "https://a,b",
            "ftp://app.example",
            "file:///home",
            "https://[::1",
        ] {
            assert!(normalize_origin(bad).is_err(), "{bad}");
        }
    }

    proptest::proptest! {
        #[test]
        fn origin_normalized_twice_is_unchanged(text in "(https?://)?.{0,30}") {
            if let Ok(sent) = normalize_origin(&text) {
                proptest::prop_assert_eq!(normalize_origin(&sent), Ok(sent.clone()));
                proptest::prop_assert!(http::HeaderValue::try_from(sent).is_ok());
            }
        }
    }
}
