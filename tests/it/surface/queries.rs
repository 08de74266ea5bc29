//! List queries: filters, sorting, fields, counts and pagination.
//!
//! `tests/it/filters/` tests which items are returned; this file tests the parameters and responses.

use serde_json::{Value, json};

use super::{ANN, NO_ONE, TEA, start_schools};
use crate::harness::{Backend, Person, Server, Setup};

const MODEL: &str = r#"
title = "Queries"
[server.limits]
filter_terms_max = 3
filter_values_max = 3
sort_keys_max = 2
[resources.city]
plural = "cities"
id = "integer"
[resources.city.fields]
name = { type = "text", filter = true }
people = { type = "integer", filter = true, nullable = true }
count = { type = "integer", filter = true }
mayor = { type = "text" }
tax = { type = "decimal", filter = true }
place = { type = "object", fields = { country = { type = "text", filter = true }, river = { type = "text" } } }
[roles.visitor]
city = { verbs = ["get"], hide = ["tax", "mayor"] }
[roles.german]
city = { verbs = ["get"], where = "place.country = \"de\"" }
"#;

fn start_with_cities(backend: Backend) -> Server {
    let server = Setup::new(backend).model(MODEL).start();
    create_cities(|body| assert_eq!(server.post("/cities", body).status, 201));
    server
}

fn create_cities(post: impl FnOnce(String)) {
    let city = |name: &str, people: Value, country: &str| json!({"name": name, "people": people, "count": name.len(), "tax": "1.50", "place": {"country": country, "river": "r"}});
    let cities = [
        city("Bonn", json!(330_000), "de"),
        city("Basel", json!(170_000), "ch"),
        city("Ulm", json!(null), "de"),
        city("Zug", json!(30_000), "ch"),
        city("Köln", json!(1_000_000), "de"),
    ];
    post(json!({"cities": cities}).to_string());
}

fn names(page: &Value) -> Vec<&str> {
    page["cities"].as_array().unwrap().iter().map(|city| city["name"].as_str().unwrap()).collect()
}

/// The URL in `Link: <…>; rel="next"`.
fn next_url(link: &str) -> &str {
    link.strip_prefix('<').and_then(|rest| rest.strip_suffix(">; rel=\"next\"")).unwrap()
}

