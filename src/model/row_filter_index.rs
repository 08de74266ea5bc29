//! Whether indexes can find the rows that a row filter allows, beginning with a value of the caller. `nouns check` names
//! the missing indexes, and the statements of lists use the others.

use crate::model::expr::{
    Comparison, ExprNode, MemberTest, Path, PathRoot, RelatedPath, RelationStep,
};
use crate::model::{Model, Resource, ResourceIndex, StorageClass};

/// `project.tenant = $user.tenant`, where an index finds the project.
#[derive(Debug)]
pub struct RelatedComparison<'e> {
    pub to: &'e RelatedPath,
    /// The same condition for the item at the end of the path.
    pub condition: ExprNode,
}

/// `exists(member where project = this.project and user = $user)`, where an index finds the members of a user.
#[derive(Debug)]
pub struct MemberLink<'e> {
    /// The column of the members that is compared with the row.
    pub column: &'e Path,
    /// The value of the row: a path of its own, or one to another item.
    pub this: &'e ExprNode,
    /// The other parts of the condition, which do not depend on the row.
    pub rest: Vec<&'e ExprNode>,
}

/// `None` if the node is something else, or if there is no such index.
pub fn related_comparison<'e>(model: &Model, node: &'e ExprNode) -> Option<RelatedComparison<'e>> {
    let (to, value) = related_sides(node)?;
    let end = model.resource(to.steps.last()?.to);
    let field = Box::new(ExprNode::Field(to.path.clone()));
    has_index(end, &to.path).then(|| RelatedComparison {
        to,
        condition: ExprNode::Compare(Comparison::Equal, field, Box::new(value.clone())),
    })
}

/// The path to another item and the constant that its value is compared with.
pub fn related_sides(node: &ExprNode) -> Option<(&RelatedPath, &ExprNode)> {
    equal_sides(node).into_iter().find_map(|(one, other)| match one {
        ExprNode::Related(to) if is_constant(other) => Some((&**to, other)),
        _ => None,
    })
}

/// The field of the row that is compared with a constant.
pub fn own_path(node: &ExprNode) -> Option<&Path> {
    equal_sides(node).into_iter().find_map(|(one, other)| match one {
        ExprNode::Field(path) if is_constant(other) => Some(path),
        _ => None,
    })
}

/// `None` if the members depend on the row in other ways, or if there is no such index.
pub fn member_link<'e>(model: &Model, test: &'e MemberTest) -> Option<MemberLink<'e>> {
    let (of_row, rest): (Vec<_>, Vec<_>) =
        test.condition.conjuncts().into_iter().partition(|part| {
            part.any(&|node| matches!(node, ExprNode::This(_) | ExprNode::Exists(_)))
        });
    let [link] = of_row.as_slice() else { return None };
    let (column, at) = link_sides(link)?;
    let (members, this) = (model.resource(test.resource), test.this.get(at)?);
    let mut paths = rest.iter().filter_map(|part| own_path(part));
    let is_found = paths.any(|path| has_index(members, path));
    let to = target(members, column)?;
    let is_key = match this {
        ExprNode::Field(path) => target(model.resource(test.row), path) == Some(to),
        ExprNode::Related(path) => {
            let end = path.steps.last().map(|step: &RelationStep| model.resource(step.to));
            end.is_some_and(|end| target(end, &path.path) == Some(to))
        }
        _ => false,
    };
    (is_found && is_key).then_some(MemberLink { column, this, rest })
}

/// The resource whose ids a column has. All such columns have an index.
fn target(resource: &Resource, path: &Path) -> Option<ResourceIndex> {
    match path.root {
        PathRoot::Id => Some(resource.index),
        PathRoot::Parent => resource.parent,
        PathRoot::Field(at) if path.inner.is_empty() => {
            Some(resource.fields.get(at)?.rules.reference?.resource)
        }
        PathRoot::Field(_) | PathRoot::Element => None,
    }
}

/// The field of the members of an `exists` that is compared with the row, and the position of the row's value.
fn link_sides(node: &ExprNode) -> Option<(&Path, usize)> {
    equal_sides(node).into_iter().find_map(|sides| match sides {
        (ExprNode::Field(path), ExprNode::This(at)) => Some((path, *at)),
        _ => None,
    })
}

/// Both sides of `=`, in both orders.
pub fn equal_sides(node: &ExprNode) -> Vec<(&ExprNode, &ExprNode)> {
    match node {
        ExprNode::Compare(Comparison::Equal, one, other) => vec![(one, other), (other, one)],
        _ => Vec::new(),
    }
}

/// Whether the value is the same for all rows.
fn is_constant(node: &ExprNode) -> bool {
    matches!(node, ExprNode::Literal(_) | ExprNode::User | ExprNode::UserField(_))
}

/// Whether an index finds the items with a value.
pub fn has_index(resource: &Resource, path: &Path) -> bool {
    if target(resource, path).is_some() {
        return true;
    }
    let PathRoot::Field(at) = path.root else { return false };
    let Some(field) = resource.fields.get(at).filter(|_| path.inner.is_empty()) else {
        return false;
    };
    let is_unique = field.storage_class() != StorageClass::Text
        && resource.unique.iter().any(|rule| rule.fields.first() == Some(&at));
    // The unique indexes of a nested resource may begin with its parent, which a row filter does not know.
    field.filter || (is_unique && resource.parent.is_none())
}
