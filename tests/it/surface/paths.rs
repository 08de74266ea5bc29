//! Paths and methods: which exist, and the responses to those that do not.

use expect_test::expect;

use super::{ANN, NO_ONE, TEA, start_schools};
use crate::harness::{Backend, Server};

on_every_backend! {
    fn head_equals_get_without_the_body(server: Server) {
        let path = server.create("/customers", ANN);
        for path in [path.as_str(), "/customers", "/customers?limit=1", "/", "/-/health", NO_ONE, "/nothing", "/customers?x=1"] {
            let (get, head) = (server.get(path), server.request(&format!("HEAD {path}"), &[], ""));
            assert_eq!((head.status, head.text()), (get.status, ""), "{path}");
            let names = |answer: &crate::harness::Answer| -> Vec<_> {
                answer.headers.iter().filter(|(name, _)| !name.eq_ignore_ascii_case("x-request-id") && !name.eq_ignore_ascii_case("date"))
                    .map(|(name, value)| format!("{name}: {value}")).collect()
            };
            assert_eq!(names(&head), names(&get), "{path}");
        }
    }

    fn options_lists_the_methods_of_a_path(server: Server) {
        let path = server.create("/customers", ANN);
        let options = |path: &str| server.request(&format!("OPTIONS {path}"), &[], "").masked();
        expect![[r#"
            HTTP/1.1 204 No Content
            cache-control: private, no-cache
            allow: GET, HEAD, QUERY, POST, OPTIONS
            accept-query: application/json
            accept-post: application/json, application/x-ndjson, text/csv
            x-request-id: <request-1>
            content-security-policy: default-src 'none'; connect-src 'self'; frame-ancestors 'none'
            cross-origin-opener-policy: same-origin
            cross-origin-resource-policy: same-origin
            date: <date>

        "#]].assert_eq(&options("/customers"));
        expect![[r#"
            HTTP/1.1 204 No Content
            cache-control: private, no-cache
            allow: GET, HEAD, PUT, PATCH, DELETE, OPTIONS
            accept-patch: application/merge-patch+json, application/json-patch+json, application/json
            x-request-id: <request-1>
            content-security-policy: default-src 'none'; connect-src 'self'; frame-ancestors 'none'
            cross-origin-opener-policy: same-origin
            cross-origin-resource-policy: same-origin
            date: <date>

        "#]].assert_eq(&options(&path));
        expect![[r#"
            HTTP/1.1 204 No Content
            cache-control: private, no-cache
            allow: GET, HEAD, OPTIONS
            x-request-id: <request-1>
            content-security-policy: default-src 'none'; connect-src 'self'; frame-ancestors 'none'
            cross-origin-opener-policy: same-origin
            cross-origin-resource-policy: same-origin
            date: <date>

        "#]].assert_eq(&options("/"));
        expect![[r#"
            HTTP/1.1 204 No Content
            cache-control: private, no-cache
            allow: GET, HEAD, QUERY, POST, PUT, PATCH, DELETE, OPTIONS
            x-request-id: <request-1>
            content-security-policy: default-src 'none'; connect-src 'self'; frame-ancestors 'none'
            cross-origin-opener-policy: same-origin
            cross-origin-resource-policy: same-origin
            date: <date>

        "#]].assert_eq(&options("*"));
        assert_eq!(server.request("OPTIONS /customers?x=1", &[], "").status, 204);
        assert_eq!(server.request("OPTIONS /nothing", &[], "").status, 404);
    }

    fn trailing_slash_is_redirected(server: Server) {
        let path = server.create("/customers", ANN);
        expect![[r#"
            HTTP/1.1 308 Permanent Redirect
            cache-control: private, no-cache
            location: /customers
            x-request-id: <request-1>
            content-security-policy: default-src 'none'; connect-src 'self'; frame-ancestors 'none'
            cross-origin-opener-policy: same-origin
            cross-origin-resource-policy: same-origin
            content-length: 0
            date: <date>

        "#]].assert_eq(&server.get("/customers/").masked());
        let to = |line: &str| {
            let answer = server.request(line, &[], "");
            (answer.status, answer.header("Location").map(str::to_owned))
        };
        assert_eq!(to("GET /customers/?limit=1&x=%20"), (308, Some("/customers?limit=1&x=%20".to_owned())));
        assert_eq!(to("POST /customers/"), (308, Some("/customers".to_owned())));
        assert_eq!(to(&format!("GET {path}/")), (308, Some(path.clone())));
        assert_eq!(to(&format!("GET {path}/orders/")), (308, Some(format!("{path}/orders"))));
        for line in ["GET //customers", "GET /customers//", "GET //", "GET /nothing/", "GET //example.com/", "GET /customers//?x"] {
            assert_eq!(to(line), (404, None), "{line}");
        }
    }

    fn method_not_allowed_is_405_with_allow(server: Server) {
        let path = server.create("/customers", ANN);
        for (line, allow) in [
            ("PUT /customers", "GET, HEAD, QUERY, POST, OPTIONS"),
            ("DELETE /customers", "GET, HEAD, QUERY, POST, OPTIONS"),
            (&format!("POST {path}"), "GET, HEAD, PUT, PATCH, DELETE, OPTIONS"),
            ("PATCH /customers", "GET, HEAD, QUERY, POST, OPTIONS"),
            ("TRACE /customers", "GET, HEAD, QUERY, POST, OPTIONS"),
            ("POST /", "GET, HEAD, OPTIONS"),
            ("DELETE /-/health", "GET, HEAD, OPTIONS"),
        ] {
            let answer = server.request(line, &[], "");
            assert_eq!((answer.problem().as_str(), answer.header("Allow")), ("method-not-allowed", Some(allow)), "{line}");
        }
    }

    fn method_unknown_is_501(server: Server) {
        for method in ["BREW", "get", "PROPFIND", "query"] {
            assert_eq!(server.request(&format!("{method} /customers"), &[], "").problem(), "unknown-method", "{method}");
        }
    }

    fn path_unknown_is_404(server: Server) {
        let path = server.create("/customers", ANN);
        for path in ["/nothing", "/Customers", "/customers%2F", "/customers.json", "/-", "/-/", "/-/nothing", "/-/problems", "/-/problems/",
            "/-/problems/nothing", "/orders/x/y", &format!("{path}/nothing"), &format!("{path}/orders/x/y"), &format!("{path}/customers")] {
            assert_eq!(server.get(path).problem(), "no-such-path", "{path}");
        }
        expect![[r#"
            HTTP/1.1 404 Not Found
            cache-control: private, no-cache
            content-type: application/problem+json
            vary: Accept, Accept-Encoding
            x-content-type-options: nosniff
            x-request-id: <request-1>
            content-security-policy: default-src 'none'; connect-src 'self'; frame-ancestors 'none'
            cross-origin-opener-policy: same-origin
            cross-origin-resource-policy: same-origin
            content-length: 150
            date: <date>

            {"type":"/-/problems/no-such-path","title":"Nothing lives at this path","status":404,"instance":"/customer","request_id":"<request-1>"}"#]].assert_eq(&server.get("/customer").masked());
    }

    /// Percent-encoding of the same letter is the same path; invalid UTF-8 is 404.
    fn path_percent_encoding_is_normalized(server: Server) {
        assert_eq!(server.get("/%63ustomers").status, 200);
        assert_eq!(server.get("/customers%00").status, 404);
        assert_eq!(server.get("/customers/%FF").status, 404);
        assert_eq!(server.get("/customers/%zz").status, 404);
    }

    fn path_ids_have_one_spelling(server: Server) {
        let path = server.create("/customers", ANN);
        let id = path.rsplit('/').next().unwrap();
        for other in [id.to_uppercase(), id.replace('-', ""), format!("{{{id}}}"), format!("urn:uuid:{id}"), "abc".into(), format!("{id}%20")] {
            assert_eq!(server.get(&format!("/customers/{other}")).problem(), "not-found", "{other}");
        }
    }

    fn path_nesting_has_any_depth(backend: Backend) {
        let server = start_schools(backend);
        let county = server.create("/counties", r#"{"county":{"code":"AB"}}"#);
        let school = server.create(&format!("{county}/schools"), r#"{"school":{"name":"North"}}"#);
        let child = server.create(&format!("{school}/children"), r#"{"child":{"name":"Bo"}}"#);
        assert_eq!(child, "/counties/1/schools/1/children/1");
        assert_eq!(server.get(&child).json()["child"]["name"], "Bo");
        for path in ["/schools/1/children", "/counties/1/children", "/counties/schools"] {
            assert_eq!(server.get(path).status, 404, "{path}");
        }
        assert_eq!(server.get("/children/1").header("Content-Location"), Some(&*child));
    }

    fn location_is_a_path_without_the_host(server: Server) {
        let orders = format!("{}/orders", server.create("/customers", ANN));
        let answer = server.request(&format!("POST {orders}"), &[("Host", "localhost")], TEA);
        assert!(answer.header("Location").unwrap().starts_with(&orders), "{answer:?}");
    }
}
