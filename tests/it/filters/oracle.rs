//! The oracle: the expected contents of a list, computed from the items as they were shown, by plain
//! loops and comparisons.
//!
//! Texts are sorted by their first 256 characters, as documented.

use std::cmp::Ordering;

use serde_json::Value;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldKind {
    Text,
    Email,
    Url,
    Integer,
    Decimal(u32),
    Number,
    Boolean,
    Date,
    Datetime,
    Uuid,
    State,
    Target,
    Numbered,
    /// The item's own id, whatever its form.
    Id,
    TextList,
    IntegerList,
}

impl FieldKind {
    /// The kind of a list's elements.
    fn element(self) -> Self {
        match self {
            Self::TextList => Self::Text,
            Self::IntegerList => Self::Integer,
            other => other,
        }
    }

    pub fn is_list(self) -> bool {
        self.element() != self
    }
}

/// A filter before it is percent-encoded.
#[derive(Debug, Clone)]
pub struct Filter {
    pub name: &'static str,
    pub kind: FieldKind,
    pub operator: &'static str,
    pub value: String,
}

#[derive(Debug, Clone)]
pub struct SortKey {
    pub name: &'static str,
    pub kind: FieldKind,
    pub is_descending: bool,
}

/// A comparable value.
#[derive(Debug, Clone, PartialEq)]
pub enum ComparableValue {
    Missing,
    Text(String),
    Integer(i128),
    Float(f64),
    Boolean(bool),
    List(Vec<ComparableValue>),
}

impl ComparableValue {
    /// Compares two values of one field.
    fn compare(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Text(one), Self::Text(other)) => one.chars().cmp(other.chars()),
            (Self::Integer(one), Self::Integer(other)) => one.cmp(other),
            (Self::Float(one), Self::Float(other)) => one.partial_cmp(other).unwrap(),
            (Self::Boolean(one), Self::Boolean(other)) => one.cmp(other),
            (one, other) => panic!("{one:?} beside {other:?}"),
        }
    }
}

pub fn is_applicable(operator: &str, kind: FieldKind) -> bool {
    if kind.is_list() {
        return matches!(operator, "has" | "exists");
    }
    match operator {
        "eq" | "ne" | "in" | "exists" => true,
        "has" => false,
        "gt" | "gte" | "lt" | "lte" | "between" => {
            !matches!(kind, FieldKind::Boolean | FieldKind::State)
        }
        _ => matches!(kind, FieldKind::Text | FieldKind::Email | FieldKind::Url),
    }
}

/// A decimal in its smallest units.
fn parse_decimal_units(text: &str, scale: u32) -> i128 {
    let (sign, digits) = text.strip_prefix('-').map_or((1, text), |rest| (-1, rest));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let fraction = format!("{fraction:0<width$}", width = scale as usize);
    sign * format!("{whole}{fraction}").parse::<i128>().unwrap()
}

/// A value as the server shows it.
pub fn value_of_item(item: &Value, name: &str, kind: FieldKind) -> ComparableValue {
    let found = name.split('.').fold(item, |value, name| &value[name]);
    if found.is_null() {
        return ComparableValue::Missing;
    }
    value_of_json(found, kind)
}

fn value_of_json(found: &Value, kind: FieldKind) -> ComparableValue {
    match kind {
        FieldKind::TextList | FieldKind::IntegerList => {
            let elements = found.as_array().unwrap().iter();
            ComparableValue::List(elements.map(|one| value_of_json(one, kind.element())).collect())
        }
        FieldKind::Integer | FieldKind::Numbered => {
            ComparableValue::Integer(found.as_i64().unwrap().into())
        }
        FieldKind::Decimal(scale) => {
            ComparableValue::Integer(parse_decimal_units(found.as_str().unwrap(), scale))
        }
        FieldKind::Number => ComparableValue::Float(found.as_f64().unwrap()),
        FieldKind::Boolean => ComparableValue::Boolean(found.as_bool().unwrap()),
        FieldKind::Id if found.is_number() => {
            ComparableValue::Integer(found.as_i64().unwrap().into())
        }
        _ => ComparableValue::Text(found.as_str().unwrap().to_owned()),
    }
}

