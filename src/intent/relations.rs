//! Relations between resources: those that a caller can follow, in `expand` and in filters.
//!
//! A relation that the caller cannot read is unknown, like a hidden field, so that a message about it is the same as one
//! about an undeclared name.

use super::attribute::VisibleResource;
use super::target::PathForm;
use crate::formats::RelatedMember;
use crate::model::expr::{PathRoot, RelationStep};
use crate::model::{Model, Resource, ResourceIndex};

/// Which resources a caller can read, and which fields of them are hidden.
pub trait ReadableResources {
    /// The indices of the hidden fields; `None` if the caller cannot read the resource.
    fn hidden(&self, resource: ResourceIndex) -> Option<&[usize]>;
}

/// Everything, for the server itself.
#[derive(Debug, Clone, Copy)]
pub struct AllReadable;

impl ReadableResources for AllReadable {
    fn hidden(&self, _: ResourceIndex) -> Option<&[usize]> {
        Some(&[])
    }
}

/// The hidden fields of a resource that the caller reads.
pub(super) fn hidden_fields(readable: &dyn ReadableResources, resource: ResourceIndex) -> &[usize] {
    readable.hidden(resource).unwrap_or(&[])
}

/// Items that are related to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Relation {
    pub member: RelatedMember,
    /// The resource of the related items.
    pub target: ResourceIndex,
}

impl Relation {
    /// Its name in a query, which is that of the member in the response.
    pub fn name<'m>(self, model: &'m Model, resource: &'m Resource) -> &'m str {
        self.member.name(resource, model.resource(self.target))
    }
}

/// The relations of a resource that the caller can follow. The credentials of the caller were checked for the realm of
/// the resource, and admit it to no other.
pub fn relations(
    model: &Model,
    resource: &Resource,
    readable: &dyn ReadableResources,
) -> Vec<Relation> {
    let hidden = hidden_fields(readable, resource.index);
    let known = VisibleResource { resource, hidden, form: PathForm::Nested };
    let relation = |member, target| Relation { member, target };
    let parent = resource.parent.map(|parent| relation(RelatedMember::Parent, parent));
    let children = resource.children.iter();
    let children = children.map(|child| relation(RelatedMember::Children, *child));
    let references = known.fields().filter_map(|(at, field)| {
        Some(relation(
            RelatedMember::Field(at),
            field.rules.reference.or(field.many_references())?.resource,
        ))
    });
    // Below a resource that the caller cannot read, nothing is found.
    let can_read = |relation: &Relation| {
        let lineage = model.lineage(relation.target);
        lineage.iter().all(|level| readable.hidden(level.index).is_some())
            && model.resource(relation.target).realm == resource.realm
    };
    parent.into_iter().chain(children).chain(references).filter(can_read).collect()
}

/// A relation to one item, which filters can follow.
#[derive(Debug, Clone, Copy)]
pub struct RelationToOne<'a> {
    /// Its name in a query.
    pub name: &'a str,
    pub step: RelationStep,
    /// The resource of that item.
    pub target: VisibleResource<'a>,
}

/// The relations to one item: the parent, and the fields of type `ref`. A field with the name of the parent hides it, as
/// in the conditions of roles.
pub fn relations_to_one<'a>(
    model: &'a Model,
    known: VisibleResource<'a>,
    readable: &'a dyn ReadableResources,
) -> Vec<RelationToOne<'a>> {
    let resource = known.resource;
    let to_one = |relation: Relation| {
        let name = relation.name(model, resource);
        let by = match relation.member {
            RelatedMember::Parent if known.fields().any(|(_, field)| *field.name == *name) => None,
            RelatedMember::Parent => Some(PathRoot::Parent),
            RelatedMember::Field(at) => {
                let is_one = resource.fields.get(at).is_some_and(|f| f.rules.reference.is_some());
                is_one.then_some(PathRoot::Field(at))
            }
            RelatedMember::Children => None,
        };
        let target = model.resource(relation.target);
        let hidden = hidden_fields(readable, relation.target);
        Some(RelationToOne {
            name,
            step: RelationStep { by: by?, to: relation.target, id: target.id },
            target: VisibleResource { resource: target, hidden, form: PathForm::Nested },
        })
    };
    relations(model, resource, readable).into_iter().filter_map(to_one).collect()
}

/// The names of relations that follow each other, from a resource, and the resource that they lead to.
pub fn name_relations<'m>(
    model: &'m Model,
    resource: &'m Resource,
    steps: &[RelationStep],
) -> (String, &'m Resource) {
    steps.iter().fold((String::new(), resource), |(mut names, from), step| {
        let to = model.resource(step.to);
        let member = match step.by {
            PathRoot::Field(at) => RelatedMember::Field(at),
            PathRoot::Parent | PathRoot::Id | PathRoot::Element => RelatedMember::Parent,
        };
        names.push_str(member.name(from, to));
        names.push('.');
        (names, to)
    })
}
