//! Random items, filters and orders: few values, so that many are equal, including missing ones and
//! those at the limits of a field.

use serde_json::{Value, json};

use super::oracle::{ComparableValue, FieldKind, Filter, SortKey, value_of_item};
use crate::durability::seeded_random::SeededRandom;

pub const OPERATORS: &[&str] =
    &["eq", "ne", "gt", "gte", "lt", "lte", "between", "in", "has", "prefix", "contains", "exists"];

/// The fields that can be filtered and not sorted by.
pub const LIST_FIELDS: &[(&str, FieldKind)] = &[
    ("tags", FieldKind::TextList),
    ("numbers", FieldKind::IntegerList),
    ("o.tags", FieldKind::TextList),
];

/// All fields that can be filtered and sorted by.
pub const SORTABLE_FIELDS: &[(&str, FieldKind)] = &[
    ("id", FieldKind::Id),
    ("created_at", FieldKind::Datetime),
    ("updated_at", FieldKind::Datetime),
    ("t", FieldKind::Text),
    ("s", FieldKind::Text),
    ("c", FieldKind::Text),
    ("e", FieldKind::Email),
    ("l", FieldKind::Url),
    ("i", FieldKind::Integer),
    ("d", FieldKind::Decimal(2)),
    ("n", FieldKind::Number),
    ("b", FieldKind::Boolean),
    ("day", FieldKind::Date),
    ("at", FieldKind::Datetime),
    ("u", FieldKind::Uuid),
    ("r", FieldKind::Target),
    ("k", FieldKind::Numbered),
    ("st", FieldKind::State),
    ("count", FieldKind::Integer),
    ("o.t", FieldKind::Text),
    ("o.i", FieldKind::Integer),
    ("o.d", FieldKind::Decimal(3)),
    ("o.n", FieldKind::Number),
    ("o.b", FieldKind::Boolean),
    ("o.at", FieldKind::Datetime),
    ("o.day", FieldKind::Date),
    ("o.in.t", FieldKind::Text),
];

const TEXTS: &[&str] = &[
    "",
    " ",
    "a",
    "A",
    "b",
    "ab",
    "aB",
    "a b",
    "Z",
    "z",
    "ä",
    "Ä",
    "e\u{301}",
    "é",
    "ß",
    "ſ",
    "İ",
    "a%",
    "a_",
    "%",
    "_",
    "\\",
    "a\\",
    ",",
    "a,b",
    "'",
    "\"",
    "\u{D7FF}",
    "\u{E000}",
    "\u{FFFD}",
    "𝄞",
    "𝄞a",
    "\u{10FFFF}",
    "\u{10FFFF}\u{10FFFF}",
    "a\u{10FFFF}",
    "\u{1}",
    "日本",
    "日",
    "10",
    "9",
];
const INTEGERS: &[i64] =
    &[0, 1, -1, 2, 10, 9, 9_007_199_254_740_991, -9_007_199_254_740_991, 4_294_967_296];
const DECIMALS: &[&str] = &["0", "1.5", "-1.5", "0.05", "-0.01", "10", "9.99", "999999999999999"];
const NUMBERS: &[f64] =
    &[0.0, 1.0, -1.0, 0.1, -0.5, 1e300, -1e300, 5e-324, 9_007_199_254_740_992.0];
const DAYS: &[&str] = &["2026-11-15", "2026-11-16", "0001-01-01", "9999-12-31", "2024-02-29"];
const DATETIMES: &[&str] = &[
    "2026-11-15T10:00:00.000000Z",
    "2026-11-15T10:00:00.000001Z",
    "0001-01-01T00:00:00.000000Z",
    "9999-12-31T23:59:59.999999Z",
    "1969-12-31T23:59:59.500000Z",
];
const UUIDS: &[&str] = &[
    "01890a5d-ac96-774b-bcce-b302099a8057",
    "ffffffff-ffff-ffff-ffff-ffffffffffff",
    "00000000-0000-0000-0000-000000000000",
];
const EMAILS: &[&str] = &["ann@example.com", "Ann@example.com", "bob@x", "a.b+c@x"];
const URLS: &[&str] =
    &["http://a", "https://example.com/?q=a%20b", "https://example.com/", "http://b"];

pub fn text_of(id: &Value) -> String {
    id.as_str().map_or_else(|| id.to_string(), str::to_owned)
}

/// A text as long as an index key, or a short one.
fn text(chance: &mut SeededRandom, chars_max: usize) -> String {
    let short = (*chance.one_of(TEXTS).unwrap()).to_owned();
    if chars_max < 300 || chance.below(4) > 0 {
        return short;
    }
    let letter = *chance.one_of(&["x", "é", "𝄞"]).unwrap();
    letter.repeat(254 + chance.below(4)) + &short
}

