//! Model changes while several servers share a database: one applies the change, the others wait and
//! check.
//!
//! `src/model/diff.rs` computes the difference of two models, and `tests/it/operate/` tests it.
//! A running server with the older model works with the changed tables.

use std::thread;

use expect_test::expect;
use serde_json::{Value, json};

use super::REPLICAS;
use crate::harness::{Backend, FinishedProcess, Folder, Server, Setup, run_sql};

const NOTES: &str = "title = \"Notes\"\n[resources.note.fields]\ntext = { type = \"text\" }\n";

/// The same with one more field, which has a default and an index.
fn model_with_more_fields() -> String {
    format!("{NOTES}mood = {{ type = \"text\", default = \"calm\", filter = true }}\n")
}

/// An empty database, which is dropped with its folder.
fn empty_database() -> (Folder, String) {
    let folder = Folder::new();
    let address = Backend::Postgres.database(&folder, "nouns.db");
    (folder, address)
}

/// Starts servers on one database at the same time.
fn start_concurrently(address: &str, model: &str) -> Vec<Server> {
    thread::scope(|scope| {
        let start = || Setup::replica(address.to_owned()).model(model).start();
        let starts: Vec<_> = (0..REPLICAS).map(|_| scope.spawn(start)).collect();
        starts.into_iter().map(|start| start.join().unwrap()).collect()
    })
}

fn start_refused(address: &str, model: &str) -> FinishedProcess {
    let setup = Setup::replica(address.to_owned()).model(model);
    match setup.try_start_in(Folder::new()) {
        Ok(server) => panic!("it serves at {}", server.address),
        Err((ended, _)) => ended,
    }
}

/// Asserts that all show what was created at one.
fn assert_all_serve(servers: &[Server], note: &Value) {
    for server in servers {
        let path = server.create("/notes", json!({ "note": note }).to_string());
        let shown = server.get(&path).json();
        for (name, value) in note.as_object().unwrap() {
            assert_eq!(shown["note"][name], *value);
        }
        for other in servers {
            assert_eq!(other.get(&path).json(), shown);
        }
    }
}

#[test]
fn concurrent_starts_create_the_tables_once() {
    let (folder, address) = empty_database();
    let servers = start_concurrently(&address, NOTES);
    assert_all_serve(&servers, &json!({"text": "tea"}));
    let count = "SELECT count(*) FROM nouns_system WHERE name = 'model'";
    assert_eq!(run_sql(Backend::Postgres, folder.path(), count), "1\n");
}

