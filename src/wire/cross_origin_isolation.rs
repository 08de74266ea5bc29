//! Cross-origin isolation: response headers and a fetch-metadata check that keep responses from other
//! origins' pages.
//!
//! A browser adds its stored credentials to every request that a page causes. The browser decides which
//! responses the page may read, from the response headers: `ISOLATION_HEADERS`, which every response has. For
//! a request made by a page, and not by a person who follows a link, the browser sends `Sec-Fetch-…` (fetch
//! metadata), which pages cannot forge. `check_fetch_metadata` refuses such requests before authentication:
//! neither the status nor the timing tells the page anything about its visitor. Browsers send `Sec-Fetch-…`
//! only over TLS and to loopback. Elsewhere only the headers protect.

use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};

use crate::problem::{self, Problem};

/// The headers of every response: only this origin may read it, no page may frame it or keep a handle on its
/// window, and the browser loads and runs nothing from it; a page has its own, which lets it load its stylesheet
/// and its script.
const ISOLATION_HEADERS: [(HeaderName, HeaderValue); 3] = [
    (
        header::CONTENT_SECURITY_POLICY,
        HeaderValue::from_static("default-src 'none'; connect-src 'self'; frame-ancestors 'none'"),
    ),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        HeaderValue::from_static("same-origin"),
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        HeaderValue::from_static("same-origin"),
    ),
];

pub fn add_cross_origin_isolation(headers: &mut HeaderMap) {
    for (name, value) in ISOLATION_HEADERS {
        // A page has a policy of its own.
        headers.entry(name).or_insert(value);
    }
}

/// The effect of a GET or HEAD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadPurpose {
    Read,
    /// It ends a session, so that other sites may not even link to it.
    Logout,
}

/// Refuses a GET or HEAD that a page of another origin makes (fetch metadata).
pub fn check_fetch_metadata(parts: &Parts, purpose: ReadPurpose) -> Result<(), Problem> {
    if !matches!(parts.method, Method::GET | Method::HEAD) {
        return Ok(());
    }
    let all = |name: &str, known: &[&str]| {
        let mut values = parts.headers.get_all(name).iter();
        values.all(|value| known.iter().any(|known| value == known))
    };
    let is_person = || {
        let has = |name: &str| parts.headers.contains_key(name);
        let (mode, destination) = ("sec-fetch-mode", "sec-fetch-dest");
        has(mode) && all(mode, &["navigate"]) && has(destination) && all(destination, &["document"])
    };
    if all("sec-fetch-site", &["same-origin", "none"])
        || (purpose == ReadPurpose::Read && is_person())
    {
        return Ok(());
    }
    Err(Problem::new(&problem::CROSS_SITE).detail(match purpose {
        ReadPurpose::Read => "a page of another origin may link to this, and not read or show it",
        ReadPurpose::Logout => "a page of another origin may not lead here",
    }))
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn check(purpose: ReadPurpose, method: &str, (site, mode, to): (&str, &str, &str)) -> bool {
        let mut request = Request::builder().method(method).uri("/a");
        for (name, value) in
            [("sec-fetch-site", site), ("sec-fetch-mode", mode), ("sec-fetch-dest", to)]
        {
            if !value.is_empty() {
                request = request.header(name, value);
            }
        }
        check_fetch_metadata(&request.body(()).unwrap().into_parts().0, purpose).is_ok()
    }

    #[test]
    fn fetch_metadata_of_other_sites_allows_links_but_not_reads() {
        for (sent, look, end) in [
            (("", "", ""), true, true),
            (("same-origin", "cors", "empty"), true, true),
            (("same-origin", "no-cors", "image"), true, true),
            (("none", "navigate", "document"), true, true),
            (("cross-site", "navigate", "document"), true, false),
            (("same-site", "navigate", "document"), true, false),
            (("cross-site", "navigate", "iframe"), false, false),
            (("cross-site", "navigate", "object"), false, false),
            (("cross-site", "no-cors", "script"), false, false),
            (("cross-site", "no-cors", "image"), false, false),
            (("same-site", "no-cors", "empty"), false, false),
            (("cross-site", "cors", "empty"), false, false),
            (("cross-site", "", ""), false, false),
            (("cross-site", "navigate", ""), false, false),
            (("cross-site", "", "document"), false, false),
            (("anything", "no-cors", "style"), false, false),
        ] {
            assert_eq!(check(ReadPurpose::Read, "GET", sent), look, "{sent:?}");
            assert_eq!(check(ReadPurpose::Read, "HEAD", sent), look, "{sent:?}");
            assert_eq!(check(ReadPurpose::Logout, "GET", sent), end, "{sent:?}");
            // `check_cross_site` checks requests that change something.
            assert!(check(ReadPurpose::Read, "POST", sent), "{sent:?}");
        }
    }

    #[test]
    fn fetch_metadata_with_repeated_headers_must_agree() {
        let request = Request::get("/a")
            .header("sec-fetch-site", "same-origin")
            .header("sec-fetch-site", "cross-site");
        let parts = request.body(()).unwrap().into_parts().0;
        assert!(check_fetch_metadata(&parts, ReadPurpose::Read).is_err());
    }
}
