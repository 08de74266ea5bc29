//! `/-/changes`: the change log as a read-only resource.

use expect_test::expect;
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
secret_note = { type = "text" }

[resources.visit]
id = "integer"
changes = "ids"

[resources.visit.fields]
owner = { type = "text" }

[roles.reader]
"/-/changes" = ["get"]
customer = ["get"]
order = { verbs = ["get"], hide = ["secret_note"] }

[roles.own]
"/-/changes" = ["get"]
customer = { verbs = ["get"], where = "owner = $user", hide = ["score"] }
order = ["get"]
visit = { verbs = ["get"], where = "owner = $user" }

[roles.without]
"*" = "*"
"#;

fn customer(name: &str, owner: &str) -> String {
    json!({"customer": {"name": name, "owner": owner, "score": 7}}).to_string()
}

fn changes(answer: &Answer) -> Vec<Value> {
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["changes"].as_array().unwrap().clone()
}

/// The numbers and kinds of the listed changes.
fn short(answer: &Answer) -> String {
    let line =
        |change: &Value| format!("{} {}", change["sequence"], change["kind"].as_str().unwrap());
    changes(answer).iter().map(line).collect::<Vec<_>>().join(", ")
}

fn next(answer: &Answer) -> Option<String> {
    let link = answer.header("Link")?;
    let (url, rel) = link.strip_prefix('<')?.split_once('>')?;
    assert_eq!(rel, "; rel=\"next\"");
    let cursor = answer.json()["page"]["next"].as_str().unwrap().to_owned();
    assert!(url.ends_with(&format!("cursor={cursor}")), "{url}");
    Some(url.to_owned())
}

