//! CORS (Fetch standard, "CORS protocol"): the response headers for pages of the origins in `cors_origins`.
//!
//! Pure. It determines which page made a request; the caller is authenticated and authorized as usual. An
//! origin that is not declared gets no CORS headers at all, not even a refusal.

use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};

/// Request headers that pages may send, in addition to the safelisted ones: all that have a meaning here, now
/// or later.
const ALLOWED_HEADERS: HeaderValue = HeaderValue::from_static(
    "Accept, Authorization, Content-Type, Idempotency-Key, If-Match, If-Modified-Since, If-None-Match, \
     If-Unmodified-Since, Last-Event-ID",
);

/// Response headers that pages may read, in addition to the safelisted ones.
const EXPOSED_HEADERS: HeaderValue = HeaderValue::from_static(
    "Accept, Accept-Patch, Accept-Post, Accept-Query, Allow, Authentication-Info, Changes-Oldest, Changes-Position, Content-Location, Deprecation, ETag, Idempotent-Replayed, Link, Location, Memento-Datetime, \
     RateLimit, RateLimit-Policy, Retry-After, Sunset, WWW-Authenticate, X-Request-Id",
);

/// Seconds that a browser may cache a preflight; Chromium allows no more. This is safe: a request from an
/// origin that is no longer declared is refused itself.
const PREFLIGHT_MAX_AGE_SECONDS: HeaderValue = HeaderValue::from_static("7200");

/// The page that made a request, as far as CORS is concerned.
#[derive(Debug, Clone)]
pub enum CorsOrigin {
    /// No origin is declared: CORS is off.
    Disabled,
    /// No page, or a page of an undeclared origin.
    Undeclared,
    /// A page of this declared origin.
    Declared(Box<HeaderValue>),
}

impl CorsOrigin {
    pub fn from_headers(headers: &HeaderMap, declared: &[String]) -> Self {
        if declared.is_empty() {
            return Self::Disabled;
        }
        let mut origins = headers.get_all(header::ORIGIN).iter();
        match (origins.next(), origins.next()) {
            // Declared origins are spelled as browsers send them.
            (Some(origin), None) if declared.iter().any(|known| origin == known) => {
                Self::Declared(Box::new(origin.clone()))
            }
            _ => Self::Undeclared,
        }
    }

    pub fn is_declared(&self) -> bool {
        matches!(self, Self::Declared(_))
    }

    /// Whether the request is the preflight of a page of a declared origin.
    pub fn is_preflight(&self, parts: &Parts) -> bool {
        self.is_declared()
            && parts.method == Method::OPTIONS
            && parts.headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
    }

    /// Adds the CORS headers that every response has.
    pub fn add_headers(self, headers: &mut HeaderMap) {
        let origin = match self {
            Self::Disabled => return,
            Self::Undeclared => None,
            Self::Declared(origin) => Some(origin),
        };
        // Also for a request without Origin: a cached response must not be reused for a page.
        headers.append(header::VARY, HeaderValue::from_static("Origin"));
        if let Some(origin) = origin {
            const RESOURCE_POLICY: HeaderName =
                HeaderName::from_static("cross-origin-resource-policy");
            headers.insert(RESOURCE_POLICY, HeaderValue::from_static("cross-origin"));
            headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, *origin);
            let yes = HeaderValue::from_static("true");
            headers.insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, yes);
            headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED_HEADERS);
        }
    }
}

/// The headers of the response to a preflight, in addition to those of every response.
pub fn preflight_headers(methods: HeaderValue) -> [(HeaderName, HeaderValue); 4] {
    [
        (header::ACCESS_CONTROL_ALLOW_METHODS, methods),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, ALLOWED_HEADERS),
        (header::ACCESS_CONTROL_MAX_AGE, PREFLIGHT_MAX_AGE_SECONDS),
        // `Access-Control-Request-Headers` is ignored: the allowed headers are the same for every request.
        (header::VARY, HeaderValue::from_static("Access-Control-Request-Method")),
    ]
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn ask(method: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().method(method).uri("/a");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap().into_parts().0
    }

    fn response_headers(headers: &[(&str, &str)], declared: &[&str]) -> String {
        let declared: Vec<String> = declared.iter().map(|text| (*text).to_owned()).collect();
        let mut answer = HeaderMap::new();
        answer.insert(header::VARY, HeaderValue::from_static("Accept"));
        CorsOrigin::from_headers(&ask("GET", headers).headers, &declared).add_headers(&mut answer);
        let lines =
            answer.iter().map(|(name, value)| format!("{name}: {}\n", value.to_str().unwrap()));
        lines.collect()
    }

    #[test]
    fn cors_declared_origin_is_echoed() {
        let declared = &["https://app.example", "http://localhost:3000"];
        expect_test::expect![[r"
            vary: Accept
            vary: Origin
            cross-origin-resource-policy: cross-origin
            access-control-allow-origin: http://localhost:3000
            access-control-allow-credentials: true
            access-control-expose-headers: Accept, Accept-Patch, Accept-Post, Accept-Query, Allow, Authentication-Info, Changes-Oldest, Changes-Position, Content-Location, Deprecation, ETag, Idempotent-Replayed, Link, Location, Memento-Datetime, RateLimit, RateLimit-Policy, Retry-After, Sunset, WWW-Authenticate, X-Request-Id
        "]]
        .assert_eq(&response_headers(&[("origin", "http://localhost:3000")], declared));
    }

    #[test]
    fn cors_undeclared_origin_gets_no_headers() {
        let declared = &["https://app.example"];
        for headers in [
            &[][..],
            &[("origin", "null")],
            &[("origin", "")],
            &[("origin", "*")],
            &[("origin", "http://app.example")],
            &[("origin", "https://app.example:443")],
            &[("origin", "https://app.example.evil")],
            &[("origin", "https://evil.app.example")],
            &[("origin", "https://APP.example")],
            &[("origin", "https://app.example "), ("origin", "https://app.example")],
            &[("origin", "https://app.example, https://app.example")],
            &[("referer", "https://app.example")],
        ] {
            assert_eq!(
                response_headers(headers, declared),
                "vary: Accept\nvary: Origin\n",
                "{headers:?}"
            );
        }
        assert_eq!(response_headers(&[("origin", "https://app.example")], &[]), "vary: Accept\n");
    }

    #[test]
    fn cors_preflight_requires_origin_and_method() {
        let declared = ["https://app.example".to_owned()];
        let asks = |method, headers: &[(&str, &str)]| {
            let parts = ask(method, headers);
            CorsOrigin::from_headers(&parts.headers, &declared).is_preflight(&parts)
        };
        let origin = ("origin", "https://app.example");
        let wants = ("access-control-request-method", "PUT");
        assert!(asks("OPTIONS", &[origin, wants]));
        assert!(!asks("OPTIONS", &[origin]));
        assert!(!asks("OPTIONS", &[wants]));
        assert!(!asks("OPTIONS", &[("origin", "https://evil.example"), wants]));
        assert!(!asks("PUT", &[origin, wants]));
    }
}
