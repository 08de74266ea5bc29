//! REDbot, an HTTP linter, at the main paths.
//!
//! It sends requests of its own, conditional and unconditional ones. Its notes are compared with
//! `docs/explanation/http-conformance.md`: no bad note, and no warning that is not explained there.
//! The tests use its HAR output, the only one with the level of a note.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::harness::{ANN, Backend, Process, Server, Setup};

const TEA: &str = r#"{"order":{"items":[{"product":"tea","quantity":2,"unit_price":350}]}}"#;

/// One note about a response.
#[derive(Debug)]
struct RedbotNote {
    name: String,
    level: String,
    words: String,
}

/// REDbot's notes about a path, and the status of its response.
fn notes(server: &Server, path: &str) -> (u64, Vec<RedbotNote>) {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let mut command = Command::new(target.join("clients/python/bin/redbot"));
    command.args(["-o", "har", &format!("http://{}{path}", server.address)]);
    let ended = Process::spawn(command.current_dir(server.folder())).end();
    let archive: Value = serde_json::from_str(&ended.stdout)
        .unwrap_or_else(|error| panic!("{path}: {error} in {ended:?}"));
    let entry = &archive["log"]["entries"][0];
    let text = |value: &Value| value.as_str().unwrap_or_else(|| panic!("{archive}")).to_owned();
    let notes = entry["_red_messages"].as_array().unwrap_or_else(|| panic!("{archive}"));
    let notes = notes.iter().map(|note| RedbotNote {
        name: text(&note["note_id"]),
        level: text(&note["level"]),
        words: text(&note["summary"]),
    });
    (entry["response"]["status"].as_u64().unwrap(), notes.collect())
}

/// Asserts that no note is bad, and every warning is in the document.
fn check(server: &Server, path: &str, status: u64) -> Vec<String> {
    let document =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/explanation/http-conformance.md");
    let document = fs::read_to_string(document).unwrap();
    let (seen, notes) = notes(server, path);
    assert_eq!(seen, status, "{path}");
    for note in &notes {
        let RedbotNote { name, level, words } = note;
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
fn redbot_main_paths_have_no_bad_notes() {
    let server = Setup::new(Backend::Sqlite).start();
    let ann = server.create("/customers", ANN);
    server.create("/customers", ANN);
    let order = server.create(&format!("{ann}/orders"), TEA);
    // Its good notes show that it works.
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
fn redbot_challenge_has_no_bad_notes() {
    let server = Setup::new(Backend::Sqlite).with_authentication().start();
    check(&server, "/customers", 401);
    check(&server, "/-/users", 401);
}
