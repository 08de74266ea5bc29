//! The type checker of expressions: resolves names and checks types.
//!
//! The type of a field parses a literal that is compared with it, so `status = "payed"` or an invalid date is
//! an error here, and the values in a `where` fit the columns.

use super::kinds::{Type, number, ordered, scalar};
use super::parse::{Part, Syntax};
use super::{Comparison, Failure, Node, Path, Root, Scope};
use crate::json::Json;
use crate::model::{Class, Field, nearest};
use crate::problem::Faults;
use crate::value::Value;

type Typed = Result<(Node, Type), Failure>;

pub(super) fn computed(syntax: &Syntax, target: &Field, scope: Scope<'_>) -> Result<Node, Failure> {
    let checker = Checker { scope, element: None, purpose: Purpose::Computed };
    let (node, found) = checker.typed(syntax)?;
    let fits = match (target.class(), found) {
        (Class::Integer | Class::Decimal, Type::Exact) | (Class::Boolean, Type::Boolean) => true,
        (Class::Real, found) => found.is_number(),
        _ => false,
    };
    if fits {
        return Ok(node);
    }
    let message = format!("expected an expression for {}, got {found}", target.kind.about());
    Err(match found {
        Type::Real => Failure::with(
            syntax.at.clone(),
            message,
            "a field of type `number` makes the whole inexact: make this field a `number` too",
        ),
        Type::Exact | Type::Boolean | Type::Text | Type::Moment => {
            Failure::new(syntax.at.clone(), message)
        }
    })
}

pub(super) fn condition(syntax: &Syntax, scope: Scope<'_>) -> Result<Node, Failure> {
    Checker { scope, element: None, purpose: Purpose::Where }.boolean(syntax)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Computed,
    Where,
}

#[derive(Clone, Copy)]
struct Checker<'f> {
    scope: Scope<'f>,
    /// The element type of the list that `sum` iterates over.
    element: Option<&'f Field>,
    purpose: Purpose,
}

impl<'f> Checker<'f> {
    fn typed(self, syntax: &Syntax) -> Typed {
        let at = || syntax.at.clone();
        Ok(match &syntax.part {
            Part::Number(text) => (Node::Literal(number(text, syntax)?), Type::Exact),
            Part::Text(text) => (Node::Literal(Value::text(text)), Type::Text),
            Part::Boolean(value) => (Node::Literal(Value::Boolean(*value)), Type::Boolean),
            Part::User if self.purpose == Purpose::Where => (Node::User, Type::Text),
            Part::User => {
                return Err(Failure::with(
                    at(),
                    "`$user` is not known in `computed`",
                    "a computed value is the same for everyone; `$user` is for `where`",
                ));
            }
            Part::Name(names) => {
                let (path, field) = self.find(names, syntax)?;
                (Node::Field(path), scalar(field, names, syntax)?)
            }
            Part::Not(inner) => (Node::Not(Box::new(self.boolean(inner)?)), Type::Boolean),
            Part::And(left, right) => {
                let (left, right) = Failure::either(self.boolean(left), self.boolean(right))?;
                (Node::And(Box::new(left), Box::new(right)), Type::Boolean)
            }
            Part::Or(left, right) => {
                let (left, right) = Failure::either(self.boolean(left), self.boolean(right))?;
                (Node::Or(Box::new(left), Box::new(right)), Type::Boolean)
            }
            Part::Compare(comparison, left, right) => {
                (self.compare(*comparison, left, right)?, Type::Boolean)
            }
            Part::In(inner, among) => (self.contained(inner, among)?, Type::Boolean),
            Part::Negate(_) | Part::Arithmetic(..) | Part::Sum(_) | Part::Count(_)
                if self.purpose == Purpose::Where =>
            {
                return Err(Failure::with(
                    at(),
                    "`where` cannot calculate",
                    "put it into a `computed` field and compare with that",
                ));
            }
            Part::Negate(inner) => {
                let (node, found) = self.number(inner)?;
                (Node::Negate(Box::new(node)), found)
            }
            Part::Arithmetic(operation, left, right) => {
                let ((left, one), (right, other)) =
                    Failure::either(self.number(left), self.number(right))?;
                let found = if one == Type::Exact { other } else { one };
                (Node::Arithmetic(*operation, Box::new(left), Box::new(right)), found)
            }
            Part::Sum(arguments) => self.sum(arguments, syntax)?,
            Part::Count(arguments) => match arguments.as_slice() {
                [list] => (Node::Count(self.list(list)?.0), Type::Exact),
                _ => {
                    return Err(Failure::new(
                        at(),
                        format!("expected `count(list)`, got {} arguments", arguments.len()),
                    ));
                }
            },
        })
    }

