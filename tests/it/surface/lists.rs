//! Collections: their order, their pagination, and their query parameters.

use expect_test::expect;
use serde_json::{Value, json};

use super::{ANN, BEA, TEA, start_schools};
use crate::harness::{Backend, Server, Setup};

fn create_people(server: &Server, count: usize) {
    let people: Vec<_> = (1..=count).map(|number| json!({"name": format!("p{number}")})).collect();
    let answer = server.post("/people", json!({"people": people}).to_string());
    assert_eq!(answer.status, 201, "{answer:?}");
}

fn ids(page: &Value) -> Vec<u64> {
    page["people"].as_array().unwrap().iter().map(|person| person["id"].as_u64().unwrap()).collect()
}

/// The URL in `Link: <…>; rel="next"`.
fn next_url(link: &str) -> &str {
    link.strip_prefix('<')
        .and_then(|rest| rest.strip_suffix(">; rel=\"next\""))
        .unwrap_or_else(|| panic!("{link}"))
}

on_every_backend! {
    fn list_empty(server: Server) {
        expect![[r#"
            HTTP/1.1 200 OK
            cache-control: private, no-cache
            content-type: application/json
            vary: Accept, Accept-Encoding
            x-content-type-options: nosniff
            etag: W/"<tag-1>"
            x-request-id: <request-1>
            content-security-policy: default-src 'none'; connect-src 'self'; frame-ancestors 'none'
            cross-origin-opener-policy: same-origin
            cross-origin-resource-policy: same-origin
            content-length: 48
            date: <date>

            {"customers":[],"page":{"limit":50,"next":null}}"#]].assert_eq(&server.get("/customers").masked());
    }

    fn list_page_links_to_the_next(server: Server) {
        server.create("/customers", ANN);
        server.create("/customers", BEA);
        let first = server.get("/customers?limit=1");
        expect![[r#"
            HTTP/1.1 200 OK
            cache-control: private, no-cache
            content-type: application/json
            vary: Accept, Accept-Encoding
            x-content-type-options: nosniff
            link: </customers?limit=1&cursor=<cursor-1>>; rel="next"
            etag: W/"<tag-1>"
            x-request-id: <request-1>
            content-security-policy: default-src 'none'; connect-src 'self'; frame-ancestors 'none'
            cross-origin-opener-policy: same-origin
            cross-origin-resource-policy: same-origin
            content-length: 261
            date: <date>

            {"customers":[{"id":"<id-1>","name":"Ann","email":"ann@example.com","created_at":"<time-1>","updated_at":"<time-1>","version":1}],"page":{"limit":1,"next":"<cursor-1>"}}"#]].assert_eq(&first.masked());
        let link = first.header("Link").unwrap();
        assert_eq!(next_url(link), format!("/customers?limit=1&cursor={}", first.json()["page"]["next"].as_str().unwrap()));
        let last = server.get(next_url(link));
        assert_eq!(last.json()["customers"][0]["name"], "Bea");
        assert_eq!((last.header("Link"), &last.json()["page"]), (None, &json!({"limit": 1, "next": null})));
    }

    fn list_limit_is_50_by_default_and_500_at_most(backend: Backend) {
        let server = start_schools(backend);
        create_people(&server, 501);
        let page = |query: &str| server.get(&format!("/people{query}")).json();
        assert_eq!((ids(&page("")), &page("")["page"]["limit"]), ((1..=50).collect(), &json!(50)));
        assert_eq!(ids(&page("?limit=1")), [1]);
        assert_eq!(ids(&page("?limit=500")).len(), 500);
        for bad in ["0", "501", "-1", "x", "", "1.5", "99999999999999999999"] {
            assert_eq!(server.get(&format!("/people?limit={bad}")).problem(), "bad-query", "limit={bad}");
        }
    }

    /// Keyset pagination: no item is skipped or repeated during concurrent writes.
    fn list_pages_are_stable_during_concurrent_writes(backend: Backend) {
        let server = start_schools(backend);
        create_people(&server, 10);
        let mut seen = Vec::new();
        let mut path = "/people?limit=3".to_owned();
        loop {
            let page = server.get(&path);
            seen.extend(ids(&page.json()));
            if seen.len() == 3 {
                assert_eq!(server.delete("/people/2").status, 204);
                assert_eq!(server.delete("/people/5").status, 204);
                create_people(&server, 1);
            }
            match page.header("Link") {
                Some(link) => path = next_url(link).to_owned(),
                None => break,
            }
        }
        assert_eq!(seen, [1, 2, 3, 4, 6, 7, 8, 9, 10, 11]);
    }

    /// Regression: a page had twenty mebibytes; now its size is limited, whatever `limit` says.
    fn list_page_of_large_items_ends_early(backend: Backend) {
        let model = "title = \"Large\"\n[server.limits]\nbody_bytes_max = 2000000\n[resources.text]\nid = \"integer\"\n\
            changes = \"ids\"\n[resources.text.fields]\nwords = { type = \"text\" }\n";
        let server = Setup::new(backend).model(model).start();
        let words = "x".repeat(1 << 20);
        for _ in 0..20 {
            server.create("/texts", json!({"text": {"words": words}}).to_string());
        }
        let (mut seen, mut pages) = (Vec::new(), Vec::new());
        let mut path = "/texts?limit=20".to_owned();
        loop {
            let answer = server.get(&path);
            let page = answer.json();
            let texts = page["texts"].as_array().unwrap();
            assert!(answer.body.len() < 10 << 20, "{} bytes", answer.body.len());
            assert!(texts.iter().all(|text| text["words"] == *words));
            pages.push(texts.len());
            seen.extend(texts.iter().map(|text| text["id"].as_u64().unwrap()));
            assert_eq!((&page["page"]["limit"], page["page"]["next"].is_string()), (&json!(20), answer.header("Link").is_some()));
            match answer.header("Link") {
                Some(link) => path = next_url(link).to_owned(),
                None => break,
            }
        }
        assert!(seen.iter().copied().eq(1..=20), "{seen:?}");
        assert_eq!(pages, [9, 9, 2]);
    }

    fn list_full_last_page_has_no_next(backend: Backend) {
        let server = start_schools(backend);
        create_people(&server, 4);
        let first = server.get("/people?limit=2");
        let last = server.get(next_url(first.header("Link").unwrap()));
        assert_eq!((ids(&last.json()), &last.json()["page"]["next"], last.header("Link")), (vec![3, 4], &json!(null), None));
    }

    /// A cursor is bound to the list, not to the page size.
    fn list_cursor_works_with_another_limit(backend: Backend) {
        let server = start_schools(backend);
        create_people(&server, 4);
        let cursor = server.get("/people?limit=1").json()["page"]["next"].as_str().unwrap().to_owned();
        assert_eq!(ids(&server.get(&format!("/people?cursor={cursor}&limit=2")).json()), [2, 3]);
        assert_eq!(ids(&server.get(&format!("/people?cursor={cursor}")).json()), [2, 3, 4]);
    }

    fn list_cursor_of_another_list_is_refused(server: Server) {
        let (ann, bea) = (server.create("/customers", ANN), server.create("/customers", BEA));
        for customer in [&ann, &ann, &bea, &bea] {
            server.create(&format!("{customer}/orders"), TEA);
        }
        let cursor = |path: &str| server.get(&format!("{path}?limit=1")).json()["page"]["next"].as_str().unwrap().to_owned();
        let (customers, orders) = (cursor("/customers"), cursor(&format!("{ann}/orders")));
        for (path, cursor) in [
            (format!("{ann}/orders"), customers.as_str()),
            ("/customers".to_owned(), orders.as_str()),
            (format!("{bea}/orders"), orders.as_str()),
            ("/customers".to_owned(), "x"),
            ("/customers".to_owned(), ""),
            ("/customers".to_owned(), &customers[1..]),
            ("/customers".to_owned(), &format!("{customers}A")),
        ] {
            assert_eq!(server.get(&format!("{path}?cursor={cursor}")).problem(), "bad-cursor", "{path} {cursor}");
        }
    }

    fn list_unknown_parameter_is_refused_with_the_nearest_name(server: Server) {
        let path = server.create("/customers", ANN);
        let answer = server.get("/customers?limt=3");
        expect![[r#"
            HTTP/1.1 400 Bad Request
            cache-control: private, no-cache
            content-type: application/problem+json
            vary: Accept, Accept-Encoding
            x-content-type-options: nosniff
            x-request-id: <request-1>
            content-security-policy: default-src 'none'; connect-src 'self'; frame-ancestors 'none'
            cross-origin-opener-policy: same-origin
            cross-origin-resource-policy: same-origin
            content-length: 325
            date: <date>

            {"type":"/-/problems/bad-query","title":"A query parameter cannot be used","status":400,"detail":"limt: no such parameter here (there are limit, cursor, sort, fields, count, expand, any, not, id, created_at, updated_at, name, email); did you mean \"limit\"?","instance":"/customers","request_id":"<request-1>"}"#]].assert_eq(&answer.masked());
        for line in [format!("GET {path}?limit=1"), format!("DELETE {path}?x=1"), format!("PUT {path}?x=1"), "POST /customers?x=1".into()] {
            let answer = server.request(&line, &[], if line.starts_with('P') { ANN } else { "" });
            assert_eq!(answer.problem(), "bad-query", "{line}");
        }
        assert_eq!(server.get(&path).status, 200);
    }

    fn list_repeated_parameter_is_refused(server: Server) {
        for query in ["limit=1&limit=1", "limit=1&limit=2", "limit=1&%6Cimit=2"] {
            assert_eq!(server.get(&format!("/customers?{query}")).problem(), "bad-query", "{query}");
        }
        assert_eq!(server.get("/customers?%6Cimit=%31").json()["page"]["limit"], 1);
        assert_eq!(server.get("/customers?").status, 200);
    }

    fn list_of_each_parent_is_separate(server: Server) {
        let (ann, bea) = (server.create("/customers", ANN), server.create("/customers", BEA));
        let order = server.create(&format!("{ann}/orders"), TEA);
        let list = server.get(&format!("{ann}/orders")).json();
        assert_eq!(list["orders"].as_array().unwrap().len(), 1);
        assert_eq!(list["orders"][0], server.get(&order).json()["order"]);
        assert_eq!(server.get(&format!("{bea}/orders")).json()["orders"], json!([]));
    }
}
