//! Callers with several roles: which fields they may change, and what one role lacks without another.

use serde_json::{Value, json};

use super::PermissionsFixture;
use crate::harness::{Answer, Backend, Folder, Person, Server, Setup, run_nouns};

const MODEL: &str = r#"
title = "Reports"

[users.fields]
team = { type = "text" }

[resources.report.fields]
owner  = { type = "text" }
team   = { type = "text" }
status = { type = "text" }
note   = { type = "text" }

[resources.grade]
parent = "report"
[resources.grade.fields]
teacher = { type = "text" }
points  = { type = "integer" }
text    = { type = "text", required = true }

[resources.paper.fields]
title = { type = "text" }
mark  = { type = "integer" }

[roles.author]
paper  = { verbs = ["get", "post", "patch"], readonly = ["mark"] }
report = [
  { verbs = ["get"] },
  { verbs = ["put", "patch", "post"], where = "owner = $user and status = 'draft'", readonly = ["team"] },
]
grade = [{ verbs = ["get"] }, { verbs = ["patch"], where = "report.owner = $user", readonly = ["points"] }]

[roles.lead]
report = [
  { verbs = ["get"] },
  { verbs = ["put", "patch", "post"], where = "team = $user.team", readonly = ["owner", "team", "note"] },
]
paper = { verbs = ["post", "patch"], where = "exists(grade where teacher = $user and text = this.title)" }
grade = [{ verbs = ["get"] }, { verbs = ["patch"], where = "report.team = $user.team", readonly = ["text"] }]
"#;

/// Roles for the rows of a workflow, and one for all rows.
const WORKFLOW: &str = r#"
title = "Posts"

[users.fields]
team = { type = "text" }

[resources.post.fields]
owner  = { type = "text" }
status = { type = "text" }
text   = { type = "text" }
label  = { type = "text" }

[roles.author]
post = [{ verbs = ["get"] }, { verbs = ["put", "patch"], where = "owner = $user and status = 'draft'", readonly = ["label"] }]

[roles.press]
post = [{ verbs = ["get"] }, { verbs = ["put", "patch"], where = "status = 'public'" }]

[roles.reviewer]
post = { verbs = ["get", "put", "patch"], readonly = ["owner", "status", "text"] }
"#;

/// GET hides a field that can be changed in some items only.
const BLIND: &str = r#"
title = "Cases"

[users.fields]
team = { type = "text" }

[resources.case.fields]
owner = { type = "text" }
team  = { type = "text" }
title = { type = "text" }
note  = { type = "text" }

[roles.clerk]
case = [{ verbs = ["get"], hide = ["note"] }, { verbs = ["put", "patch"], where = "owner = $user" }]

[roles.chief]
case = [
  { verbs = ["get"], hide = ["note"] },
  { verbs = ["put", "patch"], where = "team = $user.team", readonly = ["note"] },
]
"#;

/// A server with the user lea of the team red, who has several roles.
struct Office {
    server: Server,
    admin: String,
    lea: String,
}

impl Office {
    fn start(backend: Backend, model: &str, roles: &[&str]) -> Self {
        let server = Setup::new(backend).model(model).with_authentication().start();
        let lea = Person::new("lea", "a word for each");
        let path = server.add_user(&lea, roles);
        let office = Self { admin: server.admin().basic(), lea: lea.basic(), server };
        let team = json!({"user": {"team": "red"}});
        assert_eq!(office.send_as(&office.admin, &format!("PATCH {path}"), &team).status, 200);
        office
    }

    fn send_as(&self, login: &str, line: &str, body: &Value) -> Answer {
        self.server.request(line, &[("Authorization", login)], body.to_string())
    }

    fn send(&self, line: &str, body: &Value) -> Answer {
        self.send_as(&self.lea, line, body)
    }

    /// Creates an item as admin; returns its path.
    fn create(&self, path: &str, body: &Value) -> String {
        let made = self.send_as(&self.admin, &format!("POST {path}"), body);
        assert_eq!(made.status, 201, "{made:?}");
        made.header("Location").unwrap().to_owned()
    }

    /// A field of the item at a path, as the admin reads it.
    fn stored(&self, path: &str, field: &str) -> Value {
        let answer = self.send_as(&self.admin, &format!("GET {path}"), &Value::Null);
        let item = answer.json();
        let (_, fields) = item.as_object().unwrap().iter().next().unwrap();
        fields[field].clone()
    }

    /// The status of a request of lea, and the fields that its errors point to.
    fn result(&self, line: &str, body: &Value) -> (u16, Vec<String>) {
        pointers(&self.send(line, body))
    }

    fn patch(&self, path: &str, body: &Value) -> (u16, Vec<String>) {
        self.result(&format!("PATCH {path}"), body)
    }

