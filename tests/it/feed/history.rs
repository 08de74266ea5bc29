//! Items as they were: `?version=`, `?as_of=`, the link to the changes of an item, and how a version is restored.

use expect_test::expect;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::harness::{Answer, Backend, Masks, Person, Server, Setup, run_sql, wait_until};

const MODEL: &str = r#"
title = "Shop"

[resources.customer.fields]
name = { type = "text", required = true }
owner = { type = "text" }
score = { type = "integer" }

[resources.order]
parent = "customer"
on_delete = "cascade"

[resources.order.fields]
text = { type = "text" }
note = { type = "text" }

[resources.visit]
id = "integer"
changes = "ids"

[resources.visit.fields]
owner = { type = "text" }

[roles.reader]
customer = ["get"]
order = { verbs = ["get"], hide = ["note"] }

[roles.own]
"/-/changes" = ["get"]
customer = { verbs = ["get"], where = "owner = $user" }
order = ["get"]
"#;

fn customer(name: &str, owner: &str) -> String {
    json!({"customer": {"name": name, "owner": owner, "score": 7}}).to_string()
}

fn order(text: &str) -> String {
    json!({"order": {"text": text, "note": "psst"}}).to_string()
}

/// The status and the detail of a refusal.
fn refusal(answer: &Answer) -> String {
    let detail = answer.json()["detail"].as_str().unwrap_or("-").to_owned();
    Masks::default().text(&format!("{} {}: {detail}", answer.status, answer.problem()))
}

/// The times of the changes of an item, in order.
fn times(server: &Server, path: &str) -> Vec<String> {
    let listed = server.get(&format!("/-/changes?subject={path}")).json();
    let time = |change: &Value| change["time"].as_str().unwrap().to_owned();
    listed["changes"].as_array().unwrap().iter().map(time).collect()
}

/// A microsecond before a time.
fn before(time: &str) -> String {
    let micros = time.parse::<Timestamp>().unwrap().as_microsecond();
    format!("{:.6}", Timestamp::from_microsecond(micros - 1).unwrap())
}

/// Sends a request without a body as a user.
fn ask(server: &Server, who: &Person, line: &str) -> Answer {
    server.request(line, &[("Authorization", &who.basic())], "")
}