    fn boolean(self, syntax: &Syntax) -> Result<Node, Failure> {
        match self.typed(syntax)? {
            (node, Type::Boolean) => Ok(node),
            (_, found) => Err(Failure::new(
                syntax.at.clone(),
                format!("expected true or false here, got {found}"),
            )),
        }
    }

    fn number(self, syntax: &Syntax) -> Typed {
        match self.typed(syntax)? {
            (node, found) if found.is_number() => Ok((node, found)),
            (_, found) => {
                Err(Failure::new(syntax.at.clone(), format!("expected a number here, got {found}")))
            }
        }
    }

    fn sum(self, arguments: &[Syntax], syntax: &Syntax) -> Typed {
        let (list, expression) = match arguments {
            [list] => (list, None),
            [list, expression] => (list, Some(expression)),
            _ => {
                let message =
                    format!("expected `sum(list, expression)`, got {} arguments", arguments.len());
                return Err(Failure::new(syntax.at.clone(), message));
            }
        };
        let (path, element) = self.list(list)?;
        if self.element.is_some() {
            return Err(Failure::new(syntax.at.clone(), "a `sum` cannot stand inside another"));
        }
        let (node, found) = match expression {
            Some(expression) => Checker { element: Some(element), ..self }.number(expression)?,
            None => match Type::of(element.class()) {
                Some(found) if found.is_number() => {
                    (Node::Field(Path { root: Root::Element, inner: Vec::new() }), found)
                }
                _ => {
                    let message = format!(
                        "expected a list of numbers, got a list of {}",
                        element.kind.name()
                    );
                    return Err(Failure::with(
                        list.at.clone(),
                        message,
                        "say what to add up: `sum(items, quantity * price)`",
                    ));
                }
            },
        };
        Ok((Node::Sum(path, Box::new(node)), found))
    }

    fn list(self, syntax: &Syntax) -> Result<(Path, &'f Field), Failure> {
        let Part::Name(names) = &syntax.part else {
            return Err(Failure::new(syntax.at.clone(), "expected the name of a list"));
        };
        let (path, field) = self.find(names, syntax)?;
        match field.rules.of.as_deref() {
            Some(of) => Ok((path, of)),
            None => Err(Failure::new(
                syntax.at.clone(),
                format!(
                    "expected a list, but `{}` is of type `{}`",
                    names.join("."),
                    field.kind.name()
                ),
            )),
        }
    }

    /// Resolves a name. Inside `sum` the fields of the element shadow those of the resource.
    fn find(self, names: &[String], syntax: &Syntax) -> Result<(Path, &'f Field), Failure> {
        let Some((first, rest)) = names.split_first() else { return Err(Failure::Elsewhere) };
        let inner = self.element.map_or(&[][..], |element| &element.rules.fields);
        let (root, mut path, mut field) = if let Some(field) = named(inner, first) {
            (Root::Element, vec![field.name.clone()], field)
        } else if let Some((index, field)) =
            self.scope.fields.iter().enumerate().find(|(_, field)| *field.name == **first)
        {
            if self.purpose == Purpose::Computed && self.scope.computed.contains(&first.as_str()) {
                let help = "a computed field is made from fields that are sent";
                return Err(Failure::with(
                    syntax.at.clone(),
                    format!("`{first}` is itself computed"),
                    help,
                ));
            }
            (Root::Field(index), Vec::new(), field)
        } else if self.scope.broken.contains(&first.as_str()) {
            return Err(Failure::Elsewhere);
        } else {
            let known = inner.iter().chain(self.scope.fields).map(|field| &*field.name);
            return Err(unknown(first, known, syntax));
        };
        for name in rest {
            let fields = &field.rules.fields;
            let Some(next) = named(fields, name) else {
                if fields.is_empty() {
                    let message = format!(
                        "`{}` is of type `{}` and has no fields",
                        field.name,
                        field.kind.name()
                    );
                    return Err(Failure::new(syntax.at.clone(), message));
                }
                return Err(unknown(name, fields.iter().map(|field| &*field.name), syntax));
            };
            path.push(next.name.clone());
            field = next;
        }
        Ok((Path { root, inner: path }, field))
    }

