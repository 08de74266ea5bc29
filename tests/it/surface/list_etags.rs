//! ETags of lists: a client that polls with `If-None-Match` gets 304 until the list changes.

use expect_test::expect;
use serde_json::json;

use super::{ANN, BEA, NO_ONE, TEA};
use crate::harness::{
    Answer, Backend, Masks, Person, Server, Setup, run_nouns, run_sql, wait_until,
};

const SHOP: &str = r#"
title = "Shop"

[resources.customer.fields]
name = { type = "text", required = true }
note = { type = "text" }

[resources.order]
parent = "customer"
on_delete = "cascade"
changes = "ids"

[resources.order.fields]
text = { type = "text", required = true }

[roles.clerk]
customer = { verbs = ["get"], hide = ["note"] }
order    = ["get"]

[roles.shopper]
customer = { verbs = ["get"], where = "name = $user" }
order    = ["get"]
"#;

fn etag_of(answer: &Answer) -> String {
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.header("ETag").unwrap_or_else(|| panic!("no tag: {answer:?}")).to_owned()
}

fn list_etag(server: &Server, path: &str) -> String {
    etag_of(&server.get(path))
}

/// The status for a client with this ETag.
fn poll_status(server: &Server, path: &str, tag: &str) -> u16 {
    server.request(&format!("GET {path}"), &[("If-None-Match", tag)], "").status
}

/// Events that each change the list of the customers.
fn change_events(server: &Server) -> Vec<(&'static str, String)> {
    let mut tags = vec![("empty", list_etag(server, "/customers"))];
    let ann = server.create("/customers", ANN);
    tags.push(("created", list_etag(server, "/customers")));
    assert_eq!(server.put(&ann, BEA).status, 200);
    tags.push(("replaced", list_etag(server, "/customers")));
    let patch = r#"{"customer":{"name":"Cem"}}"#;
    assert_eq!(server.request(&format!("PATCH {ann}"), &[], patch).status, 200);
    tags.push(("patched", list_etag(server, "/customers")));
    let many = r#"{"customers":[{"name":"D","email":"d@example.com"},{"name":"E","email":"e@example.com"}]}"#;
    assert_eq!(server.post("/customers", many).status, 201);
    tags.push(("bulk", list_etag(server, "/customers")));
    assert_eq!(server.delete(&ann).status, 204);
    tags.push(("deleted", list_etag(server, "/customers")));
    tags
}

