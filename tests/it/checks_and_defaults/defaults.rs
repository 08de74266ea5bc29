//! Defaults that are made for each new item: `default = { from = "now" | "user" | "uuid" }`.

use std::fs;

use expect_test::expect;
use serde_json::{Value, json};

use super::{faults, send};
use crate::harness::{Answer, Backend, Person, Server, Setup, run_nouns};

const MODEL: &str = r#"
title = "Desk"

[resources.ticket.fields]
title  = { type = "text", required = true }
opened = { type = "timestamp", default = { from = "now" }, filter = true }
day    = { type = "date", required = true, default = { from = "now" } }
owner  = { type = "text", default = { from = "user" }, filter = true }
token  = { type = "uuid", default = { from = "uuid" }, unique = true }
code   = { type = "text", nullable = true, default = { from = "uuid" } }
late   = { type = "boolean", computed = "opened > '2020-01-01T00:00:00Z'" }

[resources.letter.fields]
sender = { type = "email", required = true, default = { from = "user" } }

[resources.card.fields]
owner = { type = "text", default = { from = "user" } }
token = { type = "uuid", default = { from = "uuid" } }

[roles.clerk]
ticket = { verbs = ["get", "post", "put", "patch"], readonly = ["owner"] }
letter = ["get", "post"]

[roles.temp]
ticket = { verbs = ["post"], hide = ["owner", "token"], where = "owner = $user" }

[roles.anyone]
card = ["get", "post"]
letter = ["post"]
"#;

/// A server with users of each role.
struct Desk {
    server: Server,
    ann: Person,
    mail: Person,
    temp: Person,
}

impl Desk {
    fn open(backend: Backend) -> Self {
        let server = Setup::new(backend).model(MODEL).with_authentication().start();
        let [ann, mail, temp] =
            ["ann", "mail@example.com", "tom"].map(|name| Person::new(name, "as long as it takes"));
        server.add_user(&ann, &["clerk"]);
        server.add_user(&mail, &["clerk"]);
        server.add_user(&temp, &["temp"]);
        Self { server, ann, mail, temp }
    }

    fn send(&self, who: Option<&Person>, line: &str, body: &Value) -> Answer {
        send(&self.server, who, line, body)
    }

    fn create(&self, who: &Person, members: &Value) -> Value {
        let answer = self.send(Some(who), "POST /tickets", &json!({"ticket": members}));
        assert_eq!(answer.status, 201, "{answer:?}");
        let path = answer.header("Location").unwrap().to_owned();
        let admin = self.server.admin();
        self.send(Some(&admin), &format!("GET {path}"), &json!(null)).json()["ticket"].clone()
    }
}

fn path(ticket: &Value) -> String {
    format!("/tickets/{}", ticket["id"].as_str().unwrap())
}

