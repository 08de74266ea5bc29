//! Checks: rules about several values of an item.

use std::fs;

use expect_test::expect;
use serde_json::json;

use super::faults;
use crate::harness::{Backend, Folder, Person, Server, Setup, run_nouns};

const MODEL: &str = r#"
title = "Rooms"

[resources.booking]
check = [
  { that = "ends > starts", message = "the booking ends before it starts" },
  { that = "guests <= room.beds * 2", message = "too many guests for the beds" },
  { that = "limit = 0 or total <= limit", message = "more than the limit" },
]

[resources.booking.fields]
starts = { type = "date", required = true }
ends   = { type = "date" }
guests = { type = "integer", default = 1 }
room   = { type = "object", fields = { beds = { type = "integer" } } }
price  = { type = "decimal", default = 0 }
total  = { type = "decimal", computed = "price * guests" }
limit  = { type = "integer", default = 0 }

[roles.guest]
booking = { verbs = ["get", "post", "put", "patch"], hide = ["limit"] }

[roles.clerk]
booking = { verbs = ["get", "put", "patch"], readonly = ["starts"] }

[roles.porter]
booking = { verbs = ["get", "patch"], hide = ["total", "limit"] }
"#;

fn booking(members: &serde_json::Value) -> String {
    json!({ "booking": members }).to_string()
}

