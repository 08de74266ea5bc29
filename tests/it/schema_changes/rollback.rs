//! Rollback of a deployment: a start with the older model keeps what the newer one has stored.
//!
//! The older server neither shows nor changes the retained fields and resources, and the newer one finds them again.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::schema;
use crate::harness::{Backend, FinishedProcess, Folder, Server, Setup, run_sql, wait_until};

const OLD: &str = r#"
title = "Shop"
[resources.customer]
[resources.customer.fields]
name = { type = "text", required = true, filter = true }
[roles.clerk]
customer = ["get", "post", "put", "patch", "delete"]
"/-/changes" = ["get"]
[roles.reader]
"*" = ["get", "put"]
"/-/changes" = ["get"]
"#;

/// With fields and resources of every kind that can be added to a database with items.
const NEW: &str = r#"
title = "Shop"
[resources.customer]
unique = [["name", "note"]]
check = [{ that = "level > 0", message = "no level" }, { that = "note != name", message = "no news" }]
[resources.customer.fields]
name = { type = "text", required = true, filter = true }
note = { type = "text", filter = true }
level = { type = "integer", default = 3 }
label = { type = "text", unique = true }
friend = { type = "ref", to = "customer" }
[resources.order]
parent = "customer"
on_delete = "cascade"
[resources.order.fields]
sum = { type = "integer" }
[resources.badge.fields]
owner = { type = "ref", to = "customer" }
[roles.clerk]
customer = ["get", "post", "put", "patch", "delete"]
"/-/changes" = ["get"]
"#;

fn start(backend: Backend, model: &str, folder: Folder) -> Server {
    Setup::new(backend).model(model).start_in(folder)
}

fn refused(backend: Backend, model: &str, folder: Folder) -> (FinishedProcess, Folder) {
    let Err(ended) = Setup::new(backend).model(model).try_start_in(folder) else {
        panic!("it serves")
    };
    ended
}

