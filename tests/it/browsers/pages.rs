//! The pages as a person uses them: create, edit, move a state, delete, and an edit that somebody else overtook.

use super::chromium::{Chromium, Tab};
use crate::harness::{Backend, Server, Setup};

pub const MODEL: &str = r#"
title = "Shop"
[resources.customer.fields]
name = { type = "text", required = true, max_length = 200, filter = true }
email = { type = "email" }
tags = { type = "list", of = { type = "text" } }
note = { type = "text", max_length = 2000 }
extra = { type = "json" }
carrier = { type = "ref", to = "carrier" }
[resources.carrier.fields]
name = { type = "text", required = true, max_length = 100, filter = true }
[resources.order]
parent = "customer"
on_delete = "cascade"
[resources.order.fields]
status = { type = "state", initial = "placed", next = { placed = ["paid"], paid = [] } }
"#;

/// Types a text into a control, as the events of a keyboard would.
fn type_into(tab: &Tab<'_>, selector: &str, text: &str) {
    let script = format!(
        "(() => {{ const e = document.querySelector({selector:?}); e.value = {text:?}; \
         e.dispatchEvent(new Event('input', {{ bubbles: true }})); return true }})()"
    );
    tab.run_script(&script);
}

fn click(tab: &Tab<'_>, selector: &str) {
    tab.run_script(&format!("document.querySelector({selector:?}).click()"));
}

fn names(server: &Server) -> Vec<String> {
    let list = server.get("/customers").json();
    let names = list["customers"].as_array().unwrap().iter();
    names.map(|one| one["name"].as_str().unwrap().to_owned()).collect()
}

/// Opens a page, and waits until its script has run.
fn open(tab: &Tab<'_>, server: &Server, path: &str) {
    tab.navigate(&format!("http://{}{path}", server.address), &[]);
    tab.wait_for_text("Times are in");
}

