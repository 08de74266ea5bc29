//! The declared rules of a field: lengths, bounds, patterns, counts, `one_of`.
//!
//! `file` never sets a rule that a type does not allow, so all rules are checked for every type.

use std::cmp::Ordering;
use std::fmt;

use crate::json::quote_for_message;
use crate::model::field::Field;
use crate::problem::{FaultCode, FaultCollector};
use crate::value::{Value, truncate_for_message};

/// Whether `value` satisfies the rules; every violation goes to `faults`.
pub fn check(field: &Field, value: &Value, faults: &mut FaultCollector) -> bool {
    let rules = &field.rules;
    let mut is_valid = true;
    let mut fault = |code: FaultCode, detail: String| {
        is_valid = false;
        faults.add(code, detail);
    };
    if let Some(min) = &rules.min
        && compare(value, min) == Some(Ordering::Less)
    {
        let bound = display_bound(min);
        fault(FaultCode::Range, format!("expected at least {bound}, got {}", DisplayValue(value)));
    }
    if let Some(max) = &rules.max
        && compare(value, max) == Some(Ordering::Greater)
    {
        let bound = display_bound(max);
        fault(FaultCode::Range, format!("expected at most {bound}, got {}", DisplayValue(value)));
    }
    if let Value::Text(text) = value {
        if rules.min_length.is_some() || rules.max_length.is_some() {
            let length = text.chars().count();
            check_count(
                &mut fault,
                FaultCode::Length,
                "character",
                (length, rules.min_length, rules.max_length),
            );
        }
        if let Some(pattern) = &rules.pattern
            && !pattern.is_match(text)
        {
            fault(
                FaultCode::Pattern,
                format!("expected a text that matches {pattern}, got {}", quote_for_message(text)),
            );
        }
    }
    if let Value::List(items) = value {
        check_count(
            &mut fault,
            FaultCode::Items,
            "item",
            (items.len(), rules.min_items, rules.max_items),
        );
    }
    if !rules.one_of.is_empty() && !rules.one_of.contains(value) {
        let known: Vec<String> =
            rules.one_of.iter().map(|known| DisplayValue(known).to_string()).collect();
        fault(
            FaultCode::OneOf,
            format!("expected one of {}, got {}", known.join(", "), DisplayValue(value)),
        );
    }
    is_valid
}

type CountLimits = (usize, Option<usize>, Option<usize>);

fn check_count(
    fault: &mut impl FnMut(FaultCode, String),
    code: FaultCode,
    unit: &str,
    (count, min, max): CountLimits,
) {
    let plural = |count: usize| if count == 1 { "" } else { "s" };
    if let Some(min) = min.filter(|min| count < *min) {
        fault(code, format!("expected at least {min} {unit}{}, got {count}", plural(min)));
    }
    if let Some(max) = max.filter(|max| count > *max) {
        fault(code, format!("expected at most {max} {unit}{}, got {count}", plural(max)));
    }
}

/// The order of two values of one type; `None` if their types differ or have no order.
pub fn compare(one: &Value, other: &Value) -> Option<Ordering> {
    match (one, other) {
        (Value::Integer(one), Value::Integer(other)) => Some(one.cmp(other)),
        (Value::Number(one), Value::Number(other)) => one.partial_cmp(other),
        // Both have the scale of the field.
        (Value::Decimal(one), Value::Decimal(other)) => Some(one.units.cmp(&other.units)),
        // The order of dates is that of their texts.
        (Value::Text(one), Value::Text(other)) => Some(one.cmp(other)),
        (Value::Moment(one), Value::Moment(other)) => Some(one.cmp(other)),
        _ => None,
    }
}

/// A `min` or `max` for a message: a date without quotes.
fn display_bound(bound: &Value) -> String {
    match bound {
        Value::Text(date) => date.to_string(),
        bound => DisplayValue(bound).to_string(),
    }
}

/// Formats a value for a message.
struct DisplayValue<'v>(&'v Value);

impl fmt::Display for DisplayValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Value::Null => f.write_str("null"),
            Value::Boolean(value) => value.fmt(f),
            Value::Integer(value) => value.fmt(f),
            Value::Number(value) => value.fmt(f),
            Value::Decimal(value) => value.fmt(f),
            Value::Text(value) => f.write_str(&quote_for_message(value)),
            Value::Moment(value) => value.fmt(f),
            Value::Json(value) => f.write_str(&truncate_for_message(value)),
            Value::List(_) => f.write_str("a list"),
            Value::Object(_) => f.write_str("an object"),
            Value::ClearText(_) => f.write_str("a secret"),
        }
    }
}
