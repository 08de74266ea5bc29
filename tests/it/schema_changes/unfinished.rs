//! A start that ends after its table changes and before its index builds: its model is not in force yet.

use super::locks::{check_serves_and_stop, model_with_more_fields, start, wait_until_blocked};
use super::{STRICT, note, start_refused};
use crate::harness::{
    Backend, FinishedProcess, Folder, OpenTransaction, Postgres, Process, Server, Setup, run_sql,
    wait_until,
};

const BACKEND: Backend = Backend::Postgres;
const SNAPSHOT: &str =
    "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM nouns_system;\n";
const INDEX_BUILD_PATTERN: &str = "CREATE%INDEX CONCURRENTLY%";

fn server_with_items() -> Server {
    let server = Setup::new(BACKEND).model(STRICT).start();
    server.create("/notes", note("a"));
    server.create("/notes", note("b"));
    server
}

fn terminate_index_build(server: &Server) {
    let end = format!(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
         WHERE datname = current_database() AND query LIKE '{INDEX_BUILD_PATTERN}' AND pid <> pg_backend_pid()"
    );
    assert_eq!(run_sql(BACKEND, server.folder(), &end), "1\n");
}

/// Starts with another model, and ends the connection that builds its index.
fn fail_build(server: &Server, model: &str) -> FinishedProcess {
    let open_transaction = OpenTransaction::begin(server.folder(), SNAPSHOT);
    let (process, _folder) = start(server, model, &[]);
    wait_until_blocked(server.folder(), INDEX_BUILD_PATTERN);
    terminate_index_build(server);
    let ended = process.end();
    open_transaction.commit();
    ended
}

#[test]
fn older_server_restarts_while_a_newer_one_builds_its_indexes() {
    let server = server_with_items();
    let open_transaction = OpenTransaction::begin(server.folder(), SNAPSHOT);
    let (process, _folder) = start(&server, &model_with_more_fields(), &[]);
    wait_until_blocked(server.folder(), INDEX_BUILD_PATTERN);
    let server = server.restart();
    server.create("/notes", note("c"));
    open_transaction.commit();
    check_serves_and_stop(process);
    let older = Setup::replica(server.database()).model(STRICT).start();
    // It counts now, and is retained.
    wait_until("it is logged", || older.log().contains("note.mood").then_some(()));
}

#[test]
fn older_server_restarts_after_an_index_build_failed_and_the_next_start_completes_it() {
    let server = server_with_items();
    let ended = fail_build(&server, &model_with_more_fields());
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{ended:?}");
    assert!(ended.stderr.contains("the model does not count as applied"), "{}", ended.stderr);
    let server = server.restart().restart();
    server.create("/notes", note("c"));
    let newer = Setup::replica(server.database()).model(&model_with_more_fields()).start();
    let moods = newer.get("/notes?mood=calm").json();
    assert_eq!(moods["notes"].as_array().unwrap().len(), 3, "{moods}");
}

#[test]
fn third_model_extends_an_unfinished_one_or_is_refused_with_a_remedy() {
    let server = server_with_items();
    let ended = fail_build(&server, &model_with_more_fields());
    assert_eq!(ended.code, Some(2), "{ended:?}");
    let (address, folder) = (server.database(), server.stop());
    let other = format!("{STRICT}size = {{ type = \"integer\" }}\n");
    let ended = start_refused(&address, &other);
    let statements = "ALTER TABLE \"notes\" DROP COLUMN \"mood\"; \
        DELETE FROM nouns_system WHERE name = 'model_unfinished'";
    assert!(ended.stderr.contains(statements), "{}", ended.stderr);
    // Without its index.
    let looser =
        model_with_more_fields().replace("default = \"calm\", filter = true", "default = \"calm\"");
    Setup::replica(address.clone()).model(&looser).start().stop();
    let count = "SELECT count(*) FROM nouns_system WHERE name = 'model_unfinished'";
    assert_eq!(run_sql(BACKEND, folder.path(), count), "0\n");
    Setup::replica(address).model(&model_with_more_fields()).start();
}

