//! Evaluation of an expression for one item. Pure and exact; it fails if the result does not fit its field, and on a division by zero.

use std::borrow::Cow;
use std::cmp::Ordering;

use super::fraction::{ComputedFault, Fraction};
use super::tree::{Arithmetic, Expr, ExprNode, ExprResult, Path, PathRoot, TextFunction};
use crate::value::{Moment, Value};

/// The maximum length of a text that is put together.
const TEXT_BYTES_MAX: usize = 1 << 20;

/// Evaluates a `computed` field. `values` are in the resource's field order, with lists and objects
/// parsed; a missing result is `Value::Null`.
pub fn evaluate(expression: &Expr, values: &[Value]) -> Result<Value, ComputedFault> {
    let frame = EvaluationFrame { values, element: None, user: None };
    Ok(match (frame.evaluate_node(&expression.root)?, expression.result) {
        (ExprValue::Boolean(value), _) => Value::Boolean(value),
        (ExprValue::Exact(value), ExprResult::Integer) => Value::Integer(value.to_integer()?),
        (ExprValue::Exact(value), ExprResult::Decimal(scale)) => {
            Value::Decimal(value.to_decimal(scale)?)
        }
        (ExprValue::Exact(value), _) => Value::Number(value.to_real()),
        (ExprValue::Real(value), _) => Value::Number(value),
        (ExprValue::Null, _) => Value::Null,
        (ExprValue::Text(text), _) => Value::text(&text),
        (ExprValue::Moment(_), _) => {
            unreachable!("the type checker allows no computed timestamp")
        }
    })
}

/// Whether a `check` fails for an item: it is false, or cannot be computed. A null result passes, as in a CHECK of
/// SQL. Lists and objects are parsed.
pub fn fails(expression: &Expr, values: &[Value]) -> bool {
    let frame = EvaluationFrame { values, element: None, user: None };
    matches!(frame.evaluate_node(&expression.root), Ok(ExprValue::Boolean(false)) | Err(_))
}

/// Whether a `where` holds for an item and a user; a null result counts as false. Lists and objects are
/// parsed; the name of an anonymous user is null.
pub fn holds(expression: &Expr, values: &[Value], user: Option<&str>) -> bool {
    holds_part(&expression.root, values, user)
}

/// Whether a part of a `where` holds.
pub fn holds_part(part: &ExprNode, values: &[Value], user: Option<&str>) -> bool {
    let frame = EvaluationFrame { values, element: None, user };
    matches!(frame.evaluate_node(part), Ok(ExprValue::Boolean(true)))
}

/// An intermediate value.
#[derive(Debug, Clone, PartialEq)]
enum ExprValue<'v> {
    Null,
    Exact(Fraction),
    Real(f64),
    Boolean(bool),
    Text(Cow<'v, str>),
    Moment(Moment),
}

#[derive(Clone, Copy)]
struct EvaluationFrame<'v> {
    values: &'v [Value],
    element: Option<&'v Value>,
    user: Option<&'v str>,
}

impl<'v> EvaluationFrame<'v> {
    fn evaluate_node(self, node: &'v ExprNode) -> Result<ExprValue<'v>, ComputedFault> {
        Ok(match node {
            ExprNode::Literal(value) => ExprValue::from_value(value),
            ExprNode::User => {
                self.user.map_or(ExprValue::Null, |user| ExprValue::Text(user.into()))
            }
            ExprNode::Field(path) => {
                self.find_value(path).map_or(ExprValue::Null, ExprValue::from_value)
            }
            ExprNode::Negate(inner) => match self.evaluate_node(inner)? {
                ExprValue::Exact(value) => {
                    ExprValue::Exact(value.negate().ok_or(ComputedFault::OutOfRange)?)
                }
                ExprValue::Real(value) => ExprValue::Real(-value),
                other => other,
            },
            ExprNode::Not(inner) => match self.evaluate_node(inner)? {
                ExprValue::Boolean(value) => ExprValue::Boolean(!value),
                other => other,
            },
            ExprNode::Arithmetic(operation, left, right) => {
                arithmetic(*operation, &self.evaluate_node(left)?, &self.evaluate_node(right)?)?
            }
            ExprNode::Compare(comparison, left, right) => {
                let order = self.evaluate_node(left)?.order(&self.evaluate_node(right)?);
                order.map_or(ExprValue::Null, |order| ExprValue::Boolean(comparison.holds(order)))
            }
            ExprNode::And(left, right) => self.evaluate_logical(left, right, false)?,
            ExprNode::Or(left, right) => self.evaluate_logical(left, right, true)?,
            ExprNode::In(inner, among) => {
                match self.evaluate_node(inner)? {
                    ExprValue::Null => ExprValue::Null,
                    value => ExprValue::Boolean(among.iter().any(|one| {
                        value.order(&ExprValue::from_value(one)) == Some(Ordering::Equal)
                    })),
                }
            }
            ExprNode::Sum(list, expression) => {
                let mut sum = ExprValue::Exact(Fraction::integer(0));
                for element in self.elements(list) {
                    let value = EvaluationFrame { element: Some(element), ..self }
                        .evaluate_node(expression)?;
                    if value != ExprValue::Null {
                        sum = arithmetic(Arithmetic::Add, &sum, &value)?;
                    }
                }
                sum
            }
            ExprNode::Call(function, arguments) => self.call(*function, arguments)?,
            ExprNode::Count(list) => {
                // A list in memory has fewer elements than 2^64.
                ExprValue::Exact(Fraction::integer(
                    i128::try_from(self.elements(list).len()).unwrap_or(i128::MAX),
                ))
            }
        })
    }

    /// A function of texts. It is absent where all arguments are; `concat` skips the absent ones.
    fn call(
        self,
        function: TextFunction,
        arguments: &'v [ExprNode],
    ) -> Result<ExprValue<'v>, ComputedFault> {
        let mut texts = Vec::with_capacity(arguments.len());
        for argument in arguments {
            if let ExprValue::Text(text) = self.evaluate_node(argument)? {
                texts.push(text);
            }
        }
        let Some(first) = texts.first() else { return Ok(ExprValue::Null) };
        let text = match function {
            TextFunction::Length => {
                let count = i128::try_from(first.chars().count()).unwrap_or(i128::MAX);
                return Ok(ExprValue::Exact(Fraction::integer(count)));
            }
            TextFunction::Lower => first.to_lowercase(),
            TextFunction::Trim => first.trim().to_owned(),
            // An expression may repeat a long text many times: the length is checked before memory is allocated.
            TextFunction::Concat => {
                match texts.iter().map(|text| text.len()).sum::<usize>() <= TEXT_BYTES_MAX {
                    true => texts.concat(),
                    false => return Err(ComputedFault::OutOfRange),
                }
            }
        };
        Ok(ExprValue::Text(text.into()))
    }

