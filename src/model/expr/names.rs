//! Resolution of names in expressions: fields of the row, fields inside objects, and in a `where` values of
//! related items, by their parents and refs.

use std::cell::RefCell;
use std::ops::Range;

use super::parse::SyntaxNode;
use super::tree::{ExprError, ExprNode, Path, PathRoot, RelatedPath, RelationStep};
use super::types::{ExprType, scalar_type};
use crate::model::field::{Field, ResourceIndex};
use crate::model::nearest::nearest;
use crate::value::IdKind;

/// The longest path from a row to another item.
const STEPS_MAX: usize = 3;

/// The names that an expression may use.
#[derive(Debug, Clone, Copy)]
pub struct ExprScope<'f> {
    pub fields: &'f [Field],
    /// Declared fields whose mistakes are reported already: a second message would not help.
    pub invalid_fields: &'f [&'f str],
    /// Computed fields, which another `computed` cannot use.
    pub computed_fields: &'f [&'f str],
    /// The names beyond the item itself; for a `where` only.
    pub relations: Option<RelationScope<'f>>,
}

/// The names of a `where` beyond the fields of its row.
#[derive(Debug, Clone, Copy)]
pub struct RelationScope<'f> {
    /// All declared resources, by their index.
    pub resources: &'f [ResourceScope<'f>],
    /// The resource of the row.
    pub row: ResourceIndex,
    /// The declared fields of users.
    pub user_fields: &'f [Field],
}

/// A resource whose names a `where` may use.
#[derive(Debug, Clone, Copy)]
pub struct ResourceScope<'f> {
    pub name: &'f str,
    pub parent: Option<ResourceIndex>,
    pub id: IdKind,
    pub fields: &'f [Field],
    pub invalid_fields: &'f [&'f str],
}

impl<'f> RelationScope<'f> {
    pub fn resource(self, index: ResourceIndex) -> Result<ResourceScope<'f>, ExprError> {
        self.resources.get(index.0).copied().ok_or(ExprError::AlreadyReported)
    }

    /// The names of one resource: the row's own, or those of the resource of an `exists`.
    pub fn of(self, index: ResourceIndex) -> Result<ExprScope<'f>, ExprError> {
        let ResourceScope { fields, invalid_fields, .. } = self.resource(index)?;
        let relations = Some(Self { row: index, ..self });
        Ok(ExprScope { fields, invalid_fields, computed_fields: &[], relations })
    }
}

/// What a name in an expression refers to.
pub struct NamedValue<'f> {
    pub node: ExprNode,
    pub source: ValueSource<'f>,
}

#[derive(Clone, Copy)]
pub enum ValueSource<'f> {
    Field(&'f Field),
    /// The id of an item.
    Id(ResourceIndex, IdKind),
}

impl ValueSource<'_> {
    /// The resource of the item whose id it is.
    pub fn target(self) -> Option<ResourceIndex> {
        match self {
            Self::Field(field) => field.rules.reference.map(|to| to.resource),
            Self::Id(resource, _) => Some(resource),
        }
    }
}

/// The row outside of an `exists`, for the names inside of it.
#[derive(Clone, Copy)]
pub struct ThisScope<'f> {
    pub relations: RelationScope<'f>,
    /// The values of the row that the condition reads.
    pub values: &'f RefCell<Vec<ExprNode>>,
}

/// The type of a named value.
pub fn source_type(
    source: ValueSource<'_>,
    names: &[String],
    syntax: &SyntaxNode,
) -> Result<ExprType, ExprError> {
    match source {
        ValueSource::Field(field) => scalar_type(field, names, syntax),
        ValueSource::Id(_, IdKind::Uuid) => Ok(ExprType::Text),
        ValueSource::Id(_, IdKind::Integer) => Ok(ExprType::Exact),
    }
}

/// Resolves a name of a `where`.
pub fn resolve_where<'f>(
    relations: RelationScope<'f>,
    this: Option<ThisScope<'f>>,
    names: &[String],
    syntax: &SyntaxNode,
) -> Result<NamedValue<'f>, ExprError> {
    let (Some((first, rest)), Some(this)) = (names.split_first(), this) else {
        return follow(relations, names, syntax);
    };
    if first != "this" {
        return follow(relations, names, syntax);
    }
    if rest.is_empty() {
        return Err(syntax.error("`this` is the row: expected a field of it after a dot"));
    }
    let NamedValue { node, source } = follow(this.relations, rest, syntax)?;
    let mut values = this.values.borrow_mut();
    let known = values.iter().position(|value| *value == node);
    let at = known.unwrap_or(values.len());
    if known.is_none() {
        values.push(node);
    }
    Ok(NamedValue { node: ExprNode::This(at), source })
}

