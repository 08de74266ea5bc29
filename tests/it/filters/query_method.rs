//! The method QUERY (RFC 10008): lists whose query is the body.

use serde_json::{Value, json};

use crate::harness::{Answer, Backend, Client, Person, Server, Setup};

const MODEL: &str = r#"
title = "Queries"
[resources.shop.fields]
name = { type = "text", filter = true }
[resources.order]
parent = "shop"
[resources.order.fields]
status = { type = "text", filter = true }
total = { type = "integer", filter = true }
price = { type = "decimal", filter = true }
is_new = { type = "boolean", filter = true }
note = { type = "text", filter = true }
tags = { type = "list", of = { type = "text" }, filter = true }
any = { type = "integer", filter = true }

[roles.reader]
shop = ["get"]
order = { verbs = ["get"], hide = ["note"] }
[roles.writer]
shop = ["post"]
"#;

const JSON: (&str, &str) = ("Content-Type", "application/json");

fn query(client: &mut Client, path: &str, body: &Value) -> Answer {
    client.request(&format!("QUERY {path}"), &[JSON], body.to_string())
}

/// A shop with orders; its path.
fn fill(server: &Server) -> String {
    let shop = server.request("POST /shops", &[], r#"{"shop":{"name":"a"}}"#);
    let path = format!("{}/orders", shop.header("Location").unwrap());
    let orders = json!({"orders": [
        {"status": "paid", "total": 50, "price": "1.50", "is_new": true, "tags": ["red", "blue"], "any": 3},
        {"status": "open", "total": 150, "price": "2.00", "is_new": false, "note": "x"},
        {"status": "open", "total": 20, "note": "a;b(c)\\"},
    ]});
    assert_eq!(server.request(&format!("POST {path}"), &[], orders.to_string()).status, 201);
    path
}

fn totals(answer: &Answer) -> Vec<i64> {
    assert_eq!(answer.status, 200, "{answer:?}");
    let page = answer.json();
    page["orders"]
        .as_array()
        .unwrap()
        .iter()
        .map(|order| order["total"].as_i64().unwrap())
        .collect()
}

fn detail(answer: &Answer) -> String {
    assert_eq!(answer.status, 400, "{answer:?}");
    answer.json()["detail"].as_str().unwrap().to_owned()
}

on_every_backend! {
    fn query_method_answers_as_get_does(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let path = fill(&server);
        let mut client = server.client();
        for (filter, expected) in [
            (json!({}), &[50, 150, 20][..]),
            (json!({"any": [{"status": "paid"}, {"total": {"gt": 100}}, {"not": {"note": {"exists": true}}}]}), &[50, 150]),
            (json!({"status": "open", "total": {"gte": 20, "lt": 150}}), &[20]),
            (json!({"price": {"between": ["1.5", "1.99"]}}), &[50]),
            (json!({"price": 2}), &[150]),
            (json!({"is_new": true}), &[50]),
            (json!({"not": {"is_new": true}}), &[150, 20]),
            (json!({"not": {"status": "open", "total": 20}}), &[50, 150]),
            (json!({"tags": {"has": "red"}}), &[50]),
            (json!({"total": {"in": [20, 50]}}), &[50, 20]),
            (json!({"any:eq": 3}), &[50]),
            (json!({"all": [{"status": "open"}, {"note": {"contains": "b(c)\\"}}]}), &[20]),
        ] {
            let answer = query(&mut client, &path, &json!({"filter": filter}));
            assert_eq!(totals(&answer), expected, "{filter}");
            // The address of the same list.
            let address = answer.header("Content-Location").unwrap();
            let got = client.request(&format!("GET {address}"), &[], "");
            assert_eq!(got.text(), answer.text(), "{address}");
            assert_eq!(got.header("ETag"), answer.header("ETag"), "{address}");
            // And across parents.
            let flat = query(&mut client, "/orders", &json!({"filter": filter}));
            assert_eq!(totals(&flat), expected, "{filter}");
        }
    }

    fn query_method_has_the_controls_of_a_list(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let path = fill(&server);
        let mut client = server.client();
        let body = |cursor: Value| json!({"sort": ["-total"], "limit": 2, "fields": ["total"], "count": "exact", "cursor": cursor});
        let first = query(&mut client, &path, &body(Value::Null));
        assert_eq!(totals(&first), [150, 50]);
        assert_eq!(first.json()["page"]["total"], 3);
        assert_eq!(first.json()["orders"][0].as_object().unwrap().len(), 2);
        let cursor = first.json()["page"]["next"].clone();
        let second = query(&mut client, &path, &body(cursor.clone()));
        assert_eq!(totals(&second), [20]);
        assert_eq!(second.json()["page"]["next"], Value::Null);
        // The same page by the link, which is the address of a GET.
        let link = first.header("Link").unwrap();
        let next = link.strip_prefix('<').unwrap().strip_suffix(">; rel=\"next\"").unwrap();
        assert_eq!(client.request(&format!("GET {next}"), &[], "").text(), second.text());
        // Related items, with a group of filters.
        let shops = query(&mut client, "/shops", &json!({"expand": ["orders(any=(total=50;total=20);sort=total)"]}));
        let orders = shops.json()["shops"][0]["orders"].as_array().unwrap().clone();
        assert_eq!(orders.iter().map(|order| &order["total"]).collect::<Vec<_>>(), [20, 50], "{shops:?}");
        let address = shops.header("Content-Location").unwrap();
        assert_eq!(client.request(&format!("GET {address}"), &[], "").text(), shops.text());
        // A cursor belongs to its query.
        let other = query(&mut client, &path, &json!({"limit": 2, "cursor": cursor}));
        assert_eq!((other.status, &other.json()["type"]), (400, &json!("/-/problems/bad-cursor")));
        // A client that has the list already.
        let tag = first.header("ETag").unwrap().to_owned();
        assert!(tag.starts_with("W/"), "{tag}");
        let again = client.request(&format!("QUERY {path}"), &[JSON, ("If-None-Match", &tag)], body(Value::Null).to_string());
        assert_eq!(again.status, 304);
        assert_eq!(again.header("Content-Location"), first.header("Content-Location"));
        // A cursor of a URL, whose filters may be written in another way.
        let page = client.request(&format!("GET {path}?price:gte=1.500&limit=1"), &[], "");
        assert_eq!(totals(&page), [50]);
        let rest = json!({"filter": {"price": {"gte": "1.5"}}, "cursor": page.json()["page"]["next"]});
        assert_eq!(totals(&query(&mut client, &path, &rest)), [150]);
        let changed = client.request(&format!("QUERY {path}"), &[JSON, ("If-None-Match", &tag)], r#"{"limit":2}"#);
        assert_eq!(changed.status, 200);
        // The formats of lists.
        let lines = client.request(&format!("QUERY {path}"), &[JSON, ("Accept", "application/x-ndjson")], r#"{"filter":{"total":{"lt":100}},"fields":["total"]}"#);
        assert_eq!((lines.status, lines.text().lines().count()), (200, 2));
        let table = client.request(&format!("QUERY {path}"), &[JSON, ("Accept", "text/csv")], r#"{"filter":{"total":{"lt":100}},"fields":["total"]}"#);
        assert_eq!((table.status, table.text().lines().count()), (200, 3));
        let url_form = table.header("Content-Location").unwrap();
        assert_eq!(client.request(&format!("GET {url_form}"), &[("Accept", "text/csv")], "").text(), table.text());
        assert_eq!(client.request(&format!("QUERY {path}"), &[JSON, ("Accept", "text/event-stream")], "{}").status, 406);
    }

    fn query_method_with_a_wrong_body_names_the_fault(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let path = fill(&server);
        let mut client = server.client();
        for (body, expected) in [
            (json!([]), "expected an object with the keys filter, sort, limit, cursor, fields, count, expand, got a list"),
            (json!({"filtr": {}}), "filtr: no such key here; did you mean \"filter\"?"),
            (json!({"filter": []}), "filter: expected an object with fields, any, all or not, got a list"),
            (json!({"filter": {"totl": 1}}), "filter: totl: no such field here; did you mean \"total\"?"),
            (json!({"filter": {"total": {"gtt": 1}}}), "filter: total.gtt: no such operator (there are eq, ne, gt, gte, lt, lte, between, in, has, prefix, contains, match, exists); did you mean \"gt\"?"),
            (json!({"filter": {"total": "100"}}), "filter: total: expected an integer, got a string"),
            (json!({"filter": {"status": 1}}), "filter: status: expected a text, got a number"),
            (json!({"filter": {"total": null}}), "filter: total: expected a value, got null; no value is exists = false"),
            (json!({"filter": {"total": {}}}), "filter: total: expected an integer, got an object"),
            (json!({"filter": {"total": {"in": 1}}}), "filter: total.in: expected a list, got a number"),
            (json!({"filter": {"total": {"between": [1]}}}), "filter: total.between: expected two values, got 1"),
            (json!({"filter": {"note": {"exists": "true"}}}), "filter: note.exists: expected true or false, got a string"),
            (json!({"filter": {"any": {"total": 1}}}), "filter: any: expected a list of objects, got an object"),
            (json!({"filter": {"any": []}}), "filter: any: expected at least one filter, got none"),
            (json!({"filter": {"not": {}}}), "filter: not: expected at least one filter, got none"),
            (json!({"sort": "total"}), "sort: expected a list of names, got a string"),
            (json!({"sort": ["total,status"]}), "sort: expected one name in each string, got \"total,status\""),
            (json!({"sort": ["tags"]}), "sort: tags: a list cannot be sorted by"),
            (json!({"limit": 0}), "limit: expected a whole number from 1 to 500, got \"0\""),
            (json!({"limit": "5"}), "limit: expected a whole number from 1 to 500, got \"a string\""),
            (json!({"cursor": 5}), "cursor: expected a string, got a number"),
            (json!({"count": "all"}), "count: expected exact, got \"all\""),
        ] {
            assert_eq!(detail(&query(&mut client, &path, &body)), expected, "{body}");
        }
        let mut deep = json!({"total": 1});
        for _ in 0..9 {
            deep = json!({"not": deep});
        }
        assert!(detail(&query(&mut client, &path, &json!({"filter": deep}))).contains("at most 8 groups inside each other"));
        // An object with several members in a group is a group of the URL.
        let nest = |times: usize| {
            let one = json!({"total": 20});
            let filter = (0..times).fold(one, |inner, _| json!({"any": [{"status": "x", "any": [inner]}, inner]}));
            json!({"filter": filter})
        };
        let deep = query(&mut client, &path, &nest(2));
        assert_eq!(totals(&deep), [20]);
        let address = deep.header("Content-Location").unwrap();
        assert_eq!(client.request(&format!("GET {address}"), &[], "").text(), deep.text());
        assert!(detail(&query(&mut client, &path, &nest(3))).contains("at most 8 groups inside each other"));
        let many: Value = (0..51).map(|number| json!({"total": number})).collect();
        assert!(detail(&query(&mut client, &path, &json!({"filter": {"any": many}}))).ends_with("expected at most 50 filters, got more"));
        // Neither a query nor a syntax error is ignored.
        assert!(detail(&query(&mut client, &format!("{path}?limit=1"), &json!({}))).starts_with("limit: no such parameter here"));
        assert_eq!(client.request(&format!("QUERY {path}"), &[JSON], "{").json()["type"], "/-/problems/bad-json");
        assert_eq!(client.request(&format!("QUERY {path}"), &[JSON], "").json()["type"], "/-/problems/bad-json");
    }

    fn query_method_is_offered_by_collections_alone(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let path = fill(&server);
        for path in [&path, "/orders", "/-/users"] {
            let options = server.request(&format!("OPTIONS {path}"), &[], "");
            assert_eq!(options.header("Accept-Query"), Some("application/json"), "{path}");
            assert!(options.header("Allow").unwrap().contains("QUERY"), "{path}");
        }
        for path in ["/", "/-/changes", &path.replace("/orders", "")] {
            let refused = server.request(&format!("QUERY {path}"), &[JSON], "{}");
            assert_eq!(refused.status, 405, "{path}");
            assert!(!refused.header("Allow").unwrap().contains("QUERY"), "{path}");
        }
        // RFC 10008 §2: the type of the query must be there.
        for headers in [&[][..], &[("Content-Type", "text/plain")]] {
            let refused = server.request("QUERY /shops", headers, "{}");
            assert_eq!(refused.status, 415, "{headers:?}");
            assert_eq!(refused.header("Accept-Query"), Some("application/json"));
        }
        // A page of another site cannot send it.
        let foreign = server.request("QUERY /shops", &[JSON, ("Sec-Fetch-Site", "cross-site")], "{}");
        assert_eq!(foreign.status, 403);
        let metrics = server.get("/-/metrics");
        let metrics = metrics.text();
        assert!(metrics.contains(r#"nouns_requests_total{resource="shop",verb="QUERY",status="415"} 2"#), "{metrics}");
    }

    fn query_method_needs_the_right_to_get_and_knows_no_hidden_field(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).with_authentication().start();
        let admin = server.admin().basic();
        let shop = server.request("POST /shops", &[("Authorization", &admin)], r#"{"shop":{"name":"a"}}"#);
        let path = format!("{}/orders", shop.header("Location").unwrap());
        let order = r#"{"order":{"total":1,"note":"x"}}"#;
        assert_eq!(server.request(&format!("POST {path}"), &[("Authorization", &admin)], order).status, 201);
        let ask = |login: &str, body: &str| {
            server.request(&format!("QUERY {path}"), &[JSON, ("Authorization", login)], body)
        };
        assert_eq!(server.request(&format!("QUERY {path}"), &[JSON], "{}").status, 401);
        for (role, status) in [("reader", 200), ("writer", 403)] {
            let person = Person::new(role, "correct horse battery staple");
            server.add_user(&person, &[role]);
            assert_eq!(ask(&person.basic(), "{}").status, status, "{role}");
        }
        let reader = Person::new("reader", "correct horse battery staple").basic();
        assert_eq!(totals(&ask(&reader, r#"{"filter":{"total":1}}"#)), [1]);
        for body in [r#"{"filter":{"NAME":"x"}}"#, r#"{"filter":{"any":[{"total":1},{"not":{"NAME":{"exists":true}}}]}}"#, r#"{"sort":["NAME"]}"#, r#"{"fields":["NAME"]}"#] {
            let [hidden, unknown] = ["note", "qxzj"].map(|name| detail(&ask(&reader, &body.replace("NAME", name))).replace(name, "NAME"));
            assert_eq!(hidden, unknown, "{body}");
        }
    }
}
