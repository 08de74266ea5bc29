//! Checks of a resource, text functions, and values that the server makes: defaults, and the users of items;
//! transitions that some roles may make; the fields that refusals name.

mod audit;
mod checks;
mod conflicts;
mod defaults;
mod made_values;
mod text_functions;
mod transitions;

use crate::harness::Answer;

/// The problem of a response and its faults, one a line.
fn faults(answer: &Answer) -> String {
    let json = answer.json();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let errors = json["errors"].as_array().cloned().unwrap_or_default();
    let lines = errors.iter().map(|fault| {
        [text(&fault["pointer"]), text(&fault["code"]), text(&fault["detail"])].join(" | ")
    });
    let lines = lines.collect::<Vec<_>>().join("\n");
    format!("{} {}\n{lines}", answer.status, answer.problem())
}
