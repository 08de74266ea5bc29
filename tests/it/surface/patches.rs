//! PATCH: merge patch (RFC 7396) and JSON Patch (RFC 6902), on the document that GET shows.

use std::sync::Barrier;
use std::thread;

use serde_json::{Value, json};

use super::{ANN, NO_ONE, TEA};
use crate::harness::{Answer, Backend, Client, Server, Setup};

const MERGE: &str = "application/merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";

fn patch(server: &Server, path: &str, (kind, body): (&str, &Value)) -> Answer {
    server.request(&format!("PATCH {path}"), &[("Content-Type", kind)], body.to_string())
}

fn patch_refused(server: &Server, path: &str, sent: (&str, &Value)) -> (u16, String, String) {
    let answer = patch(server, path, sent);
    let problem = answer.json();
    let detail = match &problem["errors"][0] {
        Value::Null => problem["detail"].as_str().unwrap_or_default().to_owned(),
        fault => {
            format!("{} {}", fault["pointer"].as_str().unwrap(), fault["code"].as_str().unwrap())
        }
    };
    (answer.status, answer.problem(), detail)
}

#[track_caller]
fn check_refusal(found: &(u16, String, String), expected: (u16, &str, &str)) {
    assert_eq!((found.0, found.1.as_str(), found.2.as_str()), expected);
}

