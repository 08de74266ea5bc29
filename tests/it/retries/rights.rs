//! Replays to a caller whose rights have changed since: by a field of the user, or by a membership.

use super::*;
use crate::row_rules::RowRules;

const MODEL: &str = r#"
title = "Tenants"

[users.fields]
tenant = { type = "text" }
level = { type = "integer" }

[resources.note.fields]
text = { type = "text" }
tenant = { type = "text", default = { from = "user.tenant" } }

[resources.project]
id = "integer"
[resources.project.fields]
name = { type = "text" }

[resources.member.fields]
project = { type = "ref", to = "project", filter = true }
user = { type = "text", filter = true }

[resources.ticket]
parent = "project"
[resources.ticket.fields]
title = { type = "text" }
about = { type = "ref", to = "project" }

[roles.member]
note = { verbs = "*", where = "tenant = $user.tenant" }
project = { verbs = ["get"], where = "exists(member where project = this.id and user = $user)" }
ticket = "*"
"#;

fn send(rules: &RowRules, line: &str, key: &str, body: &Value) -> Answer {
    let login = rules.login("ann");
    let headers = [("Authorization", &*login), (KEY, key)];
    rules.server.request(line, &headers, body.to_string())
}

fn set_fields(rules: &mut RowRules, fields: &Value) {
    let found = rules.request("admin", "GET /-/users?name=ann", &Value::Null).json();
    let path = format!("/-/users/{}", found["users"][0]["id"].as_str().unwrap());
    let status = rules.status("admin", &format!("PATCH {path}"), &json!({"user": fields}));
    assert_eq!(status, 200);
}

on_every_backend! {
    /// As a change of roles does.
    fn idempotency_key_belongs_to_the_fields_of_the_user_that_rules_read(backend: Backend) {
        let mut rules = RowRules::start(backend, MODEL, &[("ann", "member")]);
        set_fields(&mut rules, &json!({"tenant": "acme"}));
        let body = json!({"note": {"text": "a"}});
        let first = send(&rules, "POST /notes", "k", &body);
        assert_eq!(first.status, 201, "{first:?}");
        check_replay(&first, &send(&rules, "POST /notes", "k", &body));
        // No rule reads it.
        set_fields(&mut rules, &json!({"level": 7}));
        check_replay(&first, &send(&rules, "POST /notes", "k", &body));
        set_fields(&mut rules, &json!({"tenant": "other"}));
        let refused = send(&rules, "POST /notes", "k", &body);
        assert_eq!((refused.status, slug(&refused)), (422, "idempotency-key-used".to_owned()));
        set_fields(&mut rules, &json!({"tenant": "acme"}));
        check_replay(&first, &send(&rules, "POST /notes", "k", &body));
    }

    fn idempotent_replay_shows_only_items_that_the_caller_still_sees(backend: Backend) {
        let mut rules = RowRules::start(backend, MODEL, &[("ann", "member")]);
        rules.create("/projects", &json!({"project": {"name": "p"}}));
        let membership = rules.create("/members", &json!({"member": {"project": 1, "user": "ann"}}));
        let (one, many) = (json!({"ticket": {"title": "a"}}), json!({"tickets": [{"title": "b"}, {"title": "c"}]}));
        let first = send(&rules, "POST /projects/1/tickets", "one", &one);
        let path = first.header("Location").unwrap().to_owned();
        let several = send(&rules, "POST /projects/1/tickets", "many", &many);
        let line = format!("PATCH {path}");
        let patch = json!({"ticket": {"title": "A"}});
        let patched = send(&rules, &line, "patch", &patch);
        assert_eq!([first.status, several.status, patched.status], [201, 201, 200]);
        check_replay(&first, &send(&rules, "POST /projects/1/tickets", "one", &one));
        check_replay(&patched, &send(&rules, &line, "patch", &patch));
        // Several items are not looked up.
        let again = send(&rules, "POST /projects/1/tickets", "many", &many);
        assert_eq!((again.status, again.header(REPLAYED), again.body.len()), (201, Some("true"), 0), "{again:?}");

        assert_eq!(rules.status("admin", &format!("DELETE {membership}"), &Value::Null), 204);
        let again = send(&rules, "POST /projects/1/tickets", "one", &one);
        assert_eq!((again.status, again.header("Location"), again.header(REPLAYED)), (201, Some(&*path), Some("true")));
        assert_eq!((again.body.len(), again.header("ETag"), again.header("Content-Type")), (0, None, None), "{again:?}");
        let again = send(&rules, &line, "patch", &patch);
        assert_eq!((again.status, again.body.len(), again.header("ETag")), (204, 0, None), "{again:?}");
        let login = rules.login("admin");
        let listed = rules.server.request("GET /tickets", &[("Authorization", &login)], "").json();
        assert_eq!(listed["tickets"].as_array().unwrap().len(), 3, "nothing was done twice");
    }

    /// A refusal is decided anew, with the rights of now.
    fn idempotency_refusals_of_callers_with_row_filters_are_not_stored(backend: Backend) {
        let mut rules = RowRules::start(backend, MODEL, &[("ann", "member")]);
        rules.create("/projects", &json!({"project": {"name": "p"}}));
        let body = json!({"ticket": {"title": "a", "about": 7}});
        assert_eq!(send(&rules, "POST /projects/1/tickets", "k", &body).status, 404);
        assert_eq!(stored_responses(&rules.server), "0");
        rules.create("/members", &json!({"member": {"project": 1, "user": "ann"}}));
        assert_eq!(send(&rules, "POST /projects/1/tickets", "k", &body).status, 422);
        assert_eq!(stored_responses(&rules.server), "0");
    }
}
