//! The type checker of expressions: resolves names and checks types.
//!
//! The type of a field parses a literal that is compared with it, so `status = "payed"` or an invalid date is
//! an error here, and the values in a `where` fit the columns.

use super::parse::{SyntaxKind, SyntaxNode};
use super::tree::{Comparison, ExprError, ExprNode, Path, PathRoot, TextFunction};
use super::types::{ExprType, check_ordered, parse_number_literal, scalar_type};
use crate::fault::OrBug as _;
use crate::json::Json;
use crate::model::field::{Field, StorageClass};
use crate::model::nearest::nearest;
use crate::problem::FaultCollector;
use crate::value::Value;

/// The names that an expression may use.
#[derive(Debug, Clone, Copy)]
pub struct ExprScope<'f> {
    pub fields: &'f [Field],
    /// Declared fields whose mistakes are reported already: a second message would not help.
    pub invalid_fields: &'f [&'f str],
    /// Computed fields, which another `computed` cannot use.
    pub computed_fields: &'f [&'f str],
}

type TypedNode = Result<(ExprNode, ExprType), ExprError>;

pub fn check_computed(
    syntax: &SyntaxNode,
    target: &Field,
    scope: ExprScope<'_>,
) -> Result<ExprNode, ExprError> {
    let checker = TypeChecker { scope, element: None, purpose: ExprPurpose::Computed };
    let (node, found) = checker.check_node(syntax)?;
    let fits = match (target.storage_class(), found) {
        (StorageClass::Integer | StorageClass::Decimal, ExprType::Exact)
        | (StorageClass::Boolean, ExprType::Boolean)
        | (StorageClass::Text, ExprType::Text) => true,
        (StorageClass::Real, found) => found.is_number(),
        _ => false,
    };
    if fits {
        return Ok(node);
    }
    let message = format!("expected an expression for {}, got {found}", target.kind.about);
    Err(match found {
        ExprType::Real => syntax.error_with_help(
            message,
            "a field of type `number` makes the whole inexact: make this field a `number` too",
        ),
        ExprType::Exact | ExprType::Boolean | ExprType::Text | ExprType::Moment => {
            syntax.error(message)
        }
    })
}

pub fn check_check(syntax: &SyntaxNode, scope: ExprScope<'_>) -> Result<ExprNode, ExprError> {
    TypeChecker { scope, element: None, purpose: ExprPurpose::Check }.check_boolean(syntax)
}

pub fn check_condition(syntax: &SyntaxNode, scope: ExprScope<'_>) -> Result<ExprNode, ExprError> {
    TypeChecker { scope, element: None, purpose: ExprPurpose::Where }.check_boolean(syntax)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExprPurpose {
    Computed,
    Check,
    Where,
}

impl ExprPurpose {
    /// The key of the model file.
    fn key(self) -> &'static str {
        match self {
            Self::Computed => "computed",
            Self::Check => "check",
            Self::Where => "where",
        }
    }
}

#[derive(Clone, Copy)]
struct TypeChecker<'f> {
    scope: ExprScope<'f>,
    /// The element type of the list that `sum` iterates over.
    element: Option<&'f Field>,
    purpose: ExprPurpose,
}