/// A value as a query spells it.
fn value_of_query(text: &str, kind: FieldKind, is_number: bool) -> ComparableValue {
    match kind {
        FieldKind::Integer | FieldKind::Numbered => ComparableValue::Integer(text.parse().unwrap()),
        FieldKind::Decimal(scale) => ComparableValue::Integer(parse_decimal_units(text, scale)),
        FieldKind::Number => ComparableValue::Float(text.parse().unwrap()),
        FieldKind::Boolean => ComparableValue::Boolean(text == "true"),
        FieldKind::Uuid | FieldKind::Target => ComparableValue::Text(text.to_lowercase()),
        FieldKind::Id if is_number => ComparableValue::Integer(text.parse().unwrap()),
        // The offset +02:00 is the only other spelling that is sent.
        FieldKind::Datetime => ComparableValue::Text(match text.strip_suffix("T12:00:00+02:00") {
            Some(day) => format!("{day}T10:00:00.000000Z"),
            None => text.to_owned(),
        }),
        _ => ComparableValue::Text(text.to_owned()),
    }
}

/// The values of `in` and `between`.
pub fn split_in_values(text: &str) -> Vec<String> {
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

pub fn matches_filter(item: &Value, filter: &Filter) -> bool {
    let value = value_of_item(item, filter.name, filter.kind);
    if filter.operator == "exists" {
        return (value != ComparableValue::Missing) == (filter.value == "true");
    }
    if value == ComparableValue::Missing {
        return false;
    }
    let read = |text: &str| value_of_query(text, filter.kind.element(), item["id"].is_number());
    let compared = || value.compare(&read(&filter.value));
    match (filter.operator, &value) {
        ("eq", _) => compared().is_eq(),
        ("ne", _) => compared().is_ne(),
        ("gt", _) => compared().is_gt(),
        ("gte", _) => compared().is_ge(),
        ("lt", _) => compared().is_lt(),
        ("lte", _) => compared().is_le(),
        ("in", _) => {
            split_in_values(&filter.value).iter().any(|part| value.compare(&read(part)).is_eq())
        }
        ("between", _) => {
            let [from, to] = &split_in_values(&filter.value)[..] else { panic!("{filter:?}") };
            value.compare(&read(from)).is_ge() && value.compare(&read(to)).is_le()
        }
        ("has", ComparableValue::List(elements)) => {
            elements.iter().any(|element| element.compare(&read(&filter.value)).is_eq())
        }
        ("prefix", ComparableValue::Text(text)) => text.starts_with(&filter.value),
        ("contains", ComparableValue::Text(text)) => text.contains(&filter.value),
        other => panic!("{other:?}"),
    }
}

/// A missing value sorts after every other.
fn compare_missing_last(one: ComparableValue, other: ComparableValue) -> Ordering {
    let cut = |cell| match cell {
        ComparableValue::Text(text) => ComparableValue::Text(text.chars().take(256).collect()),
        cell => cell,
    };
    match (cut(one), cut(other)) {
        (ComparableValue::Missing, ComparableValue::Missing) => Ordering::Equal,
        (ComparableValue::Missing, _) => Ordering::Greater,
        (_, ComparableValue::Missing) => Ordering::Less,
        (one, other) => one.compare(&other),
    }
}

/// The items that match all filters, in the order of the keys; ties are sorted by id, in the direction
/// of the last key.
pub fn expected_items<'a>(
    items: &'a [Value],
    filters: &[Filter],
    keys: &[SortKey],
) -> Vec<&'a Value> {
    let mut found: Vec<&Value> = items
        .iter()
        .filter(|item| filters.iter().all(|filter| matches_filter(item, filter)))
        .collect();
    let is_descending = keys.last().is_some_and(|key| key.is_descending);
    let id = SortKey { name: "id", kind: FieldKind::Id, is_descending };
    found.sort_by(|one, other| {
        keys.iter().chain([&id]).fold(Ordering::Equal, |so_far, key| {
            so_far.then_with(|| {
                let order = compare_missing_last(
                    value_of_item(one, key.name, key.kind),
                    value_of_item(other, key.name, key.kind),
                );
                if key.is_descending { order.reverse() } else { order }
            })
        })
    });
    found
}
