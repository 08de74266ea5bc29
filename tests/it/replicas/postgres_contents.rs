//! The contents of a PostgreSQL database, for the judge of `tests/it/durability/`.
//!
//! The judge decides whether they are right.
//! The database formats times as the interface does, so that stored values can be compared with
//! responses.

use std::collections::HashMap;
use std::rc::Rc;

use serde_json::Value;

use crate::durability::judge::{DatabaseContents, LoggedChange};
use crate::harness::Postgres;

const CUSTOMERS: &str = "id name email created_at updated_at version";
const ORDERS: &str =
    "id customer_id status currency items total note created_at updated_at version";
const CHANGES: &str = "sequence kind subject request_id before after";

/// Each row of a table as one line of JSON, without null values.
fn rows(server: &Postgres, database: &str, columns: &str, from: &str) -> Vec<Value> {
    let member = |name: &str| {
        if name.ends_with("_at") {
            let form = r#"YYYY-MM-DD"T"HH24:MI:SS.US"Z""#;
            format!("'{name}', to_char({name} AT TIME ZONE 'UTC', '{form}')")
        } else {
            format!("'{name}', {name}")
        }
    };
    let members: Vec<_> = columns.split(' ').map(member).collect();
    let text =
        format!("SELECT json_strip_nulls(json_build_object({})) FROM {from}", members.join(", "));
    let mut command = server.psql(database);
    let output = command.args(["-c", &text]).output().unwrap();
    assert!(output.status.success(), "{text}: {}", String::from_utf8_lossy(&output.stderr));
    let lines = output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).unwrap()).collect()
}

/// Everything that is stored, once nothing writes any more.
pub fn read_contents(server: &Postgres, database: &str) -> DatabaseContents {
    let mut found = DatabaseContents { is_interleaved: true, ..DatabaseContents::default() };
    let text = |item: &Value, name: &str| item[name].as_str().unwrap().to_owned();
    for item in rows(server, database, CUSTOMERS, "customers") {
        found.items.insert(format!("/customers/{}", text(&item, "id")), item);
    }
    for item in rows(server, database, ORDERS, "orders") {
        let (customer, id) = (text(&item, "customer_id"), text(&item, "id"));
        found.items.insert(format!("/customers/{customer}/orders/{id}"), item);
    }
    // The last state of each item, kept once.
    let mut last: HashMap<String, Rc<Value>> = HashMap::new();
    for row in rows(server, database, CHANGES, "nouns_changes ORDER BY sequence") {
        let subject = text(&row, "subject");
        let known = last.remove(&subject);
        let item = |name: &str| row[name].as_str().map(|text| serde_json::from_str(text).unwrap());
        let before = item("before").map(|before: Value| match known {
            Some(known) if *known == before => known,
            _ => Rc::new(before),
        });
        let after = item("after").map(Rc::new);
        if let Some(after) = &after {
            last.insert(subject.clone(), Rc::clone(after));
        }
        found.log.push(LoggedChange {
            sequence: row["sequence"].as_i64().unwrap(),
            kind: text(&row, "kind"),
            request_id: text(&row, "request_id"),
            subject,
            before,
            after,
        });
    }
    found
}
