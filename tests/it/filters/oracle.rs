//! The oracle: the expected contents of a list, computed from the items as they were shown, by plain
//! loops and comparisons.
//!
//! The one surprising thing: texts are sorted by their first 256 characters, as documented.

use std::cmp::Ordering;

use serde_json::Value;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Text,
    Email,
    Url,
    Integer,
    Decimal(u32),
    Number,
    Boolean,
    Date,
    Moment,
    Uuid,
    State,
    Target,
    Numbered,
    /// The item's own id, whatever its form.
    Id,
}

/// A filter before it is percent-encoded.
#[derive(Debug, Clone)]
pub struct Filter {
    pub name: &'static str,
    pub kind: Kind,
    pub operator: &'static str,
    pub value: String,
}

#[derive(Debug, Clone)]
pub struct Key {
    pub name: &'static str,
    pub kind: Kind,
    pub is_descending: bool,
}

/// A comparable value.
#[derive(Debug, Clone, PartialEq)]
pub enum Cell {
    Nothing,
    Text(String),
    Whole(i128),
    Real(f64),
    Boolean(bool),
}

impl Cell {
    /// Compares two values of one field.
    fn compare(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Text(one), Self::Text(other)) => one.chars().cmp(other.chars()),
            (Self::Whole(one), Self::Whole(other)) => one.cmp(other),
            (Self::Real(one), Self::Real(other)) => one.partial_cmp(other).unwrap(),
            (Self::Boolean(one), Self::Boolean(other)) => one.cmp(other),
            (one, other) => panic!("{one:?} beside {other:?}"),
        }
    }
}

pub fn fits(operator: &str, kind: Kind) -> bool {
    match operator {
        "eq" | "ne" | "in" | "exists" => true,
        "gt" | "gte" | "lt" | "lte" => !matches!(kind, Kind::Boolean | Kind::State),
        _ => matches!(kind, Kind::Text | Kind::Email | Kind::Url),
    }
}

/// A decimal in its smallest units.
fn units(text: &str, scale: u32) -> i128 {
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |rest| (-1, rest));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let fraction = format!("{fraction:0<width$}", width = scale as usize);
    sign * format!("{whole}{fraction}").parse::<i128>().unwrap()
}

/// A value as the server shows it.
pub fn cell(item: &Value, name: &str, kind: Kind) -> Cell {
    let found = name.split('.').fold(item, |value, name| &value[name]);
    if found.is_null() {
        return Cell::Nothing;
    }
    match kind {
        Kind::Integer | Kind::Numbered => Cell::Whole(found.as_i64().unwrap().into()),
        Kind::Decimal(scale) => Cell::Whole(units(found.as_str().unwrap(), scale)),
        Kind::Number => Cell::Real(found.as_f64().unwrap()),
        Kind::Boolean => Cell::Boolean(found.as_bool().unwrap()),
        Kind::Id if found.is_number() => Cell::Whole(found.as_i64().unwrap().into()),
        _ => Cell::Text(found.as_str().unwrap().to_owned()),
    }
}

/// A value as a query spells it.
fn asked(text: &str, kind: Kind, is_number: bool) -> Cell {
    match kind {
        Kind::Integer | Kind::Numbered => Cell::Whole(text.parse().unwrap()),
        Kind::Decimal(scale) => Cell::Whole(units(text, scale)),
        Kind::Number => Cell::Real(text.parse().unwrap()),
        Kind::Boolean => Cell::Boolean(text == "true"),
        Kind::Uuid | Kind::Target => Cell::Text(text.to_lowercase()),
        Kind::Id if is_number => Cell::Whole(text.parse().unwrap()),
        // The offset +02:00 is the only other spelling that is sent.
        Kind::Moment => Cell::Text(match text.strip_suffix("T12:00:00+02:00") {
            Some(day) => format!("{day}T10:00:00.000000Z"),
            None => text.to_owned(),
        }),
        _ => Cell::Text(text.to_owned()),
    }
}

/// The values of `in`.
fn parts(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut is_escaped = false;
    for c in text.chars() {
        match c {
            '\\' if !is_escaped => {
                is_escaped = true;
                continue;
            }
            ',' if !is_escaped => parts.push(String::new()),
            c => parts.last_mut().unwrap().push(c),
        }
        is_escaped = false;
    }
    parts
}

fn holds(item: &Value, filter: &Filter) -> bool {
    let value = cell(item, filter.name, filter.kind);
    if filter.operator == "exists" {
        return (value != Cell::Nothing) == (filter.value == "true");
    }
    if value == Cell::Nothing {
        return false;
    }
    let read = |text: &str| asked(text, filter.kind, item["id"].is_number());
    let compared = || value.compare(&read(&filter.value));
    match (filter.operator, &value) {
        ("eq", _) => compared().is_eq(),
        ("ne", _) => compared().is_ne(),
        ("gt", _) => compared().is_gt(),
        ("gte", _) => compared().is_ge(),
        ("lt", _) => compared().is_lt(),
        ("lte", _) => compared().is_le(),
        ("in", _) => parts(&filter.value).iter().any(|part| value.compare(&read(part)).is_eq()),
        ("prefix", Cell::Text(text)) => text.starts_with(&filter.value),
        ("contains", Cell::Text(text)) => text.contains(&filter.value),
        other => panic!("{other:?}"),
    }
}

/// A missing value sorts after every other.
fn in_order(one: Cell, other: Cell) -> Ordering {
    let cut = |cell| match cell {
        Cell::Text(text) => Cell::Text(text.chars().take(256).collect()),
        cell => cell,
    };
    match (cut(one), cut(other)) {
        (Cell::Nothing, Cell::Nothing) => Ordering::Equal,
        (Cell::Nothing, _) => Ordering::Greater,
        (_, Cell::Nothing) => Ordering::Less,
        (one, other) => one.compare(&other),
    }
}

/// The items that match all filters, in the order of the keys; ties are sorted by id, in the direction
/// of the last key.
pub fn expected<'a>(items: &'a [Value], filters: &[Filter], keys: &[Key]) -> Vec<&'a Value> {
    let mut found: Vec<&Value> =
        items.iter().filter(|item| filters.iter().all(|filter| holds(item, filter))).collect();
    let is_descending = keys.last().is_some_and(|key| key.is_descending);
    let id = Key { name: "id", kind: Kind::Id, is_descending };
    found.sort_by(|one, other| {
        keys.iter().chain([&id]).fold(Ordering::Equal, |so_far, key| {
            so_far.then_with(|| {
                let order =
                    in_order(cell(one, key.name, key.kind), cell(other, key.name, key.kind));
                if key.is_descending { order.reverse() } else { order }
            })
        })
    });
    found
}
