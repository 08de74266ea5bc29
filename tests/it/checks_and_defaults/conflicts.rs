//! Refusals of values: `conflict = "tell"` for unique values of invisible items, and the fields that break a `where`.

use serde_json::{Value, json};

use super::{faults, send};
use crate::harness::{Answer, Backend, Person, Server, Setup};

const MODEL: &str = r#"
title = "Handles"

[resources.handle]
created_by = true
conflict = "tell"

[resources.handle.fields]
name  = { type = "text", required = true, unique = true }
owner = { type = "text" }
kind  = { type = "text" }
size  = { type = "integer" }
large = { type = "boolean", computed = "size > 10" }
code  = { type = "text" }

[roles.member]
handle = { verbs = ["get", "post", "put", "patch"], where = "created_by = $user" }

[roles.seller]
handle = { verbs = ["get", "post", "patch"], where = "owner = $user and kind in ['a', 'b'] and large = false", hide = ["code"] }

[roles.keeper]
handle = { verbs = ["get", "post"], where = "owner = $user and code != 'x'", hide = ["code"] }
"#;

struct Desk {
    server: Server,
}

impl Desk {
    fn open(backend: Backend, model: &str) -> Self {
        let server = Setup::new(backend).model(model).with_authentication().start();
        for (name, role) in
            [("ann", "member"), ("bob", "member"), ("sam", "seller"), ("kay", "keeper")]
        {
            server.add_user(&person(name), &[role]);
        }
        Self { server }
    }

    fn send(&self, who: &str, line: &str, members: &Value) -> Answer {
        send(&self.server, Some(&person(who)), line, &json!({"handle": members}))
    }

    fn create(&self, who: &str, members: &Value) -> String {
        let answer = self.send(who, "POST /handles", members);
        assert_eq!(answer.status, 201, "{answer:?}");
        answer.header("Location").unwrap().to_owned()
    }
}

fn person(name: &str) -> Person {
    Person::new(name, "as long as it takes")
}

const TAKEN: &str = "409 taken\n/handle/name | taken | another handle has this value";

on_every_backend! {
    fn conflict_tell_says_that_an_invisible_item_has_the_value(backend: Backend) {
        let desk = Desk::open(backend, MODEL);
        desk.create("ann", &json!({"name": "zoe"}));
        let own = desk.create("bob", &json!({"name": "bob"}));
        let clash = json!({"name": "zoe"});
        assert_eq!(faults(&desk.send("bob", "POST /handles", &clash)), TAKEN);
        for verb in ["PUT", "PATCH"] {
            assert_eq!(faults(&desk.send("bob", &format!("{verb} {own}"), &clash)), TAKEN);
        }
        let bulk = json!({"handles": [{"name": "x"}, {"name": "zoe"}]}).to_string();
        let bulk = desk.server.request("POST /handles", &[("Authorization", &person("bob").basic())], bulk);
        assert_eq!(faults(&bulk), TAKEN.replace("/handle/name", "/handles/1/name"));
        // The item itself stays invisible.
        assert_eq!(desk.server.request("GET /handles?name=zoe", &[("Authorization", &person("bob").basic())], "").status, 400);
        let list = desk.server.request("GET /handles", &[("Authorization", &person("bob").basic())], "").json();
        assert_eq!(list["handles"].as_array().unwrap().len(), 1);
    }

    fn conflict_is_silent_by_default(backend: Backend) {
        for model in [MODEL.replace("conflict = \"tell\"\n", ""), MODEL.replace("\"tell\"", "\"silent\"")] {
            let desk = Desk::open(backend, &model);
            desk.create("ann", &json!({"name": "zoe"}));
            desk.create("bob", &json!({"name": "bob"}));
            assert_eq!(faults(&desk.send("bob", "POST /handles", &json!({"name": "zoe"}))), "403 outside-grant\n");
            assert_eq!(faults(&desk.send("bob", "POST /handles", &json!({"name": "bob"}))), TAKEN);
            // Both refusals are the same, so that neither tells anything.
            let outside = json!({"name": "new", "owner": "eve", "kind": "a"});
            assert_eq!(faults(&desk.send("sam", "POST /handles", &outside)), "403 outside-grant\n");
        }
    }

    /// Where a clash has its own response, a value outside the grant can be named: the fields of the broken parts alone.
    fn outside_grant_names_the_fields_that_break_the_rule(backend: Backend) {
        let desk = Desk::open(backend, MODEL);
        let outside = |who: &str, members: Value| {
            let answer = desk.send(who, "POST /handles", &members);
            let shown = faults(&answer).replace(" | outside | your roles do not allow items with this value", "");
            shown.replace("403 outside-grant\n", "").replace('\n', " ")
        };
        assert_eq!(outside("sam", json!({"name": "1", "owner": "eve", "kind": "a", "size": 1})), "/handle/owner");
        assert_eq!(outside("sam", json!({"name": "2", "owner": "sam", "kind": "c", "size": 1})), "/handle/kind");
        assert_eq!(outside("sam", json!({"name": "3", "owner": "eve", "kind": "c", "size": 1})), "/handle/owner /handle/kind");
        // A computed field is made from what was sent.
        assert_eq!(outside("sam", json!({"name": "4", "owner": "sam", "kind": "a", "size": 11})), "/handle/size");
        // Faults name only fields that the request has sent.
        assert_eq!(outside("sam", json!({"name": "5", "kind": "a", "size": 1})), "");
        // A part that reads a hidden field is treated as broken, so the response reveals nothing about the field.
        assert_eq!(outside("kay", json!({"name": "6", "owner": "kay"})), "");
        assert_eq!(outside("kay", json!({"name": "7", "owner": "eve"})), "/handle/owner");
        let own = desk.create("sam", &json!({"name": "8", "owner": "sam", "kind": "a", "size": 1}));
        let patched = desk.send("sam", &format!("PATCH {own}"), &json!({"kind": "c", "size": 2}));
        assert_eq!(faults(&patched), "403 outside-grant\n/handle/kind | outside | your roles do not allow items with this value");
    }
}
