//! Evaluation of an expression for one item. Pure and exact; it fails if the result does not fit its field, and on a division by zero.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::sync::Arc;

use super::fraction::{ComputedFault, Fraction};
use super::tree::{
    Arithmetic, Expr, ExprNode, ExprResult, MemberTest, Path, PathRoot, RelatedPath, RowVersion,
    TextFunction,
};
use crate::model::field::ResourceIndex;
use crate::value::{Id, Moment, Value};

/// The maximum length of a text that is put together.
const TEXT_BYTES_MAX: usize = 1 << 20;

/// Evaluates a `computed` field. `values` are in the resource's field order, with lists and objects
/// parsed; a missing result is `Value::Null`.
pub fn evaluate(expression: &Expr, values: &[Value]) -> Result<Value, ComputedFault> {
    let frame = EvaluationFrame { values, element: None, condition: None };
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
    let frame = EvaluationFrame { values, element: None, condition: None };
    matches!(frame.evaluate_node(&expression.root), Ok(ExprValue::Boolean(false)) | Err(_))
}

/// The row that a `where` is about. Lists and objects are parsed.
#[derive(Debug, Clone, Copy)]
pub struct ExprRow<'v> {
    pub resource: ResourceIndex,
    pub id: Id,
    pub parent: Option<Id>,
    pub values: &'v [Value],
    pub version: RowVersion,
}

/// The values of `$user` in a `where`.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct UserValues<'v> {
    /// `None` for an anonymous caller.
    pub name: Option<&'v str>,
    /// The values of the declared fields; empty if nothing is known of the user.
    pub fields: &'v [Value],
}

impl<'v> UserValues<'v> {
    pub fn field(self, at: usize) -> &'v Value {
        self.fields.get(at).unwrap_or(&Value::Null)
    }
}

/// Values of other items than the row. An unknown one is recorded; the caller looks it up and evaluates again.
pub trait RelationFacts {
    /// A value of an item, with lists and objects parsed. Null: there is no such item, or it has no value there.
    /// `None`: not known.
    fn value(&self, resource: ResourceIndex, id: Id, root: PathRoot) -> Option<Value>;

    /// Whether one of the candidates satisfies a test, with these values of the row; `None`: not known.
    fn exists(&self, test: &Arc<MemberTest>, this: Vec<Value>, of: Candidates) -> Option<bool>;
}

/// The items that count for a test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Candidates {
    All,
    /// All but the row itself.
    AllBut(Id),
    /// This one alone.
    Only(Id),
}

/// Whether the item that a `ref` of a row refers to satisfies the condition of the `ref`. Meaningless if something
/// about other items was not known.
pub fn reference_holds(
    test: &Arc<MemberTest>,
    row: ExprRow<'_>,
    target: Id,
    related: &dyn RelationFacts,
) -> bool {
    let condition = ConditionFrame { row, user: UserValues::default(), related, this: &[] };
    if (test.resource, target) == (row.resource, row.id) {
        return condition.row_satisfies(test);
    }
    let this = condition.this_values(test);
    this.and_then(|this| related.exists(test, this, Candidates::Only(target))) == Some(true)
}

/// Whether a `where` holds for a row and a user; a null result counts as false. Meaningless if something about other
/// items was not known.
pub fn holds(
    expression: &Expr,
    row: ExprRow<'_>,
    user: UserValues<'_>,
    related: &dyn RelationFacts,
) -> bool {
    holds_part(&expression.root, row, user, related)
}

/// Whether a part of a `where` holds.
pub fn holds_part(
    part: &ExprNode,
    row: ExprRow<'_>,
    user: UserValues<'_>,
    related: &dyn RelationFacts,
) -> bool {
    let condition = ConditionFrame { row, user, related, this: &[] };
    let frame = EvaluationFrame { values: row.values, element: None, condition: Some(&condition) };
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
    /// Of a `where`.
    condition: Option<&'v ConditionFrame<'v>>,
}