#[test]
fn statements_in_the_refusal_undo_an_unfinished_model() {
    let server = server_with_items();
    fail_build(&server, &model_with_more_fields());
    let (address, folder) = (server.database(), server.stop());
    let statements = "ALTER TABLE \"notes\" DROP COLUMN \"mood\"; \
        DELETE FROM nouns_system WHERE name = 'model_unfinished'";
    let name = Postgres::database_name(folder.path());
    assert_eq!(Postgres::shared().try_sql(&name, statements).code, Some(0));
    let other = format!("{STRICT}mood = {{ type = \"integer\" }}\n");
    let server = Setup::replica(address).model(&other).start();
    server.create("/notes", r#"{"note":{"code":"c","mood":1}}"#);
}

#[test]
fn failed_index_build_is_retried_with_wait() {
    let server = server_with_items();
    let open_transaction = OpenTransaction::begin(server.folder(), SNAPSHOT);
    let (process, _folder) = start(&server, &model_with_more_fields(), &["--wait"]);
    wait_until_blocked(server.folder(), INDEX_BUILD_PATTERN);
    terminate_index_build(&server);
    wait_until("it waits", || process.stderr().contains("waiting for the database").then_some(()));
    assert!(!process.stderr().contains("--wait"), "{}", process.stderr());
    open_transaction.commit();
    check_serves_and_stop(process);
}

#[test]
fn duplicates_fail_a_start_with_a_new_unique_rule_even_with_wait() {
    let server = server_with_items();
    let unique = format!("{STRICT}token = {{ type = \"text\", unique = true }}\n");
    fail_build(&server, &unique);
    let name = Postgres::database_name(server.folder());
    let run = |text: &str| Postgres::shared().sql(&name, text);
    run("UPDATE notes SET token = 'same'");
    let (process, _folder) = start(&server, &unique, &["--wait"]);
    let ended = Process::end(process);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{ended:?}");
    let message = "items have the same value where nouns.notes.unique.token allows each once";
    assert!(ended.stderr.contains(message), "{}", ended.stderr);
    assert!(!ended.stderr.contains("same'"), "no stored value is shown: {}", ended.stderr);
    let server = server.restart();
    run("UPDATE notes SET token = code");
    let newer = Setup::replica(server.database()).model(&unique).start();
    let taken = newer.post("/notes", r#"{"note":{"code":"c","token":"a"}}"#);
    assert_eq!(taken.status, 409, "{taken:?}");
}

/// Regression: the comparison at its start found no stricter server, and nobody compared again when the
/// indexes were built.
#[test]
fn looser_model_is_refused_when_a_stricter_server_started_during_its_index_build() {
    let strict = STRICT.replace("\"text\", filter", "\"text\", max_length = 9, filter");
    let looser = model_with_more_fields();
    let server = Setup::new(BACKEND).model(&strict).start();
    server.create("/notes", note("a"));
    let (address, folder) = (server.database(), server.stop());
    let open_transaction = OpenTransaction::begin(folder.path(), SNAPSHOT);
    let own = Folder::new();
    let setup = Setup::replica(address.clone()).model(&looser);
    let process = Process::spawn(&mut setup.command(&own));
    wait_until_blocked(folder.path(), INDEX_BUILD_PATTERN);
    let stricter = Setup::replica(address).model(&strict).start();
    open_transaction.commit();
    let ended = process.end();
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{ended:?}");
    let reason = "have started while the indexes of this one were built";
    assert!(ended.stderr.contains(reason), "{}", ended.stderr);
    assert!(ended.stderr.contains("note.text: max_length is stricter"), "{}", ended.stderr);
    let rows = "SELECT count(*) FROM nouns_servers";
    assert_eq!(run_sql(BACKEND, folder.path(), rows), "1\n", "only the stricter one counts");
    let waiting = Process::spawn(setup.command(&own).arg("--wait"));
    wait_until("it waits", || waiting.stderr().contains("is used by servers").then_some(()));
    stricter.stop();
    check_serves_and_stop(waiting);
}
