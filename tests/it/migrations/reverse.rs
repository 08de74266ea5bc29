//! A migration and its reverse: the model is the former one again, the items and the freed names are not.

use std::fs;

use super::Run;
use crate::harness::{Backend, EXECUTABLE, Folder, Server, Setup};

const FULL: &str = r#"
title = "Notes"
[resources.note]
id = "integer"
[resources.note.fields]
text = { type = "text" }
[resources.other.fields]
text = { type = "text" }
day = { type = "date" }
"#;

/// Migrates to the model without these lines, whose name this is.
fn migrate_without(
    backend: Backend,
    (folder, database): (&Folder, &str),
    (name, lines): (&str, &str),
) {
    let kept = FULL.replace(lines, "");
    assert_ne!(kept, FULL);
    fs::write(folder.path().join("model.toml"), kept).unwrap();
    let run = Run { backend, folder: folder.path(), database };
    let ended = run.nouns(EXECUTABLE, &["migrate", "--no-backup", "--allow-loss", name], "");
    assert_eq!(ended.code, Some(0), "{ended:?}");
}

on_every_backend! {
    /// Regression: the version, the model and so the entity tag were those of before.
    fn migrate_and_back_changes_entity_tags(backend: Backend) {
        let server = Setup::new(backend).model(FULL).start();
        let item = server.create("/others", r#"{"other":{"text":"tea","day":"2026-11-18"}}"#);
        let tags = [&*item, "/others"].map(|path| server.get(path).header("ETag").unwrap().to_owned());
        let check = |server: &Server, expected| {
            for (path, tag) in [&*item, "/others"].iter().zip(&tags) {
                let answer = server.request(&format!("GET {path}"), &[("If-None-Match", tag)], "");
                assert_eq!(answer.status, expected, "{path}");
            }
        };
        let database = server.database();
        // A restart alone changes none.
        let server = server.restart();
        check(&server, 304);
        let folder = server.stop();
        let removed = ("other.day", "day = { type = \"date\" }\n");
        migrate_without(backend, (&folder, &database), removed);
        let server = Setup::new(backend).model(FULL).start_in(folder);
        check(&server, 200);
        assert!(server.get(&item).json()["other"].get("day").is_none());
    }

    /// Regression: the ids of a resource that was removed and declared again began at 1.
    fn migrate_resource_removed_and_declared_again_keeps_its_ids_used(backend: Backend) {
        let server = Setup::new(backend).model(FULL).start();
        let created = [1, 2, 3].map(|_| server.create("/notes", r#"{"note":{"text":"tea"}}"#));
        assert_eq!(created, ["/notes/1", "/notes/2", "/notes/3"]);
        assert_eq!(server.delete("/notes/3").status, 204);
        let database = server.database();
        let folder = server.stop();
        let lines = "[resources.note]\nid = \"integer\"\n[resources.note.fields]\ntext = { type = \"text\" }\n";
        migrate_without(backend, (&folder, &database), ("note", lines));
        let server = Setup::new(backend).model(FULL).start_in(folder);
        assert_eq!(server.create("/notes", r#"{"note":{"text":"new"}}"#), "/notes/4");
        let history = server.get("/-/changes?subject=/notes/3").json();
        assert_eq!(history["changes"].as_array().unwrap().len(), 2, "{history}");
    }
}
