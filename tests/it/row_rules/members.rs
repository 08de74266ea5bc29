//! `exists`: what a membership shows.

use serde_json::{Value, json};

use super::{RowRules, id, reference};
use crate::harness::{Answer, Backend};

const MODEL: &str = r#"
title = "Teams"

[resources.project.fields]
name = { type = "text", required = true, filter = true }

[resources.member.fields]
project = { type = "ref", to = "project", required = true, on_delete = "cascade" }
user    = { type = "text", required = true, filter = true }
role    = { type = "text", default = "guest" }

[resources.ticket]
parent = "project"
[resources.ticket.fields]
title = { type = "text", required = true }

[resources.memo.fields]
title   = { type = "text", required = true }
project = { type = "ref", to = "project" }

[roles.member]
project = { verbs = ["get"], where = "exists(member where project = this.id and user = $user)" }
member  = { verbs = "*", where = "exists(member where project = this.project and user = $user)" }
ticket  = "*"
memo    = { verbs = "*", where = "exists(member where project = this.project and user = $user and role = 'editor')" }
"/-/changes" = ["get"]

[roles.outsider]
project = { verbs = ["get"], where = "not exists(member where project = this.id and user = $user)" }
memo    = { verbs = ["get"], where = "exists(member where project.name = this.project.name and user = $user)" }
"#;

const LEADS: &str = r#"
title = "Teams"

[resources.project.fields]
name = { type = "text", required = true }

[resources.member.fields]
project = { type = "ref", to = "project", required = true }
user    = { type = "text", required = true, filter = true }
role    = { type = "text" }

[roles.member]
project = ["get"]
member  = { verbs = "*", where = "exists(member where project = this.project and user = $user and role = 'lead')" }
"#;

/// Conditions that lead back to the item that a request writes.
const CIRCLES: &str = r#"
title = "Circles"

[resources.project.fields]
owner = { type = "text" }

[resources.member.fields]
project = { type = "ref", to = "project", required = true }

[resources.ticket]
parent = "project"
[resources.ticket.fields]
assignee = { type = "text", filter = true }

[roles.owner]
project = { verbs = ["get", "put", "patch"], where = "exists(member where project = this.id and project.owner = $user)" }

[roles.assignee]
project = { verbs = ["get"], where = "exists(ticket where project = this.id and assignee = $user)" }
ticket  = "*"

[roles.quiet]
project = { verbs = ["get"], where = "not exists(ticket where project = this.id and assignee = 'eve')" }
ticket  = "*"
"#;

fn assert_without_item(answer: &Answer, status: u16) {
    assert_eq!((answer.status, answer.text()), (status, ""), "{answer:?}");
    for name in ["ETag", "Last-Modified", "Content-Type"] {
        assert_eq!(answer.header(name), None, "{answer:?}");
    }
}

