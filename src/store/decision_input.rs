//! The read phase of a write: loads (and locks) the stored state that `decide` needs.
//!
//! Independent lookups are sent together, in one round trip.

use super::cascade::CascadeDelete;
use super::driver::{DatabaseDriver, StatementError};
use super::scoped_statements::RowLock;
use super::transaction::{
    CommitMode, GROUPED_ROWS_MAX, StoreContext, WriteError, internal_error, load_item,
};
use crate::intent::Patch;
use crate::permit::AccessScope;
use crate::plan::decide::check_item_preconditions;
use crate::plan::{
    Collection, Dependent, ItemDraft, Reference, RequestRefusal, StoredState, WriteAction,
    WritePlan, apply_patch,
};
use crate::value::{Id, Item};

/// Loads the stored state for `decide`. All but creates are boxed, so that the future of a create stays
/// small.
pub(super) async fn load_decision_input<D: DatabaseDriver>(
    driver: &mut D,
    context: &StoreContext,
    write: &WritePlan,
    pace: CommitMode,
) -> Result<StoredState, WriteError<()>> {
    let collection = &write.collection;
    match &write.action {
        WriteAction::Create { drafts, .. }
            if pace == CommitMode::Grouped && drafts.len() > GROUPED_ROWS_MAX =>
        {
            Err(WriteError::ExceedsGroup(()))
        }
        WriteAction::Create { drafts, .. } => {
            load_for_create(driver, context, collection, drafts).await
        }
        WriteAction::Replace { id, draft } => {
            Box::pin(load_for_replace(driver, context, collection, (*id, draft))).await
        }
        WriteAction::Patch { id, patch } => {
            Box::pin(load_for_patch(driver, context, write, (*id, patch))).await
        }
        WriteAction::Remove { id, dependents_max } => {
            let own = Dependent { collection: collection.clone(), id: *id };
            Box::pin(load_for_delete(driver, context, own, (*dependents_max, pace))).await
        }
    }
}

async fn load_for_create<D: DatabaseDriver>(
    driver: &mut D,
    context: &StoreContext,
    collection: &Collection,
    drafts: &[ItemDraft],
) -> Result<StoredState, WriteError<()>> {
    let references: Vec<_> = drafts.iter().flat_map(|draft| &draft.references).collect();
    let place = ExistenceCheck::ParentOf(collection);
    let (has_parents, lost_references) =
        check_existence(driver, context, place, &references).await?;
    if !has_parents {
        return Err(RequestRefusal::Missing.into());
    }
    let now = driver.now();
    let resource = context.model.resource(collection.resource);
    let ids = driver.allocate_ids(resource, drafts.len(), now).await?;
    Ok(StoredState { ids, dangling_references: lost_references, ..StoredState::empty(now) })
}

async fn load_for_replace<D: DatabaseDriver>(
    driver: &mut D,
    context: &StoreContext,
    collection: &Collection,
    (id, draft): (Id, &ItemDraft),
) -> Result<StoredState, WriteError<()>> {
    let now = driver.now();
    let item = lock_item(driver, context, collection, id, RowLock::Update).await?;
    let lost_references = find_dangling_references(driver, context, collection, draft).await?;
    Ok(StoredState { item, dangling_references: lost_references, ..StoredState::empty(now) })
}

async fn load_for_patch<D: DatabaseDriver>(
    driver: &mut D,
    context: &StoreContext,
    WritePlan { collection, preconditions: conditions, .. }: &WritePlan,
    (id, patch): (Id, &Patch),
) -> Result<StoredState, WriteError<()>> {
    let (now, model) = (driver.now(), &context.model);
    let stored = lock_item(driver, context, collection, id, RowLock::Update).await?;
    let stored = stored.ok_or(RequestRefusal::Missing)?;
    check_item_preconditions(model, collection, conditions, &stored)?;
    let draft = apply_patch(model, collection, patch, &stored)?;
    if draft.has_clear_text() {
        return Err(internal_error("a clear-text secret must not be stored"));
    }
    let lost_references = find_dangling_references(driver, context, collection, &draft).await?;
    Ok(StoredState {
        item: Some(stored),
        draft: Some(draft),
        dangling_references: lost_references,
        ..StoredState::empty(now)
    })
}

