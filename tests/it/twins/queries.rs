//! Random list queries: filters, sorting, fields and counts, valid and invalid ones.
//!
//! They include unusable names, unsuitable operators and impossible values, since both sides must
//! refuse in the same words.

use toml::{Table, Value};

use crate::durability::seeded_random::SeededRandom;

const OPERATORS: &[&str] = &[
    "eq", "ne", "gt", "gte", "lt", "lte", "in", "prefix", "contains", "match", "~", "exists",
    "like", "",
];

const TEXTS: &[&str] = &[
    "Ann",
    "ann",
    "ANN",
    "A",
    "Z",
    "z",
    "%C3%A4",
    "%F0%9F%98%80",
    "",
    "+",
    "_",
    "%25_",
    "%5C%5C",
    "O'Neil",
    "%22q%22",
    "novel",
    "atlas",
    "ann@example.com",
    "http://a",
    "new",
    "sold",
    "A%CC%88",
    "%E6%97%A5",
    "Ann,z,Z",
    "%5C,",
    "%00",
    "a%0Ab%09",
];
const NUMBERS: &[&str] = &[
    "0",
    "1",
    "-1",
    "3",
    "100",
    "1.5",
    "1.50",
    "1e3",
    "9007199254740991",
    "9007199254740992",
    "0.1",
    "1e300",
    "5e-324",
    "12.5000",
    "x",
    "1,3,100",
];
const TIMES: &[&str] = &[
    "2026-11-15",
    "0001-01-02",
    "9999-12-31",
    "2024-02-29",
    "2026-02-30",
    "2026-11-15T02:28:14Z",
    "2026-11-15T02:28:14.5%2B01:00",
    "0001-01-01T00:00:00Z",
    "2100-01-01T00:00:00Z",
];
const OTHERS: &[&str] = &[
    "true",
    "false",
    "01890a5d-ac96-774b-bcce-b302099a8057",
    "00000000-0000-7000-8000-000000000000",
];

/// The field names of a resource; fields in objects have dotted names.
fn names(fields: &Table, before: &str, all: &mut Vec<(String, String)>) {
    for (name, field) in fields {
        let kind = field.get("type").and_then(Value::as_str).unwrap_or_default();
        all.push((format!("{before}{name}"), kind.to_owned()));
        if let Some(Value::Table(inner)) = field.get("fields") {
            names(inner, &format!("{before}{name}."), all);
        }
    }
}

fn value(chance: &mut SeededRandom, kind: &str, operator: &str) -> String {
    let pool = match (kind, chance.below(12)) {
        (_, 0) => OTHERS,
        (_, 1) => TEXTS,
        _ if operator == "exists" => &["true", "false"],
        ("text" | "email" | "url" | "state", _) => TEXTS,
        ("integer" | "number" | "decimal", _) => NUMBERS,
        ("date" | "timestamp", _) => TIMES,
        ("boolean", _) => &["true", "false"],
        _ => OTHERS,
    };
    let value = *chance.one_of(pool).unwrap();
    // As long as an index key, and longer.
    if pool == TEXTS && chance.below(20) == 0 { value.repeat(200) } else { value.to_owned() }
}

/// A query without `limit` and `cursor`.
pub fn query(fields: &Table, chance: &mut SeededRandom) -> String {
    let mut all = Vec::new();
    names(fields, "", &mut all);
    for (name, kind) in [
        ("id", "uuid"),
        ("created_at", "timestamp"),
        ("updated_at", "timestamp"),
        ("version", "integer"),
        ("nothing", "text"),
    ] {
        all.push((name.to_owned(), kind.to_owned()));
    }
    let mut pairs = Vec::new();
    for _ in 0..chance.below(3) {
        let (name, kind) = chance.one_of(&all).unwrap();
        let operator = *chance.one_of(OPERATORS).unwrap();
        let value = value(chance, kind, operator);
        pairs.push(match operator {
            "eq" if chance.below(2) == 0 => format!("{name}={value}"),
            operator => format!("{name}:{operator}={value}"),
        });
    }
    if chance.below(2) == 0 {
        let keys: Vec<String> = (0..1 + chance.below(3))
            .map(|_| {
                let sign = if chance.below(2) == 0 { "-" } else { "" };
                format!("{sign}{}", chance.one_of(&all).unwrap().0)
            })
            .collect();
        pairs.push(format!("sort={}", keys.join(",")));
    }
    if chance.below(5) == 0 {
        let (one, other) = (&chance.one_of(&all).unwrap().0, &chance.one_of(&all).unwrap().0);
        pairs.push(format!("fields={one},{other}"));
    }
    if chance.below(3) == 0 {
        pairs.push("count=exact".to_owned());
    }
    pairs.join("&")
}
