//! Responses to writes: they show no more than a GET by the same caller, and their status reveals no
//! value that GET does not show.

use super::{PermissionsFixture, id};
use crate::harness::{Answer, Backend, Folder, Masks, run_nouns};

const STAFF: &str = r#"
title = "Staff"

[resources.team.fields]
name = { type = "text", required = true }

[resources.person]
plural = "people"

[resources.person.fields]
name   = { type = "text", required = true }
group  = { type = "text", default = "a" }
salary = { type = "integer", default = 1000 }
bonus  = { type = "integer" }
stage  = { type = "state", initial = "new", next = { new = ["hired"], hired = [] } }
team   = { type = "ref", to = "team" }

[roles.reader]
person = { verbs = ["get"], hide = ["salary", "bonus", "stage", "team"], where = "group = 'a'" }

[roles.editor]
person = ["post", "put", "patch", "delete"]

[roles.payroll]
person = { verbs = ["put", "patch"], readonly = ["salary", "bonus"] }
"#;

const JSON_PATCH: (&str, &str) = ("Content-Type", "application/json-patch+json");

fn start_office(backend: Backend, roles: &[&str]) -> PermissionsFixture {
    let mut office = PermissionsFixture::with_model(backend, STAFF);
    office.set_roles(roles);
    office
}

fn create_person(office: &mut PermissionsFixture, body: &str) -> String {
    office.create_as_admin("POST /people", body)
}

/// The item as the admin reads it.
fn stored_item(office: &mut PermissionsFixture, path: &str) -> serde_json::Value {
    office.request_as_admin(&format!("GET {path}"), "").json()["person"].clone()
}

/// The whole response, without what is new every time.
fn comparable_response(answer: &Answer) -> String {
    Masks::default().answer(answer)
}

fn assert_without_body(answer: &Answer, status: u16) {
    assert_eq!(answer.status, status, "{answer:?}");
    assert_eq!(answer.text(), "", "{answer:?}");
    for name in ["ETag", "Last-Modified", "Content-Type"] {
        assert_eq!(answer.header(name), None, "{answer:?}");
    }
}

