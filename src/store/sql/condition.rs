//! Translation of the model's conditions into SQL.
//!
//! The text is true for exactly the rows for which the condition holds, and NULL where the condition is
//! absent, so that `not` means the same as in our own evaluator. Values are bound: each placeholder has its
//! `ConditionParameter`. The semantics are defined in `model::expr`; this module reproduces them.
//! The one surprising thing: exact numbers of different scales are compared within 64-bit integers where the
//! engine has nothing larger.

use super::words::Kind;
use super::{Dialect, quoted};
use crate::model::expr::{Comparison, Node, Path, Root};
use crate::model::{Class, Expr, Field, Resource};
use crate::store::driver::Bind;
use crate::value::{Decimal, Id, IdKind, Value};

/// The value of a placeholder.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::store) enum Term {
    Value(Value),
    Id(Id),
    /// The name of the calling user, or NULL.
    User,
}

impl Term {
    pub(in crate::store) fn bind<'a>(&'a self, user: Option<&'a str>) -> Bind<'a> {
        match self {
            Self::Value(value) => Bind::value(value),
            Self::Id(id) => Bind::Id(*id),
            Self::User => Bind::optional_text(user),
        }
    }
}

/// An operand of a condition.
struct Operand {
    text: String,
    kind: Kind,
}

/// Writes the conditions of one statement and collects their parameters.
#[derive(Debug)]
pub(super) struct Terms {
    dialect: &'static Dialect,
    next: usize,
    pub(super) list: Vec<Term>,
}

/// The alias of a resource's table in the statement.
#[derive(Debug, Clone, Copy)]
pub(super) struct Row<'a> {
    pub(super) resource: &'a Resource,
    pub(super) table: &'a str,
}

impl Terms {
    /// Placeholders are numbered from `first`.
    pub(super) fn new(dialect: &'static Dialect, first: usize) -> Self {
        Self { dialect, next: first, list: Vec::new() }
    }

    /// The disjunction of some conditions; `None` if there are none.
    pub(super) fn any_of(&mut self, row: Row<'_>, conditions: &[Expr]) -> Option<String> {
        let texts = conditions.iter().map(|one| self.operand(row, &one.root, None).text);
        let texts: Vec<String> = texts.collect();
        (!texts.is_empty()).then(|| format!("({})", texts.join(" OR ")))
    }

    fn bind(&mut self, term: Term, kind: Kind) -> Operand {
        let cast = (self.dialect.words.cast)(kind);
        let text = format!("{}{}{cast}", self.dialect.placeholder, self.next);
        self.next += 1;
        self.list.push(term);
        Operand { text, kind }
    }

    /// `beside` is the type of the other operand.
    fn operand(&mut self, row: Row<'_>, node: &Node, beside: Option<Kind>) -> Operand {
        let truth = |text| Operand { text, kind: Kind::Boolean };
        match node {
            Node::Literal(value) => self.literal(value, beside),
            Node::User => self.bind(Term::User, Kind::Text),
            Node::Field(path) => self.field(row, path),
            Node::Not(inner) => truth(format!("(NOT {})", self.operand(row, inner, None).text)),
            Node::And(left, right) => truth(self.joined(row, (left, right), "AND")),
            Node::Or(left, right) => truth(self.joined(row, (left, right), "OR")),
            Node::Compare(comparison, left, right) => {
                truth(self.compare(row, *comparison, (left, right)))
            }
            Node::In(inner, among) => {
                let inner = self.operand(row, inner, None);
                let among = among.iter().map(|one| self.literal(one, Some(inner.kind)).text);
                let among = among.collect::<Vec<_>>().join(", ");
                truth(format!("({} IN ({among}))", inner.text))
            }
            // A condition has no arithmetic: the model refuses it.
            Node::Negate(_) | Node::Arithmetic(..) | Node::Sum(..) | Node::Count(_) => absent(),
        }
    }

    fn joined(&mut self, row: Row<'_>, (left, right): (&Node, &Node), word: &str) -> String {
        let left = self.operand(row, left, None).text;
        let right = self.operand(row, right, None).text;
        format!("({left} {word} {right})")
    }

    fn literal(&mut self, value: &Value, beside: Option<Kind>) -> Operand {
        let kind = match value {
            Value::Text(text) => {
                let id = IdKind::Uuid.parse(text).filter(|_| beside == Some(Kind::Uuid));
                if let Some(id) = id {
                    return self.bind(Term::Id(id), Kind::Uuid);
                }
                Kind::Text
            }
            Value::Boolean(_) => Kind::Boolean,
            Value::Integer(_) => Kind::Units(0),
            Value::Decimal(Decimal { scale, .. }) => Kind::Units(*scale),
            Value::Number(_) => Kind::Real,
            Value::Moment(_) => Kind::Moment,
            Value::Null | Value::Json(_) | Value::List(_) | Value::Object(_) | Value::Clear(_) => {
                return absent();
            }
        };
        self.bind(Term::Value(value.clone()), kind)
    }