    fn compare(
        self,
        comparison: Comparison,
        left: &Syntax,
        right: &Syntax,
    ) -> Result<Node, Failure> {
        match (&left.part, &right.part) {
            (Part::Name(names), Part::Number(_) | Part::Text(_) | Part::Boolean(_)) => {
                self.against(comparison, names, left, right)
            }
            (Part::Number(_) | Part::Text(_) | Part::Boolean(_), Part::Name(names)) => {
                self.against(comparison.mirrored(), names, right, left)
            }
            _ => {
                let ((one, first), (other, second)) =
                    Failure::either(self.typed(left), self.typed(right))?;
                if first != second && !(first.is_number() && second.is_number()) {
                    let message =
                        format!("expected two values of one kind, got {first} and {second}");
                    return Err(Failure::new(left.at.start..right.at.end, message));
                }
                ordered(comparison, first, left.at.start..right.at.end)?;
                Ok(Node::Compare(comparison, Box::new(one), Box::new(other)))
            }
        }
    }

    /// Compares a field with a literal, which the field's type parses.
    fn against(
        self,
        comparison: Comparison,
        names: &[String],
        name: &Syntax,
        literal: &Syntax,
    ) -> Result<Node, Failure> {
        let (path, field) = self.find(names, name)?;
        let found = scalar(field, names, name)?;
        ordered(
            comparison,
            found,
            name.at.start.min(literal.at.start)..name.at.end.max(literal.at.end),
        )?;
        let value = self.literal(field, found, names, literal)?;
        Ok(Node::Compare(comparison, Box::new(Node::Field(path)), Box::new(Node::Literal(value))))
    }

    fn literal(
        self,
        field: &Field,
        found: Type,
        names: &[String],
        literal: &Syntax,
    ) -> Result<Value, Failure> {
        let json = match &literal.part {
            // Computed values are exact anyway, so a literal like `quantity > 0.5` need not fit the field.
            Part::Number(text) if self.purpose == Purpose::Computed && found.is_number() => {
                return number(text, literal);
            }
            Part::Number(text) => Json::Number(text),
            Part::Text(text) => Json::Text(text.as_str().into()),
            Part::Boolean(value) => Json::Boolean(*value),
            _ => {
                return Err(Failure::new(
                    literal.at.clone(),
                    "expected a number, a text, true or false",
                ));
            }
        };
        let mut faults = Faults::at(String::new());
        field.kind.read(field, &json, &mut faults).ok_or_else(|| {
            let detail =
                faults.into_list().into_iter().next().map(|fault| fault.detail).unwrap_or_default();
            Failure::new(
                literal.at.clone(),
                format!("`{}` is of type `{}`: {detail}", names.join("."), field.kind.name()),
            )
        })
    }

    fn contained(self, inner: &Syntax, among: &[Syntax]) -> Result<Node, Failure> {
        if among.is_empty() {
            return Err(Failure::new(inner.at.clone(), "expected at least one value after `in`"));
        }
        let Part::Name(names) = &inner.part else {
            let (node, found) = self.typed(inner)?;
            let values = among.iter().map(|one| match self.typed(one)? {
                (Node::Literal(value), other) if other == found => Ok(value),
                (_, other) => {
                    Err(Failure::new(one.at.clone(), format!("expected {found}, got {other}")))
                }
            });
            return Ok(Node::In(Box::new(node), values.collect::<Result<_, _>>()?));
        };
        let (path, field) = self.find(names, inner)?;
        let found = scalar(field, names, inner)?;
        let values = among
            .iter()
            .map(|one| self.literal(field, found, names, one))
            .collect::<Result<_, _>>()?;
        Ok(Node::In(Box::new(Node::Field(path)), values))
    }
}

fn named<'f>(fields: &'f [Field], name: &str) -> Option<&'f Field> {
    fields.iter().find(|field| &*field.name == name)
}

fn unknown<'k>(name: &str, known: impl Iterator<Item = &'k str>, syntax: &Syntax) -> Failure {
    let message = format!("there is no field `{name}`");
    match nearest(name, known) {
        Some(near) => Failure::with(syntax.at.clone(), message, format!("did you mean `{near}`?")),
        None => Failure::with(
            syntax.at.clone(),
            message,
            "a text stands in quotes, a field without them",
        ),
    }
}
