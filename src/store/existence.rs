//! Existence checks: the parent of a collection, and the targets of references.

use std::collections::BTreeSet;

use crate::model::ResourceIndex;
use crate::permit::AccessScope;
use crate::plan::{Collection, Reference, RequestRefusal};
use crate::store::context::StoreContext;
use crate::store::driver::Driver;
use crate::store::error::StoreError;
use crate::value::Id;

/// The item that must exist for a request to be valid.
pub enum ExistenceCheck<'a> {
    /// No item beside those that are read anyway.
    Nothing(&'a AccessScope),
    /// The parent item of a collection, if it has one.
    ParentOf(&'a Collection),
    Item(&'a Collection, Id),
}

impl<'a> ExistenceCheck<'a> {
    fn access_scope(&self) -> &'a AccessScope {
        match self {
            Self::Nothing(scope) => scope,
            Self::ParentOf(collection) | Self::Item(collection, _) => &collection.scope,
        }
    }
}

/// Checks whether the required item exists, and which references are dangling. An item that
/// the caller may not see does not exist.
pub async fn check_existence<D: Driver>(
    driver: &mut D,
    context: &StoreContext,
    place: ExistenceCheck<'_>,
    references: &[&Reference],
) -> Result<(bool, Vec<String>), StoreError> {
    let (scope, seen) = (place.access_scope(), place.access_scope().for_reading());
    let item = match place {
        ExistenceCheck::Nothing(_) => None,
        ExistenceCheck::ParentOf(collection) => context.parent_statements(collection, &seen),
        ExistenceCheck::Item(Collection { resource, ancestors, .. }, id) => {
            Some((context.scoped_statements(*resource, scope), id, &**ancestors))
        }
    };
    let look = item.as_ref().map(|(reached, id, above)| reached.exists(*id, above));
    let is_looked_for = look.is_some();
    // Many items may refer to the same one.
    let distinct: BTreeSet<(ResourceIndex, Id)> =
        references.iter().map(|reference| (reference.to, reference.id)).collect();
    let references_max = context.model.server.limits.references_max;
    if distinct.len() > references_max {
        return Err(RequestRefusal::TooManyReferences { references_max }.into());
    }
    let targets: Vec<_> =
        distinct.iter().map(|(to, _)| context.scoped_statements(*to, &seen)).collect();
    let looks = distinct.iter().zip(&targets);
    let looks = looks.map(|((_, id), target)| target.exists_anywhere(*id));
    let statements: Vec<_> = look.into_iter().chain(looks).collect();
    let mut found = driver.have_rows(&statements).await?.into_iter();
    let is_there = !is_looked_for || found.next() == Some(true);
    let lost = distinct.iter().zip(found).filter(|(_, is_found)| !is_found);
    let lost: BTreeSet<(ResourceIndex, Id)> = lost.map(|(key, _)| *key).collect();
    let is_lost = |reference: &&&Reference| lost.contains(&(reference.to, reference.id));
    let lost = references.iter().filter(is_lost);
    Ok((is_there, lost.map(|reference| reference.pointer.clone()).collect()))
}

/// Refuses a collection whose parent items do not exist.
pub async fn require_parents<D: Driver>(
    driver: &mut D,
    context: &StoreContext,
    collection: &Collection,
) -> Result<(), StoreError> {
    let place = ExistenceCheck::ParentOf(collection);
    let (has_parents, _) = check_existence(driver, context, place, &[]).await?;
    if has_parents { Ok(()) } else { Err(StoreError::Refused(RequestRefusal::Missing)) }
}
