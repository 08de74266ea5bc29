//! `nouns plan` and `nouns migrate` beside a running server, the backup before a migration, the plan as JSON, and the
//! message of a server that refuses a changed model.

use std::fs;

use expect_test::expect;

use super::Run;
use crate::harness::{Backend, EXECUTABLE, Folder, Setup, run_sql};

const BEFORE: &str = "title = \"T\"\n[resources.note]\nid = \"integer\"\n[resources.note.fields]\n\
    text = { type = \"text\" }\nage = { type = \"integer\" }\n";
const AFTER: &str = "title = \"T\"\n[resources.memo]\nid = \"integer\"\nrenamed_from = \"note\"\n\
    [resources.memo.fields]\ntitle = { type = \"text\", renamed_from = \"text\", max_length = 3 }\n";

/// A stopped server with one item and its history; the model file has the new model.
fn stopped(backend: Backend) -> (Folder, String) {
    let server = Setup::new(backend).model(BEFORE).start();
    server.create("/notes", r#"{"note":{"text":"a","age":7}}"#);
    assert_eq!(server.put("/notes/1", r#"{"note":{"text":"tea","age":7}}"#).status, 200);
    let database = server.database();
    let folder = server.stop();
    fs::write(folder.path().join("model.toml"), AFTER).unwrap();
    (folder, database)
}

on_every_backend! {
    fn migrate_keeps_the_history_of_items(backend: Backend) {
        let (folder, database) = stopped(backend);
        let run = Run { backend, folder: folder.path(), database: &database };
        let ended = run.nouns(EXECUTABLE, &["migrate", "--allow-loss", "note.age"], "");
        assert_eq!(ended.code, Some(2), "its resource is called memo now: {ended:?}");
        let ended = run.nouns(EXECUTABLE, &["migrate", "--allow-loss", "memo.age"], "");
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let server = Setup::new(backend).model(AFTER).start_in(folder);
        let now = server.get("/memos/1").json();
        assert_eq!((&now["memo"]["title"], &now["memo"]["version"]), (&"tea".into(), &2.into()));
        assert_eq!(server.get("/memos/1?version=1").json()["memo"]["title"], "a");
        let changes = server.get("/-/changes?subject=/memos/1").json();
        let changes = changes["changes"].as_array().unwrap();
        assert_eq!(changes.len(), 2, "{changes:?}");
        for change in changes {
            assert_eq!((&change["resource"], &change["subject"]), (&"memo".into(), &"/memos/1".into()));
        }
        assert_eq!(changes[1]["changed"], serde_json::json!(["title"]));
        // The ids go on where they were.
        assert_eq!(server.create("/memos", r#"{"memo":{}}"#), "/memos/2");
    }

    fn migrate_is_refused_while_a_server_runs(backend: Backend) {
        let (folder, database) = stopped(backend);
        let server = Setup::new(backend).model(BEFORE).start_in(folder);
        fs::write(server.folder().join("model.toml"), AFTER).unwrap();
        let run = Run { backend, folder: server.folder(), database: &database };
        // A plan needs no lock.
        assert_eq!(run.nouns(EXECUTABLE, &["plan"], "").code, Some(1));
        let ended = run.nouns(EXECUTABLE, &["migrate", "--allow-loss", "memo.age"], "");
        assert_eq!(ended.code, Some(2), "{ended:?}");
        let expected = match backend {
            Backend::Sqlite => "another server is using",
            Backend::Postgres => "servers are running on this database",
        };
        assert!(ended.stderr.contains(expected), "{}", ended.stderr);
        assert_eq!(server.get("/notes/1").status, 200);
    }

    fn serve_names_the_commands_for_a_change_that_it_refuses(backend: Backend) {
        let (folder, database) = stopped(backend);
        let Err((ended, folder)) = Setup::new(backend).model(AFTER).try_start_in(folder) else {
            panic!("it serves")
        };
        assert_eq!(ended.code, Some(2));
        let run = Run { backend, folder: folder.path(), database: &database };
        let lines: Vec<&str> = ended.stderr.lines().filter(|line| !line.starts_with('{')).collect();
        expect![[r#"
            nouns: DATABASE holds data of another model, and this one would lose or break some of it:
              memo: the resource was renamed from note
              memo: the plural changed from notes to memos, but it is the name of the table
              memo.title: the field was renamed from text
              memo.title: max_length is stricter now, and values that are there may break it
              memo.age: the field was removed, but the database keeps values for it
            nothing was changed; see what would be done with: nouns plan model.toml --database DATABASE; do it with: nouns migrate model.toml --database DATABASE; or take these changes back"#]]
        .assert_eq(&run.mask(&lines.join("\n")));
    }

    fn plan_as_json_has_every_step(backend: Backend) {
        let (folder, database) = stopped(backend);
        let run = Run { backend, folder: folder.path(), database: &database };
        let ended = run.nouns(EXECUTABLE, &["plan", "--json"], "");
        let plan: serde_json::Value = serde_json::from_str(&ended.stdout).unwrap();
        assert_eq!((ended.code, &plan["is_blocked"], &plan["needs_migrate"]), (Some(1), &false.into(), &true.into()));
        let steps = plan["steps"].as_array().unwrap();
        let named: Vec<_> = steps.iter().map(|step| (step["action"].as_str().unwrap(), step["path"].as_str().unwrap())).collect();
        assert_eq!(named, [
            ("rename", "memo"), ("rename", "memo"), ("rename", "memo.title"), ("check", "memo.title"), ("remove", "memo.age"),
        ]);
        let removed = &steps[4];
        assert_eq!((&removed["lost"], &removed["can_be_undone"]), (&1.into(), &false.into()));
        assert_eq!(removed["rewrites_table"], backend == Backend::Sqlite);
    }

    fn plan_and_migrate_make_no_database(backend: Backend) {
        let folder = Folder::new();
        let database = backend.database(&folder, "nouns.db");
        fs::write(folder.path().join("model.toml"), AFTER).unwrap();
        let run = Run { backend, folder: folder.path(), database: &database };
        for command in ["plan", "migrate"] {
            let ended = run.nouns(EXECUTABLE, &[command], "");
            assert_eq!(ended.code, Some(2), "{ended:?}");
            assert!(ended.stderr.contains("there "), "{}", ended.stderr);
        }
        assert!(!folder.path().join("nouns.db").exists());
    }

    /// A migration that loses a foreign key, or leaves one of the former model, would be noticed by the next delete.
    fn migrate_keeps_foreign_keys(backend: Backend) {
        let model = |name: &str, renamed: &str| format!(
            "title = \"T\"\n[resources.{name}]\nid = \"integer\"\n{renamed}[resources.{name}.fields]\ntext = {{ type = \"text\" }}\n\
             [resources.link]\nid = \"integer\"\n[resources.link.fields]\nto = {{ type = \"ref\", to = \"{name}\" }}\n"
        );
        let server = Setup::new(backend).model(&model("note", "")).start();
        server.create("/notes", r#"{"note":{"text":"a"}}"#);
        server.create("/links", r#"{"link":{"to":1}}"#);
        let database = server.database();
        let folder = server.stop();
        let after = model("memo", "renamed_from = \"note\"\n");
        fs::write(folder.path().join("model.toml"), &after).unwrap();
        let run = Run { backend, folder: folder.path(), database: &database };
        assert_eq!(run.nouns(EXECUTABLE, &["migrate"], "").code, Some(0));
        let server = Setup::new(backend).model(&after).start_in(folder);
        assert_eq!(server.delete("/memos/1").status, 409);
        assert_eq!(server.post("/links", r#"{"link":{"to":9}}"#).status, 422);
        let keys = match backend {
            Backend::Sqlite => "SELECT \"table\" FROM pragma_foreign_key_list('links')",
            Backend::Postgres => "SELECT confrelid::regclass FROM pg_constraint WHERE contype = 'f' AND conrelid = 'links'::regclass",
        };
        assert_eq!(run_sql(backend, server.folder(), keys), "memos\n");
    }
}

/// The copy is a whole database of the former model.
#[test]
fn migrate_copies_an_sqlite_file_first() {
    let backend = Backend::Sqlite;
    let (folder, database) = stopped(backend);
    let run = Run { backend, folder: folder.path(), database: &database };
    let copy = folder.path().join("nouns.db.before-migration");
    assert_eq!(run.nouns(EXECUTABLE, &["migrate"], "").code, Some(2));
    assert!(!copy.exists(), "a plan that is refused makes no copy");
    // One that fails on the way leaves none either.
    let dangling = AFTER.replace("max_length = 3", "unique = true, fill = \"x\", required = true");
    let (other, other_database) = stopped(backend);
    run_sql(
        backend,
        other.path(),
        "INSERT INTO notes SELECT 2, created_at, updated_at, version, 'x', NULL FROM notes",
    );
    run_sql(backend, other.path(), "UPDATE notes SET text = NULL WHERE id = 1");
    fs::write(other.path().join("model.toml"), dangling).unwrap();
    let other_run = Run { backend, folder: other.path(), database: &other_database };
    let ended = other_run.nouns(EXECUTABLE, &["migrate", "--allow-loss", "memo.age"], "");
    assert!(ended.stderr.contains("stored items are in the way"), "{ended:?}");
    assert!(!other.path().join("nouns.db.before-migration").exists());
    let ended = run.nouns(EXECUTABLE, &["migrate", "--allow-loss", "memo.age"], "");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.contains("nouns.db.before-migration\n"), "{}", ended.stdout);
    let again = run.nouns(EXECUTABLE, &["migrate"], "");
    assert!(again.stdout.contains("has this model already"), "{}", again.stdout);
    assert!(!folder.path().join("nouns.db.before-migration-2").exists());
    let other = Folder::new();
    fs::copy(copy, other.path().join("nouns.db")).unwrap();
    let server = Setup::new(backend).model(BEFORE).start_in(other);
    assert_eq!(server.get("/notes/1").json()["note"]["age"], 7);
}