    fn json_patch(&self, path: &str, operations: &Value) -> (u16, Vec<String>) {
        let headers =
            [("Authorization", &*self.lea), ("Content-Type", "application/json-patch+json")];
        let line = format!("PATCH {path}");
        pointers(&self.server.request(&line, &headers, operations.to_string()))
    }
}

fn pointers(answer: &Answer) -> (u16, Vec<String>) {
    let errors = match answer.text() {
        "" => Vec::new(),
        _ => answer.json()["errors"].as_array().cloned().unwrap_or_default(),
    };
    let pointer = |error: &Value| error["pointer"].as_str().unwrap_or("").to_owned();
    (answer.status, errors.iter().map(pointer).collect())
}

fn refused(pointers: &[&str]) -> (u16, Vec<String>) {
    (403, pointers.iter().map(|one| (*one).to_owned()).collect())
}

on_every_backend! {
    fn field_is_changed_where_one_of_several_roles_allows_it(backend: Backend) {
        let office = Office::start(backend, MODEL, &["author", "lead"]);
        let (create, patch) = (|path: &str, body| office.create(path, &body), |path: &str, body| office.patch(path, &body));
        let report = |owner: &str, team: &str| {
            json!({"report": {"owner": owner, "team": team, "status": "draft", "note": "old"}})
        };
        let [own, of_team, both] = [("lea", "blue"), ("ann", "red"), ("lea", "red")]
            .map(|(owner, team)| create("/reports", report(owner, team)));
        let done = (200, Vec::new());
        let note = |note: Value| json!({"report": {"note": note}});
        assert_eq!(patch(&own, note(json!("new"))), done);
        assert_eq!(patch(&own, note(Value::Null)), done, "it can be removed as well");
        assert_eq!(patch(&of_team, note(json!("new"))), refused(&["/report/note"]));
        assert_eq!(patch(&of_team, note(Value::Null)), refused(&["/report/note"]));
        assert_eq!(patch(&of_team, note(json!("old"))), done, "the stored value may be sent");
        assert_eq!(patch(&of_team, json!({"report": {"status": "read"}})), done);
        assert_eq!(patch(&both, json!({"report": {"team": "blue"}})), refused(&["/report/team"]), "no role allows it");
        // As author before it, and not after it.
        let both_fields = json!({"report": {"status": "sent", "note": "late"}});
        assert_eq!(patch(&both, both_fields), refused(&["/report/note"]));
        assert_eq!(patch(&both, json!({"report": {"status": "sent"}})), done);

        let given = office.send(&format!("PATCH {own}"), &json!({"report": {"owner": "bob"}}));
        assert_eq!((given.status, given.problem().as_str()), (403, "outside-grant"), "{given:?}");
        let post = |fields: Value| office.result("POST /reports", &json!({"report": fields}));
        let new = json!({"owner": "lea", "status": "draft", "note": "new"});
        assert_eq!(post(new), (201, Vec::new()));
        let with_team = json!({"team": "red", "status": "draft", "note": "new"});
        assert_eq!(post(with_team), refused(&["/report/team", "/report/note"]));

        // A field that is left out of a PUT keeps its value, as it may be read-only.
        let put = office.send(&format!("PUT {of_team}"), &json!({"report": {"status": "done"}}));
        assert_eq!((put.status, &put.json()["report"]["note"]), (200, &json!("old")), "{put:?}");
        let put = office.send(&format!("PUT {own}"), &report("lea", "blue"));
        assert_eq!((put.status, &put.json()["report"]["note"]), (200, &json!("old")), "{put:?}");

        // The item above decides.
        let grade = json!({"grade": {"points": 1, "text": "good"}});
        let [of_own, of_team] =
            [&own, &of_team].map(|report| create(&format!("{report}/grades"), grade.clone()));
        let (points, text) = (json!({"grade": {"points": 2}}), json!({"grade": {"text": "fair"}}));
        assert_eq!(patch(&of_own, text.clone()), done);
        assert_eq!(patch(&of_own, points.clone()), refused(&["/grade/points"]));
        assert_eq!(patch(&of_team, text), refused(&["/grade/text"]));
        assert_eq!(patch(&of_team, points), done);
        assert_eq!(patch(&of_team, json!({"grade": {"text": null}})), refused(&["/grade/text"]));

        // One role grants all papers, and another one, by a condition over other items, a field of some.
        let teacher = json!({"grade": {"teacher": "lea", "text": "poem"}});
        create(&format!("{own}/grades"), teacher);
        for (title, expected) in [("poem", (201, vec![])), ("novel", refused(&["/paper/mark"]))] {
            let paper = json!({"paper": {"title": title, "mark": 1}});
            assert_eq!(office.result("POST /papers", &paper), expected, "{title}");
        }
        let [poem, novel] = ["poem", "novel"].map(|title| create("/papers", json!({"paper": {"title": title}})));
        let mark = json!({"paper": {"mark": 2}});
        assert_eq!(patch(&poem, mark.clone()), done);
        assert_eq!(patch(&novel, mark), refused(&["/paper/mark"]));
        assert_eq!(patch(&novel, json!({"paper": {"title": "poem"}})), done);
    }

    /// A patch keeps a value that is absent, also where the field has got a default since.
    fn patch_leaves_a_limited_field_that_it_does_not_name(backend: Backend) {
        let mut office = Office::start(backend, MODEL, &["author", "lead"]);
        let report = |owner: &str| json!({"report": {"owner": owner, "team": "red", "status": "draft"}});
        let [of_team, both] = ["ann", "lea"].map(|owner| office.create("/reports", &report(owner)));
        let later = MODEL.replace("note   = { type = \"text\" }", "note   = { type = \"text\", default = \"-\" }");
        office.server =
            Setup::new(backend).model(&later).with_authentication().start_in(office.server.stop());
        let status = |status: &str| json!({"report": {"status": status}});
        assert_eq!(office.patch(&of_team, &status("read")), (200, Vec::new()));
        let replaced = json!([{"op": "replace", "path": "/report/status", "value": "done"}]);
        assert_eq!(office.json_patch(&of_team, &replaced), (200, Vec::new()));
        // The note can be changed before it, and not after it.
        assert_eq!(office.patch(&both, &status("sent")), (200, Vec::new()));
        for path in [&of_team, &both] {
            assert_eq!(office.stored(path, "note"), Value::Null);
        }
    }

    fn limited_field_needs_one_role_for_the_item_before_and_after(backend: Backend) {
        let post = |status: &str| json!({"post": {"owner": "lea", "status": status, "text": "old"}});
        let (publish, done) = (json!({"post": {"status": "public"}}), (200, Vec::new()));
        let office = Office::start(backend, WORKFLOW, &["author", "press"]);
        let draft = office.create("/posts", &post("draft"));
        // The press labels what is public, and lets nobody label what becomes it.
        let labelled = json!({"post": {"status": "public", "label": "new"}});
        assert_eq!(office.patch(&draft, &labelled), refused(&["/post/label"]));
        // Both let the status be changed, and the row filters judge before and after apart.
        assert_eq!(office.patch(&draft, &publish), done);
        assert_eq!(office.patch(&draft, &labelled), done);

        let office = Office::start(backend, WORKFLOW, &["author", "press", "reviewer"]);
        let [draft, public] = ["draft", "public"].map(|status| office.create("/posts", &post(status)));
        for (path, text) in [(&draft, "new"), (&public, "new")] {
            assert_eq!(office.patch(path, &json!({"post": {"text": text}})), done);
        }
        assert_eq!(office.patch(&draft, &publish), refused(&["/post/status"]));
        let put = json!({"post": {"owner": "lea", "status": "public", "text": "new"}});
        assert_eq!(office.result(&format!("PUT {draft}"), &put), refused(&["/post/status"]));
        assert_eq!(office.patch(&public, &json!({"post": {"status": "draft"}})), refused(&["/post/status"]));
    }

    fn limited_field_in_json_patch_and_bulk_create(backend: Backend) {
        let office = Office::start(backend, MODEL, &["author", "lead"]);
        let report = |owner: &str, note: &str| json!({"owner": owner, "team": "red", "status": "draft", "note": note});
        let [own, of_team] = ["lea", "ann"].map(|owner| office.create("/reports", &json!({"report": report(owner, "old")})));
        let done = (200, Vec::new());
        let replace = |value: &str| json!([{"op": "replace", "path": "/report/note", "value": value}]);
        let remove = json!([{"op": "remove", "path": "/report/note"}]);
        assert_eq!(office.json_patch(&own, &replace("new")), done);
        assert_eq!(office.json_patch(&own, &remove), done);
        assert_eq!(office.json_patch(&of_team, &replace("new")), refused(&["/report/note"]));
        assert_eq!(office.json_patch(&of_team, &replace("old")), done);
        assert_eq!(office.json_patch(&of_team, &remove), refused(&["/report/note"]));
        assert_eq!((office.stored(&own, "note"), office.stored(&of_team, "note")), (Value::Null, json!("old")));

        let told = office.send(&format!("PATCH {of_team}"), &json!({"report": {"note": "new"}}));
        assert!(told.text().contains("in this item"), "{told:?}");
        let told = office.send(&format!("PATCH {of_team}"), &json!({"report": {"team": "new"}}));
        assert!(!told.text().contains("in this item\""), "{told:?}");

        let without_team = |owner: &str, note: Value| json!({"owner": owner, "status": "draft", "note": note});
        let all = |items: &[Value]| office.result("POST /reports", &json!({"reports": items}));
        let own = without_team("lea", json!("mine"));
        assert_eq!(all(&[own.clone(), own.clone()]), (201, Vec::new()));
        let mut of_team = without_team("ann", json!("theirs"));
        of_team["team"] = json!("red");
        // A new item of the team has neither owner nor team nor note of the caller's.
        let expected = refused(&["/reports/1/owner", "/reports/1/team", "/reports/1/note"]);
        assert_eq!(all(&[own, of_team]), expected);
    }

    fn limited_field_that_get_hides_reveals_nothing(backend: Backend) {
        let office = Office::start(backend, BLIND, &["clerk", "chief"]);
        let case = |owner: &str| json!({"case": {"owner": owner, "team": "red", "title": "a", "note": "old"}});
        let [own, of_team] = ["lea", "ann"].map(|owner| office.create("/cases", &case(owner)));
        let note = |note: Value| json!({"case": {"note": note}});
        let (done, taken) = ((200, Vec::new()), refused(&["/case/note"]));
        for value in ["old", "new"] {
            assert_eq!(office.patch(&of_team, &note(json!(value))), taken, "{value}");
            assert_eq!(office.patch(&own, &note(json!(value))), done, "{value}");
        }
        assert_eq!(office.patch(&of_team, &note(Value::Null)), taken);
        for path in [&own, &of_team] {
            assert_eq!(office.patch(path, &json!({"case": {"title": "b"}})), done);
            let owner = office.stored(path, "owner");
            let put = json!({"case": {"owner": owner, "team": "red", "title": "c"}});
            assert_eq!(office.result(&format!("PUT {path}"), &put), done);
        }
        assert_eq!([office.stored(&own, "note"), office.stored(&of_team, "note")], ["new", "old"]);
        assert_eq!(office.patch(&own, &note(Value::Null)), done);
        assert_eq!(office.stored(&own, "note"), Value::Null);
    }
}

