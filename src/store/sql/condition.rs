//! Translation of the model's conditions into SQL.
//!
//! The text is true for exactly the rows for which the condition holds, and NULL where the condition is
//! absent, so that `not` means the same as in our own evaluator. Values are bound: each placeholder has its
//! `ConditionParameter`. The semantics are defined in `model::expr`; this module reproduces them.
//! Exact numbers of different scales are compared within 64-bit integers where the engine has nothing larger.

use crate::fault::{self, OrBug};
use crate::model::expr::{Comparison, ExprNode, Path, PathRoot};
use crate::model::{Expr, Field, Model, Resource, StorageClass};
use crate::permit::AccessScope;
use crate::store::sql::columns::quote_name;
use crate::store::sql::dialect::Dialect;
use crate::store::sql::expressions::{OperandType, comparison_operator};
use crate::store::statement::Bind;
use crate::value::{Decimal, Id, IdKind, Value};

/// The value of a placeholder.
#[derive(Debug, Clone, PartialEq)]
pub enum ConditionParameter {
    Value(Value),
    Id(Id),
    /// The name of the calling user, or NULL.
    User,
}

impl ConditionParameter {
    pub fn bind<'a>(&'a self, user: Option<&'a str>) -> Bind<'a> {
        match self {
            Self::Value(value) => Bind::value(value),
            Self::Id(id) => Bind::Id(*id),
            Self::User => Bind::optional_text(user),
        }
    }
}

/// An operand of a condition.
struct ConditionOperand {
    text: String,
    kind: OperandType,
}

/// Writes the conditions of one statement and collects their parameters.
#[derive(Debug)]
pub struct ConditionWriter {
    dialect: &'static Dialect,
    next: usize,
    pub parameters: Vec<ConditionParameter>,
}

/// The alias of a resource's table in the statement.
#[derive(Debug, Clone, Copy)]
pub struct TableAlias<'a> {
    pub resource: &'a Resource,
    pub alias: &'a str,
}

impl ConditionWriter {
    /// Placeholders are numbered from `first`.
    pub fn new(dialect: &'static Dialect, first: usize) -> Self {
        Self { dialect, next: first, parameters: Vec::new() }
    }

    /// The disjunction of some conditions; `None` if there are none.
    pub fn any_of(&mut self, row: TableAlias<'_>, conditions: &[Expr]) -> Option<String> {
        let texts = conditions.iter().map(|one| self.operand(row, &one.root, None).text);
        let texts: Vec<String> = texts.collect();
        (!texts.is_empty()).then(|| format!("({})", texts.join(" OR ")))
    }

    fn bind(&mut self, term: ConditionParameter, kind: OperandType) -> ConditionOperand {
        let cast = (self.dialect.expressions.cast)(kind);
        let text = format!("{}{}{cast}", self.dialect.placeholder, self.next);
        self.next += 1;
        self.parameters.push(term);
        ConditionOperand { text, kind }
    }

    /// `beside` is the type of the other operand.
    fn operand(
        &mut self,
        row: TableAlias<'_>,
        node: &ExprNode,
        other_type: Option<OperandType>,
    ) -> ConditionOperand {
        let truth = |text| ConditionOperand { text, kind: OperandType::Boolean };
        match node {
            ExprNode::Literal(value) => self.literal(value, other_type),
            ExprNode::User => self.bind(ConditionParameter::User, OperandType::Text),
            ExprNode::Field(path) => self.field(row, path),
            ExprNode::Not(inner) => truth(format!("(NOT {})", self.operand(row, inner, None).text)),
            ExprNode::And(left, right) => truth(self.join_operands(row, (left, right), "AND")),
            ExprNode::Or(left, right) => truth(self.join_operands(row, (left, right), "OR")),
            ExprNode::Compare(comparison, left, right) => {
                truth(self.compare(row, *comparison, (left, right)))
            }
            ExprNode::In(inner, among) => {
                let inner = self.operand(row, inner, None);
                let among = among.iter().map(|one| self.literal(one, Some(inner.kind)).text);
                let among = among.collect::<Vec<_>>().join(", ");
                truth(format!("({} IN ({among}))", inner.text))
            }
            ExprNode::Negate(_)
            | ExprNode::Arithmetic(..)
            | ExprNode::Sum(..)
            | ExprNode::Count(_)
            | ExprNode::Call(..) => {
                fault::bug("a condition has no arithmetic: the model refuses it")
            }
        }
    }

    fn join_operands(
        &mut self,
        row: TableAlias<'_>,
        (left, right): (&ExprNode, &ExprNode),
        word: &str,
    ) -> String {
        let left = self.operand(row, left, None).text;
        let right = self.operand(row, right, None).text;
        format!("({left} {word} {right})")
    }

    fn literal(&mut self, value: &Value, other_type: Option<OperandType>) -> ConditionOperand {
        let kind = match value {
            Value::Text(text) => {
                let id = IdKind::Uuid.parse(text).filter(|_| other_type == Some(OperandType::Uuid));
                if let Some(id) = id {
                    return self.bind(ConditionParameter::Id(id), OperandType::Uuid);
                }
                OperandType::Text
            }
            Value::Boolean(_) => OperandType::Boolean,
            Value::Integer(_) => OperandType::Units(0),
            Value::Decimal(Decimal { scale, .. }) => OperandType::Units(*scale),
            Value::Number(_) => OperandType::Real,
            Value::Moment(_) => OperandType::Moment,
            Value::Null | Value::Json(_) | Value::List(_) | Value::Object(_) | Value::Clear(_) => {
                fault::bug("the language of conditions has no such literal")
            }
        };
        self.bind(ConditionParameter::Value(value.clone()), kind)
    }