on_every_backend! {
    /// A missing field stays; null removes; plain JSON is a merge patch.
    fn merge_patch_changes_the_named_fields(server: Server) {
        let orders = format!("{}/orders", server.create("/customers", ANN));
        let order = server.create(&orders, TEA);
        for kind in [MERGE, "application/json", "application/merge-patch+json; charset=utf-8"] {
            let before = server.get(&order).json()["order"].clone();
            let note = format!("by {kind}");
            let answer = patch(&server, &order, (kind, &json!({"order": {"note": note}})));
            assert_eq!(answer.status, 200, "{answer:?}");
            let after = answer.json()["order"].clone();
            assert_eq!((&after["note"], &after["items"], &after["status"]), (&json!(note), &before["items"], &before["status"]));
            assert_eq!(after["version"].as_i64(), before["version"].as_i64().map(|version| version + 1));
            assert_eq!(answer.header("ETag"), server.get(&order).header("ETag"));
            assert_eq!(server.get(&order).json()["order"], after);
        }
        // Under the plural too, and members that the server sets are ignored.
        let sent = json!({"orders": {"note": null, "currency": "USD", "version": 1, "total": 7, "created_at": null}});
        let after = patch(&server, &order, (MERGE, &sent)).json()["order"].clone();
        assert_eq!((after.get("note"), &after["currency"], &after["total"]), (None, &json!("USD"), &json!(700)));
        // A list is replaced as a whole, and computed fields follow.
        let items = json!({"order": {"items": [{"product": "cake", "unit_price": 5}, {"product": "tea", "quantity": 3, "unit_price": 2}]}});
        assert_eq!(patch(&server, &order, (MERGE, &items)).json()["order"]["total"], 11);
        // No change, no new version.
        let version = server.get(&order).json()["order"]["version"].clone();
        assert_eq!(patch(&server, &order, (MERGE, &items)).json()["order"]["version"], version);
        assert_eq!(patch(&server, &order, (MERGE, &json!({"order": {}}))).json()["order"]["version"], version);
        let paid = patch(&server, &order, (MERGE, &json!({"order": {"status": "paid"}})));
        assert_eq!((paid.status, &paid.json()["order"]["status"]), (200, &json!("paid")));
    }

    fn json_patch_applies_its_operations_in_order(server: Server) {
        let order = server.create(&format!("{}/orders", server.create("/customers", ANN)), TEA);
        let steps = json!([
            {"op": "test", "path": "/order/items/0/unit_price", "value": 350.0},
            {"op": "add", "path": "/order/items/-", "value": {"product": "cake", "unit_price": 1}},
            {"op": "copy", "from": "/order/items/1", "path": "/order/items/0"},
            {"op": "replace", "path": "/order/items/0/quantity", "value": 4},
            {"op": "move", "from": "/order/items/0/product", "path": "/order/note"},
            {"op": "add", "path": "/order/items/0/product", "value": "pie"},
            {"op": "remove", "path": "/order/items/2"},
            {"op": "replace", "path": "/order/status", "value": "cancelled"},
        ]);
        // The cake has no quantity before the patch adds it.
        check_refusal(&patch_refused(&server, &order, (JSON_PATCH, &steps)), (409, "patch-failed", r#"operation 3: there is nothing at "/order/items/0/quantity""#));
        let mut steps = steps;
        steps[3]["op"] = "add".into();
        let answer = patch(&server, &order, (JSON_PATCH, &steps));
        assert_eq!(answer.status, 200, "{answer:?}");
        let after = answer.json()["order"].clone();
        assert_eq!(after["items"], json!([{"product": "pie", "quantity": 4, "unit_price": 1}, {"product": "tea", "quantity": 2, "unit_price": 350}]));
        assert_eq!((&after["note"], &after["status"], &after["total"], &after["version"]), (&json!("cake"), &json!("cancelled"), &json!(704), &json!(2)));
        assert_eq!(patch(&server, &order, (JSON_PATCH, &json!([]))).json()["order"], after);
    }

    /// A patch is applied as a whole or not at all, and its result is validated against the model.
    fn patch_with_an_invalid_result_changes_nothing(server: Server) {
        let customer = server.create("/customers", ANN);
        let order = server.create(&format!("{customer}/orders"), TEA);
        let before = (server.get(&customer).json(), server.get(&order).json());
        let step = |op: &str, path: &str, value: Value| json!([{"op": op, "path": path, "value": value}]);
        for (path, kind, body, expected) in [
            (&customer, MERGE, json!({"customer": {"name": null}}), (422, "invalid-fields", "/customer/name required")),
            (&customer, MERGE, json!({"customers": {"email": "x"}}), (422, "invalid-fields", "/customers/email format")),
            (&customer, MERGE, json!({"customer": {"nmae": "x"}}), (422, "invalid-fields", "/customer/nmae unknown")),
            (&customer, MERGE, json!({"customer": {"id": "x"}}), (422, "invalid-fields", "/customer/id mismatch")),
            (&customer, MERGE, json!({"customer": null}), (400, "bad-wrapper", "customer: expected an object, got null")),
            (&customer, MERGE, json!({}), (400, "bad-wrapper", r#"expected one key, "customer" or "customers", got 0 keys"#)),
            (&customer, MERGE, json!([]), (400, "bad-wrapper", r#"expected an object with the key "customer", got a list"#)),
            (&order, MERGE, json!({"order": {"status": null}}), (422, "invalid-fields", "/order/status null")),
            (&order, MERGE, json!({"order": {"status": "lost"}}), (422, "invalid-fields", "/order/status one_of")),
            (&order, MERGE, json!({"order": {"status": "delivered"}}), (409, "transition-not-allowed", "the order is placed and cannot become delivered")),
            (&order, JSON_PATCH, json!([{"op": "remove", "path": "/order/status"}]), (422, "invalid-fields", "/order/status null")),
            (&customer, JSON_PATCH, json!([{"op": "remove", "path": "/customer"}]), (422, "invalid-fields", " type")),
            (&customer, JSON_PATCH, json!([{"op": "remove", "path": ""}]), (422, "invalid-fields", " type")),
            (&customer, JSON_PATCH, step("add", "/beside", json!(1)), (422, "invalid-fields", " type")),
            (&customer, JSON_PATCH, step("replace", "/customer/name", json!(7)), (422, "invalid-fields", "/customer/name type")),
            (&customer, JSON_PATCH, step("test", "/customer/name", json!("Bea")), (409, "patch-failed", r#"operation 0: the value at "/customer/name" is another one"#)),
            (&customer, JSON_PATCH, step("replace", "/customers/name", json!("Bea")), (409, "patch-failed", r#"operation 0: there is nothing at "/customers/name""#)),
            (&customer, JSON_PATCH, step("swap", "/customer/name", json!("Bea")), (400, "bad-patch", "operation 0: expected op to be add, remove, replace, move, copy or test")),
            (&customer, JSON_PATCH, json!({"customer": {}}), (400, "bad-patch", "expected a list of operations, got an object")),
        ] {
            check_refusal(&patch_refused(&server, path, (kind, &body)), expected);
        }
        // The last operation fails, and those before it have no effect.
        let steps = json!([{"op": "replace", "path": "/customer/name", "value": "Bea"}, {"op": "test", "path": "/customer/name", "value": "Ann"}]);
        assert_eq!(patch(&server, &customer, (JSON_PATCH, &steps)).status, 409);
        assert_eq!((server.get(&customer).json(), server.get(&order).json()), before);
        assert_eq!(patch(&server, NO_ONE, (MERGE, &json!({"customer": {"name": 7}}))).status, 404);
    }

    /// A patch that grows a small item beyond all limits is stopped on the way.
    fn json_patch_growth_is_limited(backend: Backend) {
        let server = Setup::new(backend).model("title = \"T\"\n[resources.box.fields]\ndata = { type = \"json\" }\n").start();
        let path = server.create("/boxes", r#"{"box":{"data":[["0123456789"]]}}"#);
        let double = json!({"op": "copy", "from": "/box/data/0", "path": "/box/data/0/-"});
        let deeper = json!({"op": "copy", "from": "/box/data", "path": "/box/data/0/-"});
        for step in [double, deeper] {
            let steps = Value::from(vec![step; 500]);
            check_refusal(&patch_refused(&server, &path, (JSON_PATCH, &steps)), (422, "invalid-fields", " length"));
        }
        let many = Value::from(vec![json!({"op": "test", "path": "/box/data/0/0", "value": "0123456789"}); 1_001]);
        check_refusal(&patch_refused(&server, &path, (JSON_PATCH, &many)), (400, "bad-patch", "at most 1000 operations, got 1001"));
        assert_eq!(server.get(&path).json()["box"]["version"], 1);
    }

    fn patch_content_types_and_methods(server: Server) {
        let path = server.create("/customers", ANN);
        let list = "application/merge-patch+json, application/json-patch+json, application/json";
        for kind in ["text/plain", "application/xml", "application/json-patch"] {
            let answer = patch(&server, &path, (kind, &json!({"customer": {}})));
            assert_eq!((answer.status, answer.header("Accept-Patch"), answer.header("Accept")), (415, Some(list), Some(list)));
        }
        let options = server.request(&format!("OPTIONS {path}"), &[], "");
        assert_eq!((options.header("Accept-Patch"), options.header("Allow")), (Some(list), Some("GET, HEAD, PUT, PATCH, DELETE, OPTIONS")));
        assert_eq!(patch(&server, "/customers", (MERGE, &json!({"customer": {}}))).status, 405);
        let tag = |tag: &str, body: &Value| server.request(&format!("PATCH {path}"), &[("If-Match", tag)], body.to_string()).status;
        assert_eq!(tag("\"7\"", &json!({"customer": {"name": 7}})), 412);
        assert_eq!(tag("\"1\"", &json!({"customer": {"name": 7}})), 422);
        assert_eq!(tag("\"1\"", &json!({"customer": {"name": "Bea"}})), 200);
        assert_eq!(tag("\"1\"", &json!({"customer": {"name": "Cem"}})), 412);
    }

    /// Each client patches another field of one item concurrently: no patch is lost.
    fn patch_concurrent_patches_are_all_kept(backend: Backend) {
        let fields: String = (0..16).map(|at| format!("f{at} = {{ type = \"integer\" }}\n")).collect();
        let server = Setup::new(backend).model(&format!("title = \"T\"\n[resources.sheet.fields]\n{fields}")).start();
        let path = server.create("/sheets", r#"{"sheet":{}}"#);
        let (address, start) = (server.address, Barrier::new(16));
        thread::scope(|scope| {
            for at in 0..16 {
                let (path, start) = (&path, &start);
                scope.spawn(move || {
                    let mut client = Client::connect(address);
                    start.wait();
                    for round in 1..=10 {
                        let body = json!({"sheet": {format!("f{at}"): round}}).to_string();
                        let answer = client.request(&format!("PATCH {path}"), &[("Content-Type", MERGE)], body);
                        assert_eq!(answer.status, 200, "{answer:?}");
                    }
                });
            }
        });
        let sheet = server.get(&path).json()["sheet"].clone();
        assert!((0..16).all(|at| sheet[format!("f{at}")] == 10), "{sheet}");
        assert_eq!(sheet["version"], 161);
    }

    /// A patch may set a user's password, which is shown nowhere.
    fn patch_of_a_user_sets_the_password(backend: Backend) {
        let server = Setup::new(backend).with_authentication().start();
        let admin = server.admin();
        let mut session = admin.log_in(&server, "/-/users");
        let created = session.request(&server, "POST /-/users", r#"{"user":{"name":"ann","password":"first password"}}"#);
        let path = created.header("Location").unwrap().to_owned();
        let changed = session.request(&server, &format!("PATCH {path}"), r#"{"user":{"password":"second password","roles":["clerk"]}}"#);
        assert_eq!((changed.status, &changed.json()["user"]["roles"]), (200, &json!(["clerk"])));
        assert!(!String::from_utf8_lossy(&changed.body).contains("password"));
        for (password, expected) in [("first password", 401), ("second password", 200)] {
            let ann = crate::harness::Person { name: "ann".to_owned(), password: password.to_owned() };
            let mut session = ann.log_in(&server, "/customers");
            assert_eq!(session.request(&server, "GET /customers", "").status, expected, "{password}");
        }
        let kept = session.request(&server, &format!("PATCH {path}"), r#"{"user":{"disabled":true}}"#);
        assert_eq!((kept.status, &kept.json()["user"]["disabled"], &kept.json()["user"]["roles"]), (200, &json!(true), &json!(["clerk"])));
        let unfit = session.request(&server, &format!("PATCH {path}"), r#"{"user":{"name":"bea"}}"#);
        assert_eq!(unfit.status, 422);
    }

    /// A role can neither change nor remove a field that it may only read, and hidden fields stay.
    fn patch_stays_within_the_grant_of_its_role(backend: Backend) {
        let model = "title = \"T\"\n[resources.note.fields]\ntext = { type = \"text\" }\nkind = { type = \"text\" }\nsecret = { type = \"text\" }\n\
            tags = { type = \"list\", of = { type = \"text\" } }\n\
            [roles.editor]\nnote = { verbs = [\"get\", \"patch\"], readonly = [\"kind\"], hide = [\"secret\", \"tags\"] }\n";
        let server = Setup::new(backend).model(model).with_authentication().start();
        let mut admin = server.admin().log_in(&server, "/notes");
        let created = admin.request(&server, "POST /notes", r#"{"note":{"text":"a","kind":"b","secret":"c","tags":["e"]}}"#);
        let path = created.header("Location").unwrap().to_owned();
        let editor = crate::harness::Person::new("ed", "a long password");
        server.add_user(&editor, &["editor"]);
        let mut session = editor.log_in(&server, "/notes");
        for (body, status) in [
            (r#"{"note":{"kind":null}}"#, 403),
            (r#"{"note":{"kind":"x"}}"#, 403),
            (r#"{"note":{"secret":null}}"#, 200),
            (r#"{"note":{"secret":"x"}}"#, 422),
            // The stored value of a hidden field is refused like any other value, so that it cannot be guessed.
            (r#"{"note":{"tags":["e"]}}"#, 422),
            (r#"{"note":{"tags":["f"]}}"#, 422),
            (r#"{"note":{"text":"d","kind":"b"}}"#, 200),
        ] {
            let answer = session.request(&server, &format!("PATCH {path}"), body);
            assert_eq!(answer.status, status, "{body}: {answer:?}");
        }
        let stored = admin.request(&server, &format!("GET {path}"), "").json()["note"].clone();
        assert_eq!((&stored["text"], &stored["kind"], &stored["secret"]), (&json!("d"), &json!("b"), &json!("c")));
    }

    /// A default that was declared later is no part of the stored item, and a patch that does not name it would change it.
    fn patch_does_not_fill_in_a_default_that_was_declared_later(backend: Backend) {
        const MODEL: &str = "title = \"Notes\"\n[resources.note.fields]\n\
                             text = { type = \"text\" }\n\
                             mark = { type = \"text\" }\n\
                             place = { type = \"object\", fields = { room = { type = \"text\" }, floor = { type = \"integer\" } } }\n";
        let server = Setup::new(backend).model(MODEL).start();
        let note = server.create("/notes", r#"{"note":{"text":"a","place":{"room":"b"}}}"#);
        let stored = server.get(&note).json();
        let later = MODEL
            .replace("mark = { type = \"text\" }", "mark = { type = \"text\", default = \"-\" }")
            .replace("floor = { type = \"integer\" }", "floor = { type = \"integer\", default = 1 }");
        let server = Setup::new(backend).model(&later).start_in(server.stop());
        for sent in [(MERGE, json!({"note": {}})), (JSON_PATCH, json!([{"op": "test", "path": "/note/text", "value": "a"}]))] {
            assert_eq!(patch(&server, &note, (sent.0, &sent.1)).json(), stored, "{}", sent.0);
        }
        let changed = patch(&server, &note, (MERGE, &json!({"note": {"text": "c"}}))).json()["note"].clone();
        assert_eq!((&changed["text"], changed.get("mark"), &changed["place"]), (&json!("c"), None, &json!({"room": "b"})));
        // An object that the patch names is a new value.
        let named = patch(&server, &note, (MERGE, &json!({"note": {"place": {"room": "d"}}}))).json()["note"].clone();
        assert_eq!((named.get("mark"), &named["place"]), (None, &json!({"room": "d", "floor": 1})));
    }
}