impl<'f> TypeChecker<'f> {
    fn check_node(self, syntax: &SyntaxNode) -> TypedNode {
        Ok(match &syntax.kind {
            SyntaxKind::Number(text) => {
                (ExprNode::Literal(parse_number_literal(text, syntax)?), ExprType::Exact)
            }
            SyntaxKind::Text(text) => (ExprNode::Literal(Value::text(text)), ExprType::Text),
            SyntaxKind::Boolean(value) => {
                (ExprNode::Literal(Value::Boolean(*value)), ExprType::Boolean)
            }
            SyntaxKind::User if self.purpose == ExprPurpose::Where => {
                (ExprNode::User, ExprType::Text)
            }
            SyntaxKind::User => {
                return Err(syntax.error_with_help(
                    format!("`$user` is not known in `{}`", self.purpose.key()),
                    "it depends on the item alone, whoever the caller is; `$user` is for `where`",
                ));
            }
            SyntaxKind::Name(names) => {
                let (path, field) = self.resolve_name(names, syntax)?;
                (ExprNode::Field(path), scalar_type(field, names, syntax)?)
            }
            SyntaxKind::Not(inner) => {
                (ExprNode::Not(Box::new(self.check_boolean(inner)?)), ExprType::Boolean)
            }
            SyntaxKind::And(left, right) | SyntaxKind::Or(left, right) => {
                let (left, right) =
                    ExprError::both_or_error(self.check_boolean(left), self.check_boolean(right))?;
                let (left, right) = (Box::new(left), Box::new(right));
                let node = match syntax.kind {
                    SyntaxKind::And(..) => ExprNode::And(left, right),
                    _ => ExprNode::Or(left, right),
                };
                (node, ExprType::Boolean)
            }
            SyntaxKind::Compare(comparison, left, right) => {
                (self.check_comparison(*comparison, left, right)?, ExprType::Boolean)
            }
            SyntaxKind::In(inner, among) => (self.check_in(inner, among)?, ExprType::Boolean),
            SyntaxKind::Negate(_)
            | SyntaxKind::Arithmetic(..)
            | SyntaxKind::Sum(_)
            | SyntaxKind::Count(_)
            | SyntaxKind::Call(..)
                if self.purpose == ExprPurpose::Where =>
            {
                return Err(syntax.error_with_help(
                    "`where` cannot calculate",
                    "put it into a `computed` field and compare with that",
                ));
            }
            SyntaxKind::Negate(inner) => {
                let (node, found) = self.check_number(inner)?;
                (ExprNode::Negate(Box::new(node)), found)
            }
            SyntaxKind::Arithmetic(operation, left, right) => {
                let ((left, one), (right, other)) =
                    ExprError::both_or_error(self.check_number(left), self.check_number(right))?;
                let found = if one == ExprType::Exact { other } else { one };
                (ExprNode::Arithmetic(*operation, Box::new(left), Box::new(right)), found)
            }
            SyntaxKind::Sum(arguments) => self.check_sum(arguments, syntax)?,
            SyntaxKind::Count(arguments) => self.check_count(arguments, syntax)?,
            SyntaxKind::Call(function, arguments) => {
                self.check_call(*function, arguments, syntax)?
            }
        })
    }

    fn check_count(self, arguments: &[SyntaxNode], syntax: &SyntaxNode) -> TypedNode {
        match arguments {
            [list] => Ok((ExprNode::Count(self.check_list(list)?.0), ExprType::Exact)),
            _ => {
                Err(syntax
                    .error(format!("expected `count(list)`, got {} arguments", arguments.len())))
            }
        }
    }

    fn check_call(
        self,
        function: TextFunction,
        arguments: &[SyntaxNode],
        syntax: &SyntaxNode,
    ) -> TypedNode {
        let (form, found, is_complete) = match function {
            TextFunction::Concat => {
                ("concat(text, text, …)", ExprType::Text, !arguments.is_empty())
            }
            TextFunction::Lower => ("lower(text)", ExprType::Text, arguments.len() == 1),
            TextFunction::Trim => ("trim(text)", ExprType::Text, arguments.len() == 1),
            TextFunction::Length => ("length(text)", ExprType::Exact, arguments.len() == 1),
        };
        if !is_complete {
            let count = arguments.len();
            return Err(syntax.error(format!("expected `{form}`, got {count} arguments")));
        }
        let nodes = arguments.iter().map(|argument| match self.check_node(argument)? {
            (node, ExprType::Text) => Ok(node),
            (_, found) => Err(argument.error(format!("expected a text here, got {found}"))),
        });
        let nodes = nodes.collect::<Result<_, ExprError>>()?;
        Ok((ExprNode::Call(function, nodes), found))
    }

    fn check_boolean(self, syntax: &SyntaxNode) -> Result<ExprNode, ExprError> {
        match self.check_node(syntax)? {
            (node, ExprType::Boolean) => Ok(node),
            (_, found) => Err(syntax.error(format!("expected true or false here, got {found}"))),
        }
    }

    fn check_number(self, syntax: &SyntaxNode) -> TypedNode {
        match self.check_node(syntax)? {
            (node, found) if found.is_number() => Ok((node, found)),
            (_, found) => Err(syntax.error(format!("expected a number here, got {found}"))),
        }
    }