/// Six changes: a customer (1), its order (2), an update of the customer (3), another customer (4), and the
/// deletion of the first with its order (5, 6).
fn write_six(server: &Server) -> [String; 3] {
    let ann = server.create("/customers", customer("Ann", "ann"));
    let order = server.create(&format!("{ann}/orders"), r#"{"order":{"text":"tea"}}"#);
    assert_eq!(server.put(&ann, customer("Anna", "ann")).status, 200);
    let bob = server.create("/customers", customer("Bob", "bob"));
    assert_eq!(server.delete(&ann).status, 204);
    [ann, order, bob]
}

on_every_backend! {
    fn changes_list_has_every_member_in_order(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let ann = server.create("/customers", customer("Ann", "ann"));
        assert_eq!(server.put(&ann, customer("Anna", "ann")).status, 200);
        assert_eq!(server.delete(&ann).status, 204);
        expect![[r#"
            HTTP/1.1 200 OK
            cache-control: private, no-cache
            content-type: application/json
            vary: Accept, Accept-Encoding
            x-content-type-options: nosniff
            changes-oldest: 1
            changes-position: 3
            x-request-id: <request-1>
            content-security-policy: default-src 'none'; connect-src 'self'; frame-ancestors 'none'
            cross-origin-opener-policy: same-origin
            cross-origin-resource-policy: same-origin
            content-length: 1661
            date: <date>

            {"changes":[{"sequence":1,"resource":"customer","id":"<id-1>","subject":"/customers/<id-1>","kind":"created","time":"<time-1>","actor":"open","request_id":"<request-2>","changed":null,"before":null,"after":{"id":"<id-1>","name":"Ann","owner":"ann","score":7,"created_at":"<time-1>","updated_at":"<time-1>","version":1}},{"sequence":2,"resource":"customer","id":"<id-1>","subject":"/customers/<id-1>","kind":"updated","time":"<time-2>","actor":"open","request_id":"<request-3>","changed":["name"],"before":{"id":"<id-1>","name":"Ann","owner":"ann","score":7,"created_at":"<time-1>","updated_at":"<time-1>","version":1},"after":{"id":"<id-1>","name":"Anna","owner":"ann","score":7,"created_at":"<time-1>","updated_at":"<time-2>","version":2}},{"sequence":3,"resource":"customer","id":"<id-1>","subject":"/customers/<id-1>","kind":"deleted","time":"<time-3>","actor":"open","request_id":"<request-4>","changed":null,"before":{"id":"<id-1>","name":"Anna","owner":"ann","score":7,"created_at":"<time-1>","updated_at":"<time-2>","version":2},"after":null}],"page":{"limit":50,"next":null,"oldest":1,"position":3}}"#]]
        .assert_eq(&server.get("/-/changes").masked());
        let head = server.request("HEAD /-/changes", &[], "");
        assert_eq!((head.status, head.header("Changes-Position"), head.body.len()), (200, Some("3"), 0));
        assert_eq!(server.get("/-/changes").header("ETag"), None);
        let unmodified = server.request("GET /-/changes", &[("If-None-Match", "\"3\"")], "");
        assert_eq!(unmodified.status, 200);
        let posted = server.post("/-/changes", "{}");
        assert_eq!((posted.status, posted.header("Allow")), (405, Some("GET, HEAD, OPTIONS")));
    }

    fn changes_list_of_an_empty_log_is_empty(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let empty = server.get("/-/changes");
        assert_eq!(empty.json(), json!({"changes": [], "page": {"limit": 50, "next": null, "oldest": null, "position": 0}}));
        assert_eq!((empty.header("Changes-Oldest"), empty.header("Changes-Position")), (None, Some("0")));
        assert_eq!(server.get("/-/changes?since=1").problem(), "position-not-reached");
    }

    fn changes_filters_select_entries(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let [ann, order, bob] = write_six(&server);
        let list = |query: &str| short(&server.get(&format!("/-/changes{query}")));
        let all = server.get("/-/changes");
        assert_eq!(short(&all), "1 created, 2 created, 3 updated, 4 created, 5 deleted, 6 deleted");
        let time = |at: usize| changes(&all)[at]["time"].as_str().unwrap().to_owned();
        for (query, expected) in [
            ("?resource=order", "2 created, 5 deleted"),
            ("?resource:in=order,visit", "2 created, 5 deleted"),
            ("?resource=visit", ""),
            ("?resource=-/user", ""),
            ("?kind=updated", "3 updated"),
            ("?kind:in=updated,deleted&resource=customer", "3 updated, 6 deleted"),
            ("?kind=left", ""),
            ("?actor=open&since=4", "5 deleted, 6 deleted"),
            ("?actor:in=ann,bob", ""),
            ("?since=0&limit=500", "1 created, 2 created, 3 updated, 4 created, 5 deleted, 6 deleted"),
            ("?since=6", ""),
            ("?sort=-sequence&limit=500", "6 deleted, 5 deleted, 4 created, 3 updated, 2 created, 1 created"),
            ("?sort=-sequence&since=4", "6 deleted, 5 deleted"),
            (&format!("?subject={ann}"), "1 created, 3 updated, 6 deleted"),
            (&format!("?subject={ann}&sort=-sequence"), "6 deleted, 3 updated, 1 created"),
            (&format!("?subject={ann}&since=1"), "3 updated, 6 deleted"),
            (&format!("?subject={ann}&kind=created"), "1 created"),
            (&format!("?subject={order}"), "2 created, 5 deleted"),
            (&format!("?subject={bob}"), "4 created"),
            (&format!("?subject={bob}&sort=-sequence"), "4 created"),
            (&format!("?subject={ann}/orders/01890a5d-ac96-774b-bcce-b302099a8057"), ""),
            (&format!("?time:gte={}&time:lte={}", time(1), time(3)), "2 created, 3 updated, 4 created"),
            (&format!("?time:gt={}&time:lt={}", time(1), time(3)), "3 updated"),
            (&format!("?time:gt={}", time(5)), ""),
            ("?time:lt=2020-01-01T00:00:00Z", ""),
            ("?time:gt=2020-01-01T00:00:00Z&kind=updated", "3 updated"),
        ] {
            assert_eq!(list(query), expected, "{query}");
        }
    }

    fn changes_queries_that_cannot_be_used_are_refused(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        for (query, detail) in [
            ("since=x", "since: expected the number of a change, or 0, got \"x\""),
            ("since=-1", "since: expected the number of a change, or 0, got \"-1\""),
            ("since=", "since: expected the number of a change, or 0, got \"\""),
            ("since=0&since=1", "since: given twice"),
            ("resource=ordr", "resource: expected the name of a resource, got \"ordr\"; did you mean \"order\"?"),
            ("kind=moved", "kind: expected one of created, updated, deleted, left, got \"moved\""),
            ("kind:ne=left", "kind:ne: no such operator here (there are eq, in)"),
            ("time=2020-01-01T00:00:00Z", "time: no such operator here (there are gt, gte, lt, lte)"),
            ("time:gt=now", "time:gt: expected a timestamp such as \"2026-11-15T02:28:14Z\", got \"now\""),
            ("actor=%00", "actor: expected a text without the NUL character"),
            ("actor:in=ann,%00", "actor:in: expected a text without the NUL character"),
            ("subject=/customers", "subject: expected the path of an item, got \"/customers\""),
            ("subject=/nothing/7", "subject: expected the path of an item, got \"/nothing/7\""),
            ("sort=time", "sort: expected sequence or -sequence, got \"time\""),
            ("limit=0", "limit: expected a whole number from 1 to 500, got \"0\""),
            ("resorce=order", "resorce: no such parameter here (there are since, limit, cursor, sort, wait, resource, subject, kind, actor, time); did you mean \"resource\"?"),
        ] {
            let answer = server.get(&format!("/-/changes?{query}"));
            assert_eq!((answer.status, answer.problem().as_str()), (400, "bad-query"), "{query}");
            assert_eq!(answer.json()["detail"], detail, "{query}");
        }
        assert_eq!(server.get("/-/changes?cursor=abc").problem(), "bad-cursor");
    }

    fn changes_pages_continue_by_cursor(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let [ann, ..] = write_six(&server);
        for (query, expected) in [
            ("limit=2".to_owned(), vec!["1 created, 2 created", "3 updated, 4 created", "5 deleted, 6 deleted"]),
            ("limit=4&sort=-sequence".to_owned(), vec!["6 deleted, 5 deleted, 4 created, 3 updated", "2 created, 1 created"]),
            ("limit=2&since=1".to_owned(), vec!["2 created, 3 updated", "4 created, 5 deleted", "6 deleted"]),
            (format!("limit=1&subject={ann}"), vec!["1 created", "3 updated", "6 deleted"]),
            (format!("limit=1&sort=-sequence&subject={ann}"), vec!["6 deleted", "3 updated", "1 created"]),
        ] {
            let mut pages = vec![server.get(&format!("/-/changes?{query}"))];
            while let Some(url) = next(pages.last().unwrap()) {
                pages.push(server.get(&url));
                assert!(pages.len() < 10, "{query}");
            }
            let mut shown: Vec<String> = pages.iter().map(short).collect();
            // There may be more behind a full page, until it was looked for.
            shown.retain(|page| !page.is_empty());
            assert_eq!(shown, expected, "{query}");
        }
        // A cursor belongs to one list; the position continues a list in time.
        let page = server.get("/-/changes?limit=2");
        assert_eq!((page.header("Changes-Position"), page.json()["page"]["position"].as_i64()), (Some("2"), Some(2)));
        let cursor = page.json()["page"]["next"].as_str().unwrap().to_owned();
        assert_eq!(short(&server.get(&format!("/-/changes?limit=3&cursor={cursor}"))), "3 updated, 4 created, 5 deleted");
        assert_eq!(server.get(&format!("/-/changes?kind=created&cursor={cursor}")).problem(), "bad-cursor");
        let end = server.get("/-/changes?since=2&resource=visit");
        assert_eq!((short(&end).as_str(), end.header("Changes-Position")), ("", Some("6")));
        assert_eq!(server.get("/-/changes?limit=2&sort=-sequence").header("Changes-Position"), Some("6"));
    }

    /// A page examines 20,000 numbers: one that finds nothing in them is empty and has a next one.
    fn changes_page_of_a_rare_filter_is_short_and_has_a_next(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        server.create("/customers", customer("Ann", "ann"));
        run_sql(backend, server.folder(), &many_entries(backend, 45_000));
        let mut url = "/-/changes?actor=rare".to_owned();
        let mut pages = Vec::new();
        loop {
            let page = server.get(&url);
            pages.push((short(&page), page.header("Changes-Position").unwrap().to_owned()));
            assert!(pages.len() < 10);
            match next(&page) {
                Some(next) => url = next,
                None => break,
            }
        }
        let shown: Vec<(&str, &str)> = pages.iter().map(|(list, at)| (&**list, &**at)).collect();
        assert_eq!(shown, [("", "20000"), ("30000 created", "40000"), ("", "45001")]);
        // By time, the same entries are found without reading the others.
        let found = server.get("/-/changes?actor=rare&time:gte=2031-01-01T08:00:00Z&time:lt=2031-01-01T09:00:00Z");
        assert_eq!(short(&found), "30000 created");
    }

    fn changes_positions_that_were_swept_or_are_not_reached_are_refused(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        write_six(&server);
        let folder = server.stop();
        let old = "UPDATE nouns_changes SET time = '2020-01-01T00:00:00.000000Z' WHERE sequence <= 4";
        run_sql(backend, folder.path(), old);
        let server = Setup::new(backend).model(MODEL).start_in(folder);
        wait_until("the old entries are gone", || {
            (server.get("/-/changes").header("Changes-Oldest") == Some("5")).then_some(())
        });
        for since in [1, 3] {
            let gone = server.get(&format!("/-/changes?since={since}"));
            assert_eq!((gone.status, gone.problem().as_str()), (410, "position-gone"), "{since}");
            assert_eq!(gone.header("Changes-Oldest"), Some("5"));
            assert_eq!(gone.json()["detail"], "the oldest change that is kept is 5");
        }
        for (since, expected) in [(0, "5 deleted, 6 deleted"), (4, "5 deleted, 6 deleted"), (5, "6 deleted"), (6, "")] {
            assert_eq!(short(&server.get(&format!("/-/changes?since={since}"))), expected, "{since}");
        }
        let ahead = server.get("/-/changes?since=7");
        assert_eq!((ahead.status, ahead.problem().as_str()), (400, "position-not-reached"));
        assert_eq!(ahead.json()["detail"], "expected a position up to 6, got a larger one");
        if backend == Backend::Postgres {
            // A number that a rolled-back transaction has drawn is reached, and has no entry.
            run_sql(backend, server.folder(), "SELECT nextval('nouns_changes_sequence')");
            assert_eq!(short(&server.get("/-/changes?since=7")), "");
            assert_eq!(server.get("/-/changes?since=8").status, 400);
        }
        // The mark of what was swept stays after a restart.
        let server = server.restart();
        assert_eq!(server.get("/-/changes?since=3").status, 410);
        assert_eq!(server.get("/-/changes?since=4").status, 200);
    }

    /// What a page examines begins with the oldest entry, however many were swept before it.
    fn changes_after_a_long_history_begin_with_the_oldest_that_is_kept(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        write_six(&server);
        let folder = server.stop();
        run_sql(backend, folder.path(), "UPDATE nouns_changes SET sequence = sequence + 50000; DELETE FROM nouns_system WHERE name = 'changes_swept'");
        if backend == Backend::Postgres {
            run_sql(backend, folder.path(), "SELECT setval('nouns_changes_sequence', 50006)");
        }
        let server = Setup::new(backend).model(MODEL).start_in(folder);
        for query in ["", "?since=0", "?time:lt=2999-01-01T00:00:00Z", "?sort=-sequence"] {
            let page = server.get(&format!("/-/changes{query}"));
            assert_eq!((changes(&page).len(), next(&page)), (6, None), "{query}");
            assert_eq!(page.header("Changes-Position"), Some("50006"), "{query}");
        }
        let missed = server.request("GET /customers", &[("Accept", "text/event-stream"), ("Last-Event-ID", "0")], "");
        assert_eq!((missed.status, missed.header("Changes-Oldest")), (410, Some("50001")));
    }

    /// The entry that created an item is found in another way than its others, and listed once.
    fn changes_of_an_item_newest_first_end_with_its_creation(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let path = server.create("/customers", customer("Ann", "ann"));
        for owner in ["bob", "eve"] {
            assert_eq!(server.put(&path, customer("Ann", owner)).status, 200);
        }
        let list = |query: &str| server.get(&format!("/-/changes?subject={path}&sort=-sequence{query}"));
        assert_eq!(short(&list("")), "3 updated, 2 updated, 1 created");
        assert_eq!(short(&list("&since=1")), "3 updated, 2 updated");
        let first = list("&limit=2");
        assert_eq!(short(&first), "3 updated, 2 updated");
        assert_eq!(server.put(&path, customer("Ann", "ann")).status, 200);
        let second = server.get(&next(&first).unwrap());
        assert_eq!((short(&second).as_str(), next(&second)), ("1 created", None));
        // The change in between is in neither page.
        assert_eq!(second.header("Changes-Position"), Some("1"));
    }

    /// A database of an earlier version does not know what was swept.
    fn changes_positions_of_an_older_database_are_refused(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        write_six(&server);
        let folder = server.stop();
        run_sql(backend, folder.path(), "DELETE FROM nouns_changes WHERE sequence <= 4; DELETE FROM nouns_system WHERE name = 'changes_swept'; DROP INDEX nouns_changes_item");
        let server = Setup::new(backend).model(MODEL).start_in(folder);
        assert_eq!(server.get("/-/changes?since=3").problem(), "position-gone");
        assert_eq!(server.get("/-/changes?since=4").status, 200);
        let index = match backend {
            Backend::Sqlite => "SELECT count(*) FROM sqlite_master WHERE name = 'nouns_changes_item'",
            Backend::Postgres => "SELECT count(*) FROM pg_class WHERE relname = 'nouns_changes_item'",
        };
        assert_eq!(run_sql(backend, server.folder(), index).trim(), "1");
    }

    fn changes_are_shown_as_far_as_the_callers_grants_go(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).with_authentication().start();
        let admin = server.admin().basic();
        let as_admin = |line: &str, body: &str| server.request(line, &[("Authorization", &admin)], body);
        let create = |path: &str, body: &str| {
            let answer = as_admin(&format!("POST {path}"), body);
            assert_eq!(answer.status, 201, "{answer:?}");
            answer.header("Location").unwrap().to_owned()
        };
        let people = ["reader", "own", "without"].map(|role| {
            let person = Person::new("ann", "one for each role");
            let person = Person { name: format!("{role}-{}", person.name), ..person };
            server.add_user(&person, &[role]);
            person
        });
        let [reader, own, without] = &people;
        let mine = create("/customers", &customer("Ann", "own-ann"));
        let other = create("/customers", &customer("Bob", "bob"));
        create(&format!("{mine}/orders"), r#"{"order":{"text":"tea","secret_note":"psst"}}"#);
        create(&format!("{other}/orders"), r#"{"order":{"text":"rum","secret_note":"psst"}}"#);
        create("/visits", r#"{"visit":{"owner":"own-ann"}}"#);
        assert_eq!(as_admin(&format!("PUT {mine}"), &customer("Ann", "bob")).status, 200);
        create(&format!("{mine}/orders"), r#"{"order":{"text":"gin"}}"#);
        assert_eq!(as_admin(&format!("PUT {other}"), &customer("Bob", "own-ann")).status, 200);
        assert_eq!(as_admin(&format!("DELETE {other}"), "").status, 204);
        let get = |who: &Person, line: &str, accept: &str| {
            server.request(line, &[("Authorization", &who.basic()), ("Accept", accept)], "")
        };
        assert_eq!(server.get("/-/changes").status, 401);
        assert_eq!(get(without, "GET /-/changes", "*/*").problem(), "forbidden");

        let listed = get(own, "GET /-/changes", "*/*");
        let mask = |answer: &Answer| {
            let shown = changes(answer).iter().map(|change| {
                let value = |name: &str| change[name].to_string();
                let subject = change["subject"].as_str().unwrap();
                format!("{} {subject} {} {} {}\n", change["kind"].as_str().unwrap(), value("changed"), value("before"), value("after"))
            }).collect::<String>();
            Masks::default().text(&shown)
        };
        expect![[r#"
            created /customers/<id-1> null null {"id":"<id-1>","name":"Ann","owner":"own-ann","created_at":"<time-1>","updated_at":"<time-1>","version":1}
            created /customers/<id-1>/orders/<id-2> null null {"id":"<id-2>","customer_id":"<id-1>","text":"tea","secret_note":"psst","created_at":"<time-2>","updated_at":"<time-2>","version":1}
            left /customers/<id-1> null null null
            updated /customers/<id-3> null null {"id":"<id-3>","name":"Bob","owner":"own-ann","created_at":"<time-3>","updated_at":"<time-4>","version":2}
            deleted /customers/<id-3>/orders/<id-4> null {"id":"<id-4>","customer_id":"<id-3>","text":"rum","secret_note":"psst","created_at":"<time-5>","updated_at":"<time-5>","version":1} null
            deleted /customers/<id-3> null {"id":"<id-3>","name":"Bob","owner":"own-ann","created_at":"<time-3>","updated_at":"<time-4>","version":2} null
        "#]].assert_eq(&mask(&listed));
        // Backwards it is the same list.
        let mut backwards = changes(&get(own, "GET /-/changes?sort=-sequence", "*/*"));
        backwards.reverse();
        assert_eq!(backwards, changes(&listed));
        assert_eq!(changes(&get(own, "GET /-/changes?kind=left", "*/*")).len(), 1);
        let history = get(own, &format!("GET /-/changes?subject={mine}"), "*/*");
        assert_eq!(changes(&history).iter().map(|change| change["kind"].clone()).collect::<Vec<_>>(), ["created", "left"]);

        // Users are not granted, and neither are visits.
        let resources: Vec<Value> = changes(&get(reader, "GET /-/changes", "*/*")).iter().map(|change| change["resource"].clone()).collect();
        assert_eq!(resources, ["customer", "customer", "order", "order", "customer", "order", "customer", "order", "customer"]);
        for accept in ["application/json", "application/x-ndjson", "text/csv"] {
            let answer = get(reader, "GET /-/changes", accept);
            assert_eq!(answer.status, 200);
            assert!(!answer.text().contains("psst") && !answer.text().contains("secret_note"), "{answer:?}");
            assert!(answer.text().contains("score"));
        }
        // The answer to an admin has no password, but the visits.
        let all = get(&server.admin(), "GET /-/changes?limit=500", "*/*");
        assert!(!all.text().contains("password") && all.text().contains(r#""resource":"visit""#), "{all:?}");
    }

    fn changes_formats_are_ndjson_and_csv_too(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let ann = server.create("/customers", customer("Ann, \"A\"", "ann"));
        assert_eq!(server.put(&ann, customer("Anna", "ann")).status, 200);
        let visit = server.create("/visits", r#"{"visit":{"owner":"ann"}}"#);
        assert_eq!(visit, "/visits/1");
        let get = |accept: &str| server.request("GET /-/changes?limit=2", &[("Accept", accept)], "");
        let lines = get("application/x-ndjson");
        assert_eq!(lines.header("Changes-Position"), Some("2"));
        assert!(lines.header("Link").unwrap().ends_with("rel=\"next\""));
        let parsed: Vec<Value> = lines.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(parsed, changes(&get("application/json")));
        expect![[r#"
            sequence,resource,id,subject,kind,time,actor,request_id,changed,before,after
            1,customer,<id-1>,/customers/<id-1>,created,<time-1>,open,<request>,,,"{""id"":""<id-1>"",""name"":""Ann, \""A\"""",""owner"":""ann"",""score"":7,""created_at"":""<time-1>"",""updated_at"":""<time-1>"",""version"":1}"
            2,customer,<id-1>,/customers/<id-1>,updated,<time-2>,open,<request>,"[""name""]","{""id"":""<id-1>"",""name"":""Ann, \""A\"""",""owner"":""ann"",""score"":7,""created_at"":""<time-1>"",""updated_at"":""<time-1>"",""version"":1}","{""id"":""<id-1>"",""name"":""Anna"",""owner"":""ann"",""score"":7,""created_at"":""<time-1>"",""updated_at"":""<time-2>"",""version"":2}"
        "#]].assert_eq(&{
            let request = regex::Regex::new(",open,[0-9a-z]{26},").unwrap();
            let csv = get("text/csv").text().replace("\r\n", "\n");
            Masks::default().text(&request.replace_all(&csv, ",open,<request>,"))
        });
        assert_eq!(get("image/png").status, 406);
        // A resource with `changes = "ids"` has no values, and an integer id is a number.
        let visits = server.get("/-/changes?resource=visit");
        let visit = &changes(&visits)[0];
        assert_eq!((&visit["id"], &visit["after"], &visit["changed"]), (&json!(1), &Value::Null, &Value::Null));
        assert_eq!(short(&server.get("/-/changes?subject=/visits/1")), "3 created");
    }

    fn changes_subject_has_the_base_path(backend: Backend) {
        let model = MODEL.replace("title = \"Shop\"", "title = \"Shop\"\n[server]\nbase_path = \"/shop\"");
        let server = Setup::new(backend).model(&model).start();
        let ann = server.create("/shop/customers", customer("Ann", "ann"));
        assert!(ann.starts_with("/shop/customers/"));
        let listed = server.get("/shop/-/changes?limit=1");
        assert_eq!(changes(&listed)[0]["subject"], *ann);
        for subject in [&*ann, ann.strip_prefix("/shop").unwrap()] {
            assert_eq!(short(&server.get(&format!("/shop/-/changes?subject={subject}"))), "1 created");
        }
        server.create("/shop/customers", customer("Bob", "bob"));
        let url = next(&server.get("/shop/-/changes?limit=1")).unwrap();
        assert!(url.starts_with("/shop/-/changes?"), "{url}");
        assert_eq!(short(&server.get(&url)), "2 created");
    }
}

/// A statement that adds entries after the first, one a second; number 30,000 is by another actor.
fn many_entries(backend: Backend, count: u32) -> String {
    let values = "'customer', 'x', '/customers/x', 'created', CASE WHEN i = 30000 THEN 'rare' ELSE 'open' END, 'r'";
    let columns = "(sequence, time, resource, id, subject, kind, actor, request_id)";
    match backend {
        Backend::Sqlite => format!(
            "WITH RECURSIVE n(i) AS (SELECT 2 UNION ALL SELECT i + 1 FROM n WHERE i <= {count})
             INSERT INTO nouns_changes {columns}
             SELECT i, strftime('%Y-%m-%dT%H:%M:%S.000000Z', unixepoch('2031-01-01') + i, 'unixepoch'), {values} FROM n"
        ),
        Backend::Postgres => format!(
            "INSERT INTO nouns_changes {columns} SELECT i, timestamptz '2031-01-01T00:00:00Z' + i * interval '1 second', {values}
             FROM generate_series(2, {count} + 1) AS i; SELECT setval('nouns_changes_sequence', {count} + 1)"
        ),
    }
}