on_every_backend! {
    fn history_version_is_the_item_as_it_was(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let path = server.create("/customers", customer("Ann", "ann"));
        let first = server.get(&path);
        assert_eq!(server.put(&path, customer("Anna", "ann")).status, 200);
        let old = server.get(&format!("{path}?version=1"));
        expect![[r#"
            HTTP/1.1 200 OK
            cache-control: private, no-cache
            content-type: application/json
            vary: Accept, Accept-Encoding
            x-content-type-options: nosniff
            etag: "1-<tag-1>"
            last-modified: <date>
            memento-datetime: <date>
            content-location: /customers/<id-1>?version=1
            link: </customers/<id-1>>; rel="original"
            link: </-/changes?subject=/customers/<id-1>>; rel="version-history"
            x-request-id: <request-1>
            content-security-policy: default-src 'none'; connect-src 'self'; frame-ancestors 'none'
            cross-origin-opener-policy: same-origin
            cross-origin-resource-policy: same-origin
            content-length: 193
            date: <date>

            {"customer":{"id":"<id-1>","name":"Ann","owner":"ann","score":7,"created_at":"<time-1>","updated_at":"<time-1>","version":1}}"#]]
        .assert_eq(&old.masked());
        assert_eq!((&old.body, old.header("ETag")), (&first.body, first.header("ETag")));
        assert_eq!(old.header("Memento-Datetime"), first.header("Last-Modified"));
        // HEAD is the same without the body.
        let head = server.request(&format!("HEAD {path}?version=1"), &[], "");
        let same = |answer: &Answer| {
            let mut headers = answer.headers.clone();
            headers.retain(|(name, _)| name != "x-request-id" && name != "date");
            (answer.status, headers)
        };
        assert_eq!((same(&head), head.body.len()), (same(&old), 0));
        // The current version is a version too, and some members can be selected.
        let now = server.get(&format!("{path}?version=2"));
        assert_eq!(now.body, server.get(&path).body);
        assert_eq!(now.header("Content-Location").unwrap(), format!("{path}?version=2"));
        let part = server.get(&format!("{path}?fields=name,version&version=1"));
        assert_eq!(part.json()["customer"], json!({"id": first.json()["customer"]["id"], "name": "Ann", "version": 1}));
        assert_eq!(part.header("Content-Location").unwrap(), format!("{path}?version=1&fields=id,name,version"));
        assert_eq!(server.get(part.header("Content-Location").unwrap()).body, part.body);
        assert_ne!(part.header("ETag"), old.header("ETag"));
    }

    fn history_as_of_is_the_item_at_a_time(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let path = server.create("/customers", customer("Ann", "ann"));
        for name in ["Bea", "Cem"] {
            assert_eq!(server.put(&path, customer(name, "ann")).status, 200);
        }
        assert_eq!(server.delete(&path).status, 204);
        let at = times(&server, &path);
        assert_eq!(at.len(), 4);
        let name = |time: &str| {
            let answer = server.get(&format!("{path}?as_of={time}"));
            assert_eq!(answer.status, 200, "{time}: {answer:?}");
            let body = answer.json()["customer"].clone();
            let version = body["version"].as_i64().unwrap();
            assert_eq!(answer.header("Content-Location").unwrap(), format!("{path}?version={version}"));
            body["name"].as_str().unwrap().to_owned()
        };
        for (time, expected) in [(0, "Ann"), (1, "Bea"), (2, "Cem")] {
            assert_eq!(name(&at[time]), expected);
        }
        for (time, expected) in [(1, "Ann"), (2, "Bea"), (3, "Cem")] {
            assert_eq!(name(&before(&at[time])), expected);
        }
        // Another time zone is the same time.
        let zone = at[1].replace('Z', "%2B00:00");
        assert_eq!(name(&zone), "Bea");
        for (time, expected) in [
            (before(&at[0]), "404 no-such-version: the customer was created later, at <time-1>"),
            ("2020-01-01T00:00:00Z".to_owned(), "404 no-such-version: the customer was created later, at <time-1>"),
            (at[3].clone(), "404 no-such-version: the customer was deleted before, at <time-1>"),
            ("2999-01-01T00:00:00Z".to_owned(), "404 no-such-version: the customer was deleted before, at <time-1>"),
        ] {
            assert_eq!(refusal(&server.get(&format!("{path}?as_of={time}"))), expected, "{time}");
        }
        let deleted = server.get(&format!("{path}?as_of={}", at[3])).json()["detail"].as_str().unwrap().to_owned();
        assert!(deleted.ends_with(&at[3]), "{deleted}");
        // A time in the future is now.
        let other = server.create("/customers", customer("Dan", "ann"));
        assert_eq!(server.get(&format!("{other}?as_of=2999-01-01T00:00:00Z")).body, server.get(&other).body);
    }

    fn history_of_a_deleted_item_can_be_read(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let path = server.create("/customers", customer("Ann", "ann"));
        let child = server.create(&format!("{path}/orders"), order("tea"));
        assert_eq!(server.put(&path, customer("Bea", "ann")).status, 200);
        assert_eq!(server.delete(&path).status, 204);
        assert_eq!(server.get(&path).problem(), "not-found");
        let name = |query: &str| server.get(&format!("{path}?{query}")).json()["customer"]["name"].clone();
        assert_eq!((name("version=1"), name("version=2")), (json!("Ann"), json!("Bea")));
        assert_eq!(server.get(&format!("{child}?version=1")).json()["order"]["text"], "tea");
        for (path, query, expected) in [
            (&path, "version=3", "404 no-such-version: the last version of the customer is 2"),
            (&child, "version=2", "404 no-such-version: the last version of the order is 1"),
        ] {
            assert_eq!(refusal(&server.get(&format!("{path}?{query}"))), expected);
        }
        // Under another parent there is no such item, and never was.
        let other = server.create("/customers", customer("Bob", "bob"));
        let id = child.rsplit('/').next().unwrap();
        for query in ["version=1", "as_of=2999-01-01T00:00:00Z", "as_of=2020-01-01T00:00:00Z"] {
            assert_eq!(refusal(&server.get(&format!("{other}/orders/{id}?{query}"))), "404 not-found: -");
        }
    }

    fn history_queries_that_cannot_be_used_are_refused(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let path = server.create("/customers", customer("Ann", "ann"));
        for (query, detail) in [
            ("version=0", "version: expected the number of a version, from 1, got \"0\""),
            ("version=", "version: expected the number of a version, from 1, got \"\""),
            ("version=-1", "version: expected the number of a version, from 1, got \"-1\""),
            ("version=%2B1", "version: expected the number of a version, from 1, got \"+1\""),
            ("version=9223372036854775808", "version: expected the number of a version, from 1, got \"9223372036854775808\""),
            ("version=1&version=1", "version: given twice"),
            ("version=1&as_of=2026-11-15T02:28:14Z", "expected version or as_of, got both"),
            ("as_of=2026-11-15T02:28:14Z&version=1", "expected version or as_of, got both"),
            ("as_of=2026-11-15", "as_of: expected a timestamp such as \"2026-11-15T02:28:14Z\", got \"2026-11-15\""),
            ("version=1&limit=1", "limit: no such parameter here (there are fields, version, as_of, expand)"),
            ("version=1&fields=naem", "fields: naem: no such field here; did you mean \"name\"?"),
        ] {
            let answer = server.get(&format!("{path}?{query}"));
            assert_eq!((answer.status, answer.json()["detail"].as_str().unwrap()), (400, detail), "{query}");
        }
        for method in ["PUT", "PATCH", "DELETE"] {
            let answer = server.request(&format!("{method} {path}?version=1"), &[], customer("Bea", "ann"));
            assert_eq!((answer.status, answer.problem().as_str()), (400, "bad-query"), "{method}");
        }
        let events = server.request(&format!("GET {path}?version=1"), &[("Accept", "text/event-stream")], "");
        assert_eq!(events.status, 400);
        assert_eq!(server.get("/customers?version=1").status, 400);
        assert_eq!(server.get(&format!("{path}?version=9223372036854775807")).status, 404);
        for path in ["/customers/x", "/customers/01890a5d-ac96-774b-bcce-b302099a8057"] {
            for query in ["version=1", "as_of=2026-11-15T02:28:14Z"] {
                assert_eq!(refusal(&server.get(&format!("{path}?{query}"))), "404 not-found: -");
            }
        }
        let posted = server.post(&format!("{path}?version=1"), "{}");
        assert_eq!((posted.status, posted.header("Allow")), (405, Some("GET, HEAD, PUT, PATCH, DELETE, OPTIONS")));
    }

    fn history_conditional_requests_work_as_for_items(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let path = server.create("/customers", customer("Ann", "ann"));
        let tag = server.get(&path).header("ETag").unwrap().to_owned();
        assert_eq!(server.put(&path, customer("Anna", "ann")).status, 200);
        let newer = server.get(&path).header("ETag").unwrap().to_owned();
        let ask = |name: &str, value: &str| {
            server.request(&format!("GET {path}?version=1"), &[(name, value)], "")
        };
        let unchanged = ask("If-None-Match", &tag);
        assert_eq!((unchanged.status, unchanged.header("ETag"), unchanged.body.len()), (304, Some(&*tag), 0));
        assert_eq!(unchanged.header("Content-Location").unwrap(), format!("{path}?version=1"));
        assert_eq!(ask("If-None-Match", &newer).status, 200);
        assert_eq!(ask("If-Match", &tag).status, 200);
        let failed = ask("If-Match", &newer);
        assert_eq!((failed.status, failed.header("ETag"), &failed.json()["detail"]), (412, None, &Value::Null));
        let modified = server.get(&format!("{path}?version=1")).header("Last-Modified").unwrap().to_owned();
        assert_eq!(ask("If-Modified-Since", &modified).status, 304);
    }

    fn history_that_was_swept_is_gone(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let path = server.create("/customers", customer("Ann", "ann"));
        let created = times(&server, &path).remove(0);
        for name in ["Bea", "Cem", "Dan"] {
            assert_eq!(server.put(&path, customer(name, "ann")).status, 200);
        }
        let unchanged = server.create("/customers", customer("Eve", "ann"));
        let folder = server.stop();
        run_sql(backend, folder.path(), "UPDATE nouns_changes SET time = '2020-01-01T00:00:00.000000Z' WHERE sequence <= 2");
        let server = Setup::new(backend).model(MODEL).start_in(folder);
        wait_until("the old entries are gone", || {
            (server.get("/-/changes").header("Changes-Oldest") == Some("3")).then_some(())
        });
        let oldest = "410 version-gone: the oldest version that is kept is 2, of <time-1>";
        assert_eq!(refusal(&server.get(&format!("{path}?version=1"))), oldest);
        assert_eq!(refusal(&server.get(&format!("{path}?as_of={created}"))), oldest);
        let name = |query: &str| server.get(&format!("{path}?{query}")).json()["customer"]["name"].clone();
        assert_eq!((name("version=2"), name("version=3"), name("version=4")), (json!("Bea"), json!("Cem"), json!("Dan")));
        assert_eq!(refusal(&server.get(&format!("{path}?version=5"))), "404 no-such-version: the last version of the customer is 4");
        // Nothing is left of the log.
        let folder = server.stop();
        run_sql(backend, folder.path(), "DELETE FROM nouns_changes");
        let server = Setup::new(backend).model(MODEL).start_in(folder);
        let name = |query: &str| server.get(&format!("{path}?{query}")).json()["customer"]["name"].clone();
        assert_eq!(name("version=4"), "Dan");
        let oldest = "410 version-gone: the oldest version that is kept is 4, of <time-1>";
        assert_eq!(refusal(&server.get(&format!("{path}?version=3"))), oldest);
        assert_eq!(refusal(&server.get(&format!("{path}?as_of={created}"))), oldest);
        assert_eq!(refusal(&server.get(&format!("{path}?version=5"))), "404 no-such-version: the last version of the customer is 4");
        assert_eq!(server.get(&format!("{unchanged}?version=1")).body, server.get(&unchanged).body);
        assert_eq!(server.get(&format!("{unchanged}?as_of=2999-01-01T00:00:00Z")).status, 200);
    }

    fn history_shows_what_the_callers_roles_show(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).with_authentication().start();
        let admin = server.admin();
        let send = |line: &str, body: &str| {
            server.request(line, &[("Authorization", &admin.basic())], body)
        };
        let create = |path: &str, body: &str| {
            send(&format!("POST {path}"), body).header("Location").unwrap().to_owned()
        };
        let [reader, own] = ["reader", "own"].map(|role| {
            let person = Person::new(&format!("{role}-ann"), "one for each role");
            server.add_user(&person, &[role]);
            person
        });
        // Version 1 is bob's, version 2 own-ann's, version 3 bob's again.
        let path = create("/customers", &customer("Ann", "bob"));
        let tea = create(&format!("{path}/orders"), &order("tea"));
        assert_eq!(send(&format!("PUT {tea}"), &order("gin")).status, 200);
        assert_eq!(send(&format!("PUT {path}"), &customer("Ann", "own-ann")).status, 200);
        let rum = create(&format!("{path}/orders"), &order("rum"));
        assert_eq!(send(&format!("PUT {rum}"), &order("ale")).status, 200);
        let log = ask(&server, &admin, &format!("GET /-/changes?subject={rum}")).json();
        let bought = log["changes"][0]["time"].as_str().unwrap().to_owned();
        assert_eq!(send(&format!("PUT {path}"), &customer("Ann", "bob")).status, 200);
        assert_eq!(send(&format!("PUT {rum}"), &order("gin")).status, 200);

        let absent = refusal(&ask(&server, &own, "GET /customers/01890a5d-ac96-774b-bcce-b302099a8057?version=1"));
        assert_eq!(absent, "404 not-found: -");
        for (line, status) in [
            (format!("{path}?version=1"), 404),
            (format!("{path}?version=2"), 200),
            (format!("{path}?version=3"), 404),
            (format!("{path}?version=4"), 404),
            (format!("{path}?as_of={bought}"), 200),
            (format!("{path}?as_of=2020-01-01T00:00:00Z"), 404),
            (format!("{path}?as_of=2999-01-01T00:00:00Z"), 404),
            // Its own values do not decide: the order belongs to the customer as it was.
            (format!("{tea}?version=1"), 404),
            (format!("{tea}?version=2"), 404),
            (format!("{rum}?version=1"), 200),
            (format!("{rum}?version=2"), 404),
            (format!("{rum}?version=3"), 404),
            (format!("{rum}?as_of={bought}"), 200),
            (format!("{rum}?as_of=2999-01-01T00:00:00Z"), 404),
        ] {
            let answer = ask(&server, &own, &format!("GET {line}"));
            assert_eq!(answer.status, status, "{line}: {answer:?}");
            if status == 404 {
                assert_eq!(refusal(&answer), absent, "{line}");
            }
            // No row filter, but no grant for the log either.
            let all = ask(&server, &reader, &format!("GET {line}"));
            assert!(!all.text().contains("psst") && !all.text().contains("note"), "{line}: {all:?}");
            let is_real = !line.contains("version=4") && !line.contains("as_of=2020");
            assert_eq!(all.status, if is_real { 200 } else { 404 }, "{line}");
            assert!(!format!("{all:?}").contains("version-history"));
        }
        assert_eq!(refusal(&ask(&server, &reader, &format!("GET {path}?version=4"))), "404 no-such-version: the last version of the customer is 3");
        assert_eq!(ask(&server, &own, &format!("GET {path}?version=2")).all("Link").len(), 2);
        assert_eq!(server.get(&format!("{path}?version=1")).status, 401);
        // After its deletion too; what is shown of an order is the customer's state at the end of its version.
        assert_eq!(send(&format!("DELETE {path}"), "").status, 204);
        for (line, status) in [
            (format!("{path}?version=2"), 200),
            (format!("{path}?version=3"), 404),
            (format!("{rum}?version=1"), 200),
            (format!("{rum}?version=3"), 404),
            (format!("{rum}?as_of={bought}"), 200),
        ] {
            let answer = ask(&server, &own, &format!("GET {line}"));
            assert_eq!(answer.status, status, "{line}: {answer:?}");
        }
    }

    fn history_of_a_user_has_no_password(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).with_authentication().start();
        let admin = server.admin();
        let ann = Person::new("ann", "a password of ann");
        let path = server.add_user(&ann, &["reader"]);
        let body = r#"{"user":{"password":"another password of ann"}}"#;
        let answer = server.request(&format!("PATCH {path}"), &[("Authorization", &admin.basic())], body);
        assert_eq!(answer.status, 200, "{answer:?}");
        for version in 1..=2 {
            let old = ask(&server, &admin, &format!("GET {path}?version={version}"));
            let user = &old.json()["user"];
            assert_eq!((old.status, &user["name"], &user["version"]), (200, &json!("ann"), &json!(version)));
            assert!(!old.text().contains("password"), "{old:?}");
        }
        assert_eq!(ask(&server, &ann, &format!("GET {path}?version=1")).status, 401);
    }

    fn history_of_a_resource_without_values_says_so(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let path = server.create("/visits", r#"{"visit":{"owner":"ann"}}"#);
        assert_eq!(server.get(&path).header("Link"), None);
        for query in ["version=1", "version=7", "as_of=2999-01-01T00:00:00Z"] {
            assert_eq!(refusal(&server.get(&format!("{path}?{query}"))), "404 no-history: -");
        }
        assert_eq!(refusal(&server.get("/visits/9?version=1")), "404 no-history: -");
        // Once the model declares values, the entries from before still have none.
        assert_eq!(server.put(&path, r#"{"visit":{"owner":"bob"}}"#).status, 200);
        let folder = server.stop();
        let model = MODEL.replace("changes = \"ids\"", "");
        let server = Setup::new(backend).model(&model).start_in(folder);
        assert_eq!(refusal(&server.get(&format!("{path}?version=1"))), "404 no-history: -");
        assert_eq!(refusal(&server.get(&format!("{path}?as_of=2020-01-01T00:00:00Z"))), "404 no-history: -");
        assert_eq!(server.get(&format!("{path}?version=2")).json()["visit"]["owner"], "bob");
        assert_eq!(server.put(&path, r#"{"visit":{"owner":"cem"}}"#).status, 200);
        assert_eq!(server.get(&format!("{path}?version=2")).json()["visit"]["owner"], "bob");
        assert_eq!(refusal(&server.get(&format!("{path}?version=1"))), "404 no-history: -");
    }

    /// A field that an entry does not have takes its default, and a value that its field cannot have is as it was.
    fn history_from_an_older_model_is_readable(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let path = server.create("/customers", customer("Ann", "ann"));
        assert_eq!(server.put(&path, customer("Bea", "ann")).status, 200);
        assert_eq!(server.delete(&path).status, 204);
        // A resource without items may change in any way.
        let model = MODEL.replace(
            "score = { type = \"integer\" }",
            "score = { type = \"list\", of = { type = \"text\" } }\ngrade = { type = \"integer\", default = 3 }\nhint = { type = \"text\" }",
        );
        let server = Setup::new(backend).model(&model).start_in(server.stop());
        let old = server.get(&format!("{path}?version=2"));
        let item = &old.json()["customer"];
        assert_eq!((&item["name"], &item["score"], &item["grade"], &item["hint"]), (&json!("Bea"), &json!(7), &json!(3), &Value::Null));
        assert_eq!(server.get(&format!("{path}?version=1&fields=score")).json()["customer"]["score"], 7);
    }

    /// A row filter that reads such a value shows nothing, and one that does not read it works.
    fn history_with_unreadable_values_fails_closed(backend: Backend) {
        let model = MODEL.replace("[roles.own]", "[roles.few]\ncustomer = { verbs = [\"get\"], where = \"score != 1\" }\n\n[roles.own]");
        let server = Setup::new(backend).model(&model).with_authentication().start();
        let admin = server.admin();
        let send = |line: &str, body: &str| {
            server.request(line, &[("Authorization", &admin.basic())], body)
        };
        let [few, own] = ["few", "own"].map(|role| {
            let person = Person::new(&format!("{role}-ann"), "one for each role");
            server.add_user(&person, &[role]);
            person
        });
        let made = send("POST /customers", &customer("Ann", "own-ann"));
        let path = made.header("Location").unwrap();
        assert_eq!(send(&format!("PUT {path}"), &customer("Bea", "own-ann")).status, 200);
        let old = format!("GET {path}?version=1");
        for who in [&few, &own] {
            assert_eq!(ask(&server, who, &old).status, 200);
        }
        run_sql(backend, server.folder(), "UPDATE nouns_changes SET before = replace(before, '\"score\":7', '\"score\":\"seven\"') WHERE before IS NOT NULL");
        assert_eq!(refusal(&ask(&server, &few, &old)), "404 not-found: -");
        assert_eq!(ask(&server, &own, &old).json()["customer"]["score"], "seven");
    }

    fn history_link_is_on_items_for_those_who_may_read_the_log(backend: Backend) {
        let model = MODEL.replace("title = \"Shop\"", "title = \"Shop\"\n[server]\nbase_path = \"/shop\"");
        let server = Setup::new(backend).model(&model).with_authentication().start();
        let admin = server.admin();
        let send = |line: &str, body: &str| {
            server.request(line, &[("Authorization", &admin.basic())], body)
        };
        let [reader, own] = ["reader", "own"].map(|role| {
            let person = Person::new(&format!("{role}-ann"), "one for each role");
            let user = json!({"user": {"name": person.name, "password": person.password, "roles": [role]}});
            assert_eq!(send("POST /shop/-/users", &user.to_string()).status, 201);
            person
        });
        let made = send("POST /shop/customers", &customer("Ann", "own-ann"));
        assert_eq!(made.header("Link"), None);
        let path = made.header("Location").unwrap().to_owned();
        let made = send(&format!("POST {path}/orders"), &order("tea"));
        let child = made.header("Location").unwrap().to_owned();
        for path in [&path, &child] {
            let link = format!("</shop/-/changes?subject={path}>; rel=\"version-history\"");
            for method in ["GET", "HEAD"] {
                let line = format!("{method} {path}");
                assert_eq!(send(&line, "").header("Link"), Some(&*link));
                assert_eq!(ask(&server, &own, &line).header("Link"), Some(&*link));
                assert_eq!(ask(&server, &reader, &line).header("Link"), None);
            }
            let url = link.trim_start_matches('<').split_once('>').unwrap().0;
            let log = ask(&server, &own, &format!("GET {url}"));
            assert_eq!(log.json()["changes"][0]["subject"], **path);
        }
        assert_eq!(send("GET /shop/customers", "").header("Link"), None);
    }

    fn history_version_is_restored_by_put(backend: Backend) {
        let model = MODEL.replace("[resources.customer.fields]", "[resources.customer]\nrequire_if_match = true\n[resources.customer.fields]");
        let server = Setup::new(backend).model(&model).start();
        let path = server.create("/customers", customer("Ann", "ann"));
        let tag = || server.get(&path).header("ETag").unwrap().to_owned();
        let first = tag();
        let put = |tag: &str, body: &str| server.request(&format!("PUT {path}"), &[("If-Match", tag)], body);
        assert_eq!(put(&first, r#"{"customer":{"name":"Oops"}}"#).status, 200);
        let old = server.get(&format!("{path}?version=1"));
        // The tag of the old version does not overwrite a newer one.
        assert_eq!(put(old.header("ETag").unwrap(), old.text()).status, 412);
        assert_eq!(put(&tag(), old.text()).status, 200);
        let (now, old) = (server.get(&path).json(), old.json());
        for name in ["id", "name", "owner", "score", "created_at"] {
            assert_eq!(now["customer"][name], old["customer"][name], "{name}");
        }
        assert_eq!(now["customer"]["version"], 3);
        assert_eq!(server.get(&format!("{path}?version=2")).json()["customer"]["name"], "Oops");
    }
}