/// A database of the new model with a customer who has everything; returns the paths of Ann and of Bob.
fn filled(backend: Backend) -> (Folder, String, String) {
    let server = Setup::new(backend).model(NEW).start();
    let bob = server.create("/customers", r#"{"customer":{"name":"Bob"}}"#);
    let friend = bob.rsplit_once('/').unwrap().1;
    let ann = json!({"customer": {"name": "Ann", "note": "likes tea", "level": 7, "label": "a1", "friend": friend}});
    let ann = server.create("/customers", ann.to_string());
    server.create(&format!("{ann}/orders"), r#"{"order":{"sum":12}}"#);
    server.create("/badges", json!({"badge": {"owner": friend}}).to_string());
    (server.stop(), ann, bob)
}

/// The names of the members of an object.
fn members(of: &Value) -> Vec<&str> {
    let mut names: Vec<&str> = of.as_object().unwrap().keys().map(String::as_str).collect();
    names.sort_unstable();
    names
}

fn tables(backend: Backend, folder: &Path) -> String {
    let all = schema(backend, folder);
    // The last lines are the stored model.
    all.split("[resources.").next().unwrap().to_owned()
}

const DECLARED: [&str; 5] = ["created_at", "id", "name", "updated_at", "version"];

on_every_backend! {
    fn rollback_to_a_model_without_optional_fields_and_resources_hides_and_keeps_them(backend: Backend) {
        let (folder, ann, bob) = filled(backend);
        let before = tables(backend, folder.path());
        let server = start(backend, OLD, folder);
        let hidden = "customer.note, customer.level, customer.label, customer.friend, order, badge";
        wait_until("it is logged", || server.log().contains(hidden).then_some(()));
        assert_eq!(tables(backend, server.folder()), before);
        assert_eq!(members(&server.get(&ann).json()["customer"]), DECLARED);
        let list = server.get("/customers").json();
        assert_eq!(members(&list["customers"][0]), DECLARED);
        for path in ["/badges", "/-/schemas/badge", "/-/docs/badge", &format!("{ann}/orders"), "/orders"] {
            assert_eq!(server.get(path).status, 404, "{path}");
        }
        for query in ["note=likes%20tea", "sort=level", "fields=label"] {
            assert_eq!(server.get(&format!("/customers?{query}")).status, 400, "{query}");
        }
        let (home, document) = (server.get("/"), server.get("/-/openapi.json"));
        let (home, document) = (home.text(), document.text());
        for hidden in ["note", "label", "badge", "friend"] {
            assert!(!home.contains(hidden) && !document.contains(&format!("\"{hidden}\"")), "{hidden}");
        }
        let sent = server.put(&ann, r#"{"customer":{"name":"Anne","note":"none"}}"#);
        assert_eq!(sent.status, 422, "{}", sent.text());
        // A check that reads a retained field still holds, without its message.
        let refused = server.put(&ann, r#"{"customer":{"name":"likes tea"}}"#);
        let fault = json!({"pointer": "/customer/name", "code": "check", "detail": "the values together break a rule of the model"});
        assert_eq!((refused.status, &refused.json()["errors"]), (422, &json!([fault])));
        assert_eq!(server.put(&ann, r#"{"customer":{"name":"Anne"}}"#).status, 200);
        let merged = [("Content-Type", "application/merge-patch+json")];
        assert_eq!(server.request(&format!("PATCH {bob}"), &merged, r#"{"customer":{"name":"Rob"}}"#).status, 200);
        let carol = server.create("/customers", r#"{"customer":{"name":"Carol"}}"#);
        // The badge refers to Bob, and the database enforces it.
        assert_eq!(server.delete(&bob).status, 409);
        let entries = server.get("/-/changes").json();
        let entries = entries["changes"].as_array().unwrap();
        assert_eq!(entries.len(), 5, "{entries:?}");
        assert!(entries.iter().all(|entry| entry["resource"] == "customer"), "{entries:?}");
        assert!(!server.get("/-/changes").text().contains("likes tea"));

        let server = start(backend, NEW, server.stop());
        assert_eq!(tables(backend, server.folder()), before);
        let found = server.get(&ann).json()["customer"].clone();
        let friend = bob.rsplit_once('/').unwrap().1;
        let kept = json!([found["name"], found["note"], found["level"], found["label"], found["friend"]]);
        assert_eq!(kept, json!(["Anne", "likes tea", 7, "a1", friend]));
        assert_eq!(server.get(&carol).json()["customer"]["level"], 3);
        assert_eq!(server.get(&format!("{ann}/orders")).json()["orders"][0]["sum"], 12);
        let entry = server.get(&format!("/-/changes?subject={ann}")).json();
        let entry = entry["changes"].as_array().unwrap().last().unwrap().clone();
        assert_eq!((&entry["kind"], &entry["after"]["note"]), (&json!("updated"), &json!("likes tea")), "{entry}");
    }

    fn rollback_hides_retained_fields_from_roles_too(backend: Backend) {
        let (folder, ann, _) = filled(backend);
        let server = Setup::new(backend).model(OLD).with_authentication().start_in(folder);
        let clerk = crate::harness::Person::new("ann", "Circle of Life");
        server.add_user(&clerk, &["clerk"]);
        let reader = crate::harness::Person::new("bob", "Circle of Life");
        server.add_user(&reader, &["reader"]);
        for login in [server.admin().basic(), clerk.basic(), reader.basic()] {
            let login = [("Authorization", login.as_str())];
            let item = server.request(&format!("GET {ann}"), &login, "");
            assert_eq!(members(&item.json()["customer"]), DECLARED);
            assert_eq!(server.request("GET /badges", &login, "").status, 404);
            for path in ["/", "/-/openapi.json"] {
                let known = server.request(&format!("GET {path}"), &login, "");
                assert!(known.text().contains("customer") && !known.text().contains("badge"), "{path}");
            }
            assert!(!server.request("GET /-/changes", &login, "").text().contains("likes tea"));
            let body = r#"{"customer":{"name":"Anne"}}"#;
            assert_eq!(server.request(&format!("PUT {ann}"), &login, body).status, 200);
        }
        let note = "SELECT note FROM customers WHERE name = 'Anne'";
        assert_eq!(run_sql(backend, server.folder(), note), "likes tea\n");
    }

    fn rollback_exports_and_imports_declared_fields_only(backend: Backend) {
        let (folder, ..) = filled(backend);
        let server = start(backend, OLD, folder);
        let database = server.database();
        let folder = server.stop();
        fs::write(folder.path().join("old.toml"), OLD).unwrap();
        let run = |words: &[&str]| {
            let all = [words, &["--model", "old.toml", "--database", &database]].concat();
            crate::harness::run_nouns(folder.path(), &all)
        };
        let ended = run(&["export", "customer", "--format", "csv"]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let head = ended.stdout.lines().next().unwrap();
        assert!(head.contains("name") && !head.contains("note"), "{head}");
        fs::write(folder.path().join("new.csv"), "name\nDora\n").unwrap();
        let ended = run(&["import", "customer", "new.csv"]);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        fs::write(folder.path().join("bad.csv"), "name,note\nEve,x\n").unwrap();
        assert_ne!(run(&["import", "customer", "bad.csv"]).code, Some(0));
        assert_ne!(run(&["export", "badge", "--format", "csv"]).code, Some(0));
        let level = "SELECT level FROM customers WHERE name = 'Dora'";
        assert_eq!(run_sql(backend, folder.path(), level), "3\n");
    }

    fn rollback_with_a_unique_rule_over_a_default_is_refused(backend: Backend) {
        let more = "level = { type = \"integer\", default = 3 }\n[roles.clerk]";
        let model = OLD.replace("[roles.clerk]", more).replace("[resources.customer]\n", "[resources.customer]\nunique = [[\"name\", \"level\"]]\n");
        let server = Setup::new(backend).model(&model).start();
        server.create("/customers", r#"{"customer":{"name":"Bob"}}"#);
        let (ended, _) = refused(backend, OLD, server.stop());
        assert!(ended.stderr.contains("customer.level: the field was removed"), "{}", ended.stderr);
    }

    fn rollback_cascades_to_retained_items_and_logs_them(backend: Backend) {
        let (folder, ann, _) = filled(backend);
        let server = start(backend, OLD, folder);
        assert_eq!(server.delete(&ann).status, 204);
        let log = "SELECT count(*) FROM nouns_changes WHERE resource = 'order' AND kind = 'deleted'";
        assert_eq!(run_sql(backend, server.folder(), log), "1\n");
    }

    fn rollback_that_also_changes_something_is_refused(backend: Backend) {
        let (mut folder, ..) = filled(backend);
        let required = NEW.replace("note = { type = \"text\", filter", "note = { type = \"text\", required = true, filter");
        let renamed = OLD.replace("[roles.clerk]", "notes = { type = \"text\" }\n[roles.clerk]");
        let stricter = OLD.replace("required = true", "required = true, max_length = 2");
        for model in [renamed, stricter] {
            let before = schema(backend, folder.path());
            let (ended, same) = refused(backend, &model, folder);
            assert_eq!(ended.code, Some(2));
            assert!(ended.stderr.contains("customer.note: the field was removed"), "{}", ended.stderr);
            assert_eq!(schema(backend, same.path()), before);
            folder = same;
        }
        // Items cannot be created without the field.
        let server = Setup::new(backend).model(&required).start();
        server.create("/customers", r#"{"customer":{"name":"Bob","note":"x"}}"#);
        let (ended, _) = refused(backend, OLD, server.stop());
        assert_eq!(ended.code, Some(2));
    }
    /// All items of one day, or of one user, would have the same value of a hidden field with a unique rule.
    fn rollback_is_refused_if_made_values_of_retained_fields_would_clash(backend: Backend) {
        let day = r#"day = { type = "date", unique = true, default = { from = "now" } }"#;
        let owner = r#"owner = { type = "text", required = true, default = { from = "user" } }"#;
        for field in [day, owner] {
            let newer = OLD.replace("[roles.clerk]", &format!("{field}\n[roles.clerk]"));
            let server = Setup::new(backend).model(&newer).start();
            if field == day {
                server.create("/customers", r#"{"customer":{"name":"Bob"}}"#);
            } else {
                server.create("/customers", r#"{"customer":{"name":"Bob","owner":"ann"}}"#);
            }
            let (ended, _) = refused(backend, OLD, server.stop());
            assert_eq!(ended.code, Some(2), "{field}");
        }
    }

    fn rollback_with_created_by_turned_off_keeps_the_names(backend: Backend) {
        let with = |setting: &str| OLD.replace("[resources.customer]\n", &format!("[resources.customer]\ncreated_by = {setting}\n"));
        let server = Setup::new(backend).model(&with("true")).with_authentication().start();
        let login = server.admin().basic();
        let login = [("Authorization", login.as_str())];
        let made = server.request("POST /customers", &login, r#"{"customer":{"name":"Bob"}}"#);
        let path = made.header("Location").unwrap().to_owned();
        let server = Setup::new(backend).model(&with("false")).with_authentication().start_in(server.stop());
        let item = server.request(&format!("GET {path}"), &login, "").json();
        assert_eq!(members(&item["customer"]), DECLARED);
        let server = Setup::new(backend).model(&with("true")).with_authentication().start_in(server.stop());
        let item = server.request(&format!("GET {path}"), &login, "").json();
        assert_eq!(item["customer"]["created_by"], "admin");
    }
}
