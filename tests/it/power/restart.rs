//! The real server on the files after a power cut: it starts, serves the files' contents, and writes
//! again.

use super::run::Files;
use crate::durability::judge::DatabaseContents;
use crate::durability::serving::{compare_served, start};
use crate::harness::Folder;

/// All faults; a failed start fails the test with the server's message.
pub fn check_restart(files: &Files, found: &DatabaseContents, of: &str) -> Vec<String> {
    // Shown when the test fails.
    println!("starting a server on the state after {of}");
    let folder = Folder::new();
    for (name, bytes) in files {
        std::fs::write(folder.path().join(name), bytes).unwrap();
    }
    let server = start(folder);
    let mut faults = compare_served(&server, found);
    let path =
        server.create("/customers", r#"{"customer":{"name":"Zoe","email":"zoe@example.com"}}"#);
    assert_eq!(server.get(&path).status, 200);
    let folder = server.stop();
    match DatabaseContents::read(folder.path()) {
        Err(error) => faults.push(error),
        Ok(after) => {
            faults.extend(after.integrity_errors);
            if after.items.len() != found.items.len() + 1 || !after.items.contains_key(&path) {
                faults.push("a new item is not there, or another one is gone".to_owned());
            }
        }
    }
    faults
}