on_every_backend! {
    /// 204 in place of the item, as GET would answer 404 after the write.
    fn row_rule_hides_an_item_that_a_write_takes_from_its_caller(backend: Backend) {
        let mut rules = RowRules::start(backend, CIRCLES, &[("ann", "owner"), ("bob", "assignee")]);
        let project = rules.create("/projects", &json!({"project": {"owner": "ann"}}));
        rules.create("/members", &json!({"member": {"project": reference(&project)}}));
        let line = format!("PATCH {project}");
        assert_eq!(rules.status("ann", &line, &json!({"project": {"owner": "ann"}})), 200);
        assert_eq!(rules.status("ann", &line, &json!({"project": {"owner": "eve"}})), 204);
        assert_eq!(rules.status("ann", &format!("GET {project}"), &Value::Null), 404);

        let ticket = json!({"ticket": {"assignee": "bob"}});
        let ticket = rules.create(&format!("{project}/tickets"), &ticket);
        assert_eq!(rules.list("bob", "/projects", "owner"), ["eve"]);
        let given = json!({"ticket": {"assignee": "eve"}});
        assert_eq!(rules.status("bob", &format!("PATCH {ticket}"), &given), 204);
        assert_eq!(rules.status("bob", &format!("GET {ticket}"), &Value::Null), 404);
        assert_eq!(rules.status("admin", &format!("GET {ticket}"), &Value::Null), 200);
    }

    fn row_rule_that_a_write_breaks_is_answered_without_the_item(backend: Backend) {
        let users = [("ann", "owner"), ("tim", "quiet")];
        let mut rules = RowRules::start(backend, CIRCLES, &users);
        let body = |owner: &str| json!({"project": {"owner": owner}});
        let project = rules.create("/projects", &body("ann"));
        rules.create("/members", &json!({"member": {"project": reference(&project)}}));
        let put = format!("PUT {project}");
        for _ in 0..2 {
            let unchanged = rules.request("ann", &put, &body("ann"));
            assert_eq!(unchanged.status, 200, "{unchanged:?}");
            assert_eq!(unchanged.json()["project"]["version"], 1, "{unchanged:?}");
        }
        assert_without_item(&rules.request("ann", &put, &body("eve")), 204);
        assert_eq!(rules.status("ann", &put, &body("ann")), 404);

        let ticket = |assignee: &str| json!({"assignee": assignee});
        let [first, second, third] =
            [1, 2, 3].map(|_| format!("{}/tickets", rules.create("/projects", &body("ann"))));
        let one = |assignee: &str| json!({"ticket": ticket(assignee)});
        let many = json!({"tickets": [ticket("tim"), ticket("eve")]});
        let shown = rules.request("tim", &format!("POST {first}"), &one("tim"));
        assert_eq!((shown.status, shown.header("ETag").is_some()), (201, true), "{shown:?}");
        let hidden = rules.request("tim", &format!("POST {first}"), &one("eve"));
        assert_without_item(&hidden, 201);
        assert!(hidden.header("Location").unwrap().starts_with(&first), "{hidden:?}");
        let hidden = rules.request("tim", &format!("POST {second}"), &many);
        assert_without_item(&hidden, 201);
        assert_eq!(rules.status("tim", &format!("GET {second}"), &Value::Null), 404);

        let shown = rules.request("tim", &format!("POST {third}"), &one("tim"));
        let path = shown.header("Location").unwrap().to_owned();
        let login = rules.login("tim");
        let headers = [("Authorization", &*login), ("Idempotency-Key", "\"taken\"")];
        for is_replay in [false, true] {
            let patch = rules.client.request(&format!("PATCH {path}"), &headers, one("eve").to_string());
            assert_without_item(&patch, 204);
            assert_eq!(patch.header("Idempotent-Replayed").is_some(), is_replay, "{patch:?}");
        }
    }

    /// The document names the response without the item where a write can have it.
    fn row_rule_above_an_item_is_in_the_responses_of_openapi(backend: Backend) {
        for (model, role, is_expected) in
            [(CIRCLES, "assignee", true), (CIRCLES, "quiet", true), (MODEL, "member", false)]
        {
            let mut rules = RowRules::start(backend, model, &[("ann", role)]);
            let answer = rules.request("ann", "GET /-/openapi.json", &Value::Null);
            let paths = &answer.json()["paths"];
            let ticket = &paths["/projects/{project_id}/tickets/{ticket_id}"];
            for verb in ["put", "patch"] {
                let responses = &ticket[verb]["responses"];
                assert!(responses["200"].is_object(), "{role} {verb}: {responses}");
                assert_eq!(responses["204"].is_object(), is_expected, "{role} {verb}: {responses}");
            }
        }
    }

    fn row_rule_exists_decides_what_members_see(backend: Backend) {
        let mut rules =
            RowRules::start(backend, MODEL, &[("ann", "member"), ("bob", "member"), ("out", "outsider")]);
        let [red, blue] = ["red", "blue"]
            .map(|name| rules.create("/projects", &json!({"project": {"name": name}})));
        let member = |project: &str, user: &str, role: &str| {
            json!({"member": {"project": reference(project), "user": user, "role": role}})
        };
        rules.create("/members", &member(&red, "ann", "editor"));
        let of_bob = rules.create("/members", &member(&blue, "bob", "guest"));
        rules.create("/members", &member(&red, "out", "guest"));
        for project in [&red, &blue] {
            rules.create(&format!("{project}/tickets"), &json!({"ticket": {"title": id(project)}}));
            let memo = json!({"memo": {"title": "memo", "project": reference(project)}});
            rules.create("/memos", &memo);
        }
        assert_eq!(rules.list("ann", "/projects", "name"), ["red"]);
        assert_eq!(rules.list("bob", "/projects", "name"), ["blue"]);
        assert_eq!(rules.list("out", "/projects", "name"), ["blue"]);
        assert_eq!(rules.list("out", "/memos", "project"), [id(&red)]);
        assert_eq!(rules.list("ann", "/tickets", "title"), [id(&red)]);
        assert_eq!(rules.list("ann", "/memos", "project"), [id(&red)]);
        assert_eq!(rules.list("bob", "/memos", "project"), Vec::<String>::new());
        assert_eq!(rules.list("ann", "/members", "user"), ["ann", "out"]);
        assert_eq!(rules.status("ann", &format!("GET {blue}/tickets"), &Value::Null), 404);

        // Nobody makes themselves a member, and members make others members.
        let joins = member(&red, "bob", "editor");
        let refused = rules.request("bob", "POST /members", &joins);
        // The project is not visible to bob, which comes first.
        assert_eq!((refused.status, refused.problem().as_str()), (422, "invalid-fields"), "{refused:?}");
        let orphan = rules.create("/projects", &json!({"project": {"name": "orphan"}}));
        assert_eq!(rules.status("bob", "POST /members", &member(&orphan, "bob", "editor")), 422);
        assert_eq!(rules.status("ann", "POST /members", &joins), 201);
        assert_eq!(rules.list("bob", "/projects", "name"), ["blue", "red"]);
        assert_eq!(rules.list("bob", "/memos", "project"), [id(&red)]);

        let promoted = json!({"member": {"role": "editor"}});
        assert_eq!(rules.status("bob", &format!("PATCH {of_bob}"), &promoted), 200);
        // The memberships before the write decide: bob may give his own away. Then he does not see it.
        let given = json!({"member": {"user": "eve"}});
        assert_eq!(rules.status("bob", &format!("PATCH {of_bob}"), &given), 204);
        assert_eq!(rules.status("bob", &format!("PATCH {of_bob}"), &given), 404);

        // A memo may not be moved to a project where the caller is no editor.
        let memo = json!({"memo": {"title": "mine", "project": reference(&red)}});
        let made = rules.request("ann", "POST /memos", &memo);
        assert_eq!(made.status, 201, "{made:?}");
        let path = made.header("Location").unwrap().to_owned();
        assert_eq!(rules.status("ann", "POST /memos", &json!({"memo": {"title": "mine"}})), 403);
        let cleared = json!({"memo": {"project": null}});
        let refused = rules.request("ann", &format!("PATCH {path}"), &cleared);
        assert_eq!(refused.status, 403, "{refused:?}");
    }

    /// Neither by an own membership, nor by that of somebody else.
    fn row_rule_membership_cannot_be_changed_into_a_right(backend: Backend) {
        let mut rules = RowRules::start(backend, LEADS, &[("ann", "member")]);
        let [red, blue] = ["red", "blue"]
            .map(|name| rules.create("/projects", &json!({"project": {"name": name}})));
        let member = |project: &str, user: &str, role: &str| {
            json!({"member": {"project": reference(project), "user": user, "role": role}})
        };
        let of_ann = rules.create("/members", &member(&red, "ann", "lead"));
        let of_bob = rules.create("/members", &member(&red, "bob", "guest"));
        let moved = json!({"member": {"project": reference(&blue)}});
        for (path, body) in [(&of_ann, moved), (&of_bob, member(&blue, "ann", "lead"))] {
            let refused = rules.request("ann", &format!("PATCH {path}"), &body);
            assert_eq!((refused.status, refused.problem().as_str()), (403, "outside-grant"), "{refused:?}");
        }
        for (path, user) in [(&of_ann, "ann"), (&of_bob, "ann")] {
            assert_eq!(rules.status("ann", &format!("PUT {path}"), &member(&blue, user, "lead")), 403);
        }
        assert_eq!(rules.list("admin", "/members", "project"), [id(&red), id(&red)]);
        // Within the project she leads, she may.
        assert_eq!(rules.status("ann", &format!("PATCH {of_bob}"), &json!({"member": {"role": "lead"}})), 200);
        assert_eq!(rules.status("ann", &format!("PATCH {of_ann}"), &json!({"member": {"role": "guest"}})), 204);
        assert_eq!(rules.status("ann", &format!("PATCH {of_bob}"), &json!({"member": {"role": "guest"}})), 404);
    }

    /// The lookups of one request do not depend on the number of its items.
    fn row_rules_are_checked_for_many_new_items_at_once(backend: Backend) {
        let mut rules = RowRules::start(backend, MODEL, &[("ann", "member")]);
        let projects: Vec<String> = (0..200)
            .map(|number| rules.create("/projects", &json!({"project": {"name": number.to_string()}})))
            .collect();
        let of_ann = |project: &String| json!({"project": reference(project), "user": "ann", "role": "editor"});
        let members: Vec<Value> = projects.iter().skip(1).map(of_ann).collect();
        rules.post_many("admin", "/members", &json!({"members": members}), 201);
        // Each refers to another project, and the rule needs a fact of each.
        let memo = |project: &String| json!({"title": "memo", "project": reference(project)});
        let memos: Vec<Value> = projects.iter().skip(1).map(memo).collect();
        rules.post_many("ann", "/memos", &json!({"memos": memos}), 201);
        assert_eq!(rules.list("ann", "/memos?limit=500", "title").len(), 199);
        let more: Vec<Value> = projects.iter().skip(1).cycle().take(200).map(memo).chain([json!({"title": "lost"})]).collect();
        rules.post_many("ann", "/memos", &json!({"memos": more}), 403);
        // A rule over the resource itself.
        let of_others: Vec<Value> = projects
            .iter()
            .skip(1)
            .map(|project| json!({"project": reference(project), "user": "eve"}))
            .collect();
        rules.post_many("ann", "/members", &json!({"members": of_others}), 201);
        assert_eq!(rules.list("admin", "/memos?limit=500", "title").len(), 199);
    }

    /// Memberships are current rights: they decide about old changes too.
    fn row_rule_exists_decides_events_as_it_is_now(backend: Backend) {
        let mut rules = RowRules::start(backend, MODEL, &[("ann", "member")]);
        let red = rules.create("/projects", &json!({"project": {"name": "red"}}));
        let memo = json!({"memo": {"title": "memo", "project": reference(&red)}});
        let memo = rules.create("/memos", &memo);
        assert_eq!(rules.changes("ann", "memo"), []);
        let body = json!({"member": {"project": reference(&red), "user": "ann", "role": "editor"}});
        let membership = rules.create("/members", &body);
        let created = ("created".to_owned(), id(&memo).to_owned());
        assert_eq!(rules.changes("ann", "memo"), [created]);
        assert_eq!(rules.status("ann", &format!("GET {memo}?version=1"), &Value::Null), 200);
        let patched = json!({"memo": {"title": "again"}});
        assert_eq!(rules.status("ann", &format!("PATCH {memo}"), &patched), 200);
        assert_eq!(rules.changes("ann", "memo").len(), 2);
        assert_eq!(rules.status("admin", &format!("DELETE {membership}"), &Value::Null), 204);
        assert_eq!(rules.changes("ann", "memo"), []);
        assert_eq!(rules.status("ann", &format!("GET {memo}"), &Value::Null), 404);
        assert_eq!(rules.status("ann", &format!("GET {memo}?version=1"), &Value::Null), 404);
    }
}
