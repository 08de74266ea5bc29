//! CORS: pages of other origins that the model declares (`cors_origins`), and what their browsers are told.
//!
//! Pure. It decides whose page a request came from; whether the caller behind it may is found out like
//! any other's. The protocol is that of the Fetch standard, section "CORS protocol".
//! The one surprising thing: an origin that is not declared is told nothing at all, not even a no.

use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};

/// What may be sent beyond what any page may: all that means something here, now or in answers to come.
const ALLOWED_HEADERS: HeaderValue = HeaderValue::from_static(
    "Accept, Authorization, Content-Type, Idempotency-Key, If-Match, If-Modified-Since, If-None-Match, \
     If-Unmodified-Since",
);

/// What may be read of an answer beyond what the standard lets every page read.
const EXPOSED_HEADERS: HeaderValue = HeaderValue::from_static(
    "Accept, Accept-Patch, Accept-Post, Allow, Authentication-Info, Deprecation, ETag, Idempotent-Replayed, Link, Location, \
     RateLimit, RateLimit-Policy, Retry-After, Sunset, WWW-Authenticate, X-Request-Id",
);

/// Seconds that a browser may go by the answer to a preflight; Chromium takes no more. Nothing is
/// risked by it: an origin that is no longer declared is refused at the request itself.
const PREFLIGHT_SECONDS: HeaderValue = HeaderValue::from_static("7200");

/// The page that a request came from, as far as it makes a difference.
#[derive(Debug, Clone)]
pub enum Visitor {
    /// No origin is declared: nothing is looked at and nothing is said.
    Unasked,
    /// No page, or one that is not declared.
    Other,
    /// A page of this declared origin.
    Declared(Box<HeaderValue>),
}

impl Visitor {
    pub fn of(headers: &HeaderMap, declared: &[String]) -> Self {
        if declared.is_empty() {
            return Self::Unasked;
        }
        let mut origins = headers.get_all(header::ORIGIN).iter();
        match (origins.next(), origins.next()) {
            // A declared origin is written as browsers send it.
            (Some(origin), None) if declared.iter().any(|known| origin == known) => {
                Self::Declared(Box::new(origin.clone()))
            }
            _ => Self::Other,
        }
    }

    pub fn is_declared(&self) -> bool {
        matches!(self, Self::Declared(_))
    }

    /// Whether a browser asks, on behalf of a declared page, if it may send what it wants to send.
    pub fn asks_first(&self, parts: &Parts) -> bool {
        self.is_declared()
            && parts.method == Method::OPTIONS
            && parts.headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD)
    }

    /// What every answer says, whatever it is.
    pub fn mark(self, headers: &mut HeaderMap) {
        let origin = match self {
            Self::Unasked => return,
            Self::Other => None,
            Self::Declared(origin) => Some(origin),
        };
        // Also where no origin was sent: an answer that is kept must not be given to a page.
        headers.append(header::VARY, HeaderValue::from_static("Origin"));
        if let Some(origin) = origin {
            const POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
            headers.insert(POLICY, HeaderValue::from_static("cross-origin"));
            headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, *origin);
            let yes = HeaderValue::from_static("true");
            headers.insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, yes);
            headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSED_HEADERS);
        }
    }
}

/// What a preflight is answered with, beside `mark`, where these methods are taken.
pub fn preflight(methods: HeaderValue) -> [(HeaderName, HeaderValue); 4] {
    [
        (header::ACCESS_CONTROL_ALLOW_METHODS, methods),
        (header::ACCESS_CONTROL_ALLOW_HEADERS, ALLOWED_HEADERS),
        (header::ACCESS_CONTROL_MAX_AGE, PREFLIGHT_SECONDS),
        // The headers that are asked for are not looked at: the list is the same for all.
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

    fn told(headers: &[(&str, &str)], declared: &[&str]) -> String {
        let declared: Vec<String> = declared.iter().map(|text| (*text).to_owned()).collect();
        let mut answer = HeaderMap::new();
        answer.insert(header::VARY, HeaderValue::from_static("Accept"));
        Visitor::of(&ask("GET", headers).headers, &declared).mark(&mut answer);
        let lines =
            answer.iter().map(|(name, value)| format!("{name}: {}\n", value.to_str().unwrap()));
        lines.collect()
    }

    #[test]
    fn a_declared_origin_is_told_its_own_name() {
        let declared = &["https://app.example", "http://localhost:3000"];
        expect_test::expect![[r"
            vary: Accept
            vary: Origin
            cross-origin-resource-policy: cross-origin
            access-control-allow-origin: http://localhost:3000
            access-control-allow-credentials: true
            access-control-expose-headers: Accept, Accept-Patch, Accept-Post, Allow, Authentication-Info, Deprecation, ETag, Idempotent-Replayed, Link, Location, RateLimit, RateLimit-Policy, Retry-After, Sunset, WWW-Authenticate, X-Request-Id
        "]]
        .assert_eq(&told(&[("origin", "http://localhost:3000")], declared));
    }

    #[test]
    fn any_other_is_told_nothing() {
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
            assert_eq!(told(headers, declared), "vary: Accept\nvary: Origin\n", "{headers:?}");
        }
        assert_eq!(told(&[("origin", "https://app.example")], &[]), "vary: Accept\n");
    }

    #[test]
    fn a_preflight_has_an_origin_and_a_method() {
        let declared = ["https://app.example".to_owned()];
        let asks = |method, headers: &[(&str, &str)]| {
            let parts = ask(method, headers);
            Visitor::of(&parts.headers, &declared).asks_first(&parts)
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
