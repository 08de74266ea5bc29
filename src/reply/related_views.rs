//! The related items of a response, with the fields that the caller can see.

use crate::formats::{RelatedItems, RelatedView};
use crate::intent::{Expansion, Relation};
use crate::model::Model;
use crate::permit::AccessScope;

/// The relations of a query, with the items that were read for them.
pub fn related_views<'a>(
    (model, scope): (&'a Model, &'a AccessScope),
    expand: &'a [Expansion],
    related: &'a [RelatedItems],
) -> Vec<RelatedView<'a>> {
    let views = expand.iter().zip(related).map(|(expansion, items)| {
        let Relation { member, target } = expansion.relation;
        RelatedView {
            member,
            resource: model.resource(target),
            hidden: &scope.read_access(target).hidden,
            selected_members: expansion.list.selected_members.as_deref(),
            items,
            inner: related_views((model, scope), &expansion.inner, &items.inner),
        }
    });
    views.collect()
}
