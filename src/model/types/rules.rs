//! The declared rules of a field: lengths, bounds, patterns, counts, `one_of`.
//!
//! `file` never sets a rule that a type does not allow, so all rules are checked for every type.

use std::cmp::Ordering;
use std::fmt;

use crate::json::quote_for_message;
use crate::model::{Field, ValueBound};
use crate::problem::{FaultCode, FaultCollector};
use crate::value::{Value, truncate_for_message};

/// Whether `value` satisfies the rules; every violation goes to `faults`.
pub fn check(field: &Field, value: &Value, faults: &mut FaultCollector) -> bool {
    let rules = &field.rules;
    let mut kept = true;
    let mut fault = |code: FaultCode, detail: String| {
        kept = false;
        faults.add(code, detail);
    };
    if let Some(min) = &rules.min
        && min.compare_value(value) == Some(Ordering::Less)
    {
        fault(FaultCode::Range, format!("expected at least {min}, got {}", DisplayValue(value)));
    }
    if let Some(max) = &rules.max
        && max.compare_value(value) == Some(Ordering::Greater)
    {
        fault(FaultCode::Range, format!("expected at most {max}, got {}", DisplayValue(value)));
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
    kept
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

impl ValueBound {
    /// The order of `value` and this bound; `None` if their types differ.
    pub fn compare_value(&self, value: &Value) -> Option<Ordering> {
        match (value, self) {
            (Value::Integer(value), Self::Integer(bound)) => Some(value.cmp(bound)),
            (Value::Number(value), Self::Number(bound)) => value.partial_cmp(bound),
            // Both have the scale of the field.
            (Value::Decimal(value), Self::Decimal(bound)) => Some(value.units.cmp(&bound.units)),
            (Value::Text(value), Self::Text(bound)) => Some(value.cmp(bound)),
            (Value::Moment(value), Self::Text(bound)) => {
                Some(value.to_string().as_str().cmp(bound))
            }
            _ => None,
        }
    }

    /// The order of this bound and another one of the same field.
    pub fn compare_bound(&self, other: &Self) -> Option<Ordering> {
        other.compare_value(&self.value())
    }

    /// The bound as a value; a timestamp as its text.
    pub fn value(&self) -> Value {
        match self {
            Self::Integer(value) => Value::Integer(*value),
            Self::Number(value) => Value::Number(*value),
            Self::Decimal(value) => Value::Decimal(*value),
            Self::Text(value) => Value::Text(value.clone()),
        }
    }

    /// The bound with a value of the field's type.
    pub fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Integer(value) => Some(Self::Integer(*value)),
            Value::Number(value) => Some(Self::Number(*value)),
            Value::Decimal(value) => Some(Self::Decimal(*value)),
            Value::Text(value) => Some(Self::Text(value.clone())),
            Value::Moment(value) => Some(Self::Text(value.to_string().into())),
            Value::Null
            | Value::Boolean(_)
            | Value::Json(_)
            | Value::List(_)
            | Value::Object(_)
            | Value::Clear(_) => None,
        }
    }
}

impl fmt::Display for ValueBound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(value) => value.fmt(f),
            Self::Number(value) => value.fmt(f),
            Self::Decimal(value) => value.fmt(f),
            Self::Text(value) => value.fmt(f),
        }
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
            Value::Clear(_) => f.write_str("a secret"),
        }
    }
}
