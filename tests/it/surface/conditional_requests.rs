//! Conditional requests (`If-Match`, `If-None-Match`): optimistic concurrency.

use expect_test::expect;

use super::{ANN, BEA, NO_ONE, TEA};
use crate::harness::{Answer, Backend, Masks, Server, Setup};

const CAREFUL: &str = r#"
title = "Careful"

[resources.note]
require_if_match = true

[resources.note.fields]
text = { type = "text", required = true, unique = true, max_length = 20 }
"#;

fn ask(server: &Server, line: &str, (name, value): (&str, &str), body: &str) -> Answer {
    server.request(line, &[(name, value)], body)
}

fn tag_of(answer: &Answer) -> String {
    answer.header("ETag").unwrap().to_owned()
}

on_every_backend! {
    /// A known representation is not sent again; the headers for caches are.
    fn if_none_match_with_the_current_etag_is_304(server: Server) {
        let path = server.create("/customers", ANN);
        let first = server.get(&path);
        let (tag, date) = (tag_of(&first), first.header("Last-Modified").unwrap().to_owned());
        let mut masks = Masks::default();
        let get = format!("GET {path}");
        masks.answer(&first);
        let shown = masks.answer(&ask(&server, &get, ("If-None-Match", &tag), ""));
        expect![[r#"
            HTTP/1.1 304 Not Modified
            cache-control: private, no-cache
            vary: Accept, Accept-Encoding
            etag: "1-<tag-1>"
            last-modified: <date>
            x-request-id: <request-2>
            content-security-policy: default-src 'none'; connect-src 'self'; frame-ancestors 'none'
            cross-origin-opener-policy: same-origin
            cross-origin-resource-policy: same-origin
            date: <date>

        "#]].assert_eq(&shown);
        for condition in [
            ("If-None-Match", format!("W/{tag}")),
            ("If-None-Match", format!("\"x\", {tag}")),
            ("If-None-Match", "*".to_owned()),
            ("If-Modified-Since", date),
        ] {
            for method in ["GET", "HEAD"] {
                let answer = ask(&server, &format!("{method} {path}"), (condition.0, &condition.1), "");
                assert_eq!((answer.status, answer.body.len()), (304, 0), "{condition:?}");
                assert_eq!((tag_of(&answer), answer.header("Content-Length")), (tag.clone(), None));
            }
        }
        // On one connection: no body is left over that the next response could be mistaken for.
        let mut client = server.client();
        for _ in 0..3 {
            assert_eq!(client.request(&get, &[("If-None-Match", &tag)], "").status, 304);
            assert_eq!(client.request(&get, &[("If-None-Match", "\"x\"")], "").status, 200);
        }
        assert_eq!(server.put(&path, BEA).status, 200);
        let answer = ask(&server, &get, ("If-None-Match", &tag), "");
        assert_eq!((answer.status, answer.header("ETag").map(|new| new != tag)), (200, Some(true)));
    }

    /// An update of an outdated version is refused, and the response has the current one.
    fn if_match_with_an_old_etag_is_412(server: Server) {
        let path = server.create("/customers", ANN);
        let seen = tag_of(&server.get(&path));
        let put = format!("PUT {path}");
        assert_eq!(ask(&server, &put, ("If-Match", &seen), BEA).status, 200);
        let mut masks = Masks::default();
        let now = server.get(&path);
        masks.answer(&now);
        let late = ask(&server, &put, ("If-Match", &seen), ANN);
        assert_eq!(tag_of(&late), tag_of(&now));
        expect![[r#"
            HTTP/1.1 412 Precondition Failed
            cache-control: private, no-cache
            content-type: application/problem+json
            vary: Accept, Accept-Encoding
            x-content-type-options: nosniff
            etag: "2-<tag-1>"
            last-modified: <date>
            x-request-id: <request-2>
            content-security-policy: default-src 'none'; connect-src 'self'; frame-ancestors 'none'
            cross-origin-opener-policy: same-origin
            cross-origin-resource-policy: same-origin
            content-length: 252
            date: <date>

            {"type":"/-/problems/precondition-failed","title":"The item is not as the request expects it","status":412,"detail":"the customer has version 2 now","instance":"/customers/<id-1>","request_id":"<request-2>"}"#]].assert_eq(&masks.answer(&late));
        let delete = format!("DELETE {path}");
        assert_eq!(ask(&server, &delete, ("If-Match", &seen), "").status, 412);
        assert_eq!(ask(&server, &delete, ("If-None-Match", "*"), "").status, 412);
        assert_eq!(ask(&server, &format!("GET {path}"), ("If-Match", &seen), "").status, 412);
        let old = "Sun, 06 Nov 1994 08:49:37 GMT";
        assert_eq!(ask(&server, &put, ("If-Unmodified-Since", old), ANN).status, 412);
        assert_eq!(server.get(&path).json(), now.json());
        // The version in a body works too, and an ETag of another coding.
        assert_eq!(ask(&server, &put, ("If-Match", "\"2\""), ANN).status, 200);
        assert_eq!(ask(&server, &put, ("If-Match", "\"3-other\""), BEA).status, 200);
        assert_eq!(ask(&server, &delete, ("If-Match", "\"4\""), "").status, 204);
        assert_eq!(server.get(&path).status, 404);
    }

    /// 404, then 412, then 422, then 409.
    fn if_match_is_checked_after_404_and_before_422(server: Server) {
        let orders = format!("{}/orders", server.create("/customers", ANN));
        let order = server.create(&orders, TEA);
        let bad = r#"{"order":{"items":[]}}"#;
        let not_allowed = TEA.replace("{\"items\"", "{\"status\":\"delivered\",\"items\"");
        let put = |path: &str, tag: &str, body: &str| ask(&server, &format!("PUT {path}"), ("If-Match", tag), body).problem();
        assert_eq!(put(NO_ONE, "\"7\"", ANN), "not-found");
        assert_eq!(put(NO_ONE, "\"7\"", bad), "bad-wrapper");
        assert_eq!(put(&order, "\"7\"", bad), "precondition-failed");
        assert_eq!(put(&order, "\"7\"", &not_allowed), "precondition-failed");
        assert_eq!(put(&order, "\"1\"", bad), "invalid-fields");
        assert_eq!(put(&order, "\"1\"", &not_allowed), "transition-not-allowed");
        assert_eq!(put(&order, "7", "{"), "bad-json");
    }

    /// `If-Match: *` on a list only checks its existence.
    fn if_match_any_on_a_list_checks_its_existence(server: Server) {
        assert_eq!(ask(&server, "GET /customers", ("If-Match", "*"), "").status, 200);
        assert_eq!(ask(&server, "GET /customers", ("If-Match", "\"1\""), "").status, 412);
        assert_eq!(ask(&server, "GET /customers", ("If-None-Match", "\"1\""), "").status, 200);
        assert_eq!(ask(&server, "POST /customers", ("If-Match", "\"1\""), ANN).status, 412);
        assert_eq!(ask(&server, "POST /customers", ("If-None-Match", "*"), ANN).status, 412);
        assert_eq!(server.get("/customers").json()["customers"].as_array().unwrap().len(), 0);
        assert_eq!(ask(&server, "POST /customers", ("If-Match", "*"), ANN).status, 201);
    }

    /// `require_if_match`: an update needs the version that it is based on.
    fn if_match_required_and_missing_is_428(backend: Backend) {
        let server = Setup::new(backend).model(CAREFUL).start();
        let body = |text: &str| format!(r#"{{"note":{{"text":"{text}"}}}}"#);
        let path = server.create("/notes", body("one"));
        server.create("/notes", body("two"));
        let (put, delete) = (format!("PUT {path}"), format!("DELETE {path}"));
        for answer in [
            server.put(&path, body("new")),
            server.put(&path, body("a text that is much too long")),
            server.put(&path, body("two")),
            server.delete(&path),
            ask(&server, &put, ("If-None-Match", "\"9\""), &body("new")),
            ask(&server, &put, ("If-Unmodified-Since", "Sun, 06 Nov 2094 08:49:37 GMT"), &body("new")),
        ] {
            assert_eq!((answer.status, answer.problem().as_str()), (428, "precondition-required"));
        }
        assert_eq!(server.put("/notes/01890a5d-ac96-774b-bcce-b302099a8057", body("new")).status, 404);
        assert_eq!(server.get(&path).json()["note"]["version"], 1);
        assert_eq!(ask(&server, &put, ("If-Match", "\"2\""), &body("a text that is much too long")).status, 412);
        assert_eq!(ask(&server, &put, ("If-Match", "\"1\""), &body("a text that is much too long")).status, 422);
        assert_eq!(ask(&server, &put, ("If-Match", "\"1\""), &body("two")).status, 409);
        assert_eq!(ask(&server, &put, ("If-Match", "*"), &body("new")).status, 200);
        assert_eq!(ask(&server, &delete, ("If-Match", "\"2\""), "").status, 204);
    }

    /// Every item is newer than a date before 1970.
    fn if_unmodified_since_before_1970_fails(server: Server) {
        let path = server.create("/customers", ANN);
        for (date, status) in [
            ("Wed, 31 Dec 1969 23:59:59 GMT", 412),
            ("Mon, 01 Jan 1601 00:00:00 GMT", 412),
            // Not dates: ignored.
            ("Wed, 41 Dec 1969 23:59:59 GMT", 200),
            ("1969", 200),
        ] {
            let answer = ask(&server, &format!("GET {path}"), ("If-Unmodified-Since", date), "");
            assert_eq!(answer.status, status, "{date}");
            let answer = ask(&server, &format!("GET {path}"), ("If-Modified-Since", date), "");
            assert_eq!(answer.status, 200, "{date}");
        }
    }
}
