//! The type checker of expressions: resolves names and checks types.
//!
//! The type of a field parses a literal that is compared with it, so `status = "payed"` or an invalid date is
//! an error here, and the values in a `where` fit the columns.

use std::cell::RefCell;
use std::sync::Arc;

use super::literal::{ExprPurpose, parse_literal, parse_number_literal, parse_source_literal};
use super::names::{
    ExprScope, NamedValue, RelationScope, ThisScope, ValueSource, check_same_target,
    check_user_field, find_field, resolve_where, source_type, unknown_name, walk_object,
};
use super::parse::{SyntaxKind, SyntaxNode};
use super::tree::{Comparison, ExprError, ExprNode, MemberTest, Path, PathRoot, TextFunction};
use super::types::{ExprType, check_ordered};
use crate::model::field::{Field, ResourceIndex, StorageClass};
use crate::value::Value;

type TypedNode = Result<(ExprNode, ExprType), ExprError>;

pub fn check_computed(
    syntax: &SyntaxNode,
    target: &Field,
    scope: ExprScope<'_>,
) -> Result<ExprNode, ExprError> {
    let checker = TypeChecker { scope, element: None, purpose: ExprPurpose::Computed, this: None };
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
    let checker = TypeChecker { scope, element: None, purpose: ExprPurpose::Check, this: None };
    checker.check_boolean(syntax)
}

pub fn check_condition(syntax: &SyntaxNode, scope: ExprScope<'_>) -> Result<ExprNode, ExprError> {
    let checker = TypeChecker { scope, element: None, purpose: ExprPurpose::Where, this: None };
    checker.check_boolean(syntax)
}

/// The condition of a `ref`, which is the same for every caller.
pub fn check_member(
    syntax: &SyntaxNode,
    relations: RelationScope<'_>,
    target: ResourceIndex,
) -> Result<MemberTest, ExprError> {
    let test = check_test(syntax, relations, target)?;
    match test.condition.uses_user() {
        true => Err(syntax.error("the condition of a `ref` cannot depend on the user")),
        false => Ok(test),
    }
}

/// A condition with the names of `resource`, in which `this.` begins a name of the row.
fn check_test(
    syntax: &SyntaxNode,
    relations: RelationScope<'_>,
    resource: ResourceIndex,
) -> Result<MemberTest, ExprError> {
    let values = RefCell::new(Vec::new());
    let condition = {
        let this = Some(ThisScope { relations, values: &values });
        let scope = relations.of(resource)?;
        let checker = TypeChecker { scope, element: None, purpose: ExprPurpose::Where, this };
        checker.check_boolean(syntax)?
    };
    Ok(MemberTest { resource, condition, row: relations.row, this: values.into_inner() })
}

#[derive(Clone, Copy)]
struct TypeChecker<'f> {
    scope: ExprScope<'f>,
    /// The element type of the list that `sum` iterates over.
    element: Option<&'f Field>,
    purpose: ExprPurpose,
    /// The row outside of `exists`, inside of it.
    this: Option<ThisScope<'f>>,
}