    fn field(&self, row: Row<'_>, path: &Path) -> Operand {
        let Some((column, field)) = find(row.resource, path) else { return absent() };
        let Some(kind) = self.kind(field) else { return absent() };
        let name = format!("{}.{}", row.table, quoted(&column.name));
        let text = match path.inner.is_empty() {
            true => name,
            false => {
                (self.dialect.words.member)(&name, &path.inner, (field.class(), field.rules.scale))
            }
        };
        Operand { text, kind }
    }

    fn kind(&self, field: &Field) -> Option<Kind> {
        let is_uuid = |field: &Field| field.rules.to.is_some_and(|to| to.id == IdKind::Uuid);
        match field.class() {
            Class::Text if self.dialect.words.has_uuid && is_uuid(field) => Some(Kind::Uuid),
            Class::Text => Some(Kind::Text),
            Class::Integer => Some(Kind::Units(0)),
            Class::Decimal => Some(Kind::Units(field.rules.scale)),
            Class::Real => Some(Kind::Real),
            Class::Boolean => Some(Kind::Boolean),
            Class::Moment => Some(Kind::Moment),
            Class::Json => None,
        }
    }

    fn compare(
        &mut self,
        row: Row<'_>,
        comparison: Comparison,
        (left, right): (&Node, &Node),
    ) -> String {
        let words = self.dialect.words;
        // The type of a literal depends on the other operand, so that one comes first.
        let (one, other) = if let Node::Literal(_) = left {
            let other = self.operand(row, right, None);
            (self.operand(row, left, Some(other.kind)), other)
        } else {
            let one = self.operand(row, left, None);
            let other = self.operand(row, right, Some(one.kind));
            (one, other)
        };
        let sign = sign(comparison);
        match (one.kind, other.kind) {
            (Kind::Units(less), Kind::Units(more)) if less < more => {
                (words.scaled)(comparison, &one.text, &other.text, more - less)
            }
            (Kind::Units(more), Kind::Units(less)) if less < more => {
                (words.scaled)(comparison.mirrored(), &other.text, &one.text, more - less)
            }
            (Kind::Units(scale), Kind::Real) => {
                format!("({} {sign} {})", (words.real)(&one.text, scale), other.text)
            }
            (Kind::Real, Kind::Units(scale)) => {
                format!("({} {sign} {})", one.text, (words.real)(&other.text, scale))
            }
            (Kind::Uuid, Kind::Text) => {
                format!("({} {sign} {})", (words.uuid_text)(&one.text), other.text)
            }
            (Kind::Text, Kind::Uuid) => {
                format!("({} {sign} {})", one.text, (words.uuid_text)(&other.text))
            }
            (_, _) => {
                let plain = format!("({} {sign} {})", one.text, other.text);
                if comparison != Comparison::Equal {
                    return plain;
                }
                let column = indexed(row.resource, left).or_else(|| indexed(row.resource, right));
                let Some(column) = column else { return plain };
                let start = |text: &str| (self.dialect.ordered_text)(text, column.is_short());
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

fn absent() -> Operand {
    Operand { text: "NULL".to_owned(), kind: Kind::Boolean }
}

/// The column of a path, and the field at its end.
fn find<'a>(resource: &'a Resource, path: &Path) -> Option<(&'a Field, &'a Field)> {
    let Root::Field(index) = path.root else { return None };
    let column = resource.fields.get(index)?;
    let end = path.inner.iter().try_fold(column, |field, name| {
        field.rules.fields.iter().find(|inner| inner.name == *name)
    })?;
    Some((column, end))
}

/// The text column that a node refers to, if it has an index.
fn indexed<'a>(resource: &'a Resource, node: &Node) -> Option<&'a Field> {
    let Node::Field(path) = node else { return None };
    let (column, _) = find(resource, path)?;
    let is_text = column.class() == Class::Text && column.rules.to.is_none();
    (path.inner.is_empty() && column.filter && is_text).then_some(column)
}

pub(super) fn sign(comparison: Comparison) -> &'static str {
    match comparison {
        Comparison::NotEqual => "<>",
        Comparison::Equal
        | Comparison::Less
        | Comparison::LessOrEqual
        | Comparison::Greater
        | Comparison::GreaterOrEqual => comparison.as_str(),
    }
}

#[cfg(test)]
mod tests;
