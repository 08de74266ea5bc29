//! Checks of a resource, text functions, and values that the server makes: defaults, and the users of items;
//! transitions that some roles may make; the fields that refusals name.

mod audit;
mod checks;
mod conflicts;
mod defaults;
mod made_values;
mod text_functions;
mod transitions;
mod user_field_defaults;

use serde_json::Value;

use crate::harness::{Answer, Person, Server};

/// Sends a request of a user, or of a caller without credentials; the body of a PATCH is a merge patch.
fn send(server: &Server, who: Option<&Person>, line: &str, body: &Value) -> Answer {
    let credentials = who.map(Person::basic);
    let mut headers: Vec<(&str, &str)> = Vec::new();
    headers.extend(credentials.iter().map(|text| ("Authorization", &**text)));
    if line.starts_with("PATCH") {
        headers.push(("Content-Type", "application/merge-patch+json"));
    }
    server.request(line, &headers, body.to_string())
}

/// The problem of a response and its faults, one a line.
fn faults(answer: &Answer) -> String {
    let lines = answer.faults().join("\n");
    format!("{} {}\n{lines}", answer.status, answer.problem())
}
