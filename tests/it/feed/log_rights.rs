//! What the change log shows in unusual cases: damaged values, secrets, values of before that are not shown, many
//! parents; and what a server of an earlier version has deleted.

use serde_json::{Value, json};

use crate::harness::{Answer, Backend, Person, Server, Setup, run_sql, wait_until};

const MODEL: &str = r#"
title = "Shop"

[resources.customer.fields]
name = { type = "text", required = true }
owner = { type = "text" }
place = { type = "object", fields = { city = { type = "text" } } }

[resources.order]
parent = "customer"
on_delete = "cascade"

[resources.order.fields]
text = { type = "text" }

[resources.visit]
id = "integer"
changes = "ids"

[resources.visit.fields]
owner = { type = "text" }

[roles.own]
"/-/changes" = ["get"]
customer = { verbs = ["get"], where = "owner = $user", hide = ["place"] }
order = ["get"]

[roles.local]
"/-/changes" = ["get"]
customer = { verbs = ["get"], where = "place.city = 'Ulm'" }
order = ["get"]
"#;

/// A server with authentication, and a user for each role.
struct Shop {
    server: Server,
    own: Person,
    local: Person,
}

impl Shop {
    fn start(backend: Backend) -> Self {
        let server = Setup::new(backend).model(MODEL).with_authentication().start();
        let [own, local] = ["own", "local"].map(|role| {
            let person = Person::new(&format!("{role}-ann"), "one for each role");
            server.add_user(&person, &[role]);
            person
        });
        Self { server, own, local }
    }

    fn send(&self, who: &Person, line: &str, body: &str) -> Answer {
        self.server.request(line, &[("Authorization", &who.basic())], body)
    }

    fn write(&self, line: &str, body: &Value) -> Answer {
        let answer = self.send(&self.server.admin(), line, &body.to_string());
        assert!(matches!(answer.status, 200 | 201), "{answer:?}");
        answer
    }

    fn create(&self, path: &str, body: &Value) -> String {
        self.write(&format!("POST {path}"), body).header("Location").unwrap().to_owned()
    }

    fn changes(&self, who: &Person, query: &str) -> Vec<Value> {
        list(&self.send(who, &format!("GET /-/changes?{query}"), ""))
    }
}

fn list(answer: &Answer) -> Vec<Value> {
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.json()["changes"].as_array().unwrap().clone()
}

fn kinds(changes: &[Value]) -> Vec<&str> {
    changes.iter().map(|change| change["kind"].as_str().unwrap()).collect()
}