on_every_backend! {
    fn query_filters_sorts_and_chooses_fields(backend: Backend) {
        let server = start_with_cities(backend);
        let found = |query: &str| {
            let page = server.get(&format!("/cities?{query}"));
            assert_eq!(page.status, 200, "{query}: {page:?}");
            names(&page.json()).join(" ")
        };
        assert_eq!(found("name=Bonn"), "Bonn");
        assert_eq!(found("name:prefix=B&people:gte=200000"), "Bonn");
        assert_eq!(found("name:contains=l"), "Basel Ulm Köln");
        assert_eq!(found("name:in=Ulm,Zug,Bern"), "Ulm Zug");
        assert_eq!(found("people:exists=false"), "Ulm");
        // A missing value is neither equal nor unequal.
        assert_eq!(found("people:ne=30000"), "Bonn Basel Köln");
        assert_eq!(found("place.country=de&sort=-name"), "Ulm Köln Bonn");
        assert_eq!(found("count:eq=3"), "Ulm Zug");
        assert_eq!(found("sort=people"), "Zug Basel Bonn Köln Ulm");
        assert_eq!(found("sort=-people"), "Ulm Köln Bonn Basel Zug");
        assert_eq!(found("sort=place.country,-people"), "Basel Zug Ulm Köln Bonn");
        assert_eq!(found("name=bonn"), "");
        let city = |query: &str| server.get(&format!("/cities?name=Bonn&{query}")).json()["cities"][0].clone();
        assert_eq!(city("fields=name,place"), json!({"id": 1, "name": "Bonn", "place": {"country": "de", "river": "r"}}));
        assert_eq!(city("fields=version"), json!({"id": 1, "version": 1}));
        assert_eq!(city("fields=id"), json!({"id": 1}));
    }

    fn query_count_includes_all_pages(backend: Backend) {
        let server = start_with_cities(backend);
        let page = |query: &str| server.get(&format!("/cities?{query}")).json()["page"].clone();
        assert_eq!(page("count=exact&place.country=de&limit=1")["total"], 3);
        assert_eq!(page("count=exact&limit=5"), json!({"limit": 5, "next": null, "total": 5}));
        assert_eq!(page("count=exact&name=x"), json!({"limit": 50, "next": null, "total": 0}));
        assert_eq!(page("limit=5"), json!({"limit": 5, "next": null}));
        let cursor = page("count=exact&limit=2&sort=name")["next"].as_str().unwrap().to_owned();
        assert_eq!(page(&format!("count=exact&limit=2&sort=name&cursor={cursor}"))["total"], 5);
    }

    /// The URL of the next page is the query as it was sent, and works whatever characters it has.
    fn query_is_kept_in_the_next_link(backend: Backend) {
        let server = start_with_cities(backend);
        let odd = "a&b=c?d e+f%\"<>é,\\/#";
        let body = json!({"cities": [{"name": odd}, {"name": odd}, {"name": odd}]}).to_string();
        assert_eq!(server.post("/cities", body).status, 201);
        let query = "name=a%26b%3dc?d+e%2Bf%25%22%3C%3E%C3%A9,%5C/%23&sort=-name,id&fields=name&count=exact";
        let mut path = format!("/cities?limit=1&{query}");
        for left in (0..3).rev() {
            let answer = server.get(&path);
            assert_eq!(answer.json()["cities"][0]["name"], odd, "{path}: {answer:?}");
            assert_eq!(answer.json()["page"]["total"], 3);
            assert!(answer.json()["cities"][0].get("version").is_none(), "{answer:?}");
            match answer.header("Link") {
                Some(link) => path = next_url(link).to_owned(),
                None => assert_eq!(left, 0, "{path}"),
            }
            let cursor = answer.json()["page"]["next"].clone();
            let encoded = "name=a%26b%3Dc%3Fd%20e%2Bf%25%22%3C%3E%C3%A9%2C%5C%2F%23&sort=-name%2Cid&fields=name&count=exact";
            if let Some(cursor) = cursor.as_str() {
                assert_eq!(path, format!("/cities?{encoded}&limit=1&cursor={cursor}"));
            }
        }
    }

    fn cursor_is_bound_to_its_filters_and_sorting(backend: Backend) {
        let server = start_with_cities(backend);
        let cursor = |query: &str| server.get(&format!("/cities?limit=1&{query}")).json()["page"]["next"].as_str().unwrap().to_owned();
        let sorted = cursor("place.country=de&sort=name");
        let go_on = |query: &str| server.get(&format!("/cities?cursor={sorted}&{query}"));
        assert_eq!(names(&go_on("place.country=de&sort=name").json()), ["Köln", "Ulm"]);
        assert_eq!(names(&go_on("sort=name&place.country:eq=de&limit=1&fields=name&count=exact").json()), ["Köln"]);
        for query in ["", "sort=name", "place.country=de", "place.country=de&sort=-name", "place.country=ch&sort=name", "place.country=de&sort=name,id", "place.country:gte=de&sort=name", "place.country=de&sort=name&people:exists=true"] {
            assert_eq!(go_on(query).problem(), "bad-cursor", "{query}");
        }
        assert_eq!(server.get(&format!("/cities?cursor={}&sort=name", cursor("sort=people"))).problem(), "bad-cursor");
        let plain = cursor("fields=name");
        assert_eq!(names(&server.get(&format!("/cities?cursor={plain}&limit=2")).json()), ["Basel", "Ulm"]);
        // It works at another server on the same data, and when its item is deleted.
        let server = server.restart();
        assert_eq!(server.delete("/cities/1").status, 204);
        let page = server.get(&format!("/cities?cursor={sorted}&place.country=de&sort=name"));
        assert_eq!(names(&page.json()), ["Köln", "Ulm"]);
    }

    fn query_head_equals_get_without_the_body(backend: Backend) {
        let server = start_with_cities(backend);
        for query in ["", "?limit=2", "?sort=-people&limit=1&count=exact&fields=name", "?name=Bonn", "?name=x"] {
            let ask = |method: &str| server.request(&format!("{method} /cities{query}"), &[], "");
            let (get, head) = (ask("GET"), ask("HEAD"));
            assert_eq!((get.status, head.status, head.body.len()), (200, 200, 0), "{query}");
            for name in ["Content-Length", "Content-Type", "Link", "Vary", "Cache-Control", "ETag"] {
                assert_eq!(head.header(name), get.header(name), "{query} {name}");
            }
            assert_eq!(get.header("Content-Length").unwrap(), get.body.len().to_string());
        }
        assert_eq!(server.request("HEAD /cities?nme=x", &[], "").status, 400);
    }

    fn query_limits_of_terms_values_and_sort_keys(backend: Backend) {
        let server = start_with_cities(backend);
        let status = |query: &str| server.get(&format!("/cities?{query}")).status;
        assert_eq!(status("name=a&name=a&name=a"), 200);
        assert_eq!(status("name=a&name=a&name=a&name=a"), 400);
        assert_eq!(status("name:in=a,b,c"), 200);
        assert_eq!(status("name:in=a,b,c,d"), 400);
        assert_eq!(status("sort=name,people"), 200);
        assert_eq!(status("sort=name,people,count"), 400);
        let open = Server::on(backend);
        let terms = |count: usize| vec!["name=a"; count].join("&");
        assert_eq!(open.get(&format!("/customers?{}", terms(50))).status, 200);
        assert_eq!(open.get(&format!("/customers?{}", terms(51))).problem(), "bad-query");
        let values = |count: usize| vec!["a"; count].join(",");
        assert_eq!(open.get(&format!("/customers?name:in={}", values(100))).status, 200);
        assert_eq!(open.get(&format!("/customers?name:in={}", values(101))).problem(), "bad-query");
        assert_eq!(open.get("/customers?sort=name,email,created_at,updated_at").status, 200);
        assert_eq!(open.get("/customers?sort=name,email,created_at,updated_at,id").problem(), "bad-query");
    }

    /// An item has no list parameters, and a missing parent is reported after the query.
    fn query_list_parameters_on_an_item_are_refused(server: Server) {
        let path = server.create("/customers", ANN);
        for query in ["name=Ann", "sort=name", "count=exact", "limit=1", "fields=name&fields=id", "fields=", "fields=nome"] {
            assert_eq!(server.get(&format!("{path}?{query}")).problem(), "bad-query", "{query}");
        }
        for query in ["fields=name", "name=Ann", "sort=name", "count=exact"] {
            let answer = server.post(&format!("/customers?{query}"), ANN);
            assert_eq!(answer.problem(), "bad-query", "{query}");
        }
        server.create(&format!("{path}/orders"), TEA);
        assert_eq!(server.get(&format!("{path}/orders?status=placed")).json()["orders"].as_array().unwrap().len(), 1);
        assert_eq!(server.get(&format!("{path}/orders?status=paid&count=exact")).json()["page"]["total"], 0);
        assert_eq!(server.get(&format!("{NO_ONE}/orders?status=placed")).status, 404);
        assert_eq!(server.get(&format!("{NO_ONE}/orders?status=lost")).status, 400);
    }

    /// Other bytes have another ETag, which 304 and `If-Match` use as ever.
    fn fields_of_one_item_have_an_etag_of_their_own(server: Server) {
        let path = server.create("/customers", ANN);
        let get = |query: &str, headers: &[(&str, &str)]| server.request(&format!("GET {path}{query}"), headers, "");
        let whole = get("", &[]);
        let some = get("?fields=name,version", &[]);
        let id = whole.json()["customer"]["id"].clone();
        assert_eq!(some.json(), json!({"customer": {"id": id, "name": "Ann", "version": 1}}));
        assert_eq!(get("?fields=id", &[]).json(), json!({"customer": {"id": id}}));
        let tags = ["", "?fields=name,version", "?fields=id", "?fields=name", "?fields=version"]
            .map(|query| get(query, &[]).header("ETag").unwrap().to_owned());
        assert!((1..tags.len()).all(|at| !tags[..at].contains(&tags[at])), "{tags:?}");
        // In whatever order they are named.
        assert_eq!(get("?fields=version,name", &[]).header("ETag"), Some(&*tags[1]));
        assert_eq!(server.request(&format!("HEAD {path}?fields=version,name"), &[], "").header("ETag"), Some(&*tags[1]));
        for (query, tag, status) in [("?fields=name,version", &tags[1], 304), ("?fields=name,version", &tags[0], 200), ("", &tags[1], 200)] {
            let answer = get(query, &[("If-None-Match", tag)]);
            assert_eq!(answer.status, status, "{query} {tag}");
        }
        let zipped = get("?fields=name", &[("Accept-Encoding", "gzip")]);
        let tag = zipped.header("ETag").unwrap().to_owned();
        assert_eq!(get("?fields=name", &[("Accept-Encoding", "gzip"), ("If-None-Match", &tag)]).status, 304);
        let put = server.request(&format!("PUT {path}"), &[("If-Match", &tags[1])], ANN);
        assert_eq!(put.status, 200);
        let gone = get("?fields=name", &[("If-Match", "\"7\"")]);
        assert_eq!((gone.status, gone.header("ETag")), (412, Some(&*tags[3])));
    }

    fn fields_of_one_item_treats_a_hidden_field_as_unknown(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).with_authentication().start();
        let (admin, ann) = (server.admin().basic(), Person::new("ann", "a long password"));
        server.add_user(&ann, &["visitor"]);
        let made = server.request("POST /cities", &[("Authorization", &admin)], r#"{"city":{"name":"Rome"}}"#);
        assert_eq!(made.status, 201, "{made:?}");
        let path = made.header("Location").unwrap();
        for name in ["tax", "mayor"] {
            let line = format!("GET {path}?fields={name}");
            assert_eq!(server.request(&line, &[("Authorization", &admin)], "").status, 200, "{name}");
            assert_eq!(server.request(&line, &[("Authorization", &ann.basic())], "").problem(), "bad-query", "{name}");
        }
    }

    /// A bound is a position in the order, and need not be a complete id.
    fn filter_id_bound_that_is_not_an_id_is_compared(backend: Backend) {
        let server = start_schools(backend);
        for name in ["Ann", "Ben"] {
            server.create("/people", format!(r#"{{"person":{{"name":"{name}"}}}}"#));
        }
        for (query, count) in [
            ("id:gt=0", 2), ("id:gte=0", 2), ("id:gt=-5", 2), ("id:gt=1", 1), ("id:lt=2", 1), ("id:lt=0", 0), ("id:lte=-1", 0),
            ("id:gt=99999999999999999999", 0), ("id:lt=99999999999999999999", 2), ("id:gte=-99999999999999999999", 2),
            ("id:gt=0&id:lt=2", 1), ("id:gt=0&sort=-id", 2), ("id:gt=0&count=exact", 2),
        ] {
            let answer = server.get(&format!("/people?{query}"));
            assert_eq!(answer.status, 200, "{query}: {answer:?}");
            assert_eq!(answer.json()["people"].as_array().unwrap().len(), count, "{query}");
        }
        for query in ["id:gt=", "id:gt=x", "id:gt=1.5", "id:gt=--1", "id:gt=1e3", "id=0", "id:ne=0", "id:in=0,1"] {
            assert_eq!(server.get(&format!("/people?{query}")).problem(), "bad-query", "{query}");
        }
    }

    fn query_finds_only_permitted_rows_and_fields(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).with_authentication().start();
        let admin = server.admin().basic();
        create_cities(|body| assert_eq!(server.request("POST /cities", &[("Authorization", &admin)], body).status, 201));
        let mut people = ["visitor", "german"].map(|role| {
            let person = Person::new(role, "a word for each");
            server.add_user(&person, &[role]);
            person.basic()
        }).into_iter();
        let (visitor, german) = (people.next().unwrap(), people.next().unwrap());
        let ask = |caller: &str, query: &str| server.request(&format!("GET /cities?{query}"), &[("Authorization", caller)], "");
        // A hidden field cannot be queried in any way, nor guessed by sorting or filtering.
        for query in ["tax=1.50", "tax:gt=0", "sort=tax", "fields=tax", "mayor=x", "fields=mayor"] {
            let answer = ask(&visitor, query);
            assert_eq!(answer.problem(), "bad-query", "{query}");
            assert!(answer.json()["detail"].as_str().unwrap().contains("no such"), "{answer:?}");
        }
        assert_eq!(ask(&admin, "tax=1.50").status, 200);
        assert!(ask(&admin, "mayor=x").json()["detail"].as_str().unwrap().contains("not declared filter = true"));
        assert!(ask(&visitor, "fields=name").json()["cities"][0].get("tax").is_none());
        // Hidden rows are in no list, no order and no count.
        let page = ask(&german, "sort=-name&count=exact&limit=2").json();
        assert_eq!((names(&page), &page["page"]["total"]), (vec!["Ulm", "Köln"], &json!(3)));
        let cursor = page["page"]["next"].as_str().unwrap();
        let page = ask(&german, &format!("sort=-name&cursor={cursor}")).json();
        assert_eq!(names(&page), ["Bonn"]);
        assert_eq!(ask(&german, "place.country:ne=de&count=exact").json()["page"]["total"], 0);
        assert_eq!(ask(&german, "name:in=Basel,Ulm").json()["cities"].as_array().unwrap().len(), 1);
    }

    /// A database of an earlier version has no such indexes: the next start creates them.
    fn filter_indexes_are_added_to_an_older_database(backend: Backend) {
        let without = MODEL.replace(", filter = true", "").replace("filter = true, ", "");
        let server = Setup::new(backend).model(&without).start();
        create_cities(|body| assert_eq!(server.post("/cities", body).status, 201));
        assert_eq!(server.get("/cities?sort=name").problem(), "bad-query");
        let server = Setup::new(backend).model(MODEL).start_in(server.stop());
        assert_eq!(names(&server.get("/cities?sort=-name").json()), ["Zug", "Ulm", "Köln", "Bonn", "Basel"]);
        assert_eq!(names(&server.get("/cities?place.country=ch").json()), ["Basel", "Zug"]);
        let server = Setup::new(backend).model(&without).start_in(server.stop());
        assert_eq!(server.get("/cities?place.country=ch").problem(), "bad-query");
    }
}
