//! Evaluation of an expression for one item. Pure and exact; fails only on overflow.

use std::cmp::Ordering;
use std::fmt;

use super::exact::{Exact, Misfit};
use super::{Arithmetic, Comparison, Expr, Node, Outcome, Path, Root};
use crate::value::{Moment, Value};

/// A computed value that does not fit its field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overflow {
    pub detail: &'static str,
}

impl fmt::Display for Overflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.detail)
    }
}

const TOO_LARGE: Overflow = Overflow { detail: "the computed value is out of range" };
const BY_ZERO: Overflow = Overflow { detail: "the computed value is a division by zero" };
const NOT_EXACT: Overflow = Overflow { detail: "the computed value is not exact in this field" };

impl Expr {
    /// Evaluates a `computed` field. `values` are in the resource's field order, with lists and objects
    /// parsed; a missing result is `Value::Null`.
    pub fn evaluate(&self, values: &[Value]) -> Result<Value, Overflow> {
        let frame = Frame { values, element: None, user: None };
        Ok(match (frame.step(&self.root)?, self.result) {
            (Step::Boolean(value), _) => Value::Boolean(value),
            (Step::Exact(value), Outcome::Integer) => {
                Value::Integer(value.to_integer().map_err(overflow)?)
            }
            (Step::Exact(value), Outcome::Decimal(scale)) => {
                Value::Decimal(value.to_decimal(scale).map_err(overflow)?)
            }
            (Step::Exact(value), _) => Value::Number(value.real()),
            (Step::Real(value), _) => Value::Number(value),
            // The type checker allows no other result.
            (Step::Absent | Step::Text(_) | Step::Moment(_), _) => Value::Null,
        })
    }

    /// Whether a `where` holds for an item and a user; a null result counts as false. Lists and objects are
    /// parsed; the name of an anonymous user is null.
    pub fn holds(&self, values: &[Value], user: Option<&str>) -> bool {
        let frame = Frame { values, element: None, user };
        matches!(frame.step(&self.root), Ok(Step::Boolean(true)))
    }
}

fn overflow(misfit: Misfit) -> Overflow {
    match misfit {
        Misfit::Size => TOO_LARGE,
        Misfit::Fraction => NOT_EXACT,
    }
}

/// An intermediate value.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Step<'v> {
    Absent,
    Exact(Exact),
    Real(f64),
    Boolean(bool),
    Text(&'v str),
    Moment(Moment),
}

#[derive(Clone, Copy)]
struct Frame<'v> {
    values: &'v [Value],
    element: Option<&'v Value>,
    user: Option<&'v str>,
}

impl<'v> Frame<'v> {
    fn step(self, node: &'v Node) -> Result<Step<'v>, Overflow> {
        Ok(match node {
            Node::Literal(value) => Step::from_value(value),
            Node::User => self.user.map_or(Step::Absent, Step::Text),
            Node::Field(path) => self.find(path).map_or(Step::Absent, Step::from_value),
            Node::Negate(inner) => match self.step(inner)? {
                Step::Exact(value) => Step::Exact(value.negate().ok_or(TOO_LARGE)?),
                Step::Real(value) => Step::Real(-value),
                other => other,
            },
            Node::Not(inner) => match self.step(inner)? {
                Step::Boolean(value) => Step::Boolean(!value),
                other => other,
            },
            Node::Arithmetic(operation, left, right) => {
                arithmetic(*operation, self.step(left)?, self.step(right)?)?
            }
            Node::Compare(comparison, left, right) => {
                let order = self.step(left)?.order(self.step(right)?);
                order.map_or(Step::Absent, |order| Step::Boolean(comparison.holds(order)))
            }
            Node::And(left, right) => self.joined(left, right, false)?,
            Node::Or(left, right) => self.joined(left, right, true)?,
            Node::In(inner, among) => match self.step(inner)? {
                Step::Absent => Step::Absent,
                value => Step::Boolean(
                    among
                        .iter()
                        .any(|one| value.order(Step::from_value(one)) == Some(Ordering::Equal)),
                ),
            },
            Node::Sum(list, expression) => {
                let mut sum = Step::Exact(Exact::integer(0));
                for element in self.elements(list) {
                    let value = Frame { element: Some(element), ..self }.step(expression)?;
                    if value != Step::Absent {
                        sum = arithmetic(Arithmetic::Add, sum, value)?;
                    }
                }
                sum
            }
            Node::Count(list) => {
                // A list in memory has fewer elements than 2^64.
                Step::Exact(Exact::integer(
                    i128::try_from(self.elements(list).len()).unwrap_or(i128::MAX),
                ))
            }
        })
    }

    /// `and` and `or` in three-valued logic: one side may decide alone (`decides`), otherwise a null side
    /// makes the result null.
    fn joined(self, left: &'v Node, right: &'v Node, decides: bool) -> Result<Step<'v>, Overflow> {
        let sides = [self.step(left)?, self.step(right)?];
        Ok(if sides.contains(&Step::Boolean(decides)) {
            Step::Boolean(decides)
        } else if sides.contains(&Step::Absent) {
            Step::Absent
        } else {
            Step::Boolean(!decides)
        })
    }

