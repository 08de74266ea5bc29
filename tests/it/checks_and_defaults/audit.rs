//! `created_by` and `updated_by`: the users who created and last changed an item.

use std::fs;

use serde_json::{Value, json};

use super::{faults, send};
use crate::harness::{Answer, Backend, Person, Server, Setup, run_nouns};

const MODEL: &str = r#"
title = "Notes"

[resources.note]
created_by = true
updated_by = true
unique = [["created_by", "title"]]

[resources.note.fields]
title = { type = "text", required = true }

[roles.writer]
note = { verbs = ["get", "post", "put", "patch", "delete"], where = "created_by = $user" }

[roles.editor]
note = ["get", "post", "put", "patch"]

[roles.blind]
note = { verbs = ["get", "post", "put"], hide = ["created_by", "updated_by"] }

[roles.anyone]
note = ["post"]
"#;

struct Notes {
    server: Server,
    ann: Person,
    bob: Person,
    eve: Person,
    kim: Person,
}

impl Notes {
    fn open(backend: Backend) -> Self {
        let server = Setup::new(backend).model(MODEL).with_authentication().start();
        let [ann, bob, eve, kim] =
            ["ann", "bob", "eve", "kim"].map(|name| Person::new(name, "as long as it takes"));
        for (person, role) in
            [(&ann, "writer"), (&bob, "writer"), (&eve, "editor"), (&kim, "blind")]
        {
            server.add_user(person, &[role]);
        }
        Self { server, ann, bob, eve, kim }
    }

    fn send(&self, who: &Person, line: &str, body: &Value) -> Answer {
        send(&self.server, Some(who), line, body)
    }

    fn create(&self, who: &Person, title: &str) -> String {
        let answer = self.send(who, "POST /notes", &json!({"note": {"title": title}}));
        assert_eq!(answer.status, 201, "{answer:?}");
        answer.header("Location").unwrap().to_owned()
    }

    fn users(&self, path: &str) -> [Value; 2] {
        let note =
            self.send(&self.eve, &format!("GET {path}"), &json!(null)).json()["note"].clone();
        [note["created_by"].clone(), note["updated_by"].clone()]
    }
}

