//! JSON bodies: valid, nearly valid and invalid ones, each sent with POST to a running server.
//!
//! The table is `json_bodies.txt`. A stored value is compared as text, so that a number in another
//! spelling, or rounded, would be noticed.

mod table;

use serde_json::Value;

use crate::harness::{Answer, Backend, Server, Setup};
use table::{Expected, Row, rows};

const READINGS: &str = r#"
title = "Readings"

[resources.reading.fields]
whole = { type = "integer" }
real  = { type = "number" }
price = { type = "decimal" }
data  = { type = "json" }
flag  = { type = "boolean" }
"#;

on_every_backend! {
    fn json_bodies_of_customers_match_the_table(backend: Backend) {
        check(&Setup::new(backend).start(), "/customers");
    }

    fn json_bodies_of_readings_match_the_table(backend: Backend) {
        check(&Setup::new(backend).model(READINGS).start(), "/readings");
    }
}

/// Sends every row of one collection and lists all unexpected responses.
fn check(server: &Server, path: &str) {
    let rows: Vec<_> = rows().into_iter().filter(|row| row.path == path).collect();
    assert!(rows.len() > 80, "only {} rows for {path}", rows.len());
    let wrong: Vec<_> =
        rows.iter().filter_map(|row| differs(row, &server.post(path, &row.body))).collect();
    assert!(wrong.is_empty(), "{} of {} rows:\n{}", wrong.len(), rows.len(), wrong.join("\n"));
}

/// The difference of a response to its row, if there is one.
fn differs(row: &Row, answer: &Answer) -> Option<String> {
    let right = match (&row.expected, answer.status) {
        (Expected::Stored(text), 201) => has_member(answer.text(), &row.field, text),
        (Expected::Refused(slug), 400) => answer.problem() == *slug,
        (Expected::Faults(codes), 422) => {
            answer.problem() == "invalid-fields" && codes_of(answer) == *codes
        }
        (Expected::Stored(_) | Expected::Refused(_) | Expected::Faults(_), _) => false,
    };
    let shown: String = answer.to_string().chars().take(2000).collect();
    (!right).then(|| format!("{}\ngot {shown}\n", row.line))
}

fn has_member(json: &str, name: &str, text: &str) -> bool {
    [',', '}'].iter().any(|end| json.contains(&format!("\"{name}\":{text}{end}")))
}

fn codes_of(answer: &Answer) -> Vec<String> {
    let errors = answer.json()["errors"].as_array().cloned().unwrap_or_default();
    let code = |error: &Value| error["code"].as_str().unwrap_or_default().to_owned();
    let mut codes: Vec<_> = errors.iter().map(code).collect();
    codes.sort();
    codes
}