on_every_backend! {
    fn write_response_has_the_fields_and_etag_of_get(backend: Backend) {
        let mut office = start_office(backend, &["reader", "editor"]);
        let path = create_person(&mut office, r#"{"person":{"name":"Eve","salary":5000}}"#);
        let seen = office.request(&format!("GET {path}"), "");
        assert_eq!(seen.status, 200);
        let empty = office.request(&format!("PATCH {path}"), r#"{"person":{}}"#);
        assert_eq!((empty.status, empty.text()), (200, seen.text()));
        assert_eq!(empty.header("ETag"), seen.header("ETag"));
        let put = office.request(&format!("PUT {path}"), r#"{"person":{"name":"Eva"}}"#);
        assert_eq!(put.status, 200);
        assert_eq!(put.text(), office.request(&format!("GET {path}"), "").text());
        let made = office.request("POST /people", r#"{"person":{"name":"Joe","salary":7}}"#);
        assert_eq!(made.status, 201);
        for answer in [&put, &empty, &made] {
            assert!(!answer.text().contains("salary") && !answer.text().contains("stage"), "{answer:?}");
        }
        let many = office.request("POST /people", r#"{"people":[{"name":"Joe","salary":7}]}"#);
        assert_eq!(many.status, 201);
        assert!(!many.text().contains("salary"), "{many:?}");
    }

    /// A client cannot send back what GET does not show, so a PUT of what GET has shown leaves it.
    fn put_without_a_hidden_field_keeps_it(backend: Backend) {
        let mut office = start_office(backend, &["reader", "editor"]);
        let path = create_person(&mut office, r#"{"person":{"name":"Eve","salary":5000,"bonus":3}}"#);
        let seen = office.request(&format!("GET {path}"), "").text().replace("Eve", "Eva");
        assert_eq!(office.request(&format!("PUT {path}"), &seen).status, 200);
        let now = stored_item(&mut office, &path);
        assert_eq!((&now["name"], &now["salary"], &now["bonus"]), (&"Eva".into(), &5000.into(), &3.into()));
        let sent = office.request(&format!("PUT {path}"), r#"{"person":{"name":"Eva","salary":1}}"#);
        assert_eq!(sent.status, 200);
        assert_eq!(stored_item(&mut office, &path)["salary"], 1);
    }

    fn patch_of_a_hidden_field_reveals_no_value(backend: Backend) {
        let mut office = start_office(backend, &["reader", "editor"]);
        let make = |office: &mut PermissionsFixture| create_person(office, r#"{"person":{"name":"Eve","salary":5000}}"#);
        // The same response for a right guess and for a wrong one, including the version.
        let guesses = [5000, 4999].map(|guess| {
            let path = make(&mut office);
            let body = format!(r#"{{"person":{{"salary":{guess}}}}}"#);
            let answer = office.request(&format!("PATCH {path}"), &body);
            assert_eq!(answer.json()["person"]["version"], 2, "{answer:?}");
            assert_eq!(stored_item(&mut office, &path)["salary"], guess);
            comparable_response(&answer)
        });
        assert_eq!(guesses[0], guesses[1]);
        let path = make(&mut office);
        let line = format!("PATCH {path}");
        for op in [
            r#"{"op":"test","path":"/person/salary","value":GUESS}"#,
            r#"{"op":"replace","path":"/person/salary","value":GUESS}"#,
            r#"{"op":"copy","from":"/person/salary","path":"/person/name"}"#,
            r#"{"op":"remove","path":"/person/salary"}"#,
            r#"{"op":"remove","path":"/person/bonus"}"#,
        ] {
            let [right, wrong] = ["5000", "4999"].map(|guess| {
                let body = format!("[{}]", op.replace("GUESS", guess));
                office.request_with(&line, JSON_PATCH, &body)
            });
            assert_eq!(right.status, 409, "{op}: {right:?}");
            assert_eq!(comparable_response(&right), comparable_response(&wrong), "{op}");
        }
        // It can be set and removed without being seen.
        let body = r#"[{"op":"add","path":"/person/salary","value":1}]"#;
        assert_eq!(office.request_with(&line, JSON_PATCH, body).status, 200);
        assert_eq!(stored_item(&mut office, &path)["salary"], 1);
        assert_eq!(office.request(&line, r#"{"person":{"salary":null,"bonus":null}}"#).status, 200);
        let now = stored_item(&mut office, &path);
        assert_eq!((&now["salary"], now.get("bonus")), (&1000.into(), None));
        let body = r#"{"person":{"stage":null}}"#;
        assert_eq!(office.request(&line, body).status, 422);
    }

    fn transition_of_a_hidden_state_refused_does_not_name_it(backend: Backend) {
        let mut office = start_office(backend, &["reader", "editor"]);
        let path = create_person(&mut office, r#"{"person":{"name":"Eve"}}"#);
        let line = format!("PATCH {path}");
        assert_eq!(office.request(&line, r#"{"person":{"stage":"hired"}}"#).status, 200);
        let refused = office.request(&line, r#"{"person":{"stage":"new"}}"#);
        assert_eq!((refused.status, refused.problem().as_str()), (409, "transition-not-allowed"));
        assert!(!refused.text().contains("hired") && !refused.text().contains("allowed\":"), "{refused:?}");
    }

    fn readonly_hidden_field_cannot_be_guessed(backend: Backend) {
        let mut office = start_office(backend, &["reader", "payroll"]);
        for path in ["a", "b"].map(|group| {
            create_person(&mut office, &format!(r#"{{"person":{{"name":"Eve","group":"{group}","salary":5000}}}}"#))
        }) {
            for body in [
                r#"{"person":{"name":"Eve","salary":GUESS}}"#,
                r#"{"person":{"name":"Eve","bonus":null,"salary":GUESS}}"#,
            ] {
                for verb in ["PUT", "PATCH"] {
                    let [right, wrong] = ["5000", "4999"].map(|guess| {
                        office.request(&format!("{verb} {path}"), &body.replace("GUESS", guess))
                    });
                    assert!(matches!(right.status, 403 | 422), "{verb} {body}: {right:?}");
                    assert_eq!(comparable_response(&right), comparable_response(&wrong), "{verb} {body}");
                }
            }
            let removed = office.request(&format!("PATCH {path}"), r#"{"person":{"bonus":null}}"#);
            assert_eq!(removed.status, 403, "{removed:?}");
        }
    }

    /// A hidden reference may stay where the caller can see that it is there already.
    fn reference_to_a_hidden_item_cannot_be_guessed(backend: Backend) {
        let mut office = start_office(backend, &["reader", "editor"]);
        let [right, wrong] = ["one", "two"].map(|name| {
            let team = office.create_as_admin("POST /teams", &format!(r#"{{"team":{{"name":"{name}"}}}}"#));
            id(&team).to_owned()
        });
        let body = format!(r#"{{"person":{{"name":"Eve","team":"{right}"}}}}"#);
        let path = create_person(&mut office, &body);
        for verb in ["PUT", "PATCH"] {
            for rest in ["", r#","salary":"much""#] {
                let [right, wrong] = [&right, &wrong].map(|team| {
                    let body = format!(r#"{{"person":{{"name":"Eve","team":"{team}"{rest}}}}}"#);
                    office.request(&format!("{verb} {path}"), &body)
                });
                assert_eq!(right.status, 422, "{right:?}");
                assert_eq!(comparable_response(&right), comparable_response(&wrong));
            }
        }
    }

    /// GET is 404, and the writes are granted.
    fn write_to_a_hidden_row_has_no_body(backend: Backend) {
        let mut office = start_office(backend, &["reader", "editor"]);
        let path = create_person(&mut office, r#"{"person":{"name":"Eve","group":"b"}}"#);
        let line = format!("PATCH {path}");
        assert_eq!(office.request(&format!("GET {path}"), "").status, 404);
        assert_without_body(&office.request(&line, r#"{"person":{}}"#), 204);
        assert_eq!(stored_item(&mut office, &path)["version"], 1);
        assert_without_body(&office.request(&line, r#"{"person":{"name":"Eva"}}"#), 204);
        assert_eq!(stored_item(&mut office, &path)["name"], "Eva");
        let put = r#"{"person":{"name":"Eva","group":"b"}}"#;
        assert_without_body(&office.request(&format!("PUT {path}"), put), 204);
        // Neither the stored values nor the version can be probed.
        for op in [
            r#"{"op":"test","path":"/person/name","value":"GUESS"}"#,
            r#"{"op":"test","path":"/person/version","value":GUESS}"#,
            r#"{"op":"replace","path":"/person/name","value":"GUESS"}"#,
        ] {
            let version = stored_item(&mut office, &path)["version"].to_string();
            let guesses = if op.contains("version") { [version.as_str(), "77"] } else { ["Eva", "Evi"] };
            let [right, wrong] = guesses.map(|guess| {
                let body = format!("[{}]", op.replace("GUESS", guess));
                office.request_with(&line, JSON_PATCH, &body)
            });
            assert_eq!(right.status, 409, "{right:?}");
            assert_eq!(comparable_response(&right), comparable_response(&wrong));
        }
        let version = stored_item(&mut office, &path)["version"].to_string();
        for verb in ["PATCH", "DELETE"] {
            let [right, wrong] = [&*version, "77"].map(|guess| {
                let tag = format!("\"{guess}\"");
                office.request_with(&format!("{verb} {path}"), ("If-Match", &tag), r#"{"person":{}}"#)
            });
            assert_eq!(right.status, 412, "{right:?}");
            assert_eq!(comparable_response(&right), comparable_response(&wrong));
            assert_eq!((right.header("ETag"), right.header("Last-Modified")), (None, None));
            assert!(!right.text().contains("version"), "{right:?}");
        }
        assert_without_body(&office.request_with(&line, ("If-Match", "*"), r#"{"person":{}}"#), 204);
        let old = ("If-Unmodified-Since", "Mon, 01 Jan 2001 00:00:00 GMT");
        assert_without_body(&office.request_with(&line, old, r#"{"person":{}}"#), 204);
        // A row that becomes visible is shown, and one that becomes hidden is not.
        let shown = office.request(&line, r#"{"person":{"group":"a"}}"#);
        assert_eq!((shown.status, &shown.json()["person"]["name"]), (200, &"Eva".into()));
        assert_without_body(&office.request(&line, r#"{"person":{"group":"b"}}"#), 204);
        assert_eq!(office.request(&format!("DELETE {path}"), "").status, 204);
    }

    fn create_of_a_hidden_row_has_only_a_location(backend: Backend) {
        let mut office = start_office(backend, &["reader", "editor"]);
        let made = office.request("POST /people", r#"{"person":{"name":"Eve","group":"b"}}"#);
        assert_without_body(&made, 201);
        let path = made.header("Location").unwrap().to_owned();
        assert_eq!(stored_item(&mut office, &path)["name"], "Eve");
        let many = office.request("POST /people", r#"{"people":[{"name":"Joe"},{"name":"Eve","group":"b"}]}"#);
        assert_without_body(&many, 201);
    }

    fn write_without_get_has_no_body(backend: Backend) {
        let mut office = start_office(backend, &["editor"]);
        let made = office.request("POST /people", r#"{"person":{"name":"Eve"}}"#);
        assert_without_body(&made, 201);
        let path = made.header("Location").unwrap().to_owned();
        assert_eq!(office.request(&format!("GET {path}"), "").status, 403);
        assert_without_body(&office.request("POST /people", r#"{"people":[{"name":"Joe"}]}"#), 201);
        assert_without_body(&office.request(&format!("PATCH {path}"), r#"{"person":{"salary":5}}"#), 204);
        assert_without_body(&office.request(&format!("PUT {path}"), r#"{"person":{"name":"Eva"}}"#), 204);
        let now = stored_item(&mut office, &path);
        assert_eq!((&now["name"], &now["salary"]), (&"Eva".into(), &1000.into()));
        assert_eq!(office.request(&format!("DELETE {path}"), "").status, 204);
    }

    /// A stored response is not replayed to a caller who may see less by now.
    fn idempotent_replay_is_refused_after_permissions_shrink(backend: Backend) {
        let mut office = start_office(backend, &["reader", "editor"]);
        let path = create_person(&mut office, r#"{"person":{"name":"Eve"}}"#);
        let (line, key) = (format!("PATCH {path}"), ("Idempotency-Key", "k1"));
        let body = r#"{"person":{"name":"Eva"}}"#;
        let first = office.request_with(&line, key, body);
        let again = office.request_with(&line, key, body);
        assert_eq!((first.status, again.status), (200, 200));
        assert_eq!(again.header("Idempotent-Replayed"), Some("true"));
        assert!(!first.text().contains("salary"), "{first:?}");
        office.set_roles(&["editor"]);
        let narrower = office.request_with(&line, key, body);
        assert_eq!(narrower.status, 422, "{narrower:?}");
        assert!(!narrower.text().contains("Eva"), "{narrower:?}");
        let muted = office.request_with(&line, ("Idempotency-Key", "k2"), body);
        assert_without_body(&muted, 204);
        let muted = office.request_with(&line, ("Idempotency-Key", "k2"), body);
        assert_without_body(&muted, 204);
        assert_eq!(muted.header("Idempotent-Replayed"), Some("true"));
    }
}

#[test]
fn check_warns_of_a_role_that_writes_without_get() {
    let folder = Folder::new();
    std::fs::write(folder.path().join("nouns.toml"), STAFF).unwrap();
    let checked = run_nouns(folder.path(), &["check"]);
    assert_eq!(checked.code, Some(0), "{checked:?}");
    let warnings: Vec<&str> = checked.stderr.lines().collect();
    assert_eq!(
        warnings,
        [
            "nouns.toml: warning: role `editor` may post, put and patch `person` but not get it: the answers have no body",
            "nouns.toml: warning: role `payroll` may put and patch `person` but not get it: the answers have no body",
        ]
    );
    let part = STAFF.replace(
        "[roles.editor]",
        "[roles.anyone]\nperson = { verbs = [\"get\"], where = \"group = 'a'\" }\n\n[roles.editor]",
    );
    std::fs::write(folder.path().join("nouns.toml"), part).unwrap();
    let checked = run_nouns(folder.path(), &["check"]);
    let first = "nouns.toml: warning: role `editor` may post, put and patch rows of `person` that it may not get: the answers have no body";
    assert_eq!(checked.stderr.lines().next(), Some(first));
}
