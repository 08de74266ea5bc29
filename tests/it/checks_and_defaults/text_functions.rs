//! Text functions in computed fields and checks: the same on both backends.

use serde_json::json;

use super::faults;
use crate::harness::{Backend, Setup};

const MODEL: &str = r#"
title = "People"

[resources.person]
plural = "people"
check = [{ that = "length(trim(first)) >= 2", message = "the first name is too short" }]

[resources.person.fields]
first = { type = "text", required = true }
last  = { type = "text" }
mail  = { type = "email" }
full  = { type = "text", computed = "trim(concat(first, ' ', last))", filter = true }
key   = { type = "text", computed = "lower(trim(mail))", unique = true }
size  = { type = "integer", computed = "length(concat(first, last))", filter = true }

[roles.self]
person = { verbs = ["get"], where = "key = $user" }
"#;

on_every_backend! {
    fn text_functions_make_stored_values(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let body = json!({"person": {"first": "ÄNNE", "last": "Straße 🙂", "mail": "Anne@Example.COM"}});
        let path = server.create("/people", body.to_string());
        let person = server.get(&path).json()["person"].clone();
        assert_eq!((&person["full"], &person["key"], &person["size"]),
            (&json!("ÄNNE Straße 🙂"), &json!("anne@example.com"), &json!(12)));
        // Absent texts: `concat` skips them, the others are absent.
        let put = server.put(&path, json!({"person": {"first": " Bo "}}).to_string()).json()["person"].clone();
        assert_eq!((&put["full"], put.get("key"), &put["size"]), (&json!("Bo"), None, &json!(4)));
        let found = server.get("/people?full=Bo&size=4").json();
        assert_eq!(found["people"].as_array().unwrap().len(), 1);
        let sent = server.post("/people", json!({"person": {"first": "Cy", "full": "x"}}).to_string());
        assert_eq!(faults(&sent), "422 invalid-fields\n/person/full | read_only | computed by the server");
        let short = server.post("/people", json!({"person": {"first": " D "}}).to_string());
        assert_eq!(faults(&short), "422 invalid-fields\n/person/first | check | the first name is too short");
    }

    /// Uniqueness without regard to case.
    fn text_function_makes_a_unique_key(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let post = |mail: &str| server.post("/people", json!({"person": {"first": "Ann", "mail": mail}}).to_string());
        assert_eq!(post("ann@example.com").status, 201);
        assert_eq!(faults(&post("ANN@example.com")), "409 taken\n/person/key | taken | another person has this value");
        assert_eq!(post("bob@example.com").status, 201);
    }
}