on_every_backend! {
    fn default_from_is_made_for_each_new_item(backend: Backend) {
        let desk = Desk::open(backend);
        let one = desk.create(&desk.ann, &json!({"title": "a"}));
        let created = one["created_at"].as_str().unwrap();
        assert_eq!(one["opened"], created, "the time of creation");
        assert_eq!(one["day"], created[..10]);
        assert_eq!((&one["owner"], &one["late"]), (&json!("ann"), &json!(true)));
        let other = desk.create(&desk.server.admin(), &json!({"title": "b"}));
        assert_eq!(other["owner"], desk.server.admin().name, "an admin has a name too");
        for (one, name) in [(&one, "token"), (&one, "code"), (&other, "token")] {
            let uuid = uuid::Uuid::parse_str(one[name].as_str().unwrap()).unwrap();
            assert_eq!(uuid.get_version_num(), 4, "{name}");
        }
        assert_ne!(one["token"], one["code"]);
        assert_ne!(one["token"], other["token"]);
        // A value that the request has is stored.
        let sent = json!({"title": "c", "opened": "2001-02-03T04:05:06Z", "day": "2001-02-03", "code": null});
        let sent = desk.create(&desk.server.admin(), &sent);
        assert_eq!((&sent["opened"], &sent["day"], &sent["code"], &sent["late"]),
            (&json!("2001-02-03T04:05:06.000000Z"), &json!("2001-02-03"), &json!(null), &json!(false)));
    }

    fn default_from_in_a_bulk_differs_from_item_to_item(backend: Backend) {
        let desk = Desk::open(backend);
        let bulk = json!({"tickets": vec![json!({"title": "a"}); 20]});
        let answer = desk.send(Some(&desk.ann), "POST /tickets", &bulk);
        assert_eq!(answer.status, 201, "{answer:?}");
        let list = answer.json()["tickets"].as_array().unwrap().clone();
        let mut uuids: Vec<String> = list.iter().flat_map(|one| [&one["token"], &one["code"]]).map(Value::to_string).collect();
        uuids.sort();
        uuids.dedup();
        assert_eq!(uuids.len(), 40);
        assert!(list.iter().all(|one| one["owner"] == "ann" && one["opened"] == one["created_at"]), "{list:?}");
    }

    /// PUT keeps what was made: replacing the title of a ticket does not open it again.
    fn default_from_is_kept_by_put_and_removed_by_patch(backend: Backend) {
        let desk = Desk::open(backend);
        let admin = desk.server.admin();
        let made = desk.create(&desk.ann, &json!({"title": "a"}));
        let put = desk.send(Some(&admin), &format!("PUT {}", path(&made)), &json!({"ticket": {"title": "b"}}));
        let after = put.json()["ticket"].clone();
        assert_eq!((put.status, &after["title"]), (200, &json!("b")));
        for name in ["opened", "day", "owner", "token", "code"] {
            assert_eq!(after[name], made[name], "{name}");
        }
        let removed = json!({"ticket": {"owner": null, "opened": null, "code": null}});
        let patched = desk.send(Some(&admin), &format!("PATCH {}", path(&made)), &removed);
        let after = patched.json()["ticket"].clone();
        assert_eq!((patched.status, after.get("owner"), after.get("opened"), &after["code"]), (200, None, None, &json!(null)));
        let day = desk.send(Some(&admin), &format!("PATCH {}", path(&made)), &json!({"ticket": {"day": null}}));
        assert_eq!(faults(&day), "422 invalid-fields\n/ticket/day | required | expected a date such as \"2026-11-15\", got nothing");
    }

    /// A caller without a name leaves the field without a value, unless it is required.
    fn default_from_user_is_absent_for_callers_without_a_name(backend: Backend) {
        let desk = Desk::open(backend);
        let made = desk.send(None, "POST /cards", &json!({"card": {}})).json()["card"].clone();
        assert_eq!((made.get("owner"), made["token"].is_string()), (None, true), "{made}");
        let made = desk.send(Some(&desk.ann), "POST /cards", &json!({"card": {}})).json()["card"].clone();
        assert_eq!(made["owner"], "ann");
        let letter = desk.send(None, "POST /letters", &json!({"letter": {}}));
        assert_eq!(faults(&letter), "422 invalid-fields\n/letter/sender | required | expected an e-mail address, got nothing");
        // The name has to fit the field.
        let letter = desk.send(Some(&desk.ann), "POST /letters", &json!({"letter": {}}));
        assert_eq!(faults(&letter), "422 invalid-fields\n/letter/sender | format | expected an e-mail address, got \"ann\"");
        let letter = desk.send(Some(&desk.mail), "POST /letters", &json!({"letter": {}}));
        assert_eq!((letter.status, &letter.json()["letter"]["sender"]), (201, &json!("mail@example.com")));
        let server = Setup::new(backend).model(MODEL).start();
        let open = server.create("/tickets", r#"{"ticket":{"title":"a"}}"#);
        assert_eq!(server.get(&open).json()["ticket"].get("owner"), None, "with --open nobody has a name");
    }

    /// A field that the caller may not set has its default, which a `where` sees.
    fn default_from_user_of_a_field_that_is_hidden_or_readonly(backend: Backend) {
        let desk = Desk::open(backend);
        let made = desk.create(&desk.ann, &json!({"title": "a"}));
        assert_eq!(made["owner"], "ann");
        let sent = desk.send(Some(&desk.ann), "POST /tickets", &json!({"ticket": {"title": "a", "owner": "bob"}}));
        assert_eq!(faults(&sent), "403 read-only-field\n/ticket/owner | read_only | your roles do not let you change this");
        let made = desk.create(&desk.temp, &json!({"title": "a"}));
        assert_eq!((&made["owner"], made["token"].is_string()), (&json!("tom"), true));
    }

    /// The operator who runs `nouns import` has no user name; the server still makes times and UUIDs.
    fn default_from_in_an_import(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        fs::write(server.folder().join("in.csv"), "title,code\na,x\nb,\n").unwrap();
        fs::write(server.folder().join("model.toml"), MODEL).unwrap();
        let database = server.database();
        let ended = run_nouns(server.folder(), &["import", "ticket", "in.csv", "--model", "model.toml", "--database", &database]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let list = server.get("/tickets").json()["tickets"].as_array().unwrap().clone();
        assert_eq!(list.len(), 2);
        for one in &list {
            assert_eq!((&one["opened"], one.get("owner"), one["token"].is_string()), (&one["created_at"], None, true), "{one}");
        }
        assert_ne!(list[0]["token"], list[1]["token"]);
        fs::write(server.folder().join("letters.csv"), "id\n\n").unwrap();
        fs::write(server.folder().join("letters.ndjson"), "{}\n").unwrap();
        let ended = run_nouns(server.folder(), &["import", "letter", "letters.ndjson", "--model", "model.toml", "--database", &database]);
        assert!(ended.stderr.contains("line 1: sender: expected an e-mail address, got nothing"), "{}", ended.stderr);
    }

    fn default_from_is_described(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let document = server.get("/-/openapi.json").json();
        let schemas = &document["components"]["schemas"];
        let about = |schema: &str, field: &str| schemas[schema]["properties"][field]["description"].as_str().unwrap_or_default().to_owned();
        expect!["At most 6 decimals of a second; kept in UTC. If it is left out: the time of creation."].assert_eq(&about("ticket.create", "opened"));
        expect!["If it is left out: the name of the caller, or nothing for a caller without a name."].assert_eq(&about("ticket.create", "owner"));
        expect!["Keeps its value if it is left out."].assert_eq(&about("ticket.replace", "owner"));
        assert_eq!(schemas["ticket.create"]["required"], json!(["title"]));
        assert_eq!(schemas["ticket.replace"]["required"], json!(["title"]));
        assert!(schemas["ticket"]["required"].as_array().unwrap().contains(&json!("day")));
        let page = server.request("GET /tickets", &[("Accept", "text/html")], "");
        assert!(page.text().contains("Without a value: the time of creation."), "{}", page.text());
    }
}
