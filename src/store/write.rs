//! Writes inside one transaction, written once for both backends.
//!
//! A write loads the stored state that `decide` needs, decides (pure), and runs the resulting script. Each
//! row is written with its entry in the change log; no function writes one without the other. The lookups of a
//! write that are independent are sent together, in one round trip. The backend
//! begins and commits: SQLite's writer thread for a whole commit group, PostgreSQL's driver together with the
//! statements.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::OwnedSemaphorePermit;

use crate::clock;
use crate::model::Resource;
use crate::permit::FactReader;
use crate::plan::decide::{Script, check_item_preconditions};
use crate::plan::{
    Collection, Dependent, IdempotentRequest, IdempotentResponse, ItemDraft, Outcome,
    RequestRefusal, StoredState, WriteAction, WritePlan, WriteRequest, apply_patch,
    changed_references, decide, uuids_per_item,
};
use crate::reservation::SharedReservation;
use crate::store::cascade::CascadeDelete;
use crate::store::change_log::ChangeLogContext;
use crate::store::context::{CommitMode, GROUPED_ROWS_MAX, RowLock, StoreContext};
use crate::store::driver::{Driver, Then};
use crate::store::error::{StatementError, StoreError, WriteError};
use crate::store::existence::{ExistenceCheck, check_existence};
use crate::store::read::{load_for_decision, load_item};
use crate::store::related_facts::{FactMoment, evaluate_with_facts};
use crate::store::{idempotency, integer_ids, script, users, uuid_v7, webhooks};
use crate::value::{Id, IdKind, Item, Moment};

pub async fn write<D: Driver>(
    driver: &mut D,
    context: &StoreContext,
    write: &WritePlan,
    mode: CommitMode,
) -> Result<Outcome, WriteError> {
    let Some(once) = &write.idempotency else {
        return execute_write(driver, context, write, (mode, Then::Commit)).await;
    };
    // Authorization first: a stored response is not replayed to a caller who has lost the rights.
    if is_rights_recheck_due(write) {
        Box::pin(recheck_rights(driver, context, write)).await?;
    }
    Box::pin(write_once(driver, context, (once, write), mode)).await
}

async fn execute_write<D: Driver>(
    driver: &mut D,
    context: &StoreContext,
    write: &WritePlan,
    (mode, then): (CommitMode, Then),
) -> Result<Outcome, WriteError> {
    crate::fault::point("transaction");
    if write.has_clear_text(&context.model) {
        return Err(StoreError::internal("a clear-text secret must not be stored").into());
    }
    let is_builtin = context.model.resource(write.collection.resource).is_builtin;
    if is_builtin {
        Box::pin(webhooks::lock_for_write(driver, context, write)).await?;
    }
    let found = load_decision_input(driver, context, write, mode).await?;
    // After the lookup, which may have waited for a row lock.
    if is_rights_recheck_due(write) {
        Box::pin(recheck_rights(driver, context, write)).await?;
    }
    let WritePlan { collection, action, preconditions, author: by, .. } = write;
    let is_guarded = collection.resource == context.model.users && !write.can_remove_last_admin;
    let user = found.item.as_ref().filter(|_| is_guarded).cloned();
    let now = found.now;
    let log = ChangeLogContext { collection, by, now };
    let request = WriteRequest { action, conditions: preconditions, user: by.user_values() };
    let script = decide_with_facts(driver, context, collection, request, found).await??;
    if let Some(user) = user {
        Box::pin(users::require_remaining_admin(driver, context, &user, &script.steps)).await?;
    }
    if is_builtin {
        Box::pin(webhooks::prepare_write(driver, context, (write, &script.steps), now)).await?;
    }
    let has_read_check = has_read_check(context, write);
    let until_read = if has_read_check { Then::Continue } else { then };
    let items = script::run(driver, context, &log, script.steps, until_read).await?;
    let outcome = match (script.result.into_outcome(items), action) {
        (Some(Outcome::Updated(item)), WriteAction::Patch { .. }) => Outcome::Patched(item),
        (Some(outcome), _) => outcome,
        (None, _) => return Err(StoreError::internal("an update returned no row").into()),
    };
    if !has_read_check {
        return Ok(outcome);
    }
    let is_readable = Box::pin(are_readable(driver, context, collection, outcome.items())).await?;
    driver.execute_all(&[], then).await?;
    Ok(if is_readable { outcome } else { Outcome::Unreadable(Box::new(outcome)) })
}

/// Decides a write, with the facts about other items that it needs.
async fn decide_with_facts<D: Driver>(
    driver: &mut D,
    context: &StoreContext,
    collection: &Collection,
    request: WriteRequest<'_>,
    found: StoredState,
) -> Result<Result<Script, RequestRefusal>, StatementError> {
    let resource = context.model.resource(collection.resource);
    if !resource.has_reference_rule() && !collection.scope.reads_related(resource.index) {
        let no_facts = FactReader::without_facts(&context.model);
        return Ok(decide(&no_facts, collection, request, found));
    }
    let decide = |facts: &FactReader<'_>| decide(facts, collection, request, found.clone());
    Box::pin(evaluate_with_facts(driver, context, FactMoment::Now, decide)).await
}