const NESTED: &str = r#"
title = "Houses"
[resources.house]
id = "integer"
[resources.house.fields]
street = { type = "text" }
[resources.room]
parent = "house"
id = "integer"
[resources.room.fields]
name = { type = "text" }
[resources.lamp]
parent = "room"
id = "integer"
[resources.lamp.fields]
watts = { type = "integer" }
[roles.visitor]
house = ["get"]
[roles.painter]
room = ["get", "post"]
[roles.electrician]
house = ["get"]
room = ["post"]
lamp = "*"
"#;

on_every_backend! {
    fn grant_below_a_parent_without_get_needs_another_role(backend: Backend) {
        let mut office = PermissionsFixture::with_model(backend, NESTED);
        let house = office.create_as_admin("POST /houses", r#"{"house":{"street":"Elm"}}"#);
        let room = office.create_as_admin(&format!("POST {house}/rooms"), r#"{"room":{"name":"hall"}}"#);
        let requests = [
            (format!("GET {house}/rooms"), ""),
            (format!("GET {room}"), ""),
            (format!("POST {house}/rooms"), r#"{"room":{"name":"attic"}}"#),
            ("GET /rooms".to_owned(), ""),
        ];
        office.set_roles(&["painter"]);
        for (line, body) in &requests {
            assert_eq!(office.request(line, body).status, 404, "{line}");
        }
        office.set_roles(&["painter", "visitor"]);
        for (line, body) in &requests {
            let expected = if line.starts_with("POST") { 201 } else { 200 };
            assert_eq!(office.request(line, body).status, expected, "{line}");
        }
    }
}

#[test]
fn check_warns_of_a_role_that_may_not_get_what_is_above() {
    let folder = Folder::new();
    std::fs::write(folder.path().join("nouns.toml"), NESTED).unwrap();
    let checked = run_nouns(folder.path(), &["check"]);
    assert_eq!(checked.code, Some(0), "{checked:?}");
    let warnings: Vec<&str> = checked.stderr.lines().collect();
    assert_eq!(
        warnings,
        [
            "nouns.toml: warning: role `electrician` may post `room` but not get it: the answers have no body",
            "nouns.toml: warning: role `painter` may use `room` but not get `house` above it: without another role, all requests for `room` are answered with 404",
            "nouns.toml: warning: role `electrician` may use `lamp` but not get `room` above it: without another role, all requests for `lamp` are answered with 404",
        ]
    );
    let open =
        NESTED.replace("[roles.visitor]", "[roles.anyone]\n\"*\" = [\"get\"]\n[roles.visitor]");
    std::fs::write(folder.path().join("nouns.toml"), open).unwrap();
    assert_eq!(run_nouns(folder.path(), &["check"]).stderr, "");
}