on_every_backend! {
    /// Each broken check is a fault at each field that it names, also inside objects, with its message.
    fn check_that_fails_is_reported_at_each_of_its_fields(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let body = json!({"starts": "2026-11-18", "ends": "2026-11-18", "guests": 5, "room": {"beds": 2},
                          "price": "10", "limit": 49});
        expect![[r#"
            422 invalid-fields
            /booking/ends | check | the booking ends before it starts
            /booking/starts | check | the booking ends before it starts
            /booking/guests | check | too many guests for the beds
            /booking/room/beds | check | too many guests for the beds
            /booking/limit | check | more than the limit
            /booking/total | check | more than the limit"#]].assert_eq(&faults(&server.post("/bookings", booking(&body))));
        assert_eq!(server.get("/bookings").json()["bookings"], json!([]));
        let path = server.create("/bookings", booking(&json!({"starts": "2026-11-18", "ends": "2026-11-19"})));
        expect![[r#"
            422 invalid-fields
            /booking/ends | check | the booking ends before it starts
            /booking/starts | check | the booking ends before it starts"#]].assert_eq(&faults(&server.put(&path, booking(&json!({"starts": "2026-11-19", "ends": "2026-11-19"})))));
        let merge = [("Content-Type", "application/merge-patch+json")];
        let patch = |body: &str| server.request(&format!("PATCH {path}"), &merge, body);
        expect![[r#"
            422 invalid-fields
            /booking/ends | check | the booking ends before it starts
            /booking/starts | check | the booking ends before it starts"#]].assert_eq(&faults(&patch(r#"{"booking":{"starts":"2026-11-20"}}"#)));
        let steps = r#"[{"op":"replace","path":"/booking/ends","value":"2026-11-17"}]"#;
        let patched = server.request(&format!("PATCH {path}"), &[("Content-Type", "application/json-patch+json")], steps);
        assert_eq!(faults(&patched).lines().count(), 3, "{patched:?}");
        assert_eq!(patch(r#"{"booking":{"starts":"2026-11-20","ends":"2026-11-21"}}"#).status, 200);
        assert_eq!(server.get(&path).json()["booking"]["version"], 2, "a refused request changes nothing");
    }

    /// As a CHECK of SQL: only false fails.
    fn check_passes_where_a_value_is_absent(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let path = server.create("/bookings", booking(&json!({"starts": "2026-11-18", "guests": 90})));
        let ends = booking(&json!({"ends": "2026-11-17"}));
        let merge = [("Content-Type", "application/merge-patch+json")];
        assert_eq!(server.request(&format!("PATCH {path}"), &merge, &ends).status, 422);
        // The value that makes it false can be removed again.
        let later = booking(&json!({"ends": "2026-11-19"}));
        assert_eq!(server.request(&format!("PATCH {path}"), &merge, &later).status, 200);
        let removed = booking(&json!({"ends": null, "starts": "2026-12-24"}));
        assert_eq!(server.request(&format!("PATCH {path}"), &merge, &removed).status, 200);
    }

    /// A result that cannot be computed is not a value that passes.
    fn check_that_divides_by_zero_fails(backend: Backend) {
        let model = "title = \"T\"\n[resources.share]\n\
            check = [{ that = \"100 / parts >= 1\", message = \"too many parts\" }]\n\
            [resources.share.fields]\nparts = { type = \"integer\" }\n";
        let server = Setup::new(backend).model(model).start();
        let post = |parts: i64| server.post("/shares", json!({"share": {"parts": parts}}).to_string());
        assert_eq!(post(100).status, 201);
        for parts in [0, 101] {
            assert_eq!(faults(&post(parts)), "422 invalid-fields\n/share/parts | check | too many parts");
        }
    }

    /// A list is created as a whole, or not at all.
    fn check_holds_for_every_item_of_a_bulk_and_an_import(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let body = json!({"bookings": [
            {"starts": "2026-11-18", "ends": "2026-11-19"},
            {"starts": "2026-11-18", "ends": "2026-11-17"},
        ]});
        expect![[r#"
            422 invalid-fields
            /bookings/1/ends | check | the booking ends before it starts
            /bookings/1/starts | check | the booking ends before it starts"#]].assert_eq(&faults(&server.post("/bookings", body.to_string())));
        let csv = [("Content-Type", "text/csv")];
        let rows = "starts,ends\r\n2026-11-18,2026-11-17\r\n";
        assert_eq!(server.request("POST /bookings", &csv, rows).status, 422);
        fs::write(server.folder().join("in.csv"), "starts,ends\n2026-11-18,2026-11-19\n2026-11-18,2026-11-17\n").unwrap();
        fs::write(server.folder().join("model.toml"), MODEL).unwrap();
        let database = server.database();
        let ended = run_nouns(server.folder(), &["import", "booking", "in.csv", "--model", "model.toml", "--database", &database]);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.stderr.contains("line 3: starts: the booking ends before it starts"), "{}", ended.stderr);
        assert_eq!(server.get("/bookings").json()["bookings"], json!([]));
    }

    /// Neither a hidden field nor a message that may be about it is shown; the rule holds all the same.
    fn check_does_not_name_hidden_fields(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).with_authentication().start();
        let (guest, porter) = (Person::new("gus", "guest of the house"), Person::new("pia", "porter of the house"));
        server.add_user(&guest, &["guest"]);
        server.add_user(&porter, &["porter"]);
        let admin = server.admin().basic();
        let body = booking(&json!({"starts": "2026-11-18", "price": "10", "limit": 30}));
        let created = server.request("POST /bookings", &[("Authorization", &admin)], body);
        let path = created.header("Location").unwrap().to_owned();
        let patch = |person: &Person| {
            let headers = [("Authorization", &*person.basic()), ("Content-Type", "application/merge-patch+json")];
            server.request(&format!("PATCH {path}"), &headers, booking(&json!({"guests": 4})))
        };
        expect![[r#"
            422 invalid-fields
            /booking/total | check | the values together break a rule of the model"#]].assert_eq(&faults(&patch(&guest)));
        expect![[r#"
            422 invalid-fields
            /booking | check | the values together break a rule of the model"#]].assert_eq(&faults(&patch(&porter)));
        let document = |person: &Person| {
            let headers = [("Authorization", &*person.basic())];
            server.request("GET /-/openapi.json", &headers, "").json()["components"]["schemas"]["booking"]["description"].to_string()
        };
        expect![[r#""`ends > starts` must hold (the booking ends before it starts). `guests <= room.beds * 2` must hold (too many guests for the beds).""#]].assert_eq(&document(&guest));
        expect![[r#""`ends > starts` must hold (the booking ends before it starts). `guests <= room.beds * 2` must hold (too many guests for the beds). `limit = 0 or total <= limit` must hold (more than the limit).""#]].assert_eq(&document(&server.admin()));
    }

    /// A field that the caller may not change is part of the rule, and of the message.
    fn check_with_a_readonly_field_names_it(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).with_authentication().start();
        let clerk = Person::new("cleo", "clerk of the house");
        server.add_user(&clerk, &["clerk"]);
        let admin = server.admin().basic();
        let body = booking(&json!({"starts": "2026-11-18"}));
        let created = server.request("POST /bookings", &[("Authorization", &admin)], body);
        let path = created.header("Location").unwrap().to_owned();
        let headers = [("Authorization", &*clerk.basic())];
        let put = server.request(&format!("PUT {path}"), &headers, booking(&json!({"ends": "2026-11-17"})));
        expect![[r#"
            422 invalid-fields
            /booking/ends | check | the booking ends before it starts
            /booking/starts | check | the booking ends before it starts"#]].assert_eq(&faults(&put));
    }

    /// A model that drops a check starts; one that adds it needs `nouns migrate`, which names the items in the way.
    fn check_is_a_stricter_rule_for_stored_items(backend: Backend) {
        let without = "title = \"T\"\n[resources.span]\nid = \"integer\"\n[resources.span.fields]\n\
            low = { type = \"integer\" }\nhigh = { type = \"integer\" }\n";
        let with = without.replace("id = ", "check = [{ that = \"low <= high\", message = \"low is above high\" }]\nid = ");
        let server = Setup::new(backend).model(without).start();
        server.create("/spans", r#"{"span":{"low":2,"high":1}}"#);
        let folder = server.stop();
        let Err((ended, folder)) = Setup::new(backend).model(&with).try_start_in(folder) else { panic!("it serves") };
        assert!(ended.stderr.contains("span.low+high: the check `low <= high` is new"), "{}", ended.stderr);
        let server = Setup::new(backend).model(without).start_in(folder);
        assert_eq!(server.delete("/spans/1").status, 204);
        // Without items there is nothing in the way.
        let server = Setup::new(backend).model(&with).start_in(server.stop());
        assert_eq!(server.post("/spans", r#"{"span":{"low":2,"high":1}}"#).status, 422);
        server.create("/spans", r#"{"span":{"low":1,"high":2}}"#);
        let server = Setup::new(backend).model(without).start_in(server.stop());
        assert_eq!(server.post("/spans", r#"{"span":{"low":2,"high":1}}"#).status, 201);
    }

    /// A check about new fields only cannot be broken by items that do not have them.
    fn check_of_new_fields_needs_no_migration(backend: Backend) {
        let old = "title = \"T\"\n[resources.span.fields]\nname = { type = \"text\" }\n";
        let new = |low: &str| format!(
            "title = \"T\"\n[resources.span]\ncheck = [{{ that = \"low <= high\", message = \"low is above high\" }}]\n\
             [resources.span.fields]\nname = {{ type = \"text\" }}\nlow = {{ type = \"integer\"{low} }}\nhigh = {{ type = \"integer\", default = 3 }}\n"
        );
        let server = Setup::new(backend).model(old).start();
        let path = server.create("/spans", r#"{"span":{"name":"a"}}"#);
        let folder: Folder = server.stop();
        let Err((ended, folder)) = Setup::new(backend).model(&new(", default = 4")).try_start_in(folder) else { panic!("it serves") };
        assert!(ended.stderr.contains("the check `low <= high` is new"), "{}", ended.stderr);
        let server = Setup::new(backend).model(&new("")).start_in(folder);
        assert_eq!(server.put(&path, r#"{"span":{"low":4}}"#).status, 422);
        assert_eq!(server.put(&path, r#"{"span":{"low":2}}"#).status, 200);
    }
}

/// The rule holds while a server with it runs.
#[test]
fn check_of_a_running_server_is_not_dropped() {
    let with = "title = \"T\"\n[resources.span]\n\
        check = [{ that = \"low <= high\", message = \"low is above high\" }]\n\
        [resources.span.fields]\nlow = { type = \"integer\" }\nhigh = { type = \"integer\" }\n";
    let server: Server = Setup::new(Backend::Postgres).model(with).start();
    let (_, start) = with.split_once("check").unwrap();
    let without =
        format!("title = \"T\"\n[resources.span]\n{}", start.split_once("]\n").unwrap().1);
    let setup = Setup::replica(server.database()).model(&without);
    let Err((ended, _)) = setup.try_start_in(Folder::new()) else { panic!("it serves") };
    assert!(
        ended.stderr.contains("span.low+high: the check `low <= high` holds"),
        "{}",
        ended.stderr
    );
}
