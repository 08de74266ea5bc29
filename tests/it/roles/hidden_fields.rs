//! Hidden fields: the response is exactly that for a field that does not exist.
//!
//! Each request is sent twice: with the name of the hidden field, and with a meaningless one of the
//! same length. After replacing one name by the other, both responses are the same to the byte, head
//! and body.

use serde_json::{Value, json};

use super::{CreatedItems, PermissionsFixture};
use crate::harness::{Backend, Masks};

/// A role, its hidden field, the field's place, and its item and collection.
const HIDDEN: &[(&str, &str, &str, &str, &str)] = &[
    ("member", "team", "budget", "{mine}", "/teams"),
    ("member", "team", "nickname", "{mine}", "/teams"),
    ("member", "project", "code", "{mine.live}", "{mine}/projects"),
    ("member", "project", "cost", "{mine.live}", "{mine}/projects"),
    ("member", "project", "rate", "{mine.live}", "{mine}/projects"),
    ("member", "task", "points", "{mine.live.own}", "{mine.live}/tasks"),
    ("clerk", "project", "code", "{mine.live}", "{mine}/projects"),
];

/// Letters that resemble no name.
const MEANINGLESS: &str = "qxzjvqwkq";

/// The placeholder of the name.
const PLACEHOLDER: &str = "NAME";

/// Queries in which a field may be named.
fn queries() -> Vec<String> {
    let mut all: Vec<String> =
        ["NAME=1", "NAME", "NAME=", "NAME:eq=1", "NAME:gt=0", "NAME:exists=true", "NAME.a=1"]
            .map(str::to_owned)
            .to_vec();
    for control in [
        "sort=NAME",
        "sort=-NAME",
        "fields=NAME",
        "fields=id,NAME",
        "expand=NAME",
        "q=NAME",
        "NAME=1&NAME=2",
        "any=(NAME=1)",
        "any=(id:exists=true;not(NAME:exists=true))",
        "not=(NAME=1)",
        "NAME:has=1",
        "NAME:between=1,2",
    ] {
        all.push(control.to_owned());
    }
    all.push("limit=1&NAME=1".to_owned());
    all
}

/// Bodies in which a field may be named: with every kind of value, at every position.
fn bodies(resource: &str) -> Vec<String> {
    let plain = |resource: &str| match resource {
        "team" => json!({"name": "new", "lead": "ann"}),
        "project" => json!({"title": "new", "place": {"city": "Rome"}}),
        _ => json!({"text": "new", "assignee": "ann"}),
    };
    let with = |value: Value| {
        let mut item = plain(resource);
        item[PLACEHOLDER] = value;
        item
    };
    let mut bodies = Vec::new();
    for value in [
        json!(1),
        json!(5),
        json!(-9.5),
        json!("x"),
        json!("9.50"),
        json!(null),
        json!(true),
        json!([]),
        json!({}),
        json!([{"a": 1}]),
    ] {
        bodies.push(json!({resource: with(value.clone())}));
        bodies.push(json!({resource: {PLACEHOLDER: value}}));
    }
    bodies.push(json!({format!("{resource}s"): [plain(resource), with(json!(1))]}));
    bodies.push(json!({PLACEHOLDER: plain(resource)}));
    bodies.push(json!({resource: {"place": {PLACEHOLDER: 1}}}));
    bodies.push(json!({resource: plain(resource), PLACEHOLDER: 1}));
    let mut bodies: Vec<String> = bodies.iter().map(Value::to_string).collect();
    bodies.push(format!(r#"{{"{resource}":{{"NAME":1,"NAME":2}}}}"#));
    bodies.push(format!(r#"{{"{resource}":{{"NAME":1"#));
    bodies
}

on_every_backend! {
    fn hidden_field_responses_equal_those_of_an_unknown_field(backend: Backend) {
        let mut office = PermissionsFixture::open(backend);
        let rows = CreatedItems::make(&mut office, "x");
        let mut compared = 0;
        for (role, resource, hidden, item, collection) in HIDDEN {
            office.set_role(role);
            let unknown = match (*role, *hidden) {
                // The clerk may know `cost`, to which this one is as similar.
                ("clerk", _) => "coxe",
                // Without its first letter it is as similar to `name`, which every caller knows.
                (_, "nickname") => "qxzjname",
                // As similar to `sort`.
                (_, "cost") => "xoxt",
                (_, hidden) => &MEANINGLESS[..hidden.len()],
            };
            let (item, collection) = (rows.with_paths(item), rows.with_paths(collection));
            let mut asked = Vec::new();
            for query in queries() {
                for (method, path) in [("GET", &collection), ("HEAD", &collection), ("GET", &item), ("POST", &collection), ("PUT", &item), ("DELETE", &item), ("OPTIONS", &item)] {
                    asked.push((format!("{method} {path}?{query}"), String::new()));
                }
            }
            for body in bodies(resource) {
                asked.push((format!("POST {collection}"), body.clone()));
                asked.push((format!("PUT {item}"), body));
            }
            for line in [format!("GET {item}/NAME"), format!("GET {collection}/NAME"), format!("PATCH {item}/NAME")] {
                asked.push((line, String::new()));
            }
            for (line, body) in asked {
                // Without its first letter it is as similar to the hidden name as possible.
                for cut in 0..2 {
                    let [hidden, unknown] = [&hidden[cut..], &unknown[cut..]];
                    let mut ask = |name: &str| {
                        let answer = office.request(&line.replace(PLACEHOLDER, name), &body.replace(PLACEHOLDER, name));
                        assert_ne!(answer.status, 500, "{answer:?}");
                        Masks::default().answer(&answer).replace(unknown, hidden)
                    };
                    let (theirs, ours) = (ask(unknown), ask(hidden));
                    assert_eq!(ours, theirs, "{role}, {resource}.{hidden}: {line} {body}");
                }
                compared += 1;
            }
        }
        assert!(compared > 500, "{compared}");
        // The requests have changed nothing that could be distinguished later.
        office.set_role("admin");
        assert_eq!(office.request(&rows.with_paths("GET {mine}"), "").json()["team"]["budget"], "9.50");
    }
}
