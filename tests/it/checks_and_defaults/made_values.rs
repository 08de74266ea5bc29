//! Values that the server makes, with checks, row filters and hidden fields about them.

use expect_test::expect;
use serde_json::{Value, json};

use super::{faults, send};
use crate::harness::{Answer, Backend, Person, Server, Setup};

const MODEL: &str = r#"
title = "Tasks"
[resources.task]
created_by = true
updated_by = true
check = [{ that = "ends > starts", message = "it ends before it starts" }]
[resources.task.fields]
starts = { type = "integer" }
ends = { type = "integer" }
mail = { type = "email", default = { from = "user" } }
[roles.clerk]
task = "*"
[roles.reviewer]
task = { verbs = ["get", "post", "patch"], where = "updated_by != $user", hide = ["mail"] }
"#;

fn start(backend: Backend) -> Server {
    let server = Setup::new(backend).model(MODEL).with_authentication().start();
    for role in ["clerk", "reviewer"] {
        server.add_user(&Person::new(role, "as long as it takes"), &[role]);
    }
    server
}

fn send_as(server: &Server, who: &str, line: &str, body: &Value) -> Answer {
    send(server, Some(&Person::new(who, "as long as it takes")), line, body)
}

on_every_backend! {
    fn checks_of_all_items_of_a_list_are_reported_together(backend: Backend) {
        let server = start(backend);
        let task = |starts: i64| json!({"starts": starts, "ends": 1, "mail": "a@example.com"});
        let answer = send_as(&server, "clerk", "POST /tasks", &json!({"tasks": [task(2), task(0), task(3)]}));
        expect![[r#"
            422 invalid-fields
            /tasks/0/ends | check | it ends before it starts
            /tasks/0/starts | check | it ends before it starts
            /tasks/2/ends | check | it ends before it starts
            /tasks/2/starts | check | it ends before it starts"#]].assert_eq(&faults(&answer));
        let list = send_as(&server, "clerk", "GET /tasks", &Value::Null);
        assert_eq!(list.json()["tasks"], json!([]));
    }

    /// The row filter is about the item as it will be, with its new `updated_by`.
    fn row_filter_on_updated_by_holds_after_the_write(backend: Backend) {
        let server = start(backend);
        let task = json!({"task": {"starts": 1, "mail": "a@example.com"}});
        let made = send_as(&server, "clerk", "POST /tasks", &task);
        let path = made.header("Location").unwrap().to_owned();
        let answer = send_as(&server, "reviewer", &format!("PATCH {path}"), &json!({"task": {"starts": 2}}));
        assert_eq!((answer.status, answer.problem().as_str()), (403, "outside-grant"), "{answer:?}");
        let answer = send_as(&server, "reviewer", &format!("PATCH {path}"), &json!({"task": {"starts": 1}}));
        assert!([200, 204].contains(&answer.status), "nothing is changed: {answer:?}");
        let stored = send_as(&server, "clerk", &format!("GET {path}"), &Value::Null).json()["task"].clone();
        assert_eq!((&stored["starts"], &stored["updated_by"]), (&json!(1), &json!("clerk")), "{stored}");
    }

    fn fault_of_a_hidden_default_tells_nothing_about_its_field(backend: Backend) {
        let server = start(backend);
        let answer = send_as(&server, "reviewer", "POST /tasks", &json!({"task": {"starts": 1}}));
        expect![[r#"
            422 invalid-fields
            /task | check | the values together break a rule of the model"#]].assert_eq(&faults(&answer));
    }
}
