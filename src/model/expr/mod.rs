//! The small language of `computed` and `where`.
//!
//! It is parsed and typed once, when the model is read; afterwards it cannot fail but for numbers
//! that do not fit. It does no I/O and knows no SQL; the tree is public so that others can turn a
//! `where` into theirs.
//! The one surprising thing: an absent value is not false. A comparison with it is absent too, and
//! `not` of that stays absent; a `where` holds only when it is true.

mod check;
mod evaluate;
mod exact;
mod kinds;
mod parse;
mod token;

use std::ops::Range;

use super::{Class, Field};
use crate::value::Value;

/// An expression that fits the fields it was written for.
#[derive(Debug, Clone, PartialEq)]
pub struct Expr {
    /// As the author wrote it.
    pub text: Box<str>,
    pub root: Node,
    /// What it comes to.
    pub result: Outcome,
}

impl Expr {
    /// A condition that holds for nothing.
    pub fn never() -> Self {
        let root = Node::Literal(Value::Boolean(false));
        Self { text: "false".into(), root, result: Outcome::Boolean }
    }

    /// Whether it looks at a field of the resource, by its index.
    pub fn mentions(&self, field: usize) -> bool {
        self.root.mentions(field)
    }
}

impl Node {
    fn mentions(&self, field: usize) -> bool {
        match self {
            Self::Literal(_) | Self::User => false,
            Self::Field(path) | Self::Count(path) => path.root == Root::Field(field),
            Self::Negate(one) | Self::Not(one) | Self::In(one, _) => one.mentions(field),
            Self::Arithmetic(_, one, other)
            | Self::Compare(_, one, other)
            | Self::And(one, other)
            | Self::Or(one, other) => one.mentions(field) || other.mentions(field),
            Self::Sum(path, each) => path.root == Root::Field(field) || each.mentions(field),
        }
    }
}

/// What the value of an expression has to fit into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Integer,
    /// With that many decimals.
    Decimal(u8),
    Number,
    Boolean,
}

/// One part of an expression.
#[derive(Debug, Clone, PartialEq)]
pub enum Node {
    /// Next to a field in a comparison it has that field's own type; elsewhere a number is an
    /// `Integer` or a `Decimal`.
    Literal(Value),
    /// The name of the user who asks.
    User,
    Field(Path),
    Negate(Box<Node>),
    Not(Box<Node>),
    Arithmetic(Arithmetic, Box<Node>, Box<Node>),
    Compare(Comparison, Box<Node>, Box<Node>),
    And(Box<Node>, Box<Node>),
    Or(Box<Node>, Box<Node>),
    /// Whether a value is one of some literals.
    In(Box<Node>, Vec<Value>),
    /// The sum of an expression over the elements of a list.
    Sum(Path, Box<Node>),
    /// How many elements a list has.
    Count(Path),
}

/// Where a value is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    pub root: Root,
    /// Names of fields inside objects, from the outside in.
    pub inner: Vec<Box<str>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Root {
    /// A field of the resource, by index.
    Field(usize),
    /// The element that `sum` is looking at.
    Element,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arithmetic {
    Add,
    Subtract,
    Multiply,
    Divide,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Comparison {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Equal => "=",
            Self::NotEqual => "!=",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
        }
    }

    /// The same comparison with its sides swapped.
    pub fn mirrored(self) -> Self {
        match self {
            Self::Equal => Self::Equal,
            Self::NotEqual => Self::NotEqual,
            Self::Less => Self::Greater,
            Self::LessOrEqual => Self::GreaterOrEqual,
            Self::Greater => Self::Less,
            Self::GreaterOrEqual => Self::LessOrEqual,
        }
    }
}

/// The names an expression may use.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scope<'f> {
    pub fields: &'f [Field],
    /// Declared, but with mistakes of their own: not worth a second message.
    pub broken: &'f [&'f str],
    /// Fields that are computed: a `computed` cannot be made from them.
    pub computed: &'f [&'f str],
}

/// Why a text is no expression here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Failure {
    Mistake {
        /// Bytes of the expression's text.
        at: Range<usize>,
        message: String,
        help: Option<String>,
    },
    /// It rests on a field that is itself a mistake.
    Elsewhere,
    Several(Vec<Failure>),
}

impl Failure {
    /// The one or the other, or both.
    fn either<A, B>(one: Result<A, Self>, other: Result<B, Self>) -> Result<(A, B), Self> {
        match (one, other) {
            (Ok(one), Ok(other)) => Ok((one, other)),
            (Err(one), Err(other)) => Err(Self::Several(vec![one, other])),
            (Err(failure), Ok(_)) | (Ok(_), Err(failure)) => Err(failure),
        }
    }

    fn new(at: Range<usize>, message: impl Into<String>) -> Self {
        Self::Mistake { at, message: message.into(), help: None }
    }

    fn with(at: Range<usize>, message: impl Into<String>, help: impl Into<String>) -> Self {
        Self::Mistake { at, message: message.into(), help: Some(help.into()) }
    }
}

/// Reads the `computed` of `target`, a field of type integer, number, decimal or boolean.
pub(super) fn computed(text: &str, target: &Field, scope: Scope<'_>) -> Result<Expr, Failure> {
    let result = match target.class() {
        Class::Integer => Outcome::Integer,
        Class::Decimal => Outcome::Decimal(target.rules.scale),
        Class::Real => Outcome::Number,
        Class::Boolean | Class::Text | Class::Moment | Class::Json => Outcome::Boolean,
    };
    let root = check::computed(&parse::parse(text)?, target, scope)?;
    Ok(Expr { text: text.into(), root, result })
}

/// Reads the `where` of a grant.
pub(super) fn condition(text: &str, scope: Scope<'_>) -> Result<Expr, Failure> {
    let root = check::condition(&parse::parse(text)?, scope)?;
    Ok(Expr { text: text.into(), root, result: Outcome::Boolean })
}

#[cfg(test)]
mod tests;