    fn find(self, path: &Path) -> Option<&'v Value> {
        let root = match path.root {
            Root::Field(index) => self.values.get(index),
            Root::Element => self.element,
        };
        path.inner.iter().try_fold(root?, |value, name| match value {
            Value::Object(members) => {
                members.iter().find(|(member, _)| member == name).map(|(_, value)| value)
            }
            _ => None,
        })
    }

    fn elements(self, list: &Path) -> &'v [Value] {
        match self.find(list) {
            Some(Value::List(elements)) => elements,
            _ => &[],
        }
    }
}

impl<'v> Step<'v> {
    fn from_value(value: &'v Value) -> Self {
        match value {
            Value::Boolean(value) => Self::Boolean(*value),
            Value::Integer(value) => Self::Exact(Exact::integer(i128::from(*value))),
            Value::Decimal(value) => Self::Exact(Exact::decimal(*value)),
            Value::Number(value) => Self::Real(*value),
            Value::Text(value) => Self::Text(value),
            Value::Moment(value) => Self::Moment(*value),
            Value::Null | Value::Json(_) | Value::List(_) | Value::Object(_) | Value::Clear(_) => {
                Self::Absent
            }
        }
    }

    /// `None` when a side is null.
    fn order(self, other: Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Exact(left), Self::Exact(right)) => Some(left.order(right)),
            (Self::Boolean(left), Self::Boolean(right)) => Some(left.cmp(&right)),
            (Self::Text(left), Self::Text(right)) => Some(left.cmp(right)),
            (Self::Moment(left), Self::Moment(right)) => Some(left.cmp(&right)),
            (left, right) => left.real()?.partial_cmp(&right.real()?),
        }
    }

    fn real(self) -> Option<f64> {
        match self {
            Self::Exact(value) => Some(value.real()),
            Self::Real(value) => Some(value),
            Self::Absent | Self::Boolean(_) | Self::Text(_) | Self::Moment(_) => None,
        }
    }
}

impl Comparison {
    fn holds(self, order: Ordering) -> bool {
        match self {
            Self::Equal => order.is_eq(),
            Self::NotEqual => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::LessOrEqual => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::GreaterOrEqual => order.is_ge(),
        }
    }
}

fn arithmetic<'v>(
    operation: Arithmetic,
    left: Step<'v>,
    right: Step<'v>,
) -> Result<Step<'v>, Overflow> {
    if let (Step::Exact(left), Step::Exact(right)) = (left, right) {
        let value = match operation {
            Arithmetic::Add => left.add(right),
            Arithmetic::Subtract => left.subtract(right),
            Arithmetic::Multiply => left.multiply(right),
            Arithmetic::Divide if right.is_zero() => return Err(BY_ZERO),
            Arithmetic::Divide => left.divide(right),
        };
        return value.map(Step::Exact).ok_or(TOO_LARGE);
    }
    let (Some(left), Some(right)) = (left.real(), right.real()) else { return Ok(Step::Absent) };
    let value = match operation {
        Arithmetic::Add => left + right,
        Arithmetic::Subtract => left - right,
        Arithmetic::Multiply => left * right,
        Arithmetic::Divide if right == 0.0 => return Err(BY_ZERO),
        Arithmetic::Divide => left / right,
    };
    // Turns -0.0 into 0.0.
    if value.is_finite() { Ok(Step::Real(value + 0.0)) } else { Err(TOO_LARGE) }
}