/// `$user.name`
pub fn check_user_field(
    relations: RelationScope<'_>,
    name: &str,
    syntax: &SyntaxNode,
) -> Result<(ExprNode, ExprType), ExprError> {
    let fields = relations.user_fields;
    let found = fields.iter().enumerate().find(|(_, field)| *field.name == *name);
    let Some((at, field)) = found else {
        if fields.is_empty() {
            let message = format!("users have no field `{name}`");
            return Err(syntax.error_with_help(message, "declare it: [users.fields]"));
        }
        return Err(unknown_name(name, fields.iter().map(|field| &*field.name), syntax));
    };
    let names = ["$user".to_owned(), name.to_owned()];
    Ok((ExprNode::UserField(at), scalar_type(field, &names, syntax)?))
}

/// Refuses to compare the ids of two resources.
pub fn check_same_target(
    relations: RelationScope<'_>,
    (one, first): (&[String], ValueSource<'_>),
    (other, second): (&[String], ValueSource<'_>),
    at: Range<usize>,
) -> Result<(), ExprError> {
    let (Some(first), Some(second)) = (first.target(), second.target()) else { return Ok(()) };
    if first == second {
        return Ok(());
    }
    let (first, second) = (relations.resource(first)?.name, relations.resource(second)?.name);
    let (one, other) = (one.join("."), other.join("."));
    let message = format!("`{one}` is the id of a `{first}`, and `{other}` of a `{second}`");
    Err(ExprError::new(at, message))
}

/// Resolves a name of a `where`: it may follow parents and refs.
fn follow<'f>(
    relations: RelationScope<'f>,
    names: &[String],
    syntax: &SyntaxNode,
) -> Result<NamedValue<'f>, ExprError> {
    let (mut at, mut rest, mut steps) = (relations.row, names, Vec::new());
    loop {
        let here = relations.resource(at)?;
        let Some((first, after)) = rest.split_first() else {
            return Err(ExprError::AlreadyReported);
        };
        let field = here.fields.iter().enumerate().find(|(_, field)| *field.name == **first);
        let parent = here.parent.map(|parent| Ok((parent, relations.resource(parent)?)));
        let parent = parent.transpose()?.filter(|(_, parent)| parent.name == first);
        let step = match (field, parent) {
            (Some((index, field)), _) => match field.rules.reference {
                Some(to) if !after.is_empty() => {
                    RelationStep { by: PathRoot::Field(index), to: to.resource, id: to.id }
                }
                _ => {
                    let (inner, field) = walk_object(field, after, syntax)?;
                    let path = Path { root: PathRoot::Field(index), inner };
                    let source = ValueSource::Field(field);
                    return Ok(NamedValue { node: value_node(steps, path), source });
                }
            },
            (None, Some((to, parent))) if after.is_empty() => {
                let path = Path { root: PathRoot::Parent, inner: Vec::new() };
                let source = ValueSource::Id(to, parent.id);
                return Ok(NamedValue { node: value_node(steps, path), source });
            }
            (None, Some((to, parent))) => RelationStep { by: PathRoot::Parent, to, id: parent.id },
            (None, None) if first == "id" && after.is_empty() => {
                let path = Path { root: PathRoot::Id, inner: Vec::new() };
                let source = ValueSource::Id(at, here.id);
                return Ok(NamedValue { node: value_node(steps, path), source });
            }
            (None, None) if here.invalid_fields.contains(&first.as_str()) => {
                return Err(ExprError::AlreadyReported);
            }
            (None, None) => {
                let above = here.parent.and_then(|parent| relations.resource(parent).ok());
                let known = here.fields.iter().map(|field| &*field.name).chain(["id"]);
                let known = known.chain(above.map(|parent| parent.name));
                return Err(unknown_name(first, known, syntax));
            }
        };
        if steps.len() == STEPS_MAX {
            let message = format!("expected at most {STEPS_MAX} relations in a path");
            return Err(syntax.error(message));
        }
        steps.push(step);
        (at, rest) = (step.to, after);
    }
}

fn value_node(steps: Vec<RelationStep>, path: Path) -> ExprNode {
    match steps.is_empty() {
        true => ExprNode::Field(path),
        false => ExprNode::Related(Box::new(RelatedPath { steps, path })),
    }
}

/// Follows names inside an object.
pub fn walk_object<'f>(
    mut field: &'f Field,
    names: &[String],
    syntax: &SyntaxNode,
) -> Result<(Vec<Box<str>>, &'f Field), ExprError> {
    let mut inner = Vec::with_capacity(names.len());
    for name in names {
        let fields = &field.rules.fields;
        let Some(next) = find_field(fields, name) else {
            if fields.is_empty() {
                let message =
                    format!("`{}` is of type `{}` and has no fields", field.name, field.kind.name);
                return Err(syntax.error(message));
            }
            return Err(unknown_name(name, fields.iter().map(|field| &*field.name), syntax));
        };
        inner.push(next.name.clone());
        field = next;
    }
    Ok((inner, field))
}

pub fn find_field<'f>(fields: &'f [Field], name: &str) -> Option<&'f Field> {
    fields.iter().find(|field| &*field.name == name)
}

pub fn unknown_name<'k>(
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
