//! REDbot, which looks for what is wrong or careless in the HTTP of an answer, at the main paths.
//!
//! It sends requests of its own, with conditions and without. What it says is held against
//! `docs/explanation/http-conformance.md`: nothing it calls bad, and nothing it warns of that is not
//! explained there.
//! The one surprising thing: it is asked in the format of a browser's archive (HAR), the only one that
//! tells how bad a note is.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::harness::{Backend, Process, Server, Setup};

const ANN: &str = r#"{"customer":{"name":"Ann","email":"ann@example.com"}}"#;
const TEA: &str = r#"{"order":{"items":[{"product":"tea","quantity":2,"unit_price":350}]}}"#;

/// One remark about an answer.
#[derive(Debug)]
struct Note {
    name: String,
    level: String,
    words: String,
}

/// What REDbot finds at a path, and the status it was given there.
fn notes(server: &Server, path: &str) -> (u64, Vec<Note>) {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let mut command = Command::new(target.join("clients/python/bin/redbot"));
    command.args(["-o", "har", &format!("http://{}{path}", server.address)]);
    let ended = Process::spawn(command.current_dir(server.folder())).end();
    let archive: Value = serde_json::from_str(&ended.stdout)
        .unwrap_or_else(|error| panic!("{path}: {error} in {ended:?}"));
    let entry = &archive["log"]["entries"][0];
    let text = |value: &Value| value.as_str().unwrap_or_else(|| panic!("{archive}")).to_owned();
    let notes = entry["_red_messages"].as_array().unwrap_or_else(|| panic!("{archive}"));
    let notes = notes.iter().map(|note| Note {
        name: text(&note["note_id"]),
        level: text(&note["level"]),
        words: text(&note["summary"]),
    });
    (entry["response"]["status"].as_u64().unwrap(), notes.collect())
}

/// Nothing is bad, and every warning stands in the document.
fn check(server: &Server, path: &str, status: u64) -> Vec<String> {
    let document =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/explanation/http-conformance.md");
    let document = fs::read_to_string(document).unwrap();
    let (seen, notes) = notes(server, path);
    assert_eq!(seen, status, "{path}");
    for note in &notes {
        let Note { name, level, words } = note;
        let is_fine = match level.as_str() {
            "GOOD" | "INFO" => true,
            "WARN" => document.contains(&format!("| {name} |")),
            _ => false,
        };
        assert!(is_fine, "{path}: {level} {name}: {words}");
    }
    notes.into_iter().map(|note| note.name).collect()
}

#[test]
fn the_main_paths() {
    let server = Setup::new(Backend::Sqlite).start();
    let ann = server.create("/customers", ANN);
    server.create("/customers", ANN);
    let order = server.create(&format!("{ann}/orders"), TEA);
    // That it can tell is shown by what it finds good.
    for path in ["/customers", "/customers?limit=1", &format!("{ann}/orders")] {
        assert!(check(&server, path, 200).contains(&"INM_304".to_owned()), "{path}");
    }
    for path in [&ann, &order] {
        let found = check(&server, path, 200);
        let is_found = |name: &str| found.iter().any(|found| found == name);
        assert!(is_found("INM_304") && is_found("IMS_304"), "{path}: {found:?}");
    }
    for path in ["/", "/-/health", "/-/ready", "/-/metrics", "/-/problems/taken"] {
        check(&server, path, 200);
    }
    check(&server, "/customers/nothing", 404);
    check(&server, "/nothing", 404);
    check(&server, "/customers?limt=1", 400);
    check(&server, "/customers/", 308);
}

#[test]
fn a_challenge() {
    let server = Setup::new(Backend::Sqlite).closed().start();
    check(&server, "/customers", 401);
    check(&server, "/-/users", 401);
}
