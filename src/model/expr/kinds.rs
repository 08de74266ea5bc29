//! The types of expressions, fewer than the field types.

use std::fmt;
use std::ops::Range;

use super::parse::Syntax;
use super::{Comparison, Failure};
use crate::json;
use crate::model::{Class, Field};
use crate::value::{Decimal, Value};

/// The type of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Type {
    /// Integers and decimals, computed exactly.
    Exact,
    /// A double.
    Real,
    Boolean,
    Text,
    Moment,
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Exact => "an exact number",
            Self::Real => "a number of type `number`",
            Self::Boolean => "true or false",
            Self::Text => "a text",
            Self::Moment => "a timestamp",
        })
    }
}

impl Type {
    pub(super) fn is_number(self) -> bool {
        matches!(self, Self::Exact | Self::Real)
    }

    pub(super) fn of(class: Class) -> Option<Self> {
        match class {
            Class::Text => Some(Self::Text),
            Class::Integer | Class::Decimal => Some(Self::Exact),
            Class::Real => Some(Self::Real),
            Class::Boolean => Some(Self::Boolean),
            Class::Moment => Some(Self::Moment),
            Class::Json => None,
        }
    }
}

/// The type of a field with a single value.
pub(super) fn scalar(field: &Field, names: &[String], syntax: &Syntax) -> Result<Type, Failure> {
    Type::of(field.class()).ok_or_else(|| {
        let message = format!(
            "`{}` is of type `{}`, which has no single value",
            names.join("."),
            field.kind.name()
        );
        match field.kind.in_expressions() {
            Some(help) => Failure::with(syntax.at.clone(), message, help),
            None => Failure::new(syntax.at.clone(), message),
        }
    })
}

/// Checks that values of a type can be compared in this way.
pub(super) fn ordered(
    comparison: Comparison,
    found: Type,
    at: Range<usize>,
) -> Result<(), Failure> {
    let equality = matches!(comparison, Comparison::Equal | Comparison::NotEqual);
    if found == Type::Boolean && !equality {
        return Err(Failure::new(
            at,
            "true and false have no order: only `=` and `!=` compare them",
        ));
    }
    Ok(())
}

/// A numeric literal: an integer, or a decimal with up to nine decimal places.
pub(super) fn number(text: &str, syntax: &Syntax) -> Result<Value, Failure> {
    if let Some(value) = json::integer(text) {
        return Ok(Value::Integer(value));
    }
    let decimals =
        text.split_once('.').map_or(0, |(_, decimals)| decimals.trim_end_matches('0').len());
    u8::try_from(decimals)
        .ok()
        .filter(|scale| *scale <= 9)
        .and_then(|scale| {
            json::decimal_units(text, scale).map(|units| Value::Decimal(Decimal { units, scale }))
        })
        .ok_or_else(|| Failure::new(syntax.at.clone(), "expected at most 18 digits and 9 decimals"))
}