async fn load_for_delete<D: DatabaseDriver>(
    driver: &mut D,
    context: &StoreContext,
    own: Dependent,
    (dependents_max, pace): (usize, CommitMode),
) -> Result<StoredState, WriteError<()>> {
    let mut found = StoredState::empty(driver.now());
    found.item = lock_item(driver, context, &own.collection, own.id, RowLock::Delete).await?;
    if found.item.is_some() {
        let mut gathering = CascadeDelete::new(own, dependents_max, pace);
        gathering.collect_dependents(driver, context).await?;
        found.restricted_by = gathering.find_restriction(driver, context).await?;
        found.items_to_delete = gathering.into_deletion_order(&context.model);
    }
    Ok(found)
}

/// Reads the item that a write is about and locks its row until the transaction ends.
async fn lock_item<D: DatabaseDriver>(
    driver: &mut D,
    context: &StoreContext,
    collection: &Collection,
    id: Id,
    lock: RowLock,
) -> Result<Option<Item>, StatementError> {
    let reached = context.scoped_statements(collection.resource, &collection.scope);
    let stroke = reached.locked_item(id, &collection.ancestors, lock);
    load_item(driver, context, collection.resource, stroke).await
}

/// The references of a draft whose targets do not exist.
async fn find_dangling_references<D: DatabaseDriver>(
    driver: &mut D,
    context: &StoreContext,
    collection: &Collection,
    draft: &ItemDraft,
) -> Result<Vec<String>, StatementError> {
    let references: Vec<_> = draft.references.iter().collect();
    let place = ExistenceCheck::Nothing(&collection.scope);
    Ok(check_existence(driver, context, place, &references).await?.1)
}

/// The item that must exist for a request to be valid.
pub(super) enum ExistenceCheck<'a> {
    /// No item beside those that are read anyway.
    Nothing(&'a AccessScope),
    /// The parent item of a collection, if it has one.
    ParentOf(&'a Collection),
    Item(&'a Collection, Id),
}

impl<'a> ExistenceCheck<'a> {
    fn access_scope(&self) -> &'a AccessScope {
        match self {
            Self::Nothing(reach) => reach,
            Self::ParentOf(collection) | Self::Item(collection, _) => &collection.scope,
        }
    }
}

/// Checks in one round trip whether the required item exists, and which references are dangling. An item that
/// the caller may not see does not exist.
pub(super) async fn check_existence<D: DatabaseDriver>(
    driver: &mut D,
    context: &StoreContext,
    place: ExistenceCheck<'_>,
    references: &[&Reference],
) -> Result<(bool, Vec<String>), StatementError> {
    let (reach, seen) = (place.access_scope(), place.access_scope().for_reading());
    let item = match place {
        ExistenceCheck::Nothing(_) => None,
        ExistenceCheck::ParentOf(collection) => context.parent_statements(collection, &seen),
        ExistenceCheck::Item(Collection { resource, ancestors, .. }, id) => {
            Some((context.scoped_statements(*resource, reach), id, &**ancestors))
        }
    };
    let look = item.as_ref().map(|(reached, id, above)| reached.exists(*id, above));
    let is_looked_for = look.is_some();
    let targets: Vec<_> =
        references.iter().map(|reference| context.scoped_statements(reference.to, &seen)).collect();
    let looks = references.iter().zip(&targets);
    let looks = looks.map(|(reference, target)| target.exists_anywhere(reference.id));
    let strokes: Vec<_> = look.into_iter().chain(looks).collect();
    if strokes.is_empty() {
        return Ok((true, Vec::new()));
    }
    let mut found = driver.query_each(&strokes, |_, _| Ok(())).await?.into_iter();
    let is_there = !is_looked_for || found.next().is_some_and(|rows| !rows.is_empty());
    let lost = references.iter().zip(found).filter(|(_, rows)| rows.is_empty());
    Ok((is_there, lost.map(|(reference, _)| reference.pointer.clone()).collect()))
}