/// Whether the store checks after the write that GET shows the items to the caller.
pub fn has_read_check(context: &StoreContext, write: &WritePlan) -> bool {
    let Collection { resource, scope, .. } = &write.collection;
    let is_removal = matches!(write.action, WriteAction::Remove { .. });
    !is_removal && scope.needs_read_check(&context.model, *resource)
}

/// Whether GET shows the items to the caller, in the state that the write leaves: the items that decide it may lead back
/// to the written ones.
async fn are_readable<D: Driver>(
    driver: &mut D,
    context: &StoreContext,
    Collection { resource, ancestors, scope, .. }: &Collection,
    items: &[Item],
) -> Result<bool, StatementError> {
    let scope = scope.for_reading();
    let reached = context.scoped_statements(*resource, &scope);
    let statements: Vec<_> = items.iter().map(|item| reached.exists(item.id, ancestors)).collect();
    Ok(driver.have_rows(&statements).await?.into_iter().all(|is_found| is_found))
}

/// Whether the rights that permitted the write are due for a recheck.
pub fn is_rights_recheck_due(write: &WritePlan) -> bool {
    write.rights_lease.as_ref().is_some_and(|mandate| clock::now() >= mandate.valid_until)
}

/// Refuses a write whose caller's rights have changed since it was permitted.
async fn recheck_rights<D: Driver>(
    driver: &mut D,
    context: &StoreContext,
    write: &WritePlan,
) -> Result<(), WriteError> {
    let Some(mandate) = &write.rights_lease else { return Ok(()) };
    let stored = users::find_by_name(driver, context, mandate.user.name()).await?;
    match mandate.user.is_still_valid(stored.as_ref()) {
        true => Ok(()),
        false => Err(StoreError::RightsChanged.into()),
    }
}

/// How a write is executed.
#[derive(Debug)]
pub struct WriteOptions {
    /// The size of the request body: a commit group has a limit in bytes.
    pub bytes: usize,
    /// A write that is still queued at the deadline is dropped; one that has begun runs to its end.
    pub deadline: Instant,
    /// Memory reservation, held until the write has ended, even if the client disconnects.
    pub memory: Option<Arc<SharedReservation>>,
    /// Admission permit, held while the write does work that no other limit bounds.
    pub place: Option<OwnedSemaphorePermit>,
}

impl WriteOptions {
    /// Options of a write that the server makes on its own behalf.
    pub fn with_deadline(deadline: Instant) -> Self {
        Self { bytes: 0, deadline, memory: None, place: None }
    }
}

/// Loads the stored state for `decide`. All but creates are boxed, so that the future of a create stays
/// small.
async fn load_decision_input<D: Driver>(
    driver: &mut D,
    context: &StoreContext,
    write: &WritePlan,
    mode: CommitMode,
) -> Result<StoredState, WriteError> {
    let collection = &write.collection;
    match &write.action {
        WriteAction::Create { drafts, .. }
            if mode == CommitMode::Grouped && drafts.len() > GROUPED_ROWS_MAX =>
        {
            Err(WriteError::ExceedsGroup)
        }
        WriteAction::Create { drafts, .. } => {
            load_for_create(driver, context, collection, drafts).await
        }
        WriteAction::Replace { id, .. } | WriteAction::Patch { id, .. } => {
            Box::pin(load_for_change(driver, context, write, *id)).await
        }
        WriteAction::Remove { id, dependents_max } => {
            Box::pin(load_for_delete(driver, context, write, (*id, *dependents_max, mode))).await
        }
    }
}

async fn load_for_create<D: Driver>(
    driver: &mut D,
    context: &StoreContext,
    collection: &Collection,
    drafts: &[ItemDraft],
) -> Result<StoredState, WriteError> {
    let references: Vec<_> = drafts.iter().flat_map(|draft| &draft.references).collect();
    let place = ExistenceCheck::ParentOf(collection);
    let (has_parents, lost_references) =
        check_existence(driver, context, place, &references).await?;
    if !has_parents {
        return Err(RequestRefusal::Missing.into());
    }
    let now = driver.now();
    let resource = context.model.resource(collection.resource);
    let ids = allocate_ids(driver, resource, drafts.len(), now).await?;
    let uuids = uuid_v7::random_uuids(uuids_per_item(resource) * drafts.len())?;
    Ok(StoredState { ids, uuids, dangling_references: lost_references, ..StoredState::empty(now) })
}

/// Allocates ids for new items.
async fn allocate_ids<D: Driver>(
    driver: &mut D,
    resource: &Resource,
    count: usize,
    now: Moment,
) -> Result<Vec<Id>, StatementError> {
    match resource.id {
        IdKind::Uuid => uuid_v7::next_ids(count, now),
        // Boxed, since most ids need no query.
        IdKind::Integer => Box::pin(integer_ids::allocate(driver, resource, count)).await,
    }
}