#[test]
fn concurrent_starts_add_a_field_once() {
    let (_folder, address) = empty_database();
    let server = Setup::replica(address.clone()).model(NOTES).start();
    let old = server.create("/notes", r#"{"note":{"text":"tea"}}"#);
    server.stop();
    let servers = start_concurrently(&address, &model_with_more_fields());
    for server in &servers {
        assert_eq!(server.get(&old).json()["note"]["mood"], "calm");
    }
    assert_all_serve(&servers, &json!({"text": "tea", "mood": "merry"}));
}

#[test]
fn start_with_an_older_model_beside_a_newer_one_keeps_its_field() {
    let (_folder, address) = empty_database();
    let newer = Setup::replica(address.clone()).model(&model_with_more_fields()).start();
    let path = newer.create("/notes", r#"{"note":{"text":"tea","mood":"merry"}}"#);
    let older = Setup::replica(address).model(NOTES).start();
    assert_eq!(older.put(&path, r#"{"note":{"text":"milk"}}"#).status, 200);
    assert!(older.get(&path).json()["note"].get("mood").is_none());
    let created = older.create("/notes", r#"{"note":{"text":"tea"}}"#);
    assert_eq!(newer.get(&path).json()["note"]["mood"], "merry");
    assert_eq!(newer.get(&created).json()["note"]["mood"], "calm");
}

#[test]
fn start_with_an_older_model_beside_a_newer_one_keeps_its_empty_resource() {
    let (_folder, address) = empty_database();
    let model = format!("{NOTES}[resources.page.fields]\ntext = {{ type = \"text\" }}\n");
    let newer = Setup::replica(address.clone()).model(&model).start();
    let older = Setup::replica(address).model(NOTES).start();
    assert_eq!(older.get("/pages").status, 404);
    let page = newer.create("/pages", r#"{"page":{"text":"one"}}"#);
    assert_eq!(newer.get(&page).status, 200);
}

#[test]
fn start_with_an_unrelated_model_is_refused() {
    let (_folder, address) = empty_database();
    let server = Setup::replica(address.clone()).model(&model_with_more_fields()).start();
    let path = server.create("/notes", r#"{"note":{"text":"tea"}}"#);
    let other = NOTES.replace("note", "page");
    let ended = start_refused(&address, &other);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""));
    expect![[r#"
        nouns: ADDRESS holds data of another model, and this one would lose or break some of it:
          note: the resource was removed, but the database keeps its items
        nothing was changed; see what would be done with: nouns plan model.toml --database ADDRESS; do it with: nouns migrate model.toml --database ADDRESS; or take these changes back
    "#]]
    .assert_eq(&ended.stderr.replace(&address, "ADDRESS"));
    assert_eq!(server.get(&path).json()["note"]["mood"], "calm", "nothing has changed for others");
}

/// As in a rolling deployment.
#[test]
fn running_server_with_an_older_model_keeps_serving() {
    let (_folder, address) = empty_database();
    let older = Setup::replica(address.clone()).model(NOTES).start();
    let first = older.create("/notes", r#"{"note":{"text":"tea"}}"#);
    let newer = Setup::replica(address).model(&model_with_more_fields()).start();
    let second = older.create("/notes", r#"{"note":{"text":"jam"}}"#);
    for path in [&first, &second] {
        assert_eq!(newer.get(path).json()["note"]["mood"], "calm");
    }
    assert_eq!(newer.put(&first, r#"{"note":{"text":"tea","mood":"merry"}}"#).status, 200);
    assert_eq!(older.put(&first, r#"{"note":{"text":"coffee"}}"#).json()["note"]["version"], 3);
    let note = newer.get(&first).json()["note"].clone();
    assert_eq!((&note["text"], &note["mood"]), (&json!("coffee"), &json!("merry")));
}

/// A child resource, and a reference, that a server with the older model does not know.
const NOTES_WITH_REFERRERS: &str = "title = \"Notes\"\n[resources.note.fields]\n\
    text = { type = \"text\" }\n\
    [resources.remark]\nparent = \"note\"\n[resources.remark.fields]\nsay = { type = \"text\" }\n\
    [resources.link.fields]\nto = { type = \"ref\", to = \"note\" }\n";

#[test]
fn delete_of_an_item_referenced_by_a_newer_model_is_refused() {
    let (_folder, address) = empty_database();
    let older = Setup::replica(address.clone()).model(NOTES).start();
    let [parent, target, free] = ["a", "b", "c"]
        .map(|text| older.create("/notes", json!({"note": {"text": text}}).to_string()));
    let newer = Setup::replica(address).model(NOTES_WITH_REFERRERS).start();
    let id = target.rsplit_once('/').unwrap().1;
    let remark = newer.create(&format!("{parent}/remarks"), r#"{"remark":{"say":"x"}}"#);
    let link = newer.create("/links", json!({"link": {"to": id}}).to_string());
    for path in [&parent, &target] {
        let refused = older.delete(path);
        assert_eq!(
            (refused.status, refused.problem().as_str()),
            (409, "referenced"),
            "{refused:?}"
        );
        let detail = "there are items that belong or refer to this note";
        assert_eq!(refused.json()["detail"], detail);
        assert_eq!(older.get(path).status, 200);
    }
    assert_eq!(older.delete(&free).status, 204);
    for path in [&remark, &link] {
        assert_eq!(newer.delete(path).status, 204);
    }
    for path in [&parent, &target] {
        assert_eq!(older.delete(path).status, 204);
    }
}

/// As a server with a newer model would have made it while there were no items.
#[test]
fn unique_value_of_a_newer_model_is_a_conflict() {
    let (folder, address) = empty_database();
    let older = Setup::replica(address).model(NOTES).start();
    let newer = r#"CREATE UNIQUE INDEX "nouns.notes.unique.text" ON notes (nouns_digest(text))"#;
    run_sql(Backend::Postgres, folder.path(), newer);
    older.create("/notes", r#"{"note":{"text":"tea"}}"#);
    let other = older.create("/notes", r#"{"note":{"text":"jam"}}"#);
    let tea = r#"{"note":{"text":"tea"}}"#;
    for refused in [older.post("/notes", tea), older.put(&other, tea)] {
        assert_eq!((refused.status, refused.problem().as_str()), (409, "taken"), "{refused:?}");
    }
    assert_eq!(older.get(&other).json()["note"]["text"], "jam");
}
