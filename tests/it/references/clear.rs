//! `on_delete = "clear"`: deleting an item clears the references to it.

use std::fs;

use expect_test::expect;
use serde_json::{Value, json};

use crate::harness::{Answer, Backend, Folder, Person, Server, Setup, run_nouns};

const MODEL: &str = r#"
title = "Tasks"

[resources.person]
plural = "people"
id = "integer"
[resources.person.fields]
name = { type = "text", required = true }

[resources.project]
id = "integer"
[resources.project.fields]
name = { type = "text", required = true }
lead = { type = "ref", to = "person" }

[resources.task]
id = "integer"
parent = "project"
on_delete = "cascade"
updated_by = true
check = [{ that = "length(title) < 5", message = "a short title, please" }]
[resources.task.fields]
title = { type = "text", required = true }
owner = { type = "ref", to = "person", on_delete = "clear", filter = true }
helper = { type = "ref", to = "person", on_delete = "clear", unique = true }
after = { type = "ref", to = "task", on_delete = "clear" }
weight = { type = "integer", computed = "owner * 2" }
labels = { type = "list", of = { type = "text" } }

[roles.boss]
person = "*"
project = "*"
"#;

struct Tasks {
    server: Server,
    admin: Person,
}

impl Tasks {
    fn open(backend: Backend) -> Self {
        Self::open_with(backend, MODEL)
    }

    fn open_with(backend: Backend, model: &str) -> Self {
        let server = Setup::new(backend).model(model).with_authentication().start();
        let admin = Person::new("root", "as long as it takes");
        server.add_user(&admin, &["admin"]);
        let tasks = Self { server, admin };
        for name in ["Ann", "Bob"] {
            tasks.create("/people", &json!({"person": {"name": name}}));
        }
        tasks.create("/projects", &json!({"project": {"name": "A"}}));
        tasks.create("/projects", &json!({"project": {"name": "B", "lead": 2}}));
        tasks
    }

    fn send(&self, line: &str, body: &Value) -> Answer {
        let login = self.admin.basic();
        self.server.request(line, &[("Authorization", &login)], body.to_string())
    }

    fn create(&self, path: &str, body: &Value) {
        let answer = self.send(&format!("POST {path}"), body);
        assert_eq!(answer.status, 201, "{answer:?}");
    }

    fn task(&self, path: &str) -> Value {
        let mut task = self.send(&format!("GET {path}"), &json!(null)).json()["task"].clone();
        for time in ["created_at", "updated_at"] {
            task.as_object_mut().unwrap().remove(time);
        }
        task
    }

    /// The kind and the path of each change after the first ones.
    fn changes_after(&self, count: usize) -> Vec<String> {
        let all = self.send("GET /-/changes", &json!(null)).json();
        let all = all["changes"].as_array().unwrap().clone();
        let line = |change: &Value| {
            format!("{} {}", change["kind"].as_str().unwrap(), change["subject"].as_str().unwrap())
        };
        all.iter().skip(count).map(line).collect()
    }

    fn change_count(&self) -> usize {
        self.changes_after(0).len()
    }
}