on_every_backend! {
    fn audit_fields_name_the_creator_and_the_last_editor(backend: Backend) {
        let notes = Notes::open(backend);
        let path = notes.create(&notes.ann, "a");
        assert_eq!(notes.users(&path), ["ann", "ann"]);
        let put = notes.send(&notes.eve, &format!("PUT {path}"), &json!({"note": {"title": "b"}}));
        assert_eq!((put.status, &put.json()["note"]["updated_by"]), (200, &json!("eve")));
        assert_eq!(notes.users(&path), ["ann", "eve"]);
        let patch = notes.send(&notes.ann, &format!("PATCH {path}"), &json!({"note": {"title": "c"}}));
        assert_eq!(patch.status, 200);
        assert_eq!(notes.users(&path), ["ann", "ann"]);
        // A request that changes nothing makes no new version, and does not set `updated_by`.
        let same = notes.send(&notes.eve, &format!("PUT {path}"), &json!({"note": {"title": "c"}}));
        assert_eq!((same.status, &same.json()["note"]["version"]), (200, &json!(3)));
        assert_eq!(notes.users(&path), ["ann", "ann"]);
        let admin = notes.server.admin();
        let log = notes.send(&admin, &format!("GET /-/changes?subject={path}"), &json!(null)).json();
        let changed: Vec<&Value> = log["changes"].as_array().unwrap().iter().map(|one| &one["changed"]).collect();
        assert_eq!(changed, [&json!(null), &json!(["title", "updated_by"]), &json!(["title", "updated_by"])]);
    }

    /// As `created_at`: a client sends back what it got, and it is not looked at.
    fn audit_fields_that_are_sent_are_ignored_or_refused(backend: Backend) {
        let notes = Notes::open(backend);
        let sent = notes.send(&notes.ann, "POST /notes", &json!({"note": {"title": "a", "created_by": "bob"}}));
        assert_eq!(faults(&sent), "422 invalid-fields\n/note/created_by | read_only | set by the server");
        let path = notes.create(&notes.ann, "a");
        let body = json!({"note": {"title": "b", "created_by": "bob", "updated_by": "bob"}});
        for verb in ["PUT", "PATCH"] {
            assert_eq!(notes.send(&notes.ann, &format!("{verb} {path}"), &body).status, 200);
            assert_eq!(notes.users(&path), ["ann", "ann"]);
        }
        let wrong = notes.send(&notes.ann, &format!("PUT {path}"), &json!({"note": {"title": "b", "updated_by": 7}}));
        assert_eq!(faults(&wrong), "422 invalid-fields\n/note/updated_by | type | expected a text, got a number");
        let removed = notes.send(&notes.eve, &format!("PATCH {path}"), &json!({"note": {"title": "c", "created_by": null}}));
        assert_eq!((removed.status, notes.users(&path)), (200, [json!("ann"), json!("eve")]));
    }

    /// `where = "created_by = $user"`: everybody has their own items.
    fn audit_fields_give_ownership(backend: Backend) {
        let notes = Notes::open(backend);
        let (of_ann, of_bob) = (notes.create(&notes.ann, "a"), notes.create(&notes.bob, "a"));
        let list = |who: &Person, query: &str| {
            let list = notes.send(who, &format!("GET /notes{query}"), &json!(null)).json();
            list["notes"].as_array().unwrap().len()
        };
        assert_eq!((list(&notes.ann, ""), list(&notes.eve, ""), list(&notes.eve, "?created_by=bob")), (1, 2, 1));
        for line in [format!("GET {of_bob}"), format!("DELETE {of_bob}")] {
            assert_eq!(notes.send(&notes.ann, &line, &json!(null)).status, 404);
        }
        let other = json!({"note": {"title": "z"}});
        assert_eq!(notes.send(&notes.ann, &format!("PUT {of_bob}"), &other).status, 404);
        // An editor of an item does not become its owner.
        assert_eq!(notes.send(&notes.eve, &format!("PUT {of_ann}"), &other).status, 200);
        assert_eq!(notes.send(&notes.ann, &format!("GET {of_ann}"), &json!(null)).status, 200);
        // Unique for each of them.
        let again = notes.send(&notes.bob, "POST /notes", &json!({"note": {"title": "a"}}));
        assert_eq!(again.problem(), "taken");
    }

    fn audit_fields_can_be_hidden_and_are_described(backend: Backend) {
        let notes = Notes::open(backend);
        let path = notes.create(&notes.kim, "k");
        let shown = notes.send(&notes.kim, &format!("GET {path}"), &json!(null)).json()["note"].clone();
        assert_eq!((shown.get("created_by"), shown.get("updated_by")), (None, None));
        assert_eq!(notes.users(&path), ["kim", "kim"]);
        let sent = notes.send(&notes.kim, &format!("PUT {path}"), &json!({"note": {"title": "k", "created_by": "kim"}}));
        assert_eq!(faults(&sent), "422 invalid-fields\n/note/created_by | unknown | no such field");
        assert_eq!(notes.send(&notes.kim, &format!("PUT {path}"), &json!({"note": {"title": "l"}})).status, 200);
        assert_eq!(notes.users(&path), ["kim", "kim"]);
        let schema = |who: &Person| notes.send(who, "GET /-/schemas/note", &json!(null)).json()["properties"]["created_by"].clone();
        assert_eq!(schema(&notes.kim), json!(null));
        let expected = json!({"type": "string", "maxLength": 200, "description": "The user who created the item.", "readOnly": true});
        assert_eq!(schema(&notes.eve), expected);
        let credentials = notes.eve.basic();
        let page = notes.server.request(&format!("GET {path}"), &[("Accept", "text/html"), ("Authorization", &credentials)], "");
        assert!(page.text().contains("created_by") && !page.text().contains("name=\"/created_by\""), "{}", page.text());
    }

    fn audit_fields_of_callers_without_a_name_are_absent(backend: Backend) {
        let notes = Notes::open(backend);
        let created = notes.server.post("/notes", r#"{"note":{"title":"a"}}"#);
        assert_eq!(created.status, 201, "{created:?}");
        assert_eq!(notes.users(created.header("Location").unwrap()), [json!(null), json!(null)]);
    }

    /// Items that are there have no value; a model without the fields hides and keeps them, and still fills them in.
    fn audit_fields_are_added_to_stored_items_and_retained(backend: Backend) {
        let without = MODEL.replace("created_by = true\nupdated_by = true\nunique = [[\"created_by\", \"title\"]]\n", "")
            .replace(", where = \"created_by = $user\"", "").replace(", hide = [\"created_by\", \"updated_by\"]", "");
        let server = Setup::new(backend).model(&without).start();
        let old = server.create("/notes", r#"{"note":{"title":"old"}}"#);
        let server = Setup::new(backend).model(MODEL).with_authentication().start_in(server.stop());
        let ann = Person::new("ann", "as long as it takes");
        server.add_user(&ann, &["editor"]);
        let basic = ann.basic();
        let headers = [("Authorization", &*basic)];
        let note = |server: &Server, path: &str| {
            let admin = server.admin().basic();
            server.request(&format!("GET {path}"), &[("Authorization", &admin)], "").json()["note"].clone()
        };
        assert_eq!(note(&server, &old).get("created_by"), None);
        assert_eq!(server.request(&format!("PUT {old}"), &headers, r#"{"note":{"title":"older"}}"#).status, 200);
        let found = note(&server, &old);
        assert_eq!((found.get("created_by"), &found["updated_by"]), (None, &json!("ann")));
        let server = Setup::new(backend).model(&without).with_authentication().start_in(server.stop());
        let created = server.request("POST /notes", &headers, r#"{"note":{"title":"new"}}"#);
        assert_eq!((created.status, created.json()["note"].get("created_by")), (201, None));
        let path = created.header("Location").unwrap().to_owned();
        let server = Setup::new(backend).model(MODEL).with_authentication().start_in(server.stop());
        assert_eq!(note(&server, &path)["created_by"], "ann");
        assert_eq!(note(&server, &old)["updated_by"], "ann");
    }

    /// An export that is imported again keeps them, as it keeps the ids.
    fn audit_fields_survive_export_and_import(backend: Backend) {
        let notes = Notes::open(backend);
        let path = notes.create(&notes.ann, "a");
        assert_eq!(notes.send(&notes.eve, &format!("PUT {path}"), &json!({"note": {"title": "b"}})).status, 200);
        let folder = notes.server.folder();
        fs::write(folder.join("model.toml"), MODEL).unwrap();
        let database = notes.server.database();
        let run = |arguments: &[&str]| {
            let more = ["--model", "model.toml", "--database", &database];
            let ended = run_nouns(folder, &[arguments, &more].concat());
            assert_eq!(ended.code, Some(0), "{ended:?}");
        };
        run(&["export", "note", "out.ndjson"]);
        assert_eq!(notes.send(&notes.server.admin(), &format!("DELETE {path}"), &json!(null)).status, 204);
        run(&["import", "note", "out.ndjson"]);
        assert_eq!(notes.users(&path), ["ann", "eve"]);
        let id = path.rsplit('/').next().unwrap();
        fs::write(folder.join("up.csv"), format!("id,title,created_by\n{id},c,bob\n")).unwrap();
        run(&["import", "note", "up.csv", "--upsert", "id"]);
        // The operator who runs `nouns import` has no user name.
        assert_eq!(notes.users(&path), [json!("bob"), json!(null)]);
    }
}