    fn check_sum(self, arguments: &[SyntaxNode], syntax: &SyntaxNode) -> TypedNode {
        let (list, expression) = match arguments {
            [list] => (list, None),
            [list, expression] => (list, Some(expression)),
            _ => {
                let message =
                    format!("expected `sum(list, expression)`, got {} arguments", arguments.len());
                return Err(syntax.error(message));
            }
        };
        let (path, element) = self.check_list(list)?;
        if self.element.is_some() {
            return Err(syntax.error("a `sum` cannot stand inside another"));
        }
        let (node, found) = match expression {
            Some(expression) => {
                TypeChecker { element: Some(element), ..self }.check_number(expression)?
            }
            None => match ExprType::from_class(element.storage_class()) {
                Some(found) if found.is_number() => {
                    (ExprNode::Field(Path { root: PathRoot::Element, inner: Vec::new() }), found)
                }
                _ => {
                    let message =
                        format!("expected a list of numbers, got a list of {}", element.kind.name);
                    return Err(list.error_with_help(
                        message,
                        "say what to add up: `sum(items, quantity * price)`",
                    ));
                }
            },
        };
        Ok((ExprNode::Sum(path, Box::new(node)), found))
    }

    fn check_list(self, syntax: &SyntaxNode) -> Result<(Path, &'f Field), ExprError> {
        let SyntaxKind::Name(names) = &syntax.kind else {
            return Err(syntax.error("expected the name of a list"));
        };
        let (path, field) = self.resolve_name(names, syntax)?;
        match field.rules.element.as_deref() {
            Some(of) => Ok((path, of)),
            None => Err(syntax.error(format!(
                "expected a list, but `{}` is of type `{}`",
                names.join("."),
                field.kind.name
            ))),
        }
    }

    /// Resolves a name. Inside `sum` the fields of the element shadow those of the resource.
    fn resolve_name(
        self,
        names: &[String],
        syntax: &SyntaxNode,
    ) -> Result<(Path, &'f Field), ExprError> {
        let Some((first, rest)) = names.split_first() else {
            return Err(ExprError::AlreadyReported);
        };
        let inner = self.element.map_or(&[][..], |element| &element.rules.fields);
        let (root, mut path, mut field) = if let Some(field) = find_field(inner, first) {
            (PathRoot::Element, vec![field.name.clone()], field)
        } else if let Some((index, field)) =
            self.scope.fields.iter().enumerate().find(|(_, field)| *field.name == **first)
        {
            if self.purpose == ExprPurpose::Computed
                && self.scope.computed_fields.contains(&first.as_str())
            {
                let help = "a computed field is made from fields that are sent";
                return Err(syntax.error_with_help(format!("`{first}` is itself computed"), help));
            }
            if self.purpose != ExprPurpose::Where && field.audit.is_some() {
                let message = format!("`{first}` is set by the server, with every change");
                let help = "only `where` can read it";
                return Err(syntax.error_with_help(message, help));
            }
            (PathRoot::Field(index), Vec::new(), field)
        } else if self.scope.invalid_fields.contains(&first.as_str()) {
            return Err(ExprError::AlreadyReported);
        } else {
            let known = inner.iter().chain(self.scope.fields).map(|field| &*field.name);
            return Err(unknown_name(first, known, syntax));
        };
        for name in rest {
            let fields = &field.rules.fields;
            let Some(next) = find_field(fields, name) else {
                if fields.is_empty() {
                    let message = format!(
                        "`{}` is of type `{}` and has no fields",
                        field.name, field.kind.name
                    );
                    return Err(syntax.error(message));
                }
                return Err(unknown_name(name, fields.iter().map(|field| &*field.name), syntax));
            };
            path.push(next.name.clone());
            field = next;
        }
        Ok((Path { root, inner: path }, field))
    }

