//! The syntax tree of a type-checked expression, and the errors of one that is not.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use crate::model::settings::ResourceIndex;
use crate::value::{IdKind, Value};

/// A type-checked expression.
#[derive(Debug, Clone, PartialEq)]
pub struct Expr {
    /// Its source text.
    pub text: Box<str>,
    pub root: ExprNode,
    /// The type of its value.
    pub result: ExprResult,
}

impl Expr {
    /// A condition that is never true.
    pub fn always_false() -> Self {
        let root = ExprNode::Literal(Value::Boolean(false));
        Self { text: "false".into(), root, result: ExprResult::Boolean }
    }

    /// Whether its value depends on who the caller is (`$user`).
    pub fn uses_user(&self) -> bool {
        self.root.uses_user()
    }

    /// Whether its value depends on other items than its own row.
    pub fn reads_related(&self) -> bool {
        self.root.reads_related()
    }

    /// Whether it reads a field of the resource, by index.
    pub fn reads_field(&self, field: usize) -> bool {
        let mut is_read = false;
        self.root.for_each_path(&mut |path| is_read |= path.root == PathRoot::Field(field));
        is_read
    }

    /// The fields of the resource that it reads, each once: in the order of the expression, with the names inside
    /// objects.
    pub fn field_paths(&self) -> Vec<(usize, Vec<Box<str>>)> {
        let mut paths = Vec::new();
        self.root.for_each_path(&mut |path| {
            if let PathRoot::Field(field) = path.root {
                let path = (field, path.inner.clone());
                if !paths.contains(&path) {
                    paths.push(path);
                }
            }
        });
        paths
    }
}

impl ExprNode {
    /// The parts that `and` joins: the whole is true if all of them are.
    pub fn conjuncts(&self) -> Vec<&Self> {
        match self {
            Self::And(one, other) => [one.conjuncts(), other.conjuncts()].concat(),
            other => vec![other],
        }
    }

    /// Whether its value depends on other items than its own row.
    pub fn reads_related(&self) -> bool {
        self.any(&|node| matches!(node, Self::Related(_) | Self::Exists(_)))
    }

    /// Whether its value depends on items of a resource, other than its own row: on a path, or by `exists`.
    pub fn reads_items_of(&self, resource: ResourceIndex) -> bool {
        self.any(&|node| match node {
            Self::Related(to) => to.steps.iter().any(|step| step.to == resource),
            Self::Exists(test) => {
                test.resource == resource
                    || test.condition.reads_items_of(resource)
                    || test.this.iter().any(|value| value.reads_items_of(resource))
            }
            _ => false,
        })
    }

    /// The tests of all its `exists`.
    pub fn member_tests(&self) -> Vec<&MemberTest> {
        let mut tests = Vec::new();
        self.for_each_condition(&mut |node| {
            if let Self::Exists(test) = node {
                tests.push(&**test);
            }
        });
        tests
    }

    /// Visits the conditions that `and`, `or` and `not` combine.
    pub fn for_each_condition<'e>(&'e self, visit: &mut dyn FnMut(&'e Self)) {
        match self {
            Self::Not(one) => one.for_each_condition(visit),
            Self::And(one, other) | Self::Or(one, other) => {
                one.for_each_condition(visit);
                other.for_each_condition(visit);
            }
            condition => visit(condition),
        }
    }

    pub fn uses_user(&self) -> bool {
        self.any(&|node| match node {
            Self::User | Self::UserField(_) => true,
            Self::Exists(test) => test.condition.uses_user(),
            _ => false,
        })
    }

    /// Whether it reads a declared field of the user, by its index among them.
    pub fn uses_user_field(&self, at: usize) -> bool {
        self.any(&|node| match node {
            Self::UserField(field) => *field == at,
            Self::Exists(test) => test.condition.uses_user_field(at),
            _ => false,
        })
    }

    /// Whether something holds for one of its nodes. Does not go into the condition of `exists`.
    pub fn any(&self, holds: &dyn Fn(&Self) -> bool) -> bool {
        holds(self)
            || match self {
                Self::User
                | Self::UserField(_)
                | Self::This(_)
                | Self::Related(_)
                | Self::Exists(_)
                | Self::Literal(_)
                | Self::Field(_)
                | Self::Count(_) => false,
                Self::Negate(one) | Self::Not(one) | Self::In(one, _) | Self::Sum(_, one) => {
                    one.any(holds)
                }
                Self::Arithmetic(_, one, other)
                | Self::Compare(_, one, other)
                | Self::Contains(one, other)
                | Self::And(one, other)
                | Self::Or(one, other) => one.any(holds) || other.any(holds),
                Self::Call(_, arguments) => arguments.iter().any(|argument| argument.any(holds)),
            }
    }

    /// Visits the paths of all fields of the row that it reads; of a path to another item, the relation of the row.
    pub fn for_each_path(&self, visit: &mut dyn FnMut(&Path)) {
        match self {
            Self::Literal(_) | Self::User | Self::UserField(_) | Self::This(_) => {}
            Self::Related(to) => {
                if let Some(first) = to.steps.first() {
                    visit(&Path { root: first.by, inner: Vec::new() });
                }
            }
            Self::Exists(test) => test.this.iter().for_each(|this| this.for_each_path(visit)),
            Self::Field(path) | Self::Count(path) => visit(path),
            Self::Negate(one) | Self::Not(one) | Self::In(one, _) => one.for_each_path(visit),
            Self::Arithmetic(_, one, other)
            | Self::Compare(_, one, other)
            | Self::Contains(one, other)
            | Self::And(one, other)
            | Self::Or(one, other) => {
                one.for_each_path(visit);
                other.for_each_path(visit);
            }
            Self::Sum(path, each) => {
                visit(path);
                each.for_each_path(visit);
            }
            Self::Call(_, arguments) => {
                arguments.iter().for_each(|argument| argument.for_each_path(visit));
            }
        }
    }
}