#[derive(Clone, Copy)]
struct ConditionFrame<'v> {
    row: ExprRow<'v>,
    user: UserValues<'v>,
    related: &'v dyn RelationFacts,
    /// Inside an `exists` that is evaluated for the row itself: the values of the row that it reads.
    this: &'v [ExprNode],
}

impl ConditionFrame<'_> {
    /// A value of an item; `None`: not known.
    fn value_of(&self, resource: ResourceIndex, id: Id, root: PathRoot) -> Option<Value> {
        // The row may refer to itself, and is not stored as it is here.
        match (resource, id) == (self.row.resource, self.row.id) {
            true => Some(self.own_value(root)),
            false => self.related.value(resource, id, root),
        }
    }

    fn own_value(&self, root: PathRoot) -> Value {
        match root {
            PathRoot::Field(at) => self.row.values.get(at).cloned().unwrap_or(Value::Null),
            PathRoot::Id => self.row.id.into(),
            PathRoot::Parent => self.row.parent.map_or(Value::Null, Value::from),
            PathRoot::Element => Value::Null,
        }
    }

    /// The value at the end of a path; `None`: not known.
    fn follow(&self, to: &RelatedPath) -> Option<Value> {
        let mut at = (self.row.resource, self.row.id);
        for step in &to.steps {
            let key = self.value_of(at.0, at.1, step.by)?;
            let Some(id) = step.id.read_value(&key) else { return Some(Value::Null) };
            at = (step.to, id);
        }
        let value = self.value_of(at.0, at.1, to.path.root)?;
        Some(find_inner(&value, &to.path.inner).cloned().unwrap_or(Value::Null))
    }

    /// The value of a name; `None`: not known.
    fn read(&self, node: &ExprNode) -> Option<Value> {
        match node {
            ExprNode::Field(path) => {
                let value = self.own_value(path.root);
                Some(find_inner(&value, &path.inner).cloned().unwrap_or(Value::Null))
            }
            ExprNode::Related(to) => self.follow(to),
            ExprNode::This(at) => self.read(self.this.get(*at)?),
            _ => Some(Value::Null),
        }
    }

    /// Whether there is such an item; `None`: not known.
    fn exists(&self, test: &Arc<MemberTest>) -> Option<bool> {
        let row = self.row;
        let version =
            if test.resource == row.resource { row.version } else { RowVersion::Requested };
        if version != RowVersion::Requested && self.row_satisfies(test) {
            return Some(true);
        }
        let candidates = match version {
            RowVersion::Stored => Candidates::AllBut(row.id),
            RowVersion::Requested => Candidates::All,
        };
        self.related.exists(test, self.this_values(test)?, candidates)
    }

    /// Whether the row itself satisfies a test.
    fn row_satisfies(&self, test: &MemberTest) -> bool {
        let inside = ConditionFrame { this: &test.this, ..*self };
        let values = self.row.values;
        let frame = EvaluationFrame { values, element: None, condition: Some(&inside) };
        matches!(frame.evaluate_node(&test.condition), Ok(ExprValue::Boolean(true)))
    }

    /// The values of the row that a test reads; `None`: not known.
    fn this_values(&self, test: &MemberTest) -> Option<Vec<Value>> {
        test.this.iter().map(|node| self.read(node)).collect()
    }
}