on_every_backend! {
    fn list_etag_unchanged_list_is_304(server: Server) {
        server.create("/customers", ANN);
        let first = server.get("/customers");
        let tag = etag_of(&first);
        assert!(tag.starts_with("W/\"") && first.header("Last-Modified").is_none());
        let mut masks = Masks::default();
        masks.answer(&first);
        let again = server.request("GET /customers", &[("If-None-Match", &tag)], "");
        expect![[r#"
            HTTP/1.1 304 Not Modified
            cache-control: private, no-cache
            vary: Accept, Accept-Encoding
            etag: W/"<tag-1>"
            x-request-id: <request-2>
            content-security-policy: default-src 'none'; connect-src 'self'; frame-ancestors 'none'
            cross-origin-opener-policy: same-origin
            cross-origin-resource-policy: same-origin
            date: <date>

        "#]].assert_eq(&masks.answer(&again));
        let head = server.request("HEAD /customers", &[], "");
        assert_eq!(head.header("ETag"), Some(&*tag));
        assert_eq!(server.request("HEAD /customers", &[("If-None-Match", &tag)], "").status, 304);
        let strong = tag.trim_start_matches("W/");
        for known in ["*", strong, &format!("\"x\", {tag}"), &format!("W/\"1\",{strong}")] {
            assert_eq!(poll_status(&server, "/customers", known), 304, "{known}");
        }
        for other in ["\"x\"", &tag.replace('-', ""), "W/\"", &tag.replace("W/\"", "W/\"1"), ""] {
            assert_eq!(poll_status(&server, "/customers", other), 200, "{other}");
        }
    }

    fn list_etag_differs_after_each_change(server: Server) {
        let tags = change_events(&server);
        for (at, (event, tag)) in tags.iter().enumerate() {
            assert!(!tags[..at].iter().any(|(_, other)| other == tag), "{event}: {tags:?}");
            let status = if at + 1 == tags.len() { 304 } else { 200 };
            assert_eq!(poll_status(&server, "/customers", tag), status, "{event}");
        }
    }

    /// Neither a read nor a write elsewhere, nor one that changes nothing or is refused.
    fn list_etag_stays_when_nothing_changes(server: Server) {
        let (ann, bea) = (server.create("/customers", ANN), server.create("/customers", BEA));
        let order = server.create(&format!("{ann}/orders"), TEA);
        let lists = ["/customers".to_owned(), format!("{ann}/orders"), format!("{bea}/orders")];
        let tags: Vec<_> = lists.iter().map(|path| list_etag(&server, path)).collect();
        let statuses = || lists.iter().zip(&tags).map(|(path, tag)| poll_status(&server, path, tag)).collect::<Vec<_>>();
        assert_eq!(server.put(&ann, ANN).status, 200);
        assert_eq!(server.post("/customers", "{}").status, 400);
        assert_eq!(server.post("/customers", r#"{"customer":{}}"#).status, 422);
        assert_eq!(server.delete(NO_ONE).status, 404);
        assert_eq!(statuses(), [304, 304, 304]);
        server.create(&format!("{bea}/orders"), TEA);
        assert_eq!(statuses(), [304, 304, 200]);
        assert_eq!(server.delete(&order).status, 204);
        assert_eq!(statuses(), [304, 200, 200]);
    }

    /// A cascading delete changes the list of each deleted item.
    fn list_etag_changes_with_a_cascading_delete(backend: Backend) {
        let model = "title = \"Books\"\n[resources.author]\nid = \"integer\"\n[resources.author.fields]\nname = { type = \"text\" }\n\
            [resources.book.fields]\nby = { type = \"ref\", to = \"author\", on_delete = \"cascade\" }\n";
        let server = Setup::new(backend).model(model).start();
        server.create("/authors", r#"{"author":{"name":"Ann"}}"#);
        server.create("/books", r#"{"book":{"by":1}}"#);
        let before = list_etag(&server, "/books");
        assert_eq!(server.put("/authors/1", r#"{"author":{"name":"Bea"}}"#).status, 200);
        assert_eq!(poll_status(&server, "/books", &before), 304);
        assert_eq!(server.delete("/authors/1").status, 204);
        assert_eq!(poll_status(&server, "/books", &before), 200);
        assert_eq!(server.get("/books").json()["books"], json!([]));
    }

    /// The ETag of one page is not that of another.
    fn list_etag_differs_for_each_page_and_format(server: Server) {
        let ann = server.create("/customers", ANN);
        server.create("/customers", BEA);
        let cursor = server.get("/customers?limit=1").json()["page"]["next"].as_str().unwrap().to_owned();
        let paths = [
            "/customers".to_owned(),
            "/customers?limit=1".to_owned(),
            "/customers?limit=50".to_owned(),
            format!("/customers?cursor={cursor}"),
            format!("/customers?limit=1&cursor={cursor}"),
            format!("{ann}/orders"),
        ];
        let tags: Vec<_> = paths.iter().map(|path| list_etag(&server, path)).collect();
        for (at, path) in paths.iter().enumerate() {
            for (other, tag) in tags.iter().enumerate() {
                let expected = if at == other { 304 } else { 200 };
                assert_eq!(poll_status(&server, path, tag), expected, "{path} with the tag of {}", paths[other]);
            }
        }
    }

    /// 404 comes before 304: a list below a deleted item does not exist.
    fn list_etag_of_a_deleted_parent_is_404(server: Server) {
        let ann = server.create("/customers", ANN);
        let orders = format!("{ann}/orders");
        let before = list_etag(&server, &orders);
        assert_eq!(poll_status(&server, &orders, &before), 304);
        assert_eq!(poll_status(&server, &format!("{NO_ONE}/orders"), "*"), 404);
        assert_eq!(server.delete(&ann).status, 204);
        assert_eq!(poll_status(&server, &orders, &before), 404);
        assert_eq!(poll_status(&server, &orders, "*"), 404);
        assert_eq!(server.request(&format!("GET {orders}"), &[("If-Match", "\"1\"")], "").status, 404);
    }

    /// A weak ETag never satisfies `If-Match`, and 412 has the current one.
    fn list_etag_does_not_satisfy_if_match(server: Server) {
        let tag = list_etag(&server, "/customers");
        let strong = tag.trim_start_matches("W/").to_owned();
        for wanted in [&tag, &strong, "\"1\""] {
            let answer = server.request("GET /customers", &[("If-Match", wanted)], "");
            assert_eq!((answer.problem().as_str(), answer.header("ETag")), ("precondition-failed", Some(&*tag)));
            assert_eq!(server.request("POST /customers", &[("If-Match", wanted)], ANN).status, 412);
        }
        assert_eq!(server.request("GET /customers", &[("If-Match", "*")], "").status, 200);
        let both = [("If-Match", "*"), ("If-None-Match", &*tag)];
        assert_eq!(server.request("GET /customers", &both, "").status, 304);
        let both = [("If-Match", &*strong), ("If-None-Match", &*tag)];
        assert_eq!(server.request("GET /customers", &both, "").status, 412);
        let dates = [("If-Modified-Since", "Sun, 06 Nov 2094 08:49:37 GMT"), ("If-Unmodified-Since", "Sun, 06 Nov 1994 08:49:37 GMT")];
        assert_eq!(server.request("GET /customers", &dates, "").status, 200);
    }

    /// A caller who does not see a row does not notice its change; a caller who does not see a field
    /// has another list.
    fn list_etag_reveals_nothing_hidden(backend: Backend) {
        let server = Setup::new(backend).model(SHOP).with_authentication().start();
        let admin = server.admin().basic();
        let people = [("ann", "shopper"), ("bea", "shopper"), ("cem", "clerk")].map(|(name, role)| {
            let person = Person::new(name, "a password of some length");
            server.add_user(&person, &[role]);
            person.basic()
        });
        let ask = |by: &str, line: &str, known: &str, body: &str| {
            server.request(line, &[("Authorization", by), ("If-None-Match", known)], body)
        };
        let make = |line: &str, body: &str| {
            let answer = server.request(line, &[("Authorization", &admin)], body);
            assert!((200..300).contains(&answer.status), "{line} {answer:?}");
            answer.header("Location").map(str::to_owned)
        };
        let ann = make("POST /customers", r#"{"customer":{"name":"ann"}}"#).unwrap();
        let bea = make("POST /customers", r#"{"customer":{"name":"bea"}}"#).unwrap();
        let tags = |path: &str| people.each_ref().map(|by| etag_of(&ask(by, &format!("GET {path}"), "\"x\"", "")));
        let polls = |path: &str, tags: &[String; 3]| {
            [0, 1, 2].map(|at| ask(&people[at], &format!("GET {path}"), &tags[at], "").status)
        };
        let before = tags("/customers");
        assert_eq!(polls("/customers", &before), [304, 304, 304]);
        let by_admin = ask(&admin, "GET /customers", "\"x\"", "");
        assert!(!before.contains(&etag_of(&by_admin)), "one of them sees fewer rows, one fewer fields");
        make(&format!("PUT {bea}"), r#"{"customer":{"name":"bea","note":"new"}}"#);
        assert_eq!(polls("/customers", &before), [304, 200, 200]);
        let orders = format!("{ann}/orders");
        let nested = [0, 2].map(|at| etag_of(&ask(&people[at], &format!("GET {orders}"), "\"x\"", "")));
        assert_eq!(nested[0], nested[1], "below what both see, both see the same");
        assert_eq!(ask(&people[1], &format!("GET {orders}"), &nested[0], "").status, 404);
        make(&format!("POST {orders}"), r#"{"order":{"text":"tea"}}"#);
        assert_eq!(ask(&people[0], &format!("GET {orders}"), &nested[0], "").status, 200);
    }

    /// Entries of the change log are swept. An ETag stands for one state for ever.
    fn list_etag_is_never_reused_for_another_list(server: Server) {
        let backend = server.backend();
        let ann = server.create("/customers", ANN);
        let (mut customers, mut orders) = (vec![list_etag(&server, "/customers")], vec![list_etag(&server, &format!("{ann}/orders"))]);
        let mut server = server;
        for _ in 0..3 {
            assert_eq!(server.put(&ann, BEA).status, 200);
            assert_eq!(server.put(&ann, ANN).status, 200);
            customers.push(list_etag(&server, "/customers"));
            let orders_path = format!("{ann}/orders");
            server.create(&orders_path, TEA);
            orders.push(list_etag(&server, &orders_path));
            let folder = server.stop();
            run_sql(backend, folder.path(), "UPDATE nouns_changes SET time = '2020-01-01T00:00:00.000000Z'");
            server = Setup::new(backend).start_in(folder);
            let left = || run_sql(backend, server.folder(), "SELECT count(*) FROM nouns_changes");
            wait_until("the old entries are gone", || (left().trim() == "1").then_some(()));
            // The change log has no entry of the customers any more.
            let swept = list_etag(&server, "/customers");
            assert!(!customers.contains(&swept), "{swept} in {customers:?}");
            assert_eq!(poll_status(&server, "/customers", &swept), 304);
            assert_eq!(poll_status(&server, &orders_path, orders.last().unwrap()), 304);
            customers.push(swept);
        }
        for (at, old) in customers.iter().enumerate() {
            let expected = if at + 1 == customers.len() { 304 } else { 200 };
            assert_eq!(poll_status(&server, "/customers", old), expected, "{at}");
        }
    }

    /// The change log of an earlier version has no index.
    fn change_log_index_is_added_to_an_older_database(server: Server) {
        let backend = server.backend();
        server.create("/customers", ANN);
        let before = list_etag(&server, "/customers");
        let folder = server.stop();
        run_sql(backend, folder.path(), "DROP INDEX nouns_changes_place");
        let server = Setup::new(backend).start_in(folder);
        let index = match backend {
            Backend::Sqlite => "SELECT name FROM sqlite_master WHERE type = 'index' AND tbl_name = 'nouns_changes' ORDER BY name",
            Backend::Postgres => "SELECT indexname FROM pg_indexes WHERE tablename = 'nouns_changes' AND indexname NOT LIKE '%pkey' ORDER BY indexname",
        };
        assert_eq!(run_sql(backend, server.folder(), index), "nouns_changes_item\nnouns_changes_place\n");
        assert_eq!(poll_status(&server, "/customers", &before), 304);
        server.create("/customers", BEA);
        assert_eq!(poll_status(&server, "/customers", &before), 200);
    }

    /// A user who is added by a command is in the change log too.
    fn list_etag_of_users_changes_with_user_commands(backend: Backend) {
        let server = Setup::new(backend).with_authentication().start();
        let admin = server.admin().basic();
        let list = |known: &str| server.request("GET /-/users", &[("Authorization", &admin), ("If-None-Match", known)], "");
        server.add_user(&Person::new("bea", "a password of some length"), &[]);
        let before = etag_of(&list("\"x\""));
        assert_eq!(list(&before).status, 304);
        let (database, key) = (server.database(), server.key_file());
        let key = key.to_str().unwrap();
        let args = ["user", "disable", "bea", "--database", &database, "--key-file", key];
        let ended = run_nouns(server.folder(), &args);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert_eq!(list(&before).status, 200);
    }
}