on_every_backend! {
    /// The names of the changed fields would tell which of the values differ from those that are not shown.
    fn changed_is_null_where_the_item_before_is_not_shown(backend: Backend) {
        let shop = Shop::start(backend);
        let path = shop.create("/customers", &json!({"customer": {"name": "Ann", "owner": "bob"}}));
        shop.write(&format!("PUT {path}"), &json!({"customer": {"name": "Bea", "owner": "own-ann"}}));
        shop.write(&format!("PUT {path}"), &json!({"customer": {"name": "Bea", "owner": "own-ann", "place": {"city": "Ulm"}}}));
        let seen = shop.changes(&shop.own, "resource=customer");
        assert_eq!(kinds(&seen), ["updated", "updated"]);
        assert_eq!((&seen[0]["changed"], &seen[0]["before"]), (&Value::Null, &Value::Null));
        // Of a hidden field there is nothing but the new version.
        assert_eq!(seen[1]["changed"], json!([]));
        assert!(!format!("{seen:?}").contains("place"), "{seen:?}");
        let all = shop.changes(&shop.server.admin(), "resource=customer");
        assert_eq!((&all[1]["changed"], &all[2]["changed"]), (&json!(["name", "owner"]), &json!(["place"])));
    }

    fn changed_has_the_name_of_a_secret_and_never_its_value(backend: Backend) {
        let shop = Shop::start(backend);
        let user = shop.changes(&shop.server.admin(), "resource=-/user").pop().unwrap();
        let path = user["subject"].as_str().unwrap();
        shop.write(&format!("PATCH {path}"), &json!({"user": {"password": "another one of a role"}}));
        let seen = shop.changes(&shop.server.admin(), &format!("subject={path}"));
        assert_eq!(seen[1]["changed"], json!(["password"]));
        for value in [&seen[1]["before"], &seen[1]["after"]] {
            assert!(value["name"].is_string() && value.get("password").is_none(), "{value}");
        }
    }

    /// Regression: an object of another shape ended the request with 500.
    fn damaged_ancestor_hides_what_is_below_it(backend: Backend) {
        let shop = Shop::start(backend);
        let path = shop.create("/customers", &json!({"customer": {"name": "Ann", "owner": "own-ann", "place": {"city": "Ulm"}}}));
        let order = shop.create(&format!("{path}/orders"), &json!({"order": {"text": "tea"}}));
        shop.write(&format!("PUT {order}"), &json!({"order": {"text": "gin"}}));
        assert_eq!(shop.changes(&shop.local, "resource=order").len(), 2);
        run_sql(backend, shop.server.folder(), r#"UPDATE customers SET place = '{"city":1}'"#);
        assert_eq!(shop.changes(&shop.local, "resource=order").len(), 0);
        // A filter that does not read the object works.
        assert_eq!(shop.changes(&shop.own, "resource=order").len(), 2);
        let old = format!("GET {order}?version=1");
        assert_eq!(shop.send(&shop.local, &old, "").problem(), "not-found");
        assert_eq!(shop.send(&shop.own, &old, "").status, 200);
        let damaged = match backend {
            Backend::Sqlite => "yesterday",
            Backend::Postgres => "infinity",
        };
        run_sql(backend, shop.server.folder(), &format!("UPDATE customers SET updated_at = '{damaged}'"));
        assert_eq!(shop.changes(&shop.own, "resource=order").len(), 0);
        assert_eq!(shop.send(&shop.own, &old, "").problem(), "not-found");
    }

    fn control_characters_in_the_log_break_no_line(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        server.create("/customers", r#"{"customer":{"name":"Ann"}}"#);
        let line = match backend {
            Backend::Sqlite => "char(10)",
            Backend::Postgres => "chr(10)",
        };
        run_sql(backend, server.folder(), &format!("UPDATE nouns_changes SET after = replace(after, ',', ',' || {line})"));
        let lines = server.request("GET /-/changes", &[("Accept", "application/x-ndjson")], "");
        assert_eq!(lines.text().lines().count(), 1, "{lines:?}");
        let change: Value = serde_json::from_str(lines.text()).unwrap();
        assert_eq!(change["after"]["name"], "Ann");
    }

    fn two_conditions_on_the_same_member_must_both_hold(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let path = server.create("/customers", r#"{"customer":{"name":"Ann"}}"#);
        server.create(&format!("{path}/orders"), r#"{"order":{"text":"tea"}}"#);
        for (query, expected) in [
            ("resource=order&resource:in=order,customer", 1),
            ("resource:in=order,customer&resource=customer", 1),
            ("resource=order&resource:in=visit,customer", 0),
            ("kind=created&kind:in=created,updated", 2),
            ("kind=created&kind:in=deleted,updated", 0),
            ("actor=open&actor:in=open,ann", 2),
            ("actor=bob&actor:in=open,ann", 0),
        ] {
            assert_eq!(list(&server.get(&format!("/-/changes?{query}"))).len(), expected, "{query}");
        }
    }

    /// The entry of the creation is not in the index of an item's entries, and these entries have no values.
    fn changes_of_an_item_without_values_begin_with_its_creation(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let path = server.create("/visits", r#"{"visit":{"owner":"ann"}}"#);
        assert_eq!(server.put(&path, r#"{"visit":{"owner":"bob"}}"#).status, 200);
        let of_item = || list(&server.get(&format!("/-/changes?subject={path}")));
        assert_eq!(kinds(&of_item()), ["created", "updated"]);
        assert_eq!(server.delete(&path).status, 204);
        assert_eq!(kinds(&of_item()), ["created", "updated", "deleted"]);
        let backwards = list(&server.get(&format!("/-/changes?subject={path}&sort=-sequence")));
        assert_eq!(kinds(&backwards), ["deleted", "updated", "created"]);
    }

    /// A page reads the states of 250 parents, and then ends.
    fn page_below_many_parents_is_short_and_has_a_next(backend: Backend) {
        let shop = Shop::start(backend);
        let one = json!({"name": "Ann", "owner": "bob"});
        shop.write("POST /customers", &json!({"customers": vec![one; 300]}));
        let entries = "INSERT INTO nouns_changes (sequence, time, resource, id, parent_id, subject, kind, actor, request_id) \
            SELECT (SELECT max(sequence) FROM nouns_changes) + row_number() OVER (ORDER BY id), created_at, 'order', \
            '01890a5d-ac96-774b-bcce-b302099a8057', id, '/customers/' || id || '/orders/01890a5d-ac96-774b-bcce-b302099a8057', 'created', 'admin', 'r' FROM customers";
        run_sql(backend, shop.server.folder(), entries);
        if backend == Backend::Postgres {
            run_sql(backend, shop.server.folder(), "SELECT setval('nouns_changes_sequence', (SELECT max(sequence) FROM nouns_changes))");
        }
        let first = shop.send(&shop.own, "GET /-/changes?resource=order", "");
        assert_eq!((list(&first).len(), first.json()["page"]["next"].is_string()), (0, true));
        let link = first.header("Link").unwrap();
        let url = link.trim_start_matches('<').split_once('>').unwrap().0;
        let second = shop.send(&shop.own, &format!("GET {url}"), "");
        assert_eq!((list(&second).len(), &second.json()["page"]["next"]), (0, &Value::Null));
    }

    /// A server of an earlier version sweeps the same database, and does not record it.
    fn sweep_by_another_version_is_noticed(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        for _ in 0..6 {
            server.create("/customers", r#"{"customer":{"name":"Ann"}}"#);
        }
        let oldest = "SELECT value FROM nouns_system WHERE name = 'changes_oldest'";
        // The first sweep of the next start sees the log.
        let server = server.restart();
        wait_until("a sweep has seen the log", || {
            (run_sql(backend, server.folder(), oldest).trim() == "1").then_some(())
        });
        assert_eq!(server.get("/-/changes?since=3").status, 200);
        run_sql(backend, server.folder(), "DELETE FROM nouns_changes WHERE sequence <= 4");
        let server = server.restart();
        wait_until("it is noticed", || {
            (server.get("/-/changes?since=3").status == 410).then_some(())
        });
        assert_eq!(server.get("/-/changes?since=4").status, 200);
    }
}