/// A value as it is sent in a body.
fn value(chance: &mut SeededRandom, (name, kind): (&str, FieldKind), ids: &[Value; 2]) -> Value {
    match kind {
        FieldKind::Text if name == "c" => json!(chance.one_of(&["red", "green", "blue"]).unwrap()),
        FieldKind::Text => {
            let chars_max = if matches!(name, "s" | "o.in.t") { 20 } else { 1000 };
            json!(text(chance, chars_max))
        }
        FieldKind::Email => json!(chance.one_of(EMAILS).unwrap()),
        FieldKind::Url => json!(chance.one_of(URLS).unwrap()),
        FieldKind::Integer => json!(chance.one_of(INTEGERS).unwrap()),
        FieldKind::Decimal(_) => json!(chance.one_of(DECIMALS).unwrap()),
        FieldKind::Number => json!(chance.one_of(NUMBERS).unwrap()),
        FieldKind::Boolean => json!(chance.below(2) == 0),
        FieldKind::Date => json!(chance.one_of(DAYS).unwrap()),
        FieldKind::Datetime => json!(chance.one_of(DATETIMES).unwrap()),
        FieldKind::Uuid => json!(chance.one_of(UUIDS).unwrap()),
        FieldKind::Target => chance.one_of(ids[0].as_array().unwrap()).unwrap().clone(),
        FieldKind::Numbered => chance.one_of(ids[1].as_array().unwrap()).unwrap().clone(),
        FieldKind::State => json!("new"),
        FieldKind::Id => json!(1),
        FieldKind::TextList => (0..chance.below(4)).map(|_| json!(text(chance, 1000))).collect(),
        FieldKind::IntegerList => {
            (0..chance.below(4)).map(|_| json!(chance.one_of(INTEGERS).unwrap())).collect()
        }
    }
}

/// A new item; a third of its values are missing.
pub fn draft(chance: &mut SeededRandom, ids: &[Value; 2]) -> Value {
    let mut item = json!({"c": "red"});
    let own = ["id", "created_at", "updated_at", "st"];
    let fields = SORTABLE_FIELDS.iter().chain(LIST_FIELDS);
    for (name, kind) in fields.filter(|(name, _)| !own.contains(name)) {
        if chance.below(3) == 0 {
            continue;
        }
        let value = value(chance, (name, *kind), ids);
        let names: Vec<&str> = name.split('.').collect();
        let place = names.iter().fold(&mut item, |place, name| &mut place[*name]);
        *place = value;
    }
    if chance.below(8) == 0 {
        item.as_object_mut().unwrap().remove("o");
    }
    item
}

/// A value that some item has there, or any value.
fn operand(
    chance: &mut SeededRandom,
    items: &[Value],
    (name, kind): (&'static str, FieldKind),
    ids: &[Value; 2],
) -> String {
    let found = chance.one_of(items).map(|item| value_of_item(item, name, kind));
    let is_own = matches!(kind, FieldKind::Id) || name.ends_with("ed_at");
    match found {
        Some(ComparableValue::List(elements)) if !elements.is_empty() && chance.below(4) > 0 => {
            match chance.one_of(&elements).unwrap() {
                ComparableValue::Text(text) => text.clone(),
                ComparableValue::Integer(number) => number.to_string(),
                other => panic!("{other:?}"),
            }
        }
        _ if kind == FieldKind::TextList => text(chance, 1000),
        _ if kind == FieldKind::IntegerList => chance.one_of(INTEGERS).unwrap().to_string(),
        Some(ComparableValue::Text(text)) if is_own || chance.below(2) == 0 => text,
        Some(ComparableValue::Integer(number)) if matches!(kind, FieldKind::Id) => {
            number.to_string()
        }
        _ if kind == FieldKind::Id => {
            match items.first().is_some_and(|item| item["id"].is_string()) {
                true => UUIDS[0].to_owned(),
                false => "7".to_owned(),
            }
        }
        _ => match value(chance, (name, kind), ids) {
            Value::String(text) => text,
            other => other.to_string(),
        },
    }
}

pub fn filter(
    chance: &mut SeededRandom,
    items: &[Value],
    (name, kind): (&'static str, FieldKind),
    operator: &'static str,
    ids: &[Value; 2],
) -> Filter {
    let mut one = || {
        let text = operand(chance, items, (name, kind), ids);
        match kind {
            // Other spellings of the same value.
            FieldKind::Decimal(_) if chance.below(2) == 0 && !text.contains('.') => {
                format!("{text}.0")
            }
            FieldKind::Uuid if chance.below(2) == 0 => text.to_uppercase(),
            FieldKind::Datetime if chance.below(4) == 0 => "2026-11-15T12:00:00+02:00".to_owned(),
            FieldKind::State if chance.below(2) == 0 => "old".to_owned(),
            _ => text,
        }
    };
    let value = match operator {
        "exists" => ["true", "false"][chance.below(2)].to_owned(),
        "in" | "between" => {
            let parts: Vec<String> = (0..3).map(|_| one()).collect();
            let parts: Vec<String> =
                parts.iter().map(|part| part.replace('\\', r"\\").replace(',', r"\,")).collect();
            let count = if operator == "between" { 2 } else { 1 + chance.below(3) };
            parts[..count].join(",")
        }
        "prefix" => {
            let text = one();
            text.chars().take(chance.below(text.chars().count() + 2)).collect()
        }
        "contains" => {
            let text = one();
            let length = text.chars().count();
            let from = chance.below(length + 1);
            text.chars().skip(from).take(chance.below(length + 1)).collect()
        }
        _ => one(),
    };
    Filter { name, kind, operator, value }
}

/// Up to four keys; none may occur twice, and keys after the id have no effect.
pub fn sort(chance: &mut SeededRandom) -> Vec<SortKey> {
    let mut keys: Vec<SortKey> = Vec::new();
    for _ in 0..chance.below(5) {
        let (name, kind) = *chance.one_of(SORTABLE_FIELDS).unwrap();
        if keys.iter().all(|key| key.name != name) {
            keys.push(SortKey { name, kind, is_descending: chance.below(2) == 0 });
        }
    }
    if let Some(at) = keys.iter().position(|key| key.kind == FieldKind::Id) {
        keys.truncate(at + 1);
    }
    keys
}
