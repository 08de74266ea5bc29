//! A start beside servers that run with another model.

use expect_test::expect;

use super::{LOOSE, STRICT, note, start_refused};
use crate::harness::{Backend, Folder, Process, Server, Setup, sql, wait_until};

const BACKEND: Backend = Backend::Postgres;

fn strict() -> Server {
    let server = Setup::new(BACKEND).model(STRICT).start();
    server.create("/notes", note("a"));
    server
}

/// How often the database has an index of this name.
fn count_index(folder: &Folder, name: &str) -> String {
    let text = format!("SELECT count(*) FROM pg_indexes WHERE indexname = '{name}'");
    sql(BACKEND, folder.path(), &text).trim().to_owned()
}

#[test]
fn looser_start_beside_a_stricter_server_is_refused_until_that_has_stopped() {
    let server = strict();
    let address = server.database();
    let ended = start_refused(&address, LOOSE);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""));
    expect![[r#"
        nouns: ADDRESS is used by servers with another model, and this one would change what they rely on:
          note.code: the values are unique
        nothing was changed; stop those servers first, or start with --wait, which waits until they have stopped (one that was killed counts for some minutes)
    "#]]
    .assert_eq(&ended.stderr.replace(&address, "ADDRESS"));
    assert_eq!(server.post("/notes", note("a")).status, 409, "the rule holds");
    // Neither is it in its own way: it starts again with its own model.
    let server = server.restart();
    assert_eq!(server.post("/notes", note("a")).status, 409);
    let folder = server.stop();
    let looser = Setup::replica(address).model(LOOSE).start();
    assert_eq!(looser.post("/notes", note("a")).status, 201);
    assert_eq!(count_index(&folder, "nouns.notes.unique.code"), "0");
}

#[test]
fn looser_start_with_wait_serves_when_the_stricter_server_has_stopped() {
    let server = strict();
    let folder = Folder::new();
    let setup = Setup::replica(server.database()).model(LOOSE);
    let process = Process::spawn(setup.command(&folder).arg("--wait"));
    wait_until("it waits", || process.stderr().contains("is used by servers").then_some(()));
    assert_eq!(server.post("/notes", note("a")).status, 409);
    let _database = server.stop();
    let line = process.first_line();
    assert!(line.starts_with("nouns: serving "), "{line}");
    process.signal("TERM");
    assert_eq!(process.end().code, Some(0));
}

#[test]
fn killed_server_counts_until_its_row_is_old() {
    let server = strict();
    let address = server.database();
    let folder = server.kill();
    assert_eq!(start_refused(&address, LOOSE).code, Some(2));
    // Only the one that was killed is there: the one that was refused left none behind.
    let age = "UPDATE nouns_servers SET seen = seen - interval '151 seconds' RETURNING 1";
    assert_eq!(sql(BACKEND, folder.path(), age), "1\n");
    Setup::replica(address).model(LOOSE).start();
}

/// An index that only makes reads quick is no rule; and yet the older server has it as long as it runs.
#[test]
fn index_of_a_running_server_stays_until_it_has_stopped() {
    let index = "nouns.notes.filter.text";
    let older = strict();
    let model = STRICT.replace(", filter = true", "");
    let newer = Setup::replica(older.database()).model(&model).start();
    let database = older.stop();
    assert_eq!(count_index(&database, index), "1");
    newer.restart();
    assert_eq!(count_index(&database, index), "0");
}

/// Also where nothing would be lost: the older server would find its table gone.
#[test]
fn empty_table_is_not_made_anew_under_a_running_server() {
    let server = Setup::new(BACKEND).model(STRICT).start();
    let address = server.database();
    let model = STRICT.replace("code = { type = \"text\"", "code = { type = \"integer\"");
    let ended = start_refused(&address, &model);
    assert!(ended.stderr.contains("note: its empty table is made anew"), "{}", ended.stderr);
    server.create("/notes", note("a"));
}