/// The type that the value of an expression is converted to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExprResult {
    Integer,
    /// With this many decimal places.
    Decimal(u8),
    Number,
    Boolean,
    Text,
}

/// A node of the syntax tree.
#[derive(Debug, Clone, PartialEq)]
pub enum ExprNode {
    /// In a comparison with a field it has that field's type; elsewhere a number is an `Integer` or a
    /// `Decimal`.
    Literal(Value),
    /// `$user`: the name of the caller.
    User,
    Field(Path),
    Negate(Box<ExprNode>),
    Not(Box<ExprNode>),
    Arithmetic(Arithmetic, Box<ExprNode>, Box<ExprNode>),
    Compare(Comparison, Box<ExprNode>, Box<ExprNode>),
    And(Box<ExprNode>, Box<ExprNode>),
    Or(Box<ExprNode>, Box<ExprNode>),
    /// Whether a value is one of some literals.
    In(Box<ExprNode>, Vec<Value>),
    /// The sum of an expression over the elements of a list.
    Sum(Path, Box<ExprNode>),
    /// The number of elements of a list.
    Count(Path),
    /// A function of texts.
    Call(TextFunction, Vec<ExprNode>),
    /// `$user.tenant`: a declared field of the calling user, by its index among them.
    UserField(usize),
    /// A value of an item that the row leads to: `customer.email`.
    Related(Box<RelatedPath>),
    /// Whether a list has a value.
    Contains(Box<ExprNode>, Box<ExprNode>),
    /// Whether there is an item for which a condition holds.
    Exists(Arc<MemberTest>),
    /// Inside `exists`, a value of the row itself, by its index in `MemberTest::this`.
    This(usize),
}

/// The path to a value of another item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelatedPath {
    /// From the row to that item; not empty.
    pub steps: Vec<RelationStep>,
    pub path: Path,
}

/// From one item to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RelationStep {
    /// The `ref` field, or `PathRoot::Parent`.
    pub by: PathRoot,
    pub to: ResourceIndex,
    /// The kind of id of that resource.
    pub id: IdKind,
}

/// The test of `exists`: whether a resource has an item for which a condition holds.
#[derive(Debug, PartialEq)]
pub struct MemberTest {
    pub resource: ResourceIndex,
    /// Its names are those of that resource.
    pub condition: ExprNode,
    /// The resource of the row.
    pub row: ResourceIndex,
    /// The values of the row that the condition reads: each is a `Field` or a `Related`.
    pub this: Vec<ExprNode>,
}

/// Which version of a row is judged. It decides how the row counts for an `exists` over its own resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowVersion {
    /// One that is or was stored. It counts instead of the stored one.
    Stored,
    /// The one that a request sends. It does not count, and the stored one does, so that nobody can give themselves
    /// rights by the item that they send.
    Requested,
}

/// A function of texts, which counts and maps Unicode characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextFunction {
    /// The texts one after the other, without the absent ones.
    Concat,
    /// The text in lower case.
    Lower,
    /// The text without white space at its ends.
    Trim,
    /// The number of characters.
    Length,
}

impl TextFunction {
    pub const ALL: [Self; 4] = [Self::Concat, Self::Lower, Self::Trim, Self::Length];

    pub fn name(self) -> &'static str {
        match self {
            Self::Concat => "concat",
            Self::Lower => "lower",
            Self::Trim => "trim",
            Self::Length => "length",
        }
    }
}

/// The path to a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    pub root: PathRoot,
    /// Names of fields inside objects, from the outside in.
    pub inner: Vec<Box<str>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathRoot {
    /// A field of the resource, by index.
    Field(usize),
    /// The current element of `sum`.
    Element,
    /// The id of the row.
    Id,
    /// The id of its parent.
    Parent,
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

    pub fn holds(self, order: Ordering) -> bool {
        match self {
            Self::Equal => order.is_eq(),
            Self::NotEqual => order.is_ne(),
            Self::Less => order.is_lt(),
            Self::LessOrEqual => order.is_le(),
            Self::Greater => order.is_gt(),
            Self::GreaterOrEqual => order.is_ge(),
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

/// Why a text is not a valid expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExprError {
    Mistake {
        /// A byte range of the expression's text.
        at: Range<usize>,
        message: String,
        help: Option<String>,
    },
    /// It uses a field whose mistake is reported already.
    AlreadyReported,
    Several(Vec<ExprError>),
}

impl ExprError {
    /// Both values, or the errors of either side.
    pub fn both_or_error<A, B>(
        one: Result<A, Self>,
        other: Result<B, Self>,
    ) -> Result<(A, B), Self> {
        match (one, other) {
            (Ok(one), Ok(other)) => Ok((one, other)),
            (Err(one), Err(other)) => Err(Self::Several(vec![one, other])),
            (Err(failure), Ok(_)) | (Ok(_), Err(failure)) => Err(failure),
        }
    }

    pub fn new(at: Range<usize>, message: impl Into<String>) -> Self {
        Self::Mistake { at, message: message.into(), help: None }
    }

    pub fn with_help(
        at: Range<usize>,
        message: impl Into<String>,
        help: impl Into<String>,
    ) -> Self {
        Self::Mistake { at, message: message.into(), help: Some(help.into()) }
    }
}