impl<'f> TypeChecker<'f> {
    fn check_node(&self, syntax: &SyntaxNode) -> TypedNode {
        Ok(match &syntax.kind {
            SyntaxKind::Number(text) => {
                (ExprNode::Literal(parse_number_literal(text, syntax)?), ExprType::Exact)
            }
            SyntaxKind::Text(text) => (ExprNode::Literal(Value::text(text)), ExprType::Text),
            SyntaxKind::Boolean(value) => {
                (ExprNode::Literal(Value::Boolean(*value)), ExprType::Boolean)
            }
            SyntaxKind::User => {
                self.check_user(syntax)?;
                (ExprNode::User, ExprType::Text)
            }
            SyntaxKind::UserField(name) => {
                check_user_field(self.check_user(syntax)?, name, syntax)?
            }
            SyntaxKind::Name(names) => {
                let NamedValue { node, source } = self.resolve(names, syntax)?;
                (node, source_type(source, names, syntax)?)
            }
            SyntaxKind::Not(inner) => {
                (ExprNode::Not(Box::new(self.check_boolean(inner)?)), ExprType::Boolean)
            }
            SyntaxKind::And(left, right) => {
                let (left, right) = self.check_sides(left, right)?;
                (ExprNode::And(left, right), ExprType::Boolean)
            }
            SyntaxKind::Or(left, right) => {
                let (left, right) = self.check_sides(left, right)?;
                (ExprNode::Or(left, right), ExprType::Boolean)
            }
            SyntaxKind::Compare(comparison, left, right) => {
                (self.check_comparison(*comparison, left, right)?, ExprType::Boolean)
            }
            SyntaxKind::In(inner, among) => (self.check_in(inner, among)?, ExprType::Boolean),
            SyntaxKind::Contains(arguments) => {
                (self.check_contains(arguments, syntax)?, ExprType::Boolean)
            }
            SyntaxKind::Exists(resource, condition) => {
                (self.check_exists(resource, condition, syntax)?, ExprType::Boolean)
            }
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

    fn check_user(&self, syntax: &SyntaxNode) -> Result<RelationScope<'f>, ExprError> {
        self.scope.relations.ok_or_else(|| {
            syntax.error_with_help(
                format!("`$user` is not known in `{}`", self.purpose.key()),
                "it depends on the item alone, whoever the caller is; `$user` is for `where`",
            )
        })
    }

    /// The two sides of `and` or `or`.
    fn check_sides(
        &self,
        left: &SyntaxNode,
        right: &SyntaxNode,
    ) -> Result<(Box<ExprNode>, Box<ExprNode>), ExprError> {
        let (left, right) =
            ExprError::both_or_error(self.check_boolean(left), self.check_boolean(right))?;
        Ok((Box::new(left), Box::new(right)))
    }

    fn check_count(&self, arguments: &[SyntaxNode], syntax: &SyntaxNode) -> TypedNode {
        match arguments {
            [list] => Ok((ExprNode::Count(self.check_list(list)?.0), ExprType::Exact)),
            _ => {
                Err(syntax
                    .error(format!("expected `count(list)`, got {} arguments", arguments.len())))
            }
        }
    }

    fn check_call(
        &self,
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

    fn check_boolean(&self, syntax: &SyntaxNode) -> Result<ExprNode, ExprError> {
        match self.check_node(syntax)? {
            (node, ExprType::Boolean) => Ok(node),
            (_, found) => Err(syntax.error(format!("expected true or false here, got {found}"))),
        }
    }

    fn check_number(&self, syntax: &SyntaxNode) -> TypedNode {
        match self.check_node(syntax)? {
            (node, found) if found.is_number() => Ok((node, found)),
            (_, found) => Err(syntax.error(format!("expected a number here, got {found}"))),
        }
    }

    fn check_sum(&self, arguments: &[SyntaxNode], syntax: &SyntaxNode) -> TypedNode {
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
                TypeChecker { element: Some(element), ..*self }.check_number(expression)?
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

    fn check_list(&self, syntax: &SyntaxNode) -> Result<(Path, &'f Field), ExprError> {
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

    /// Resolves a name, also of other items.
    fn resolve(&self, names: &[String], syntax: &SyntaxNode) -> Result<NamedValue<'f>, ExprError> {
        let Some(relations) = self.scope.relations else {
            let (path, field) = self.resolve_name(names, syntax)?;
            return Ok(NamedValue {
                node: ExprNode::Field(path),
                source: ValueSource::Field(field),
            });
        };
        resolve_where(relations, self.this, names, syntax)
    }

    fn where_only(
        &self,
        function: &str,
        syntax: &SyntaxNode,
    ) -> Result<RelationScope<'f>, ExprError> {
        self.scope.relations.ok_or_else(|| {
            syntax.error(format!("`{function}` is for `where`, not for `{}`", self.purpose.key()))
        })
    }

    fn check_contains(
        &self,
        arguments: &[SyntaxNode],
        syntax: &SyntaxNode,
    ) -> Result<ExprNode, ExprError> {
        self.where_only("contains", syntax)?;
        let [list, value] = arguments else {
            let count = arguments.len();
            let message = format!("expected `contains(list, value)`, got {count} arguments");
            return Err(syntax.error(message));
        };
        let SyntaxKind::Name(names) = &list.kind else {
            return Err(list.error("expected the name of a list"));
        };
        let NamedValue { node, source } = self.resolve(names, list)?;
        if let ExprNode::This(_) = node {
            let message =
                format!("`contains` cannot look into `{}`, a list of the row", names.join("."));
            let help = "inside `exists`, it is for lists of that resource; put it outside, without `this.`";
            return Err(list.error_with_help(message, help));
        }
        let element = match source {
            ValueSource::Field(field) => field.rules.element.as_deref(),
            ValueSource::Id(..) => None,
        };
        let Some(element) = element else {
            return Err(list.error(format!("expected a list, but `{}` is none", names.join("."))));
        };
        let is_inner = match &node {
            ExprNode::Field(path) => !path.inner.is_empty(),
            ExprNode::Related(to) => !to.path.inner.is_empty(),
            _ => false,
        };
        let found = ExprType::from_class(element.storage_class()).filter(|_| !is_inner);
        let Some(found) = found else {
            let help =
                "`contains` is for lists of texts, numbers, dates and the like, outside of objects";
            return Err(list.error_with_help("expected a list of single values", help));
        };
        let value = if value.kind.is_literal() {
            ExprNode::Literal(parse_literal(self.purpose, element, names, value)?)
        } else {
            let (node, other) = self.check_node(value)?;
            if found != other && !(found.is_number() && other.is_number()) {
                return Err(value.error(format!("expected {found}, got {other}")));
            }
            node
        };
        Ok(ExprNode::Contains(Box::new(node), Box::new(value)))
    }

    fn check_exists(
        &self,
        resource: &str,
        condition: &SyntaxNode,
        syntax: &SyntaxNode,
    ) -> Result<ExprNode, ExprError> {
        let relations = self.where_only("exists", syntax)?;
        if self.this.is_some() {
            return Err(syntax.error("an `exists` cannot stand inside another"));
        }
        let found = relations.resources.iter().position(|one| one.name == resource);
        let Some(index) = found.map(ResourceIndex) else {
            let help = "it is declared under [resources]; write its name as it is there";
            return Err(syntax.error_with_help(format!("there is no resource `{resource}`"), help));
        };
        Ok(ExprNode::Exists(Arc::new(check_test(condition, relations, index)?)))
    }

    /// Resolves a name of a `computed` or a `check`. Inside `sum` the fields of the element shadow those of the
    /// resource.
    fn resolve_name(
        &self,
        names: &[String],
        syntax: &SyntaxNode,
    ) -> Result<(Path, &'f Field), ExprError> {
        let Some((first, rest)) = names.split_first() else {
            return Err(ExprError::AlreadyReported);
        };
        let inner = self.element.map_or(&[][..], |element| &element.rules.fields);
        let (root, mut path, field) = if let Some(field) = find_field(inner, first) {
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
            if field.audit.is_some() {
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
        let (inner, field) = walk_object(field, rest, syntax)?;
        path.extend(inner);
        Ok((Path { root, inner: path }, field))
    }

    fn check_comparison(
        &self,
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
                if let (SyntaxKind::Name(one), SyntaxKind::Name(other), Some(relations)) =
                    (&left.kind, &right.kind, self.scope.relations)
                {
                    let (first, second) =
                        (self.resolve(one, left)?.source, self.resolve(other, right)?.source);
                    let at = left.at.start..right.at.end;
                    check_same_target(relations, (one, first), (other, second), at)?;
                }
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
        &self,
        comparison: Comparison,
        names: &[String],
        name: &SyntaxNode,
        literal: &SyntaxNode,
    ) -> Result<ExprNode, ExprError> {
        let NamedValue { node, source } = self.resolve(names, name)?;
        let found = source_type(source, names, name)?;
        check_ordered(
            comparison,
            found,
            name.at.start.min(literal.at.start)..name.at.end.max(literal.at.end),
        )?;
        let value = parse_source_literal(self.purpose, source, names, literal)?;
        Ok(ExprNode::Compare(comparison, Box::new(node), Box::new(ExprNode::Literal(value))))
    }

    fn check_in(&self, inner: &SyntaxNode, among: &[SyntaxNode]) -> Result<ExprNode, ExprError> {
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
        let NamedValue { node, source } = self.resolve(names, inner)?;
        source_type(source, names, inner)?;
        let values = among
            .iter()
            .map(|one| parse_source_literal(self.purpose, source, names, one))
            .collect::<Result<_, _>>()?;
        Ok(ExprNode::In(Box::new(node), values))
    }
}