    fn field(&self, row: TableAlias<'_>, path: &Path) -> ConditionOperand {
        let (column, field) =
            find_field(row.resource, path).or_bug("the model has checked the fields of conditions");
        let kind = self.operand_type(field);
        let name = format!("{}.{}", row.alias, quote_name(&column.name));
        let text = match path.inner.is_empty() {
            true => name,
            false => (self.dialect.expressions.json_member)(
                &name,
                &path.inner,
                (field.storage_class(), field.rules.scale),
            ),
        };
        ConditionOperand { text, kind }
    }

    fn operand_type(&self, field: &Field) -> OperandType {
        let is_uuid = |field: &Field| field.rules.reference.is_some_and(|to| to.id == IdKind::Uuid);
        match field.storage_class() {
            StorageClass::Text if self.dialect.expressions.has_uuid && is_uuid(field) => {
                OperandType::Uuid
            }
            StorageClass::Text => OperandType::Text,
            StorageClass::Integer => OperandType::Units(0),
            StorageClass::Decimal => OperandType::Units(field.rules.scale),
            StorageClass::Real => OperandType::Real,
            StorageClass::Boolean => OperandType::Boolean,
            StorageClass::Moment => OperandType::Moment,
            StorageClass::Json => fault::bug("a condition compares scalars: the model checks it"),
        }
    }

    fn compare(
        &mut self,
        row: TableAlias<'_>,
        comparison: Comparison,
        (left, right): (&ExprNode, &ExprNode),
    ) -> String {
        let words = self.dialect.expressions;
        // The type of a literal depends on the other operand, so the other operand is written first.
        let (one, other) = if let ExprNode::Literal(_) = left {
            let other = self.operand(row, right, None);
            (self.operand(row, left, Some(other.kind)), other)
        } else {
            let one = self.operand(row, left, None);
            let other = self.operand(row, right, Some(one.kind));
            (one, other)
        };
        let sign = comparison_operator(comparison);
        let as_real = |side: &ConditionOperand| match side.kind {
            OperandType::Units(scale) => (words.as_real)(&side.text, scale),
            _ => side.text.clone(),
        };
        let as_text = |side: &ConditionOperand| match side.kind {
            OperandType::Uuid => (words.uuid_text)(&side.text),
            _ => side.text.clone(),
        };
        match (one.kind, other.kind) {
            (OperandType::Units(less), OperandType::Units(more)) if less < more => {
                (words.compare_scaled)(comparison, &one.text, &other.text, more - less)
            }
            (OperandType::Units(more), OperandType::Units(less)) if less < more => {
                (words.compare_scaled)(comparison.mirrored(), &other.text, &one.text, more - less)
            }
            (OperandType::Units(_), OperandType::Real)
            | (OperandType::Real, OperandType::Units(_)) => {
                format!("({} {sign} {})", as_real(&one), as_real(&other))
            }
            (OperandType::Uuid, OperandType::Text) | (OperandType::Text, OperandType::Uuid) => {
                format!("({} {sign} {})", as_text(&one), as_text(&other))
            }
            (_, _) => {
                let plain = format!("({} {sign} {})", one.text, other.text);
                if comparison != Comparison::Equal {
                    return plain;
                }
                let column = indexed_text_column(row.resource, left)
                    .or_else(|| indexed_text_column(row.resource, right));
                let Some(column) = column else { return plain };
                let start = |text: &str| (self.dialect.sort_prefix)(text, column.is_sorted_whole());
                match (start(&one.text), start(&other.text)) {
                    // The index holds only a prefix of the text.
                    (left, right) if left != one.text => {
                        format!("({left} {sign} {right} AND {plain})")
                    }
                    _ => plain,
                }
            }
        }
    }
}

/// The column of a path, and the field at its end.
fn find_field<'a>(resource: &'a Resource, path: &Path) -> Option<(&'a Field, &'a Field)> {
    let PathRoot::Field(index) = path.root else { return None };
    let column = resource.fields.get(index)?;
    Some((column, column.inner(&path.inner)?))
}

/// The text column that a node refers to, if it has an index.
fn indexed_text_column<'a>(resource: &'a Resource, node: &ExprNode) -> Option<&'a Field> {
    let ExprNode::Field(path) = node else { return None };
    let (column, _) = find_field(resource, path)?;
    let is_text = column.storage_class() == StorageClass::Text && column.rules.reference.is_none();
    (path.inner.is_empty() && column.filter && is_text).then_some(column)
}

/// The conditions of the rows themselves, and of their ancestors.
pub fn row_conditions(
    model: &Model,
    dialect: &'static Dialect,
    resource: &Resource,
    scope: &AccessScope,
    first: usize,
) -> (Vec<String>, Vec<ConditionParameter>) {
    let mut terms = ConditionWriter::new(dialect, first);
    let mut texts = Vec::new();
    for (depth, level) in model.lineage(resource.index).into_iter().rev().enumerate() {
        let conditions = match depth {
            0 => &scope.access(level.index).row_filters,
            _ => &scope.read_access(level.index).row_filters,
        };
        let row = TableAlias { resource: level, alias: &format!("t{depth}") };
        texts.extend(terms.any_of(row, conditions));
    }
    (texts, terms.parameters)
}

#[cfg(test)]
pub mod tests;
