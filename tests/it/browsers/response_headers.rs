//! Response headers for browsers (CORS, isolation, caching), without a browser.

use expect_test::expect;

use super::{ANN, STORE, create_ann, start_store};
use crate::harness::{Answer, Backend, Masks, Server, Setup};

const DEFAULT: &str = r#"schemes = ["digest", "basic"]"#;
const APP: (&str, &str) = ("Origin", "https://app.example");
const DECLARED: &str = "cors_origins = [\"https://app.example\", \"http://localhost:3000\"]";

/// The CORS header lines.
fn cors_headers(answer: &Answer) -> String {
    let is_cors =
        |name: &str| name.eq_ignore_ascii_case("vary") || name.starts_with("access-control");
    let lines = answer.headers.iter().filter(|(name, _)| is_cors(&name.to_lowercase()));
    let lines = lines.map(|(name, value)| format!("{}: {value}\n", name.to_lowercase()));
    format!("{}\n{}", answer.status, lines.collect::<String>())
}

/// One request for each kind of response, each with the status that a server with authentication gives.
fn request_every_kind(server: &Server, page: &[(&str, &str)]) -> Vec<Answer> {
    let admin = server.admin().basic();
    let item = create_ann(server);
    let ask = |line: &str, more: &[(&str, &str)], body: &str, status: u16| {
        let headers: Vec<(&str, &str)> = more.iter().chain(page).copied().collect();
        let answer = server.request(line, &headers, body);
        assert_eq!(answer.status, status, "{line}: {answer:?}");
        answer
    };
    let known = &[("Authorization", admin.as_str())];
    let with = |more| [known[0], more];
    vec![
        ask("GET /customers", known, "", 200),
        ask(&format!("HEAD {item}"), known, "", 200),
        ask("POST /customers", known, ANN, 201),
        ask(&format!("PUT {item}"), known, ANN, 200),
        ask("GET /-/health", &[], "", 200),
        ask("GET /-/ready", &[], "", 200),
        ask("GET /-/metrics", known, "", 200),
        ask("GET /-/problems/forbidden", &[], "", 200),
        ask("OPTIONS /customers", &[], "", 204),
        ask("GET /customers/", known, "", 308),
        ask("GET /customers?limit=x", known, "", 400),
        ask("GET /customers", &[], "", 401),
        ask("GET /customers", &[("Authorization", "Basic bm9ib2R5OndvcmRzIQ==")], "", 401),
        ask("GET /-/logout", known, "", 401),
        ask("GET /nowhere", &[], "", 404),
        ask("PUT /customers", &[], "", 405),
        ask("GET /customers", &with(("Accept", "image/png")), "", 406),
        ask("POST /customers", &with(("Content-Type", "text/plain")), ANN, 415),
        ask("POST /customers", &with(("Expect", "tea")), "", 417),
        ask("POST /customers", known, r#"{"customer":{}}"#, 422),
        ask("BREW /customers", &[], "", 501),
        ask(&format!("DELETE {item}"), known, "", 204),
    ]
}

on_every_backend! {
    fn responses_are_same_origin_and_private_to_caches(backend: Backend) {
        let server = start_store(backend, DEFAULT, "");
        for answer in request_every_kind(&server, &[]) {
            let header = |name| answer.header(name).unwrap_or_else(|| panic!("{name}: {answer:?}"));
            assert_eq!(header("Cache-Control"), "private, no-cache");
            assert_eq!(header("Cross-Origin-Resource-Policy"), "same-origin");
            assert_eq!(header("Cross-Origin-Opener-Policy"), "same-origin");
            let policy = header("Content-Security-Policy");
            assert_eq!(policy, "default-src 'none'; connect-src 'self'; frame-ancestors 'none'");
            if answer.header("Content-Type").is_some() {
                assert_eq!(header("X-Content-Type-Options"), "nosniff");
                assert_eq!(header("Vary"), "Accept, Accept-Encoding");
            }
            // No CORS header where no origin is declared.
            assert!(!cors_headers(&answer).contains("access-control"), "{answer:?}");
            assert!(!cors_headers(&answer).contains("Origin"), "{answer:?}");
        }
    }

    fn cors_declared_origin_can_read_every_response(backend: Backend) {
        let server = start_store(backend, DEFAULT, DECLARED);
        for page in [APP, ("Origin", "http://localhost:3000")] {
            // Also when fetch metadata says `cross-site`.
            let headers = [page, ("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "cors")];
            for answer in request_every_kind(&server, &headers) {
                let header = |name| answer.header(name).unwrap_or_else(|| panic!("{name}: {answer:?}"));
                assert_eq!(header("Access-Control-Allow-Origin"), page.1);
                assert_eq!(header("Access-Control-Allow-Credentials"), "true");
                assert!(header("Access-Control-Expose-Headers").contains("Location"));
                assert_eq!(header("Cross-Origin-Resource-Policy"), "cross-origin");
                assert!(answer.all("Vary").contains(&"Origin"), "{answer:?}");
            }
        }
    }

    fn cors_undeclared_origin_gets_no_headers(backend: Backend) {
        let server = start_store(backend, DEFAULT, DECLARED);
        for origin in ["https://evil.example", "null", "https://app.example.evil", "http://app.example"] {
            let admin = server.admin().basic();
            let known = [("Authorization", admin.as_str()), ("Origin", origin)];
            let read = server.request("GET /customers", &known, "");
            assert_eq!(cors_headers(&read), "200\nvary: Accept, Accept-Encoding\nvary: Origin\n", "{origin}");
            let write = server.request("POST /customers", &known, ANN);
            assert_eq!(write.problem(), "cross-site", "{origin}");
            assert_eq!(cors_headers(&write), "403\nvary: Accept, Accept-Encoding\nvary: Origin\n", "{origin}");
            // The usual response to OPTIONS, without the headers that a preflight needs.
            let asks = [("Origin", origin), ("Access-Control-Request-Method", "PUT")];
            let preflight = server.request("OPTIONS /customers", &asks, "");
            assert_eq!(cors_headers(&preflight), "204\nvary: Origin\n", "{origin}");
            assert_eq!(preflight.header("Allow"), Some("GET, HEAD, QUERY, POST, OPTIONS"));
        }
        // A cached response may be given to a client without an `Origin`, so `Vary` must name it.
        assert!(server.get("/customers").all("Vary").contains(&"Origin"));
    }

    fn cors_preflight_needs_no_credentials(backend: Backend) {
        let server = start_store(backend, DEFAULT, DECLARED);
        let preflight = |path: &str| {
            let asks = [
                APP,
                ("Access-Control-Request-Method", "PUT"),
                ("Access-Control-Request-Headers", "content-type,x-mine"),
                ("Sec-Fetch-Site", "cross-site"),
            ];
            server.request(&format!("OPTIONS {path}"), &asks, "")
        };
        expect![[r#"
            HTTP/1.1 204 No Content
            cache-control: private, no-cache
            access-control-allow-methods: GET, HEAD, QUERY, POST, OPTIONS
            access-control-allow-headers: Accept, Authorization, Content-Type, Idempotency-Key, If-Match, If-Modified-Since, If-None-Match, If-Unmodified-Since, Last-Event-ID
            access-control-max-age: 7200
            vary: Access-Control-Request-Method
            vary: Origin
            x-request-id: <request-1>
            content-security-policy: default-src 'none'; connect-src 'self'; frame-ancestors 'none'
            cross-origin-opener-policy: same-origin
            cross-origin-resource-policy: cross-origin
            access-control-allow-origin: https://app.example
            access-control-allow-credentials: true
            access-control-expose-headers: Accept, Accept-Patch, Accept-Post, Accept-Query, Allow, Authentication-Info, Changes-Oldest, Changes-Position, Content-Location, Deprecation, ETag, Idempotent-Replayed, Link, Location, Memento-Datetime, RateLimit, RateLimit-Policy, Retry-After, Sunset, WWW-Authenticate, X-Request-Id
            date: <date>

        "#]].assert_eq(&Masks::default().answer(&preflight("/customers")));
        let methods = |path: &str| {
            let answer = preflight(path);
            assert_eq!(answer.status, 204, "{answer:?}");
            answer.header("Access-Control-Allow-Methods").unwrap().to_owned()
        };
        assert_eq!(methods("/customers/1"), "GET, HEAD, PUT, PATCH, DELETE, OPTIONS");
        assert_eq!(methods("/"), "GET, HEAD, OPTIONS");
        // A browser follows no redirect in a preflight, and would not show the 404 page.
        assert_eq!(methods("/customers/"), "GET, HEAD, QUERY, POST, OPTIONS");
        assert_eq!(methods("/nowhere"), "GET, HEAD, QUERY, POST, PUT, PATCH, DELETE, OPTIONS");
    }

    fn cors_headers_are_on_panic_responses_too(backend: Backend) {
        // The response to the second is the last resort: a status alone.
        for (fault, path) in [("plan:1", "/customers"), ("problem:1", "/nowhere")] {
            let text = format!("{STORE}\n[server]\n{DECLARED}\n");
            let server = Setup::new(backend).model(&text).fault(fault).start();
            let answer = server.request(&format!("GET {path}"), &[APP], "");
            assert_eq!(answer.status, 500);
            assert_eq!(answer.header("Access-Control-Allow-Origin"), Some(APP.1), "{answer:?}");
        }
    }

    fn fetch_metadata_other_origins_may_navigate_but_not_read(backend: Backend) {
        let server = start_store(backend, DEFAULT, "");
        let admin = server.admin().basic();
        let ask = |path: &str, (site, mode, to): (&str, &str, &str)| {
            let headers = [
                ("Authorization", admin.as_str()),
                ("Sec-Fetch-Site", site),
                ("Sec-Fetch-Mode", mode),
                ("Sec-Fetch-Dest", to),
            ];
            server.request(&format!("GET {path}"), &headers, "")
        };
        for sent in [("same-origin", "cors", "empty"), ("none", "navigate", "document")] {
            assert_eq!(ask("/customers", sent).status, 200, "{sent:?}");
            assert_eq!(ask("/-/logout", sent).status, 401, "{sent:?}");
        }
        let link = ("cross-site", "navigate", "document");
        assert_eq!(ask("/customers", link).status, 200);
        assert_eq!(ask("/-/logout", link).problem(), "cross-site");
        for sent in [
            ("cross-site", "no-cors", "image"),
            ("same-site", "no-cors", "script"),
            ("cross-site", "cors", "empty"),
            ("same-site", "navigate", "iframe"),
        ] {
            for path in ["/customers", "/-/users", "/-/health", "/-/logout"] {
                assert_eq!(ask(path, sent).problem(), "cross-site", "{path} {sent:?}");
            }
        }
    }
}