    /// `and` and `or` in three-valued logic: one side may decide alone (`decides`), otherwise a null side
    /// makes the result null.
    fn evaluate_logical(
        self,
        left: &'v ExprNode,
        right: &'v ExprNode,
        decides: bool,
    ) -> Result<ExprValue<'v>, ComputedFault> {
        let sides = [self.evaluate_node(left)?, self.evaluate_node(right)?];
        Ok(if sides.contains(&ExprValue::Boolean(decides)) {
            ExprValue::Boolean(decides)
        } else if sides.contains(&ExprValue::Null) {
            ExprValue::Null
        } else {
            ExprValue::Boolean(!decides)
        })
    }

    fn find_value(self, path: &Path) -> Option<&'v Value> {
        let root = match path.root {
            PathRoot::Field(index) => self.values.get(index),
            PathRoot::Element => self.element,
        };
        path.inner.iter().try_fold(root?, |value, name| match value {
            Value::Object(members) => {
                members.iter().find(|(member, _)| member == name).map(|(_, value)| value)
            }
            _ => None,
        })
    }

    fn elements(self, list: &Path) -> &'v [Value] {
        match self.find_value(list) {
            Some(Value::List(elements)) => elements,
            _ => &[],
        }
    }
}

impl<'v> ExprValue<'v> {
    fn from_value(value: &'v Value) -> Self {
        match value {
            Value::Boolean(value) => Self::Boolean(*value),
            Value::Integer(value) => Self::Exact(Fraction::integer(i128::from(*value))),
            Value::Decimal(value) => Self::Exact(Fraction::decimal(*value)),
            Value::Number(value) => Self::Real(*value),
            Value::Text(value) => Self::Text((&**value).into()),
            Value::Moment(value) => Self::Moment(*value),
            Value::Null | Value::Json(_) | Value::List(_) | Value::Object(_) | Value::Clear(_) => {
                Self::Null
            }
        }
    }

    /// `None` when a side is null.
    fn order(&self, other: &Self) -> Option<Ordering> {
        match (self, other) {
            (Self::Exact(left), Self::Exact(right)) => Some(left.order(*right)),
            (Self::Boolean(left), Self::Boolean(right)) => Some(left.cmp(right)),
            (Self::Text(left), Self::Text(right)) => Some(left.cmp(right)),
            (Self::Moment(left), Self::Moment(right)) => Some(left.cmp(right)),
            (left, right) => left.as_real()?.partial_cmp(&right.as_real()?),
        }
    }

    fn as_real(&self) -> Option<f64> {
        match self {
            Self::Exact(value) => Some(value.to_real()),
            Self::Real(value) => Some(*value),
            Self::Null | Self::Boolean(_) | Self::Text(_) | Self::Moment(_) => None,
        }
    }
}

fn arithmetic<'v>(
    operation: Arithmetic,
    left: &ExprValue<'v>,
    right: &ExprValue<'v>,
) -> Result<ExprValue<'v>, ComputedFault> {
    if let (ExprValue::Exact(left), ExprValue::Exact(right)) = (left, right) {
        let (left, right) = (*left, *right);
        let value = match operation {
            Arithmetic::Add => left.add(right),
            Arithmetic::Subtract => left.subtract(right),
            Arithmetic::Multiply => left.multiply(right),
            Arithmetic::Divide if right.is_zero() => return Err(ComputedFault::DivisionByZero),
            Arithmetic::Divide => left.divide(right),
        };
        return value.map(ExprValue::Exact).ok_or(ComputedFault::OutOfRange);
    }
    let (Some(left), Some(right)) = (left.as_real(), right.as_real()) else {
        return Ok(ExprValue::Null);
    };
    let value = match operation {
        Arithmetic::Add => left + right,
        Arithmetic::Subtract => left - right,
        Arithmetic::Multiply => left * right,
        Arithmetic::Divide if right == 0.0 => return Err(ComputedFault::DivisionByZero),
        Arithmetic::Divide => left / right,
    };
    // Turns -0.0 into 0.0.
    if value.is_finite() {
        Ok(ExprValue::Real(value + 0.0))
    } else {
        Err(ComputedFault::OutOfRange)
    }
}
