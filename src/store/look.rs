//! The read phase of a write: loads (and locks) the stored state that `decide` needs.
//!
//! Independent lookups are sent together, in one round trip.

use super::driver::{Driver, Failure};
use super::gather::Gathering;
use super::reached::RowLock;
use super::transaction::{Context, Halt, Pace, SHARED_ROWS_MAX, broken, item};
use crate::intent::Patch;
use crate::permit::Reach;
use crate::plan::decide::require_of;
use crate::plan::{
    Action, Collection, Dependent, Draft, Found, Reference, Refusal, Write, patched,
};
use crate::value::{Id, Item};

/// Loads what `decide` needs. All but creates are boxed, so that the future of a create stays small.
pub(super) async fn look<D: Driver>(
    driver: &mut D,
    context: &Context,
    write: &Write,
    pace: Pace,
) -> Result<Found, Halt<()>> {
    let collection = &write.collection;
    match &write.action {
        Action::Create { drafts, .. } if pace == Pace::Shared && drafts.len() > SHARED_ROWS_MAX => {
            Err(Halt::TooLong(()))
        }
        Action::Create { drafts, .. } => created(driver, context, collection, drafts).await,
        Action::Replace { id, draft } => {
            Box::pin(replaced(driver, context, collection, (*id, draft))).await
        }
        Action::Amend { id, patch } => {
            Box::pin(amended(driver, context, write, (*id, patch))).await
        }
        Action::Remove { id, dependents_max } => {
            let own = Dependent { collection: collection.clone(), id: *id };
            Box::pin(removed(driver, context, own, (*dependents_max, pace))).await
        }
    }
}

async fn created<D: Driver>(
    driver: &mut D,
    context: &Context,
    collection: &Collection,
    drafts: &[Draft],
) -> Result<Found, Halt<()>> {
    let references: Vec<_> = drafts.iter().flat_map(|draft| &draft.references).collect();
    let place = Place::Collection(collection);
    let (has_parents, lost_references) = surroundings(driver, context, place, &references).await?;
    if !has_parents {
        return Err(Refusal::Missing.into());
    }
    let now = driver.now();
    let resource = context.model.resource(collection.resource);
    let ids = driver.allocate(resource, drafts.len(), now).await?;
    Ok(Found { ids, lost_references, ..Found::at(now) })
}

async fn replaced<D: Driver>(
    driver: &mut D,
    context: &Context,
    collection: &Collection,
    (id, draft): (Id, &Draft),
) -> Result<Found, Halt<()>> {
    let now = driver.now();
    let item = locked(driver, context, collection, id, RowLock::Update).await?;
    let lost_references = lost(driver, context, collection, draft).await?;
    Ok(Found { item, lost_references, ..Found::at(now) })
}

async fn amended<D: Driver>(
    driver: &mut D,
    context: &Context,
    Write { collection, conditions, .. }: &Write,
    (id, patch): (Id, &Patch),
) -> Result<Found, Halt<()>> {
    let (now, model) = (driver.now(), &context.model);
    let stored = locked(driver, context, collection, id, RowLock::Update).await?;
    let stored = stored.ok_or(Refusal::Missing)?;
    require_of(model, collection, conditions, &stored)?;
    let draft = patched(model, collection, patch, &stored)?;
    if draft.has_clear() {
        return Err(broken("a secret on its way to the disk as it was sent"));
    }
    let lost_references = lost(driver, context, collection, &draft).await?;
    Ok(Found { item: Some(stored), draft: Some(draft), lost_references, ..Found::at(now) })
}

async fn removed<D: Driver>(
    driver: &mut D,
    context: &Context,
    own: Dependent,
    (dependents_max, pace): (usize, Pace),
) -> Result<Found, Halt<()>> {
    let mut found = Found::at(driver.now());
    found.item = locked(driver, context, &own.collection, own.id, RowLock::Delete).await?;
    if found.item.is_some() {
        let mut gathering = Gathering::new(own, dependents_max, pace);
        gathering.cascade(driver, context).await?;
        found.restricted_by = gathering.restricted(driver, context).await?;
        found.going = gathering.children_first(&context.model);
    }
    Ok(found)
}

/// Reads the item that a write is about and locks its row until the transaction ends.
async fn locked<D: Driver>(
    driver: &mut D,
    context: &Context,
    collection: &Collection,
    id: Id,
    lock: RowLock,
) -> Result<Option<Item>, Failure> {
    let reached = context.reached(collection.resource, &collection.reach);
    let stroke = reached.locked_item(id, &collection.ancestors, lock);
    item(driver, context, collection.resource, stroke).await
}

/// The references of a draft whose targets do not exist.
async fn lost<D: Driver>(
    driver: &mut D,
    context: &Context,
    collection: &Collection,
    draft: &Draft,
) -> Result<Vec<String>, Failure> {
    let references: Vec<_> = draft.references.iter().collect();
    let place = Place::Nowhere(&collection.reach);
    Ok(surroundings(driver, context, place, &references).await?.1)
}

/// What must exist for a request to be valid.
pub(super) enum Place<'a> {
    /// Nothing that is not read anyway.
    Nowhere(&'a Reach),
    /// The parent item of a collection, if it has one.
    Collection(&'a Collection),
    Item(&'a Collection, Id),
}

impl<'a> Place<'a> {
    fn reach(&self) -> &'a Reach {
        match self {
            Self::Nowhere(reach) => reach,
            Self::Collection(collection) | Self::Item(collection, _) => &collection.reach,
        }
    }
}

/// Checks in one round trip whether the required item exists, and which references are dangling. An item that
/// the caller may not see does not exist.
pub(super) async fn surroundings<D: Driver>(
    driver: &mut D,
    context: &Context,
    place: Place<'_>,
    references: &[&Reference],
) -> Result<(bool, Vec<String>), Failure> {
    let (reach, seen) = (place.reach(), place.reach().seen());
    let item = match place {
        Place::Nowhere(_) => None,
        Place::Collection(collection) => context.parent(collection, &seen),
        Place::Item(Collection { resource, ancestors, .. }, id) => {
            Some((context.reached(*resource, reach), id, &**ancestors))
        }
    };
    let look = item.as_ref().map(|(reached, id, above)| reached.exists(*id, above));
    let is_looked_for = look.is_some();
    let targets: Vec<_> =
        references.iter().map(|reference| context.reached(reference.to, &seen)).collect();
    let looks = references.iter().zip(&targets);
    let looks = looks.map(|(reference, target)| target.exists_anywhere(reference.id));
    let strokes: Vec<_> = look.into_iter().chain(looks).collect();
    if strokes.is_empty() {
        return Ok((true, Vec::new()));
    }
    let mut found = driver.rows_each(&strokes, |_, _| Ok(())).await?.into_iter();
    let is_there = !is_looked_for || found.next().is_some_and(|rows| !rows.is_empty());
    let lost = references.iter().zip(found).filter(|(_, rows)| rows.is_empty());
    Ok((is_there, lost.map(|(reference, _)| reference.pointer.clone()).collect()))
}
