//! The scripts of `tests/pages`, which control Chromium and Firefox by Puppeteer: a person with mouse and keyboard,
//! axe-core on every page, payloads of cross-site scripting, and a caller from whom fields and rows are hidden.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde_json::json;

use super::pages::MODEL;
use crate::harness::{Backend, Person, Process, Server, Setup, is_soak};

/// A script of a minute, on a machine with much else to do.
const SCRIPT_LIMIT: Duration = Duration::from_secs(1800);

/// Runs a script against a new server, as its first user. The backends share the cases of some scripts.
fn run(script: &str, browser: &str, backend: Backend) {
    let server = Setup::new(backend).model(MODEL).with_authentication().start();
    let part = match backend {
        _ if is_soak() => "all",
        Backend::Sqlite => "even",
        Backend::Postgres => "odd",
    };
    run_as(&server.admin(), &server, (script, browser), &[part]);
}

/// Runs a script against a server as one user; `words` are further arguments of the script.
fn run_as(person: &Person, server: &Server, (script, browser): (&str, &str), words: &[&str]) {
    let packages = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("clients");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pages");
    let origin = format!("http://{}", server.address);
    let mut node = Command::new("node");
    node.arg(folder.join(script)).args([browser, &origin, &person.name, &person.password]);
    node.args(words);
    let ended = Process::spawn(node.env("CLIENT_PACKAGES", packages)).end_within(SCRIPT_LIMIT);
    assert_eq!(ended.code, Some(0), "{script} in {browser}:\n{}", ended.stderr);
}

const RESTRICTED_MODEL: &str = r#"
title = "Desk"
[resources.carrier.fields]
name = { type = "text", required = true, max_length = 100, filter = true }
carrier_rate = { type = "integer", filter = true }
[resources.customer.fields]
name = { type = "text", required = true, max_length = 200, filter = true }
level = { type = "text", one_of = ["low", "high"], filter = true }
purchase_margin = { type = "integer", filter = true }
carrier = { type = "ref", to = "carrier" }
[resources.order]
parent = "customer"
on_delete = "cascade"
[resources.order.fields]
status = { type = "state", initial = "placed", next = { placed = ["paid"], paid = [] } }
unit_cost = { type = "integer", filter = true }
buyer = { type = "ref", to = "customer" }
[roles.clerk]
customer = { verbs = ["get", "post", "put", "patch", "delete"], hide = ["purchase_margin"], where = "level = \"low\"" }
carrier = { verbs = ["get", "post"], hide = ["carrier_rate"], where = "name != \"Hermes Courier\"" }
order = { verbs = ["get", "post", "patch", "delete"], hide = ["unit_cost"] }
"/-/changes" = ["get"]
"#;

/// Creates a visible and a hidden item of each resource; returns the texts that the clerk must not see.
fn create_restricted_items(server: &Server) -> Vec<String> {
    let admin = server.admin().basic();
    let send = |verb: &str, path: &str, body: serde_json::Value| {
        let request = format!("{verb} {path}");
        server.request(&request, &[("Authorization", &admin)], body.to_string())
    };
    let create = |path: &str, body: serde_json::Value| {
        send("POST", path, body).header("Location").unwrap().to_owned()
    };
    let id = |path: &str| path.rsplit('/').next().unwrap().to_owned();
    let rate = json!({"name": "Hermes Courier", "carrier_rate": 515_151});
    let hidden_carrier = create("/carriers", json!({ "carrier": rate }));
    let rate = json!({"name": "Alfa Freight", "carrier_rate": 525_252});
    let carrier = create("/carriers", json!({ "carrier": rate }));
    let customer = |name: &str, level: &str, margin: u32| {
        let customer = json!({"name": name, "level": level, "purchase_margin": margin, "carrier": id(&carrier)});
        create("/customers", json!({ "customer": customer }))
    };
    let low = customer("Anna Lowell", "low", 424_242);
    let high = customer("Higgins", "high", 434_343);
    let order = |of: &str| {
        let order = json!({"unit_cost": 616_161, "buyer": id(&low)});
        create(&format!("{of}/orders"), json!({ "order": order }))
    };
    let (_, hidden_order) = (order(&low), order(&high));
    // Histories with values of hidden fields, and of an item that was hidden and deleted.
    let margin = json!({"customer": {"purchase_margin": 444_444}});
    assert_eq!(send("PATCH", &low, margin).status, 200);
    let gone = customer("Hidden Harriet", "high", 454_545);
    assert_eq!(send("DELETE", &gone, json!({})).status, 204);
    let words = ["carrier_rate", "purchase_margin", "unit_cost", "515151", "525252", "424242"];
    let rows = ["434343", "616161", "444444", "454545", "Hermes", "Higgins", "Harriet"];
    let ids = [&hidden_carrier, &high, &hidden_order, &gone].map(|path| id(path));
    words.iter().chain(&rows).map(|word| (*word).to_owned()).chain(ids).collect()
}

on_every_backend! {
    fn pages_work_with_mouse_and_keyboard_in_chromium(backend: Backend) {
        run("person.mjs", "chromium", backend);
    }

    fn pages_work_with_mouse_and_keyboard_in_firefox(backend: Backend) {
        run("person.mjs", "firefox", backend);
    }

    fn pages_have_no_findings_of_axe_and_load_nothing_from_other_hosts(backend: Backend) {
        run("axe.mjs", "chromium", backend);
    }

    fn pages_run_no_payload_of_cross_site_scripting(backend: Backend) {
        run("xss.mjs", "chromium", backend);
    }

    fn pages_show_a_restricted_caller_nothing_that_is_hidden(backend: Backend) {
        let server = Setup::new(backend).model(RESTRICTED_MODEL).with_authentication().start();
        let hidden = create_restricted_items(&server);
        let hidden: Vec<&str> = hidden.iter().map(String::as_str).collect();
        let clerk = Person::new("kim", "a long password");
        server.add_user(&clerk, &["clerk"]);
        run_as(&clerk, &server, ("restricted.mjs", "chromium"), &hidden);
    }
}
