//! Operation of a server: starts, stops and their failures, as an operator sees them.
//!
//! A start that fails prints one message, exits with 2, and leaves every byte as it was.

mod address;
mod command;
mod database;
mod demo;
mod disk;
mod files;
mod hints;
mod locked;
mod sd_notify;
mod reload;
mod stop;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use expect_test::Expect;

use crate::harness::{ANN, FinishedProcess, run_nouns};

const SERVE: &[&str] =
    &["serve", "--open", "--listen", "127.0.0.1:0", "--database", "sqlite:nouns.db"];

/// Every file below a folder with its bytes; a folder has none.
fn contents(folder: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(contents(&path));
            found.insert(path, None);
        } else {
            // The lock file says who has locked it last.
            let is_lock = path.to_str().unwrap().ends_with("-lock");
            let bytes = if is_lock { Vec::new() } else { fs::read(&path).unwrap() };
            found.insert(path, Some(bytes));
        }
    }
    found
}

/// Runs a start that must fail in `folder`, and compares its one message.
fn assert_start_fails(folder: &Path, args: &[&str], message: &Expect) {
    let before = contents(folder);
    check_failed_start(&run_nouns(folder, args), folder, message);
    assert!(contents(folder) == before, "the folder was changed: {:?}", contents(folder).keys());
}

fn check_failed_start(ended: &FinishedProcess, folder: &Path, message: &Expect) {
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{ended:?}");
    message.assert_eq(&ended.stderr.replace(folder.to_str().unwrap(), "FOLDER"));
}