/// Locks and reads the item of a replacement or a patch; a patch is applied.
async fn load_for_change<D: Driver>(
    driver: &mut D,
    context: &StoreContext,
    WritePlan { collection, action, preconditions, .. }: &WritePlan,
    id: Id,
) -> Result<StoredState, WriteError> {
    let mut found = StoredState::empty(driver.now());
    found.item = lock_item(driver, context, collection, id, RowLock::Update).await?;
    if let WriteAction::Patch { patch, .. } = action {
        let stored = found.item.as_ref().ok_or(RequestRefusal::Missing)?;
        let apply = |facts: &FactReader<'_>| {
            check_item_preconditions(collection, preconditions, stored, facts)?;
            apply_patch(facts, collection, patch, stored)
        };
        let draft = evaluate_with_facts(driver, context, FactMoment::Now, apply).await??;
        if draft.has_clear_text() {
            return Err(StoreError::internal("a clear-text secret must not be stored").into());
        }
        found.draft = Some(draft);
    }
    let draft = match action {
        WriteAction::Replace { draft, .. } => Some(draft),
        _ => found.draft.as_ref(),
    };
    let references = match (&found.item, draft) {
        (Some(stored), Some(draft)) if !draft.references.is_empty() => {
            let resource = context.model.resource(collection.resource);
            let changed = |facts: &FactReader<'_>| {
                let unseen = collection.scope.unreadable(resource, stored, facts);
                changed_references(resource, unseen, stored, draft.references.iter())
            };
            evaluate_with_facts(driver, context, FactMoment::Now, changed).await?
        }
        _ => Vec::new(),
    };
    let no_item = ExistenceCheck::Nothing(&collection.scope);
    let (_, dangling) = check_existence(driver, context, no_item, &references).await?;
    found.dangling_references = dangling;
    Ok(found)
}

async fn load_for_delete<D: Driver>(
    driver: &mut D,
    context: &StoreContext,
    WritePlan { collection, preconditions, .. }: &WritePlan,
    (id, dependents_max, mode): (Id, usize, CommitMode),
) -> Result<StoredState, WriteError> {
    let mut found = StoredState::empty(driver.now());
    found.item = lock_item(driver, context, collection, id, RowLock::Delete).await?;
    if let Some(stored) = &found.item {
        // Before its dependents, of which there may be too many.
        let check = |facts: &FactReader<'_>| {
            check_item_preconditions(collection, preconditions, stored, facts)
        };
        evaluate_with_facts(driver, context, FactMoment::Now, check).await??;
        let own = Dependent { collection: collection.clone(), id };
        let mut gathering = CascadeDelete::new(own, dependents_max, mode);
        gathering.collect_dependents(driver, context).await?;
        found.restricted_by = gathering.find_restriction(driver, context).await?;
        gathering.collect_references_to_clear(driver, context).await?;
        (found.items_to_delete, found.references_to_clear) =
            gathering.into_deletion_order(&context.model);
    }
    Ok(found)
}

/// Reads the item that a write is about and locks its row until the transaction ends. An
/// unrestricted caller can delete an item whose lists or objects are damaged: that decision does not parse them.
async fn lock_item<D: Driver>(
    driver: &mut D,
    context: &StoreContext,
    collection: &Collection,
    id: Id,
    lock: RowLock,
) -> Result<Option<Item>, StatementError> {
    let reached = context.scoped_statements(collection.resource, &collection.scope);
    let statement = reached.locked_item(id, &collection.ancestors, lock);
    match lock {
        RowLock::Delete if collection.scope.is_unrestricted() => {
            load_item(driver, context, collection.resource, statement).await
        }
        RowLock::Delete | RowLock::Update => {
            load_for_decision(driver, context, collection.resource, statement).await
        }
    }
}

/// Replays the stored response, or executes the write and stores its response.
async fn write_once<D: Driver>(
    driver: &mut D,
    context: &StoreContext,
    (once, write): (&IdempotentRequest, &WritePlan),
    mode: CommitMode,
) -> Result<Outcome, WriteError> {
    if let Some(kept) = idempotency::lock_or_replay(driver, context, once).await? {
        // Nothing was written, so there is nothing to commit.
        driver.recover().await?;
        return Ok(kept);
    }
    driver.begin_savepoint().await?;
    let done = match execute_write(driver, context, write, (mode, Then::Continue)).await {
        Ok(outcome) => Ok(outcome),
        Err(WriteError::Error(StoreError::Refused(refusal)))
            if once.can_store_refusal(&refusal) =>
        {
            driver.rollback_to_savepoint().await?;
            Err(refusal)
        }
        Err(halt) => return Err(halt),
    };
    let text = idempotency::encode_answer(once, done).await?;
    let Some(text) = text else {
        return Err(StoreError::internal("an answer that cannot be stored").into());
    };
    crate::fault::point("keep");
    idempotency::store_answer(driver, context, once, &text).await?;
    Ok(Outcome::Idempotent(IdempotentResponse { text, is_replay: false }))
}
