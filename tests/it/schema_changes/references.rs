//! Foreign keys on PostgreSQL: validated while the tables are in use; an operator's own are preserved.

use super::locks::{check_served, check_serves_and_stop, start, wait_until_blocked};
use super::{STRICT, note};
use crate::harness::{Backend, FinishedProcess, Folder, OpenTransaction, Postgres, Setup, run_sql};

const BACKEND: Backend = Backend::Postgres;
/// A snapshot that a concurrent index build waits for, which locks none of the model's tables.
const SNAPSHOT: &str =
    "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM nouns_system;\n";
const VALIDATED: &str = "SELECT convalidated FROM pg_constraint WHERE contype = 'f' \
    AND conrelid = 'notes'::regclass";

/// With one more field, which refers to another note.
fn with_reference() -> String {
    format!("{STRICT}before = {{ type = \"ref\", to = \"note\" }}\n")
}

#[test]
fn new_reference_is_validated_after_the_transaction_that_adds_it() {
    let server = Setup::new(BACKEND).model(STRICT).start();
    let path = server.create("/notes", note("a"));
    let open_transaction = OpenTransaction::begin(server.folder(), SNAPSHOT);
    let (process, _folder) = start(&server, &with_reference(), &[]);
    wait_until_blocked(server.folder(), "CREATE INDEX CONCURRENTLY%");
    assert_eq!(
        run_sql(BACKEND, server.folder(), VALIDATED),
        "f\n",
        "rows are not read under a lock"
    );
    check_served(&server, &path, 0);
    open_transaction.commit();
    check_serves_and_stop(process);
    assert_eq!(run_sql(BACKEND, server.folder(), VALIDATED), "t\n");
}

#[test]
fn reference_left_unvalidated_by_a_killed_start_is_validated_by_the_next() {
    let server = Setup::new(BACKEND).model(STRICT).start();
    server.create("/notes", note("a"));
    let open_transaction = OpenTransaction::begin(server.folder(), SNAPSHOT);
    let (process, _folder) = start(&server, &with_reference(), &[]);
    wait_until_blocked(server.folder(), "CREATE INDEX CONCURRENTLY%");
    drop(process);
    open_transaction.commit();
    assert_eq!(run_sql(BACKEND, server.folder(), VALIDATED), "f\n");
    let newer = Setup::replica(server.database()).model(&with_reference()).start();
    assert_eq!(run_sql(BACKEND, server.folder(), VALIDATED), "t\n");
    let first = newer.create("/notes", note("b"));
    let id = first.rsplit_once('/').unwrap().1;
    newer.create("/notes", format!(r#"{{"note":{{"code":"c","before":"{id}"}}}}"#));
    assert_eq!(newer.delete(&first).status, 409);
}

const SCHOOL: &str = "title = \"School\"\n[resources.teacher.fields]\nname = { type = \"text\" }\n\
    [resources.class]\nplural = \"classes\"\n[resources.class.fields]\n\
    title = { type = \"text\" }\nlead = { type = \"ref\", to = \"teacher\" }\n";

fn try_sql(folder: &Folder, text: &str) -> FinishedProcess {
    Postgres::shared().try_sql(&Postgres::database_name(folder.path()), text)
}

#[test]
fn foreign_key_of_an_operator_prevents_recreating_a_table_and_is_preserved() {
    let server = Setup::new(BACKEND).model(SCHOOL).start();
    server.create("/classes", r#"{"class":{"title":"1a"}}"#);
    let folder = server.stop();
    let own = "CREATE TABLE reports (teacher uuid, \
        CONSTRAINT of_teacher FOREIGN KEY (teacher) REFERENCES teachers (id))";
    assert_eq!(try_sql(&folder, own).code, Some(0));
    // Teachers have no items, so their table is recreated.
    let model = SCHOOL.replace("name = { type = \"text\" }", "name = { type = \"integer\" }");
    let (ended, folder) =
        Setup::new(BACKEND).model(&model).try_start_in(folder).expect_err("it is refused");
    assert_eq!(ended.code, Some(2));
    let line = "teacher: its empty table cannot be made anew, because the foreign key of_teacher of \
        the table reports refers to it, and is not one of ours";
    assert!(ended.stderr.contains(line), "{}", ended.stderr);
    let kept = "SELECT count(*) FROM pg_constraint WHERE conname = 'of_teacher'";
    assert_eq!(run_sql(BACKEND, folder.path(), kept), "1\n");
    assert_eq!(try_sql(&folder, "DROP TABLE reports").code, Some(0));
    let server = Setup::new(BACKEND).model(&model).start_in(folder);
    server.create("/teachers", r#"{"teacher":{"name":1}}"#);
}

/// Databases of earlier versions have the names that PostgreSQL gives.
#[test]
fn foreign_key_with_the_name_of_an_earlier_version_is_recognized() {
    let server = Setup::new(BACKEND).model(SCHOOL).start();
    let class = server.create("/classes", r#"{"class":{"title":"1a"}}"#);
    let folder = server.stop();
    let rename = "DO $$ BEGIN EXECUTE (SELECT format('ALTER TABLE classes RENAME CONSTRAINT %I TO \
        classes_lead_fkey', conname) FROM pg_constraint WHERE contype = 'f' AND conrelid = \
        'classes'::regclass AND conname <> 'classes_lead_fkey'); EXCEPTION WHEN null_value_not_allowed \
        THEN NULL; END $$";
    assert_eq!(try_sql(&folder, rename).code, Some(0));
    let model = SCHOOL.replace("name = { type = \"text\" }", "name = { type = \"integer\" }");
    let server = Setup::new(BACKEND).model(&model).start_in(folder);
    let teacher = server.create("/teachers", r#"{"teacher":{"name":1}}"#);
    let id = teacher.rsplit_once('/').unwrap().1;
    let body = format!(r#"{{"class":{{"title":"1a","lead":"{id}"}}}}"#);
    assert_eq!(server.put(&class, body).status, 200);
    assert_eq!(server.delete(&teacher).status, 409);
}
