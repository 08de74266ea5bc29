//! The server's own paths: the list of resources, health, problems; and host and origin checks.

use expect_test::expect;

use super::ANN;
use crate::harness::{Backend, Server, Setup};

on_every_backend! {
    fn root_lists_the_resources(server: Server) {
        expect![[r#"
            HTTP/1.1 200 OK
            cache-control: private, no-cache
            content-type: application/json
            vary: Accept, Accept-Encoding
            x-content-type-options: nosniff
            x-request-id: <request-1>
            content-security-policy: default-src 'none'; connect-src 'self'; frame-ancestors 'none'
            cross-origin-opener-policy: same-origin
            cross-origin-resource-policy: same-origin
            content-length: 185
            date: <date>

            {"title":"Store","resources":[{"name":"customer","plural":"customers","path":"/customers"},{"name":"order","plural":"orders","path":"/customers/{customer_id}/orders","flat":"/orders"}]}"#]].assert_eq(&server.get("/").masked());
    }

    fn health_and_readiness_answer_ok(server: Server) {
        expect![[r#"
            HTTP/1.1 200 OK
            cache-control: private, no-cache
            content-type: application/json
            vary: Accept, Accept-Encoding
            x-content-type-options: nosniff
            x-request-id: <request-1>
            content-security-policy: default-src 'none'; connect-src 'self'; frame-ancestors 'none'
            cross-origin-opener-policy: same-origin
            cross-origin-resource-policy: same-origin
            content-length: 15
            date: <date>

            {"status":"ok"}"#]].assert_eq(&server.get("/-/health").masked());
        expect![[r#"
            HTTP/1.1 200 OK
            cache-control: private, no-cache
            content-type: application/json
            vary: Accept, Accept-Encoding
            x-content-type-options: nosniff
            x-request-id: <request-1>
            content-security-policy: default-src 'none'; connect-src 'self'; frame-ancestors 'none'
            cross-origin-opener-policy: same-origin
            cross-origin-resource-policy: same-origin
            content-length: 18
            date: <date>

            {"status":"ready"}"#]].assert_eq(&server.get("/-/ready").masked());
        // Probes often add a parameter to bypass caches.
        assert_eq!(server.get("/-/health?now=1").status, 200);
        assert_eq!(server.get("/-/ready?now=1").status, 200);
    }

    fn problem_type_has_a_page(server: Server) {
        expect![[r#"
            HTTP/1.1 200 OK
            cache-control: private, no-cache
            content-type: application/json
            vary: Accept, Accept-Encoding
            x-content-type-options: nosniff
            x-request-id: <request-1>
            content-security-policy: default-src 'none'; connect-src 'self'; frame-ancestors 'none'
            cross-origin-opener-policy: same-origin
            cross-origin-resource-policy: same-origin
            content-length: 1098
            date: <date>

            {"problem":{"slug":"invalid-fields","status":422,"title":"Some fields are not valid","help":"Each entry of errors points to one field with a JSON pointer and says what was expected. Nothing was changed. All faults are listed at once, at most 100.","codes":{"required":"the field has no default and must be sent","null":"the field is not nullable","type":"another JSON type is expected","format":"the text does not have the form of its type","length":"the text is too short or too long","range":"the value is too small, too large or too precise","pattern":"the text does not match the declared pattern","one_of":"the value is not one of the declared ones","items":"the list has too few or too many items, or one twice","unknown":"the resource has no such field","read_only":"the server sets this field","mismatch":"the value contradicts the path","reference":"the item referred to does not exist","taken":"another item has this value","check":"the values together break a rule of the model","overflow":"the computed value is out of range","outside":"your roles do not allow items with this value"}}}"#]].assert_eq(&server.get("/-/problems/invalid-fields").masked());
        assert_eq!(server.get("/-/problems/nothing").problem(), "no-such-path");
    }

    /// The `type` of a problem is a URL that can be followed.
    fn problem_type_url_leads_to_its_page(server: Server) {
        let problem = server.post("/customers", "{").json();
        let page = server.get(problem["type"].as_str().unwrap()).json()["problem"].clone();
        assert_eq!((&page["title"], &page["status"]), (&problem["title"], &problem["status"]));
    }

    /// A page of another site must not change anything through a browser.
    fn cross_site_writes_are_refused(server: Server) {
        let path = server.create("/customers", ANN);
        let host = server.address.to_string();
        let own = format!("http://{host}");
        let refused: &[&[(&str, &str)]] = &[
            &[("Sec-Fetch-Site", "cross-site")],
            &[("Sec-Fetch-Site", "same-site")],
            &[("Sec-Fetch-Site", "cross-site"), ("Origin", &own)],
            &[("Origin", "http://example.com")],
            &[("Origin", "null")],
            &[("Origin", "http://127.0.0.1:1")],
            &[("Origin", &own), ("Origin", "http://example.com")],
        ];
        for headers in refused {
            for line in ["POST /customers".to_owned(), format!("PUT {path}"), format!("DELETE {path}")] {
                assert_eq!(server.request(&line, headers, ANN).problem(), "cross-site", "{line} {headers:?}");
            }
            // Where the browser does not send the request's mode, it hides the response from the page
            // by itself.
            let status = if headers[0].0 == "Origin" { 200 } else { 403 };
            assert_eq!(server.request(&format!("GET {path}"), headers, "").status, status, "{headers:?}");
        }
        let allowed: &[&[(&str, &str)]] = &[
            &[],
            &[("Sec-Fetch-Site", "same-origin")],
            &[("Sec-Fetch-Site", "none")],
            &[("Origin", &own)],
            &[("Sec-Fetch-Site", "same-origin"), ("Origin", &own)],
        ];
        for headers in allowed {
            assert_eq!(server.request("POST /customers", headers, ANN).status, 201, "{headers:?}");
        }
        assert_eq!(server.get("/customers").json()["customers"].as_array().unwrap().len(), 1 + allowed.len());
    }

    /// Under `--open` the server answers to no foreign host name.
    fn host_name_foreign_is_421(server: Server) {
        let port = server.address.port();
        for host in ["example.com", &format!("example.com:{port}"), "localhost.example.com", "10.0.0.1", "[2001:db8::1]", "0.0.0.0"] {
            let answer = server.request("GET /customers", &[("Host", host)], "");
            assert_eq!((answer.status, answer.problem().as_str()), (421, "wrong-host"), "{host}");
        }
        for host in ["localhost", &format!("localhost:{port}"), "LOCALHOST", "127.0.0.1", "127.8.9.1", "[::1]", &format!("[::1]:{port}")] {
            assert_eq!(server.request("GET /customers", &[("Host", host)], "").status, 200, "{host}");
        }
        // The host of an absolute target wins over Host (RFC 9112 §3.2.2).
        assert_eq!(server.request("GET http://example.com/customers", &[], "").status, 421);
        // HTTP/1.0 may come without one.
        let old = String::from_utf8(server.send_raw("GET /customers HTTP/1.0\r\n\r\n")).unwrap();
        assert!(old.starts_with("HTTP/1.1 200 ") || old.starts_with("HTTP/1.0 200 "), "{old}");
    }

    fn request_log_has_one_line_for_each_request(backend: Backend) {
        let server = Setup::new(backend).start();
        let answer = server.post("/customers", ANN);
        let id = answer.header("X-Request-Id").unwrap();
        let line = crate::harness::wait_until("the request is in the log", || {
            server.log().lines().find(|line| line.contains(id)).map(str::to_owned)
        });
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!((&line["method"], &line["path"], &line["status"]), (&"POST".into(), &"/customers".into(), &201.into()), "{line}");
        assert_eq!(server.log().lines().filter(|line| line.contains(id)).count(), 1);
    }
}
