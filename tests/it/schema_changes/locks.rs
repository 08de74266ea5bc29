//! Table locks of a start that changes tables in use: no request waits for it.

use std::path::Path;
use std::time::Duration;

use super::{STRICT, note};
use crate::harness::{
    Backend, Folder, OpenTransaction, Process, Server, Setup, Stopwatch, run_sql, wait_until,
};

const BACKEND: Backend = Backend::Postgres;
/// Much longer than a start waits for a table lock, and shorter than a statement may wait.
const ANSWER_MAX: Duration = Duration::from_secs(4);

/// With one more field, which has a default and an index.
pub(super) fn model_with_more_fields() -> String {
    format!("{STRICT}mood = {{ type = \"text\", default = \"calm\", filter = true }}\n")
}

pub(super) fn start(server: &Server, model: &str, flags: &[&str]) -> (Process, Folder) {
    let folder = Folder::new();
    let setup = Setup::replica(server.database()).model(model).flags(flags);
    (Process::spawn(&mut setup.command(&folder)), folder)
}

/// Waits until a statement waits for a lock. The pattern is one of `LIKE`.
pub(super) fn wait_until_blocked(folder: &Path, query_pattern: &str) {
    let waiting = format!(
        "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() \
         AND wait_event_type = 'Lock' AND query LIKE '{query_pattern}'"
    );
    wait_until("the start waits for a lock", || {
        (run_sql(BACKEND, folder, &waiting).trim() != "0").then_some(())
    });
}

/// Reads and writes, all answered as if there were no start.
pub(super) fn check_served(server: &Server, path: &str, round: usize) {
    for number in 0..5 {
        let began = Stopwatch::start();
        assert_eq!(server.get(path).status, 200);
        assert_eq!(server.post("/notes", note(&format!("{round}-{number}"))).status, 201);
        assert!(began.elapsed() < 2 * ANSWER_MAX, "{:?}", began.elapsed());
    }
}

pub(super) fn check_serves_and_stop(process: Process) {
    let line = process.first_line();
    assert!(line.starts_with("nouns: serving "), "{line}");
    process.signal("TERM");
    assert_eq!(process.end().code, Some(0));
}

fn valid_index(folder: &Path, name: &str) -> String {
    let text = format!(
        "SELECT indisvalid, indisunique FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid \
         WHERE relname = '{name}'"
    );
    run_sql(BACKEND, folder, &text)
}

#[test]
fn start_adding_a_field_blocks_no_request_during_an_open_read() {
    let server = Setup::new(BACKEND).model(STRICT).start();
    let path = server.create("/notes", note("a"));
    let open_transaction =
        OpenTransaction::begin(server.folder(), "BEGIN; SELECT count(*) FROM notes;\n");
    // However slow the machine is, it keeps retrying.
    let (process, _folder) = start(&server, &model_with_more_fields(), &["--wait"]);
    for round in 0..3 {
        wait_until_blocked(server.folder(), "ALTER TABLE%");
        check_served(&server, &path, round);
    }
    open_transaction.commit();
    check_serves_and_stop(process);
    assert_eq!(valid_index(server.folder(), "nouns.notes.filter.mood"), "t|f\n");
}

#[test]
fn start_without_its_lock_fails_and_changes_nothing() {
    let server = Setup::new(BACKEND).model(STRICT).start();
    let path = server.create("/notes", note("a"));
    let before = super::schema(BACKEND, server.folder());
    let open_transaction =
        OpenTransaction::begin(server.folder(), "BEGIN; SELECT count(*) FROM notes;\n");
    let (process, _folder) = start(&server, &model_with_more_fields(), &[]);
    check_served(&server, &path, 0);
    let ended = process.end();
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{ended:?}");
    assert!(ended.stderr.contains("because other sessions hold locks on them"), "{}", ended.stderr);
    open_transaction.commit();
    assert_eq!(super::schema(BACKEND, server.folder()), before);
    assert_eq!(run_sql(BACKEND, server.folder(), "SELECT count(*) FROM nouns_servers"), "1\n");
}

#[test]
fn start_adding_an_index_blocks_no_request_during_an_open_snapshot() {
    let server = Setup::new(BACKEND).model(STRICT).start();
    let path = server.create("/notes", note("a"));
    let snapshot = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM notes;\n";
    let open_transaction = OpenTransaction::begin(server.folder(), snapshot);
    let model = STRICT.replace("unique = true", "unique = true, filter = true");
    let (process, _folder) = start(&server, &model, &[]);
    wait_until_blocked(server.folder(), "CREATE INDEX CONCURRENTLY%");
    check_served(&server, &path, 0);
    wait_until("it is logged", || process.stderr().contains("building an index").then_some(()));
    open_transaction.commit();
    check_serves_and_stop(process);
    assert_eq!(valid_index(server.folder(), "nouns.notes.filter.code"), "t|f\n");
}

#[test]
fn failed_index_build_leftover_is_replaced() {
    let server = Setup::new(BACKEND).model(STRICT).start();
    server.create("/notes", note("a"));
    server.create("/notes", note("b"));
    let address = server.database();
    let folder = server.stop();
    let name = "nouns.notes.filter.code";
    // Both have the same text, so it fails.
    let build = format!("CREATE UNIQUE INDEX CONCURRENTLY \"{name}\" ON notes (text)");
    let database = crate::harness::Postgres::shared();
    let failed = database.try_sql(&crate::harness::Postgres::database_name(folder.path()), &build);
    assert_ne!(failed.code, Some(0));
    assert_eq!(valid_index(folder.path(), name), "f|t\n");
    let model = STRICT.replace("unique = true", "unique = true, filter = true");
    Setup::replica(address).model(&model).start();
    assert_eq!(valid_index(folder.path(), name), "t|f\n");
}
