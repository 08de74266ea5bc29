//! A start while other servers run with another model.

use expect_test::expect;

use super::locks::{check_serves_and_stop, model_with_more_fields, wait_until_blocked};
use super::{LOOSE, STRICT, note, start_refused};
use crate::harness::{
    Backend, Folder, OpenTransaction, Process, Server, Setup, run_sql, wait_until,
};

const BACKEND: Backend = Backend::Postgres;

fn start_strict() -> Server {
    let server = Setup::new(BACKEND).model(STRICT).start();
    server.create("/notes", note("a"));
    server
}

/// How many indexes of this name the database has.
fn count_index(folder: &Folder, name: &str) -> String {
    let text = format!("SELECT count(*) FROM pg_indexes WHERE indexname = '{name}'");
    run_sql(BACKEND, folder.path(), &text).trim().to_owned()
}

#[test]
fn looser_model_is_refused_while_a_stricter_server_runs() {
    let server = start_strict();
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
    // A server does not block itself: it restarts with its own model.
    let server = server.restart();
    assert_eq!(server.post("/notes", note("a")).status, 409);
    let folder = server.stop();
    let looser = Setup::replica(address).model(LOOSE).start();
    assert_eq!(looser.post("/notes", note("a")).status, 201);
    assert_eq!(count_index(&folder, "nouns.notes.unique.code"), "0");
}

#[test]
fn looser_model_with_wait_serves_once_the_stricter_server_stops() {
    let server = start_strict();
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
    let server = start_strict();
    let address = server.database();
    let folder = server.kill();
    assert_eq!(start_refused(&address, LOOSE).code, Some(2));
    // Only the killed server has a row: the refused one left none behind.
    let age = "UPDATE nouns_servers SET seen = seen - interval '151 seconds' RETURNING 1";
    assert_eq!(run_sql(BACKEND, folder.path(), age), "1\n");
    Setup::replica(address).model(LOOSE).start();
}

/// An index that only speeds up reads is no rule, but it stays while the older server runs.
#[test]
fn index_of_a_running_server_is_kept_until_it_stops() {
    let index = "nouns.notes.filter.text";
    let older = start_strict();
    let model = STRICT.replace(", filter = true", "");
    let newer = Setup::replica(older.database()).model(&model).start();
    let database = older.stop();
    assert_eq!(count_index(&database, index), "1");
    newer.restart();
    assert_eq!(count_index(&database, index), "0");
}

/// Even where nothing would be lost: the older server would find its table missing.
#[test]
fn empty_table_is_not_recreated_under_a_running_server() {
    let server = Setup::new(BACKEND).model(STRICT).start();
    let address = server.database();
    let model = STRICT.replace("code = { type = \"text\"", "code = { type = \"integer\"");
    let ended = start_refused(&address, &model);
    assert!(ended.stderr.contains("note: its empty table is rebuilt"), "{}", ended.stderr);
    server.create("/notes", note("a"));
}

/// The time at which the only server was last seen.
fn read_last_seen(folder: &std::path::Path) -> String {
    run_sql(BACKEND, folder, "SELECT seen FROM nouns_servers")
}

/// A build may take much longer than the lifetime of a registration.
#[test]
fn server_renews_its_registration_while_it_builds_indexes() {
    let database = Setup::new(BACKEND).model(STRICT).start();
    database.create("/notes", note("a"));
    let (address, folder) = (database.database(), database.stop());
    let snapshot = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM nouns_system;\n";
    let open_transaction = OpenTransaction::begin(folder.path(), snapshot);
    let own = Folder::new();
    let setup = Setup::replica(address).model(&model_with_more_fields());
    let process = Process::spawn(&mut setup.command(&own));
    wait_until_blocked(folder.path(), "CREATE INDEX CONCURRENTLY%");
    let first = read_last_seen(folder.path());
    wait_until("its row is renewed", || (read_last_seen(folder.path()) != first).then_some(()));
    open_transaction.commit();
    check_serves_and_stop(process);
}

/// Another session may hold a lock on a swept table for as long as a step of the sweep waits.
#[test]
fn server_renews_its_registration_while_its_sweep_waits() {
    let server = start_strict();
    let (address, folder) = (server.database(), server.stop());
    let hold = "BEGIN; LOCK TABLE nouns_changes IN ACCESS EXCLUSIVE MODE; SELECT 1;\n";
    let open_transaction = OpenTransaction::begin(folder.path(), hold);
    let server = Setup::replica(address).model(STRICT).start();
    wait_until_blocked(folder.path(), "%nouns_changes%");
    let first = read_last_seen(folder.path());
    wait_until("its row is renewed", || (read_last_seen(folder.path()) != first).then_some(()));
    open_transaction.commit();
    server.stop();
}

#[test]
fn server_whose_registration_was_deleted_logs_the_rules_that_were_dropped() {
    let server = start_strict();
    // A renewal may bring the row back before the start looks.
    let looser = wait_until("a start finds no row", || {
        run_sql(BACKEND, server.folder(), "DELETE FROM nouns_servers");
        match Setup::replica(server.database()).model(LOOSE).try_start_in(Folder::new()) {
            Ok(looser) => Some(looser),
            Err((ended, _)) => {
                assert!(ended.stderr.contains("is used by servers"), "{ended:?}");
                None
            }
        }
    });
    let line = "counted it as stopped and gave up rules that it relies on";
    wait_until("it says so", || server.log().contains(line).then_some(()));
    assert!(server.log().contains("note.code: the values are unique"), "{}", server.log());
    let rows = "SELECT count(*) FROM nouns_servers";
    assert_eq!(run_sql(BACKEND, server.folder(), rows), "2\n");
    looser.stop();
}

#[test]
fn server_whose_registration_was_deleted_registers_again_if_the_model_is_unchanged() {
    let server = start_strict();
    run_sql(BACKEND, server.folder(), "DELETE FROM nouns_servers");
    wait_until("it is back", || (!read_last_seen(server.folder()).is_empty()).then_some(()));
    wait_until("it says so", || server.log().contains("is registered again").then_some(()));
    assert_eq!(start_refused(&server.database(), LOOSE).code, Some(2));
    assert_eq!(server.post("/notes", note("a")).status, 409);
}

/// Regression: the registration failed for ever, so other servers could drop rules that this one relies on.
#[test]
fn server_whose_registration_was_replaced_registers_again_beside_a_model_it_cannot_read() {
    let server = start_strict();
    run_sql(
        BACKEND,
        server.folder(),
        "UPDATE nouns_servers SET id = 'newer', model = 'of a newer version'",
    );
    let line = "cannot tell whether they gave up rules that it relies on";
    wait_until("it says so", || server.log().contains(line).then_some(()));
    let own = "SELECT count(*) FROM nouns_servers WHERE id <> 'newer'";
    assert_eq!(run_sql(BACKEND, server.folder(), own), "1\n");
    assert!(!server.log().contains("could not renew"), "{}", server.log());
    // A start still refuses, because it would change tables.
    let ended = start_refused(&server.database(), STRICT);
    assert!(ended.stderr.contains("whose model this one cannot read"), "{}", ended.stderr);
    assert!(!ended.stderr.contains("were built"), "{}", ended.stderr);
}
