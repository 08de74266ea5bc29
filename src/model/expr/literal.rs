//! Literals of expressions. The type of a field parses a literal that is compared with it.

use super::names::ValueSource;
use super::parse::{SyntaxKind, SyntaxNode};
use super::tree::ExprError;
use super::types::ExprType;
use crate::fault::OrBug as _;
use crate::json::{self, Json};
use crate::model::field::Field;
use crate::problem::FaultCollector;
use crate::value::{Decimal, IdKind, Value};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExprPurpose {
    Computed,
    Check,
    Where,
}

impl ExprPurpose {
    /// The key of the model file.
    pub fn key(self) -> &'static str {
        match self {
            Self::Computed => "computed",
            Self::Check => "check",
            Self::Where => "where",
        }
    }
}

/// A literal beside a value.
pub fn parse_source_literal(
    purpose: ExprPurpose,
    source: ValueSource<'_>,
    names: &[String],
    literal: &SyntaxNode,
) -> Result<Value, ExprError> {
    let kind = match source {
        ValueSource::Field(field) => return parse_literal(purpose, field, names, literal),
        ValueSource::Id(_, kind) => kind,
    };
    let id = match (&literal.kind, kind) {
        (SyntaxKind::Text(text), IdKind::Uuid) | (SyntaxKind::Number(text), IdKind::Integer) => {
            kind.parse(text)
        }
        _ => None,
    };
    id.map(Value::from).ok_or_else(|| literal.error("expected an id"))
}

/// A literal beside a field, or beside the elements of a list.
pub fn parse_literal(
    purpose: ExprPurpose,
    field: &Field,
    names: &[String],
    literal: &SyntaxNode,
) -> Result<Value, ExprError> {
    let is_number = ExprType::from_class(field.storage_class()).is_some_and(ExprType::is_number);
    let json = match &literal.kind {
        // Calculations are exact anyway, so a literal like `quantity > 0.5` need not fit the field.
        SyntaxKind::Number(text) if purpose != ExprPurpose::Where && is_number => {
            return parse_number_literal(text, literal);
        }
        SyntaxKind::Number(text) => Json::Number(text),
        SyntaxKind::Text(text) => Json::Text(text.as_str().into()),
        SyntaxKind::Boolean(value) => Json::Boolean(*value),
        _ => return Err(literal.error("expected a number, a text, true or false")),
    };
    let mut faults = FaultCollector::at_root(String::new());
    (field.kind.read)(field, &json, &mut faults).ok_or_else(|| {
        let fault = faults.into_list().into_iter().next();
        let detail = fault.or_bug("a literal that is refused has a fault").detail;
        literal.error(format!("`{}` is of type `{}`: {detail}", names.join("."), field.kind.name))
    })
}

/// A numeric literal: an integer, or a decimal with up to nine decimal places.
pub fn parse_number_literal(text: &str, syntax: &SyntaxNode) -> Result<Value, ExprError> {
    if let Some(value) = json::parse_integer(text) {
        return Ok(Value::Integer(value));
    }
    let decimals =
        text.split_once('.').map_or(0, |(_, decimals)| decimals.trim_end_matches('0').len());
    u8::try_from(decimals)
        .ok()
        .filter(|scale| *scale <= 9)
        .and_then(|scale| {
            json::parse_decimal_units(text, scale)
                .map(|units| Value::Decimal(Decimal { units, scale }))
        })
        .ok_or_else(|| syntax.error("expected at most 18 digits and 9 decimals"))
}
