//! Callers with several roles: which fields they may change, and what one role lacks without another.

use serde_json::{Value, json};

use super::PermissionsFixture;
use crate::harness::{Answer, Backend, Folder, Person, Setup, run_nouns};

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

on_every_backend! {
    fn field_is_changed_where_one_of_several_roles_allows_it(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).with_authentication().start();
        let lea = Person::new("lea", "a word for each");
        let path = server.add_user(&lea, &["author", "lead"]);
        let admin = server.admin().basic();
        let send = |login: &str, line: &str, body: &Value| {
            server.request(line, &[("Authorization", login)], body.to_string())
        };
        let team = json!({"user": {"team": "red"}});
        assert_eq!(send(&admin, &format!("PATCH {path}"), &team).status, 200);
        let create = |path: &str, body: Value| {
            let made = send(&admin, &format!("POST {path}"), &body);
            assert_eq!(made.status, 201, "{made:?}");
            made.header("Location").unwrap().to_owned()
        };
        let report = |owner: &str, team: &str| {
            json!({"report": {"owner": owner, "team": team, "status": "draft", "note": "old"}})
        };
        let lea = lea.basic();
        let [own, of_team, both] = [("lea", "blue"), ("ann", "red"), ("lea", "red")]
            .map(|(owner, team)| create("/reports", report(owner, team)));
        let pointers = |answer: &Answer| {
            let errors = answer.json()["errors"].as_array().cloned().unwrap_or_default();
            let pointer = |error: &Value| error["pointer"].as_str().unwrap_or("").to_owned();
            errors.iter().map(pointer).collect::<Vec<_>>()
        };
        let patch = |path: &str, fields: Value| {
            let answer = send(&lea, &format!("PATCH {path}"), &fields);
            (answer.status, pointers(&answer))
        };
        let done = (200, Vec::new());
        let refused = |pointers: &[&str]| (403, pointers.iter().map(|one| (*one).to_owned()).collect());
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

        let given = send(&lea, &format!("PATCH {own}"), &json!({"report": {"owner": "bob"}}));
        assert_eq!((given.status, given.problem().as_str()), (403, "outside-grant"), "{given:?}");
        let post = |fields: Value| {
            let answer = send(&lea, "POST /reports", &json!({"report": fields}));
            (answer.status, pointers(&answer))
        };
        let new = json!({"owner": "lea", "status": "draft", "note": "new"});
        assert_eq!(post(new), (201, Vec::new()));
        let with_team = json!({"team": "red", "status": "draft", "note": "new"});
        assert_eq!(post(with_team), refused(&["/report/team", "/report/note"]));

        // A field that is left out of a PUT keeps its value, as it may be read-only.
        let put = send(&lea, &format!("PUT {of_team}"), &json!({"report": {"status": "done"}}));
        assert_eq!((put.status, &put.json()["report"]["note"]), (200, &json!("old")), "{put:?}");
        let put = send(&lea, &format!("PUT {own}"), &report("lea", "blue"));
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
            let answer = send(&lea, "POST /papers", &json!({"paper": {"title": title, "mark": 1}}));
            assert_eq!((answer.status, pointers(&answer)), expected, "{title}: {answer:?}");
        }
        let [poem, novel] = ["poem", "novel"].map(|title| create("/papers", json!({"paper": {"title": title}})));
        let mark = json!({"paper": {"mark": 2}});
        assert_eq!(patch(&poem, mark.clone()), done);
        assert_eq!(patch(&novel, mark), refused(&["/paper/mark"]));
        assert_eq!(patch(&novel, json!({"paper": {"title": "poem"}})), done);
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