#[test]
fn clear_of_a_required_reference_is_a_mistake() {
    let folder = Folder::new();
    let text = MODEL.replace("helper = {", "helper = { required = true,");
    fs::write(folder.path().join("nouns.toml"), text).unwrap();
    let ended = run_nouns(folder.path(), &["check"]);
    expect![[r#"
        error: a required reference cannot be cleared
          --> nouns.toml:25:70
           |
        25 | helper = { required = true, type = "ref", to = "person", on_delete = "clear", unique = true }
           |                                                                      ^^^^^^^
           |
           = help: take out `required`, or say what else deleting the item does: "restrict" or "cascade"
    "#]].assert_eq(&ended.stderr);
}

on_every_backend! {
    fn delete_clears_references_in_one_version_of_each_item(backend: Backend) {
        let tasks = Tasks::open(backend);
        let task = json!({"title": "dig", "owner": 1, "helper": 1, "labels": ["a"]});
        tasks.create("/projects/1/tasks", &json!({"task": task}));
        tasks.create("/projects/2/tasks", &json!({"task": {"title": "sow", "owner": 1, "after": 1}}));
        tasks.create("/projects/2/tasks", &json!({"task": {"title": "reap", "owner": 2}}));
        let boss = Person::new("bea", "as long as it takes");
        tasks.server.add_user(&boss, &["boss"]);
        let before = tasks.change_count();
        // The caller need not see the items that refer to it.
        let login = boss.basic();
        let answer = tasks.server.request("DELETE /people/1", &[("Authorization", &login)], "");
        assert_eq!(answer.status, 204, "{answer:?}");
        assert_eq!(
            tasks.task("/projects/1/tasks/1"),
            json!({"id": 1, "project_id": 1, "title": "dig", "labels": ["a"], "updated_by": "bea", "version": 2})
        );
        assert_eq!(
            tasks.task("/projects/2/tasks/2"),
            json!({"id": 2, "project_id": 2, "title": "sow", "after": 1, "updated_by": "bea", "version": 2})
        );
        assert_eq!(tasks.task("/projects/2/tasks/3")["version"], 1);
        assert_eq!(
            tasks.changes_after(before),
            ["updated /projects/1/tasks/1", "updated /projects/2/tasks/2", "deleted /people/1"]
        );
        let changes = tasks.send("GET /-/changes?subject=/projects/1/tasks/1", &json!(null)).json();
        let change = &changes["changes"][1];
        assert_eq!(change["changed"], json!(["owner", "helper", "weight", "updated_by"]), "{change}");
        assert_eq!((&change["before"]["owner"], &change["after"]["owner"]), (&json!(1), &json!(null)));
        assert_eq!(change["actor"], "bea", "{change}");
        let found = tasks.send("GET /tasks?owner:exists=false", &json!(null)).json();
        assert_eq!(found["tasks"].as_array().unwrap().len(), 2);
    }

    /// An item that is deleted with the other one is not updated before.
    fn delete_of_a_parent_clears_references_of_items_that_stay(backend: Backend) {
        let tasks = Tasks::open(backend);
        tasks.create("/projects/1/tasks", &json!({"task": {"title": "dig"}}));
        tasks.create("/projects/1/tasks", &json!({"task": {"title": "sow", "after": 1}}));
        tasks.create("/projects/2/tasks", &json!({"task": {"title": "reap", "after": 2}}));
        let before = tasks.change_count();
        assert_eq!(tasks.send("DELETE /projects/1", &json!(null)).status, 204);
        assert_eq!(
            tasks.changes_after(before),
            [
                "updated /projects/2/tasks/3",
                "deleted /projects/1/tasks/2",
                "deleted /projects/1/tasks/1",
                "deleted /projects/1"
            ]
        );
        assert_eq!(tasks.task("/projects/2/tasks/3").get("after"), None);
    }

    fn delete_that_is_refused_clears_nothing(backend: Backend) {
        let tasks = Tasks::open(backend);
        tasks.create("/projects/1/tasks", &json!({"task": {"title": "dig", "owner": 2}}));
        let before = tasks.change_count();
        assert_eq!(tasks.send("DELETE /people/2", &json!(null)).problem(), "referenced");
        assert_eq!(tasks.task("/projects/1/tasks/1")["owner"], 2);
        assert_eq!(tasks.change_count(), before);
    }

    fn delete_that_clears_too_many_references_is_refused(backend: Backend) {
        // With the default of 10,000, a slow machine may need longer for the delete than a request may take.
        let limits = "[server.limits]\ncascade_items_max = 1000\n\n[resources.person]\n";
        let tasks = Tasks::open_with(backend, &MODEL.replace("[resources.person]\n", limits));
        let some = vec![json!({"title": "dig", "owner": 1}); 1000];
        tasks.create("/projects/1/tasks", &json!({"tasks": some}));
        tasks.create("/projects/1/tasks", &json!({"task": {"title": "sow", "owner": 1}}));
        assert_eq!(tasks.send("DELETE /people/1", &json!(null)).problem(), "too-many-children");
        assert_eq!(tasks.send("DELETE /projects/1/tasks/1", &json!(null)).status, 204);
        assert_eq!(tasks.send("DELETE /people/1", &json!(null)).status, 204);
        let left = tasks.send("GET /tasks?owner=1&count=exact", &json!(null)).json();
        assert_eq!(left["page"]["total"], 0);
    }
}
