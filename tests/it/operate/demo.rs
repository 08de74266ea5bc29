//! `nouns serve --demo`: data to look at, in a temporary folder.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use serde_json::Value;

use super::contents;
use crate::harness::{Client, EXECUTABLE, Folder, Process, parse_address, run_nouns, wait_until};

/// All items of a collection, page by page.
fn all(client: &mut Client, path: &str) -> Vec<Value> {
    let (mut items, mut next) = (Vec::new(), format!("{path}?limit=500"));
    loop {
        let page = client.request(&format!("GET {next}"), &[], "").json();
        let name = path.rsplit('/').next().unwrap();
        items.extend(page[name].as_array().unwrap().iter().cloned());
        match page["page"]["next"].as_str() {
            Some(link) => link.clone_into(&mut next),
            None => return items,
        }
    }
}

#[test]
fn demo_serves_customers_and_orders_and_leaves_nothing() {
    let (folder, temporary) = (Folder::new(), Folder::new());
    // A model file in the folder is not used.
    fs::write(folder.path().join("nouns.toml"), "title = \"Rooms\"\n[resources.room]\n").unwrap();
    let before = contents(folder.path());
    let mut serve = Command::new(EXECUTABLE);
    serve.args(["serve", "--demo", "--open", "--listen", "127.0.0.1:0", "--log", "json"]);
    serve.env_clear().env("TMPDIR", temporary.path()).current_dir(folder.path());
    let server = Process::spawn(&mut serve);
    let mut client = Client::connect(parse_address(&server.first_line()));
    let customers = all(&mut client, "/customers");
    assert_eq!(customers.len(), 160);
    let names: BTreeMap<_, _> =
        customers.iter().map(|customer| (customer["name"].as_str().unwrap(), ())).collect();
    assert_eq!(names.len(), customers.len(), "names that come twice");
    let mut states: BTreeMap<String, usize> = BTreeMap::new();
    for customer in &customers {
        let path = format!("/customers/{}/orders", customer["id"].as_str().unwrap());
        for order in all(&mut client, &path) {
            *states.entry(order["status"].as_str().unwrap().to_owned()).or_default() += 1;
        }
    }
    let kinds: Vec<_> = states.keys().map(String::as_str).collect();
    assert_eq!(kinds, ["cancelled", "delivered", "paid", "placed", "shipped"]);
    assert!(states.values().sum::<usize>() > 200, "{states:?}");
    assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 1);
    drop(client);
    server.signal("TERM");
    let ended = server.end();
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(fs::read_dir(temporary.path()).unwrap().count(), 0);
    assert!(contents(folder.path()) == before);
}

#[test]
fn demo_with_a_model_or_a_database_is_refused() {
    let folder = Folder::new();
    for args in [
        &["serve", "--demo", "shop.toml"][..],
        &["serve", "--demo", "--database", "sqlite:shop.db"],
        &["serve", "--demo", "--key-file", "nouns.key"],
    ] {
        let ended = run_nouns(folder.path(), args);
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.stderr.contains("cannot be used with"), "{ended:?}");
    }
    assert!(contents(folder.path()).is_empty());
}

/// The hints are printed only to a terminal: `script` provides one.
#[test]
fn first_steps_of_the_terminal_work_when_pasted() {
    let folder = Folder::new();
    let command = format!("{EXECUTABLE} serve --open --listen 127.0.0.1:0 --log json");
    let mut shell = Command::new("env");
    shell.args(["--default-signal=HUP", "script"]);
    shell.args(["--quiet", "--flush", "--return", "--command", &command, "typescript"]);
    let path = std::env::var("PATH").unwrap();
    let _server = Process::spawn(shell.current_dir(folder.path()).env_clear().env("PATH", path));
    let after = |shown: &str, label: &str| {
        let line = shown.lines().find_map(|line| line.trim().strip_prefix(label));
        line.map(|rest| rest.trim().to_owned())
    };
    let [browser, create, feed] = wait_until("the hints are shown", || {
        let shown = fs::read_to_string(folder.path().join("typescript")).unwrap_or_default();
        // The last line is complete when the next one has begun.
        let shown = shown.contains("/-/changes\r\n").then_some(shown)?;
        Some(["a browser:", "a create:", "the feed:"].map(|label| after(&shown, label).unwrap()))
    });
    let run = |line: &str| {
        let quiet = "curl --disable --silent --show-error --fail --max-time 60 ";
        let mut shell = Command::new("bash");
        shell.args(["-c", &line.replacen("curl ", quiet, 1)]);
        Process::spawn(shell.current_dir(folder.path())).end()
    };
    let created = run(&create);
    assert_eq!(created.code, Some(0), "{create}: {created:?}");
    assert!(created.stdout.starts_with(r#"{"customer":{"id":"#), "{created:?}");
    assert_eq!(run(&format!("curl {browser}")).code, Some(0), "{browser}");
    // The first event of the stream is that of the create.
    let followed = run(&format!("{feed}?since=0 | head -n 9"));
    assert!(followed.stdout.contains("event: created"), "{feed}: {followed:?}");
}
