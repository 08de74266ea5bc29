//! A column, or a field nested in it, as an SQL expression: as lists filter and sort by it, and as indexes hold it.

use crate::model::{Field, StorageClass};
use crate::store::sql::columns::quote_name;
use crate::store::sql::dialect::Dialect;
use crate::store::sql::expressions::OperandType;
use crate::value::IdKind;

/// A column or expression that is filtered or sorted by, as SQL.
#[derive(Debug)]
pub struct ListOperand {
    pub text: String,
    /// The indexed form, used for lookups and sorting: a prefix of a long text.
    pub indexed_text: String,
    pub kind: OperandType,
    /// Whether `indexed_text` is a prefix of the text.
    pub is_prefix: bool,
    /// An expression over a column, and not the column itself.
    pub is_expression: bool,
    /// A timestamp inside an object: text in its canonical form.
    pub is_canonical_text: bool,
}

impl ListOperand {
    /// A column that every table has.
    pub fn column(table: &str, name: &str, kind: OperandType) -> Self {
        Self::expression(&format!("{table}.{}", quote_name(name)), kind)
    }

    /// A column, with its table.
    pub fn expression(text: &str, kind: OperandType) -> Self {
        Self {
            indexed_text: text.to_owned(),
            text: text.to_owned(),
            kind,
            is_prefix: false,
            is_expression: false,
            is_canonical_text: false,
        }
    }
}

/// The expression that an index on a column, or on a field nested in it, holds; and whether that is a prefix.
pub fn index_expression(
    dialect: &Dialect,
    column: &Field,
    inner: &[Box<str>],
) -> Option<(String, bool)> {
    // No index has the elements of a list.
    column.inner(inner).filter(|field| field.rules.element.is_none())?;
    let operand = field_operand(dialect, column, inner, "")?;
    // In an index, an expression that is no function call needs parentheses.
    let is_bare = inner.is_empty() || operand.is_prefix;
    let text = if is_bare { operand.indexed_text } else { format!("({})", operand.indexed_text) };
    Some((text, operand.is_prefix))
}

pub fn field_operand(
    dialect: &Dialect,
    column: &Field,
    inner: &[Box<str>],
    table: &str,
) -> Option<ListOperand> {
    let field = column.inner(inner)?;
    let name = format!("{table}{}", quote_name(&column.name));
    let is_canonical_text = !inner.is_empty() && field.storage_class() == StorageClass::Moment;
    // A cast to timestamptz depends on settings, so no index can hold it; the canonical text sorts the same.
    let class = if is_canonical_text { StorageClass::Text } else { field.storage_class() };
    let is_id = field.rules.reference.is_some_and(|to| to.id == IdKind::Uuid);
    let kind = match class {
        StorageClass::Text if is_id => OperandType::Uuid,
        StorageClass::Text | StorageClass::Json => OperandType::Text,
        StorageClass::Integer => OperandType::Units(0),
        StorageClass::Decimal => OperandType::Units(field.rules.scale),
        StorageClass::Real => OperandType::Real,
        StorageClass::Boolean => OperandType::Boolean,
        StorageClass::Moment => OperandType::Moment,
    };
    let text = match inner.is_empty() {
        true => name,
        false => (dialect.expressions.json_member)(&name, inner, (class, field.rules.scale)),
    };
    let is_text =
        class == StorageClass::Text && field.rules.reference.is_none() && !is_canonical_text;
    let indexed_text = match is_text {
        true => (dialect.sort_prefix)(&text, field.is_sorted_whole()),
        false => text.clone(),
    };
    let is_prefix = indexed_text != text;
    let is_expression = !inner.is_empty() || is_prefix;
    Some(ListOperand { text, indexed_text, kind, is_prefix, is_expression, is_canonical_text })
}

/// The elements of a list as rows, and one of them as an operand.
pub fn element_operand(
    dialect: &Dialect,
    column: &Field,
    inner: &[Box<str>],
    table: &str,
) -> Option<(String, ListOperand)> {
    let element = column.inner(inner)?.rules.element.as_deref()?;
    // In a list, a timestamp is text in its canonical form, and a UUID is text.
    let is_canonical_text = element.storage_class() == StorageClass::Moment;
    let class = if is_canonical_text { StorageClass::Text } else { element.storage_class() };
    let kind = match class {
        StorageClass::Text | StorageClass::Json | StorageClass::Moment => OperandType::Text,
        StorageClass::Integer => OperandType::Units(0),
        StorageClass::Decimal => OperandType::Units(element.rules.scale),
        StorageClass::Real => OperandType::Real,
        StorageClass::Boolean => OperandType::Boolean,
    };
    let name = format!("{table}{}", quote_name(&column.name));
    let rows = (dialect.expressions.json_elements)(&name, inner);
    let text = (dialect.expressions.json_element)((class, element.rules.scale));
    Some((rows, ListOperand { is_canonical_text, ..ListOperand::expression(&text, kind) }))
}