impl<'v> EvaluationFrame<'v> {
    fn evaluate_node(self, node: &'v ExprNode) -> Result<ExprValue<'v>, ComputedFault> {
        Ok(match node {
            ExprNode::Literal(value) => ExprValue::from_value(value),
            ExprNode::Field(Path { root: PathRoot::Id | PathRoot::Parent, .. })
            | ExprNode::User
            | ExprNode::UserField(_)
            | ExprNode::Related(_)
            | ExprNode::This(_)
            | ExprNode::Exists(_)
            | ExprNode::Contains(..) => self.evaluate_where(node)?,
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

    /// The nodes that only a `where` has. Apart, so that the frames of deep expressions are small.
    fn evaluate_where(self, node: &'v ExprNode) -> Result<ExprValue<'v>, ComputedFault> {
        Ok(match node {
            ExprNode::User => {
                let name = self.condition.and_then(|condition| condition.user.name);
                name.map_or(ExprValue::Null, |name| ExprValue::Text(name.into()))
            }
            ExprNode::UserField(at) => self.condition.map_or(ExprValue::Null, |condition| {
                ExprValue::from_value(condition.user.field(*at))
            }),
            ExprNode::Exists(test) => self
                .condition
                .and_then(|condition| condition.exists(test))
                .map_or(ExprValue::Null, ExprValue::Boolean),
            ExprNode::Contains(list, value) => self.contains(list, &self.evaluate_node(value)?),
            _ => self.read_owned(node),
        })
    }

    /// Whether a list has a value. Absent where the list or the value is.
    fn contains(self, list: &ExprNode, value: &ExprValue<'_>) -> ExprValue<'v> {
        match self.condition.and_then(|condition| condition.read(list)) {
            Some(Value::List(elements)) if *value != ExprValue::Null => {
                let is_equal = |element: &Value| {
                    value.order(&ExprValue::from_value(element)) == Some(Ordering::Equal)
                };
                ExprValue::Boolean(elements.iter().any(is_equal))
            }
            _ => ExprValue::Null,
        }
    }

    /// The value of a name, as a copy. Null where it is not known.
    fn read_owned(self, node: &ExprNode) -> ExprValue<'v> {
        let value = self.condition.and_then(|condition| condition.read(node));
        ExprValue::from_value(&value.unwrap_or(Value::Null)).into_owned()
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
        let left = self.evaluate_node(left)?;
        // The other side of a `where` need not be known.
        if self.condition.is_some() && left == ExprValue::Boolean(decides) {
            return Ok(left);
        }
        let sides = [left, self.evaluate_node(right)?];
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
            PathRoot::Id | PathRoot::Parent => None,
        };
        find_inner(root?, &path.inner)
    }

    fn elements(self, list: &Path) -> &'v [Value] {
        match self.find_value(list) {
            Some(Value::List(elements)) => elements,
            _ => &[],
        }
    }
}

/// The value at the end of a path of names inside an object.
fn find_inner<'v>(value: &'v Value, names: &[Box<str>]) -> Option<&'v Value> {
    names.iter().try_fold(value, |value, name| match value {
        Value::Object(members) => {
            members.iter().find(|(member, _)| member == name).map(|(_, value)| value)
        }
        _ => None,
    })
}

impl<'v> ExprValue<'v> {
    /// The same value, for any lifetime.
    fn into_owned(self) -> ExprValue<'static> {
        match self {
            ExprValue::Exact(value) => ExprValue::Exact(value),
            ExprValue::Real(value) => ExprValue::Real(value),
            ExprValue::Boolean(value) => ExprValue::Boolean(value),
            ExprValue::Moment(value) => ExprValue::Moment(value),
            ExprValue::Text(text) => ExprValue::Text(text.into_owned().into()),
            ExprValue::Null => ExprValue::Null,
        }
    }

    fn from_value(value: &'v Value) -> Self {
        match value {
            Value::Boolean(value) => Self::Boolean(*value),
            Value::Integer(value) => Self::Exact(Fraction::integer(i128::from(*value))),
            Value::Decimal(value) => Self::Exact(Fraction::decimal(*value)),
            Value::Number(value) => Self::Real(*value),
            Value::Text(value) => Self::Text((&**value).into()),
            Value::Moment(value) => Self::Moment(*value),
            Value::Null
            | Value::Json(_)
            | Value::List(_)
            | Value::Object(_)
            | Value::ClearText(_) => Self::Null,
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
