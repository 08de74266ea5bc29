//! Commands with another model than the server's, while it runs and afterwards.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::{LOOSE, STRICT, note, schema};
use crate::harness::{Backend, EXECUTABLE, Person, Process, Setup};

/// With one more field and one more resource, and without the rule.
const MORE: &str = "age = { type = \"integer\", filter = true }\n\
    [resources.page.fields]\ntext = { type = \"text\" }\n";
const OTHER: &str = "title = \"Other\"\n[resources.other.fields]\nx = { type = \"text\" }\n";

/// Runs commands with another model: each succeeds, and changes no table.
fn run_all((backend, address): (Backend, &str), folder: &Path, model: &str) {
    let before = schema(backend, folder);
    fs::write(folder.join("other.toml"), model).unwrap();
    let commands: [&[&str]; 4] = [
        &["user", "list", "--model", "other.toml", "--key-file", "nouns.key"],
        &["user", "disable", "ann", "--model", "other.toml", "--key-file", "nouns.key"],
        &["user", "enable", "ann", "--model", "other.toml", "--key-file", "nouns.key"],
        &["changes", "other.toml"],
    ];
    for words in commands {
        let mut command = Command::new(EXECUTABLE);
        command.args(words).args(["--database", address]);
        command.env_clear().current_dir(folder);
        let ended = Process::spawn(&mut command).end();
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{words:?}");
        assert!(ended.stdout.contains("ann"), "{words:?}: {}", ended.stdout);
        assert_eq!(schema(backend, folder), before, "{words:?}");
    }
}

on_every_backend! {
    fn commands_with_another_model_change_no_table(backend: Backend) {
        let server = Setup::new(backend).model(STRICT).with_authentication().start();
        server.add_user(&Person::new("ann", "Circle of Life"), &[]);
        let (admin, address) = (server.admin().basic(), server.database());
        let post = |code: &str| {
            server.request("POST /notes", &[("Authorization", &admin)], note(code)).status
        };
        assert_eq!(post("a"), 201);
        let models = [format!("{LOOSE}{MORE}"), LOOSE.to_owned(), OTHER.to_owned()];
        for model in &models {
            run_all((backend, &address), server.folder(), model);
            assert_eq!(post("a"), 409, "the rule holds");
        }
        let folder = server.stop();
        for model in &models {
            run_all((backend, &address), folder.path(), model);
        }
        // The server's own model still fits.
        Setup::new(backend).model(STRICT).with_authentication().start_in(folder);
    }
}