on_every_backend! {
    fn pages_create_edit_and_delete_an_item(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let chromium = Chromium::start();
        let tab = chromium.tab();
        open(&tab, &server, "/customers#new");
        // A fault is shown beside its field, and nothing that was typed is lost.
        type_into(&tab, "#new [name='/email']", "no address");
        click(&tab, "#new [type=submit]");
        tab.wait_for_text("Nothing was saved.");
        let wrong = tab.run_script("[...document.querySelectorAll('[aria-invalid]')].map(e => e.name).join()");
        assert_eq!(wrong.as_str().unwrap(), "/name,/email");
        type_into(&tab, "#new [name='/name']", "Ann <b>Lindqvist</b>");
        type_into(&tab, "#new [name='/email']", "ann@example.com");
        click(&tab, "#new [data-do=add]");
        type_into(&tab, "#new [name='/tags/0']", "vip");
        click(&tab, "#new [type=submit]");
        tab.wait_for_text("Created.");
        assert!(tab.text().contains("Ann <b>Lindqvist</b>"), "{}", tab.text());
        let item = server.get("/customers").json()["customers"][0].clone();
        assert_eq!((&item["email"], &item["tags"]), (&"ann@example.com".into(), &serde_json::json!(["vip"])));

        let path = format!("/customers/{}", item["id"].as_str().unwrap());
        server.create(&format!("{path}/orders"), r#"{"order":{}}"#);
        click(&tab, "[data-key=e]");
        type_into(&tab, "#edit [name='/name']", "Ann");
        click(&tab, "#edit [type=submit]");
        tab.wait_for_text("Saved. Version 2.");
        assert_eq!(names(&server), ["Ann"]);

        // The old version, from the history.
        click(&tab, "[data-do=restore]");
        tab.wait_for_text("Restored version 1. Version 3.");
        assert_eq!(names(&server), ["Ann <b>Lindqvist</b>"]);

        click(&tab, "[data-dialog='#delete']");
        tab.wait_for_text("Its 1 order is deleted with it.");
        click(&tab, "#delete [data-do=remove]");
        tab.wait_for_text("Deleted.");
        assert!(names(&server).is_empty());
    }

    fn pages_replace_values_instead_of_merging_them(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let carriers = ["Alfa", "Beta"].map(|name| {
            let path = server.create("/carriers", format!(r#"{{"carrier":{{"name":"{name}"}}}}"#));
            path.rsplit('/').next().unwrap().to_owned()
        });
        let extra = serde_json::json!({"a": 1, "b": null, "c": {"d": 2}});
        let body = serde_json::json!({"customer": {
            "name": "Ann", "email": "a@example.com", "tags": ["x"], "extra": extra, "carrier": carriers[0],
        }});
        let path = server.create("/customers", body.to_string());
        let item = || server.get(&path).json()["customer"].clone();
        let chromium = Chromium::start();
        let tab = chromium.tab();
        open(&tab, &server, &format!("{path}#edit"));
        // A text that is no id and was not chosen is not sent, nor is the item that was chosen before.
        type_into(&tab, "#edit [role=combobox]", "Gamma");
        type_into(&tab, "#edit [name='/extra']", r#"{"b":null}"#);
        type_into(&tab, "#edit [name='/email']", "");
        click(&tab, "#edit [data-do=drop]");
        click(&tab, "#edit [type=submit]");
        tab.wait_for_text("choose one from the list, or type an id");
        assert_eq!(item()["version"], 1);
        type_into(&tab, "#edit [role=combobox]", &carriers[1]);
        click(&tab, "#edit [type=submit]");
        tab.wait_for_text("Saved. Version 2.");
        let saved = item();
        assert_eq!((&saved["extra"], &saved["tags"]), (&serde_json::json!({"b": null}), &serde_json::json!([])));
        assert_eq!((saved.get("email"), &saved["carrier"]), (None, &serde_json::json!(carriers[1])));
        click(&tab, "[data-do=restore]");
        tab.wait_for_text("Restored version 1. Version 3.");
        let restored = item();
        for name in ["name", "email", "tags", "extra", "carrier"] {
            assert_eq!(restored[name], body["customer"][name], "{name}");
        }
    }

    fn pages_move_a_state_and_follow_changes(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let ann = server.create("/customers", r#"{"customer":{"name":"Ann"}}"#);
        let order = server.create(&format!("{ann}/orders"), r#"{"order":{}}"#);
        let chromium = Chromium::start();
        let tab = chromium.tab();
        open(&tab, &server, &order);
        click(&tab, "[data-do=move]");
        tab.wait_for_text("Now paid.");
        assert_eq!(server.get(&order).json()["order"]["status"], "paid");

        open(&tab, &server, "/customers");
        tab.wait_for_text("Live");
        server.put(&ann, r#"{"customer":{"name":"Anna"}}"#);
        tab.wait_for_text("Anna");
        server.create("/customers", r#"{"customer":{"name":"Bea"}}"#);
        tab.wait_for_text("1 new, show");
        assert!(!tab.text().contains("Bea"), "new rows are announced, not inserted");
    }

    fn pages_show_both_versions_of_a_stale_edit(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        // A line break in a short text is no change of the person's.
        let body = r#"{"customer":{"name":"Ann","email":"a@example.com","note":"old","tags":["a\nb"]}}"#;
        let path = server.create("/customers", body);
        let chromium = Chromium::start();
        let tab = chromium.tab();
        open(&tab, &server, &format!("{path}#edit"));
        type_into(&tab, "#edit [name='/name']", "Mine");
        server.put(&path, r#"{"customer":{"name":"Theirs","note":"new","tags":["a\nb"]}}"#);
        click(&tab, "#edit [type=submit]");
        tab.wait_for_text("Somebody else saved first. Nothing of yours is lost.");
        let shown = tab.text();
        assert!(shown.contains("Mine") && shown.contains("Theirs") && shown.contains("only they changed this"), "{shown}");
        assert_eq!(names(&server), ["Theirs"], "nothing is merged without a look");
        click(&tab, "[data-merge=save]");
        tab.wait_for_text("Saved. Version 3.");
        let item = server.get(&path).json()["customer"].clone();
        assert_eq!((&item["name"], &item["note"]), (&"Mine".into(), &"new".into()));
        assert_eq!(item["tags"], serde_json::json!(["a\nb"]));
    }
}
