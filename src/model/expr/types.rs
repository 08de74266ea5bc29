//! The types of expressions, fewer than the field types.

use std::fmt;
use std::ops::Range;

use super::parse::SyntaxNode;
use super::tree::{Comparison, ExprError};
use crate::model::field::{Field, StorageClass};

/// The type of an expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExprType {
    /// Integers and decimals, computed exactly.
    Exact,
    /// A double.
    Real,
    Boolean,
    Text,
    Moment,
}

impl fmt::Display for ExprType {
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

impl ExprType {
    pub fn is_number(self) -> bool {
        matches!(self, Self::Exact | Self::Real)
    }

    pub fn from_class(class: StorageClass) -> Option<Self> {
        match class {
            StorageClass::Text => Some(Self::Text),
            StorageClass::Integer | StorageClass::Decimal => Some(Self::Exact),
            StorageClass::Real => Some(Self::Real),
            StorageClass::Boolean => Some(Self::Boolean),
            StorageClass::Moment => Some(Self::Moment),
            StorageClass::Json => None,
        }
    }
}

/// The type of a field with a single value.
pub fn scalar_type(
    field: &Field,
    names: &[String],
    syntax: &SyntaxNode,
) -> Result<ExprType, ExprError> {
    ExprType::from_class(field.storage_class()).ok_or_else(|| {
        let message = format!(
            "`{}` is of type `{}`, which has no single value",
            names.join("."),
            field.kind.name
        );
        match field.kind.expression_hint {
            Some(help) => syntax.error_with_help(message, help),
            None => syntax.error(message),
        }
    })
}

/// Checks that values of a type can be compared in this way.
pub fn check_ordered(
    comparison: Comparison,
    found: ExprType,
    at: Range<usize>,
) -> Result<(), ExprError> {
    let equality = matches!(comparison, Comparison::Equal | Comparison::NotEqual);
    if found == ExprType::Boolean && !equality {
        return Err(ExprError::new(
            at,
            "true and false have no order: only `=` and `!=` compare them",
        ));
    }
    Ok(())
}