    fn check_comparison(
        self,
        comparison: Comparison,
        left: &SyntaxNode,
        right: &SyntaxNode,
    ) -> Result<ExprNode, ExprError> {
        match (&left.kind, &right.kind) {
            (SyntaxKind::Name(names), literal) if literal.is_literal() => {
                self.compare_with_literal(comparison, names, left, right)
            }
            (literal, SyntaxKind::Name(names)) if literal.is_literal() => {
                self.compare_with_literal(comparison.mirrored(), names, right, left)
            }
            _ => {
                let ((one, first), (other, second)) =
                    ExprError::both_or_error(self.check_node(left), self.check_node(right))?;
                if first != second && !(first.is_number() && second.is_number()) {
                    let message =
                        format!("expected two values of one kind, got {first} and {second}");
                    return Err(ExprError::new(left.at.start..right.at.end, message));
                }
                check_ordered(comparison, first, left.at.start..right.at.end)?;
                Ok(ExprNode::Compare(comparison, Box::new(one), Box::new(other)))
            }
        }
    }

    /// Compares a field with a literal, which the field's type parses.
    fn compare_with_literal(
        self,
        comparison: Comparison,
        names: &[String],
        name: &SyntaxNode,
        literal: &SyntaxNode,
    ) -> Result<ExprNode, ExprError> {
        let (path, field) = self.resolve_name(names, name)?;
        let found = scalar_type(field, names, name)?;
        check_ordered(
            comparison,
            found,
            name.at.start.min(literal.at.start)..name.at.end.max(literal.at.end),
        )?;
        let value = self.parse_literal(field, found, names, literal)?;
        Ok(ExprNode::Compare(
            comparison,
            Box::new(ExprNode::Field(path)),
            Box::new(ExprNode::Literal(value)),
        ))
    }

    fn parse_literal(
        self,
        field: &Field,
        found: ExprType,
        names: &[String],
        literal: &SyntaxNode,
    ) -> Result<Value, ExprError> {
        let json = match &literal.kind {
            // Calculations are exact anyway, so a literal like `quantity > 0.5` need not fit the field.
            SyntaxKind::Number(text) if self.purpose != ExprPurpose::Where && found.is_number() => {
                return parse_number_literal(text, literal);
            }
            SyntaxKind::Number(text) => Json::Number(text),
            SyntaxKind::Text(text) => Json::Text(text.as_str().into()),
            SyntaxKind::Boolean(value) => Json::Boolean(*value),
            _ => {
                return Err(literal.error("expected a number, a text, true or false"));
            }
        };
        let mut faults = FaultCollector::at_root(String::new());
        (field.kind.read)(field, &json, &mut faults).ok_or_else(|| {
            let fault = faults.into_list().into_iter().next();
            let detail = fault.or_bug("a literal that is refused has a fault").detail;
            literal.error(format!(
                "`{}` is of type `{}`: {detail}",
                names.join("."),
                field.kind.name
            ))
        })
    }

    fn check_in(self, inner: &SyntaxNode, among: &[SyntaxNode]) -> Result<ExprNode, ExprError> {
        if among.is_empty() {
            return Err(inner.error("expected at least one value after `in`"));
        }
        let SyntaxKind::Name(names) = &inner.kind else {
            let (node, found) = self.check_node(inner)?;
            let values = among.iter().map(|one| match self.check_node(one)? {
                (ExprNode::Literal(value), other) if other == found => Ok(value),
                (_, other) => Err(one.error(format!("expected {found}, got {other}"))),
            });
            return Ok(ExprNode::In(Box::new(node), values.collect::<Result<_, _>>()?));
        };
        let (path, field) = self.resolve_name(names, inner)?;
        let found = scalar_type(field, names, inner)?;
        let values = among
            .iter()
            .map(|one| self.parse_literal(field, found, names, one))
            .collect::<Result<_, _>>()?;
        Ok(ExprNode::In(Box::new(ExprNode::Field(path)), values))
    }
}

fn find_field<'f>(fields: &'f [Field], name: &str) -> Option<&'f Field> {
    fields.iter().find(|field| &*field.name == name)
}

fn unknown_name<'k>(
    name: &str,
    known: impl Iterator<Item = &'k str>,
    syntax: &SyntaxNode,
) -> ExprError {
    let message = format!("there is no field `{name}`");
    let help = match nearest(name, known) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "a text stands in quotes, a field without them".to_owned(),
    };
    syntax.error_with_help(message, help)
}
