//! Reads and writes inside one transaction, written once for both backends.
//!
//! A write loads the stored state that `decide` needs, decides (pure), and runs the resulting script. Each
//! row is written with its entry in the change log; no function writes one without the other. The backend
//! begins and commits: SQLite's writer thread for a whole commit group, PostgreSQL's driver together with the
//! statements.

use std::cell::Cell;
use std::ops::Deref;
use std::sync::Arc;

use quick_cache::sync::Cache;

use super::change_log_bounds;
use super::collection_version::{self, CollectionKey};
use super::decision_input::{ExistenceCheck, check_existence, load_decision_input};
use super::driver::{Columns, DatabaseDriver, Statement, StatementError};
use super::idempotency;
use super::rows::read_item;
use super::scoped_statements::ROW_FILTERS_MAX;
use super::script::{self, ChangeLogContext};
use super::sql::{Dialect, ListStatements, PING, RowFilter, SqlStatements};
use super::{StoreError, users};
use crate::clock;
use crate::intent::ListQuery;
use crate::intent::preconditions::Preconditions;
use crate::metrics::Counter;
use crate::model::{GrantVerb, Model, Resource, ResourceIndex};
use crate::permit::UnreadableFields;
use crate::plan::decide::{Script, check_item_preconditions, check_preconditions, dangling_faults};
use crate::plan::{
    Collection, InvalidWrite, Outcome, ReadPlan, Reference, RequestRefusal, StoredState,
    WriteAction, WritePlan, decide,
};
use crate::value::{Id, IdKind, Item, Page, Value};

/// The model, its SQL statements and the cache of row filters.
#[derive(Debug)]
pub(super) struct StoreContext {
    pub(super) model: Arc<Model>,
    pub(super) sql: SqlStatements,
    /// Cache of row filters, by the fingerprint of the rights, the verb and the resource.
    pub(super) row_filters: Cache<(u128, GrantVerb, ResourceIndex), Arc<RowFilter>>,
    /// Metric: stored items that could not be decoded.
    pub(super) damaged_items: Arc<Counter>,
}

impl StoreContext {
    pub(super) fn new(model: &Arc<Model>, dialect: &'static Dialect) -> Arc<Self> {
        Self::with_metrics(model, dialect, Arc::default())
    }

    /// A context with the metric of a server.
    pub(super) fn with_metrics(
        model: &Arc<Model>,
        dialect: &'static Dialect,
        damaged_items: Arc<Counter>,
    ) -> Arc<Self> {
        let (sql, parts) = (SqlStatements::new(model, dialect), Cache::new(ROW_FILTERS_MAX));
        Arc::new(Self { model: Arc::clone(model), sql, row_filters: parts, damaged_items })
    }
}

/// Whether a write shares its commit with others (group commit); one that does must be short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CommitMode {
    Grouped,
    Exclusive,
}

/// A write of more rows than this gets a separate commit.
pub(super) const GROUPED_ROWS_MAX: usize = 100;

/// A page of large items ends early: the size of a response is bounded too.
const PAGE_BYTES_MAX: usize = 8 << 20;

/// Why a write was not executed.
#[derive(Debug)]
pub(super) enum WriteError<T> {
    /// It has more rows than a commit group should wait for: run it again with `CommitMode::Exclusive`.
    ExceedsGroup(T),
    Error(StoreError),
}

impl<T> From<StatementError> for WriteError<T> {
    fn from(failure: StatementError) -> Self {
        Self::Error(failure.into())
    }
}

impl<T> From<RequestRefusal> for WriteError<T> {
    fn from(refusal: RequestRefusal) -> Self {
        Self::Error(StoreError::Refused(refusal))
    }
}

/// A write to execute: borrowed where it may be retried, owned where it is executed once.
pub(super) enum WriteRef<'a> {
    Borrowed(&'a WritePlan),
    Owned(Box<WritePlan>),
}

impl WriteRef<'_> {
    fn into_owned(self) -> Box<WritePlan> {
        match self {
            Self::Borrowed(write) => Box::new(write.clone()),
            Self::Owned(write) => write,
        }
    }
}

impl Deref for WriteRef<'_> {
    type Target = WritePlan;

    fn deref(&self) -> &WritePlan {
        match self {
            Self::Borrowed(write) => write,
            Self::Owned(write) => write,
        }
    }
}

pub(super) async fn read<D: DatabaseDriver>(
    driver: &mut D,
    context: &StoreContext,
    read: &ReadPlan,
) -> Result<Outcome, StoreError> {
    match read {
        ReadPlan::Ready => {
            driver.query(PING, &[], |_| Ok(())).await?;
            Ok(Outcome::Ready)
        }
        ReadPlan::ChangeLogBounds => {
            Ok(Outcome::ChangeLogBounds(change_log_bounds::read(driver).await?))
        }
        ReadPlan::User(name) => {
            Ok(Outcome::User(users::find_by_name(driver, context, name).await?))
        }
        ReadPlan::UsersStamp => Ok(Outcome::Stamp(users::read_stamp(driver, context).await?)),
        ReadPlan::IdempotentResponse(kept) => idempotency::read(driver, context, kept).await,
        ReadPlan::Item(collection, id, _) => {
            let reached = context.scoped_statements(collection.resource, &collection.scope);
            let stroke = reached.item(*id, &collection.ancestors);
            let item = load_item(driver, context, collection.resource, stroke).await?;
            item.map(Outcome::Item).ok_or(StoreError::Refused(RequestRefusal::Missing))
        }
        ReadPlan::Page(collection, list) => {
            let known =
                collection_version::not_modified_page(driver, context, collection, list).await?;
            let page = match known {
                Some(page) => page,
                // Boxed: otherwise the future of a single item would be as large as that of a page.
                None => Box::pin(load_page(driver, context, collection, list)).await?,
            };
            Ok(Outcome::Page(page))
        }
        ReadPlan::InvalidWrite(refuse) => {
            Err(StoreError::Refused(refuse_invalid(driver, context, refuse).await?))
        }
    }
}

/// Reads one item, with the statement that only reads it or the one that locks it.
pub(super) async fn load_item<D: DatabaseDriver>(
    driver: &mut D,
    context: &StoreContext,
    resource: ResourceIndex,
    stroke: Statement<'_>,
) -> Result<Option<Item>, StatementError> {
    let resource = context.model.resource(resource);
    let read = |row: &dyn Columns| read_item(&context.model, resource, row, &context.damaged_items);
    Ok(driver.query(&stroke.sql, &stroke.binds, read).await?.pop())
}

async fn load_page<D: DatabaseDriver>(
    driver: &mut D,
    context: &StoreContext,
    collection: &Collection,
    list: &ListQuery,
) -> Result<Page, StoreError> {
    let model = &context.model;
    let resource = model.resource(collection.resource);
    // One row more than the limit shows whether there is a next page.
    let limit = i64::try_from(list.limit).unwrap_or(i64::MAX).saturating_add(1);
    let read = |row: &dyn Columns| read_item(model, resource, row, &context.damaged_items);
    let bytes = Cell::new(0);
    let is_full = || bytes.get() > PAGE_BYTES_MAX;
    let is_enough = |item: &Item| {
        bytes.set(bytes.get() + item.approximate_bytes());
        is_full()
    };
    let standing = CollectionKey::new(context, collection);
    let place = standing.as_ref().map(|standing| standing.statement(driver.low_watermark()));
    let (place, mut items) = if list.is_whole_by_id() {
        let reached = context.scoped_statements(collection.resource, &collection.scope);
        let after = list.after.as_ref().map(|after| after.id);
        let stroke = reached.page(limit, after, &collection.ancestors);
        match &place {
            Some(place) => {
                driver
                    .query_pair((place, collection_version::read), &stroke, read, is_enough)
                    .await?
            }
            None => {
                let items = driver.query_until(&stroke.sql, &stroke.binds, read, is_enough).await?;
                (Vec::new(), items)
            }
        }
    } else {
        let place = match &place {
            Some(place) => driver.query(&place.sql, &place.binds, collection_version::read).await?,
            None => Vec::new(),
        };
        let listing = list_statements(context, collection, list);
        let mut items: Vec<Item> = Vec::new();
        for section in listing.sections() {
            let found = i64::try_from(items.len()).unwrap_or(i64::MAX);
            let stroke = listing.page(section, limit.saturating_sub(found));
            items.extend(driver.query_uncached(&stroke, read, is_enough).await?);
            if is_full() || items.len() > list.limit {
                break;
            }
        }
        (place, items)
    };
    let position = collection_version::stable_version(driver, &place);
    // Items prove that their parents exist; an empty list does not.
    if items.is_empty() {
        require_parents(driver, context, collection).await?;
    }
    let total = match list.is_counted {
        true => Some(count_items(driver, context, collection, list).await?),
        false => None,
    };
    let more = is_full() || items.len() > list.limit;
    items.truncate(list.limit);
    let next = items.last().map(|item| item.id).filter(|_| more);
    Ok(Page { items, limit: list.limit, next, total, position })
}

pub(super) fn list_statements<'a>(
    context: &'a StoreContext,
    collection: &'a Collection,
    list: &'a ListQuery,
) -> ListStatements<'a> {
    let Collection { resource, ancestors, scope: reach } = collection;
    let resource = (context.model.resource(*resource), ancestors.as_slice());
    ListStatements::new(&context.model, context.sql.dialect, resource, reach, list)
}

/// The total number of items of a list, over all pages.
async fn count_items<D: DatabaseDriver>(
    driver: &mut D,
    context: &StoreContext,
    collection: &Collection,
    list: &ListQuery,
) -> Result<i64, StoreError> {
    let listing = list_statements(context, collection, list);
    let read = |row: &dyn Columns| row.integer(0);
    let counts = driver.query_uncached(&listing.count(), read, |_| false).await?;
    Ok(counts.into_iter().flatten().next().unwrap_or_default())
}

/// Refuses a collection whose parent items do not exist.
pub(super) async fn require_parents<D: DatabaseDriver>(
    driver: &mut D,
    context: &StoreContext,
    collection: &Collection,
) -> Result<(), StoreError> {
    let place = ExistenceCheck::ParentOf(collection);
    let (has_parents, _) = check_existence(driver, context, place, &[]).await?;
    if has_parents { Ok(()) } else { Err(StoreError::Refused(RequestRefusal::Missing)) }
}

/// The refusal of an invalid body: a missing item takes precedence, and all faults are reported together.
async fn refuse_invalid<D: DatabaseDriver>(
    driver: &mut D,
    context: &StoreContext,
    refuse: &InvalidWrite,
) -> Result<RequestRefusal, StoreError> {
    let place = match refuse.item {
        Some(id) => ExistenceCheck::Item(&refuse.collection, id),
        None => ExistenceCheck::ParentOf(&refuse.collection),
    };
    let references: Vec<_> = refuse.references.iter().collect();
    let (is_there, mut lost_pointers) =
        check_existence(driver, context, place, &references).await?;
    if !is_there {
        return Ok(RequestRefusal::Missing);
    }
    let Collection { resource, ancestors, scope: reach } = &refuse.collection;
    if let (None, Err(refusal)) = (refuse.item, check_preconditions(&refuse.preconditions, None)) {
        return Ok(refusal);
    }
    let declared = context.model.resource(*resource);
    let is_conditional = declared.require_if_match || !refuse.preconditions.is_none();
    let is_doubtful = !reach.is_unrestricted() && !lost_pointers.is_empty();
    if let Some(id) = refuse.item.filter(|_| is_conditional || is_doubtful) {
        let reached = context.scoped_statements(*resource, reach);
        let stored = load_item(driver, context, *resource, reached.item(id, ancestors)).await?;
        let Some(stored) = stored else { return Ok(RequestRefusal::Missing) };
        let required = check_item_preconditions(
            &context.model,
            &refuse.collection,
            &refuse.preconditions,
            &stored,
        );
        if let Err(refusal) = required {
            return Ok(refusal);
        }
        let unseen = reach.unreadable(declared, &stored);
        let kept = references.iter().filter(|one| {
            !reach.is_unrestricted() && is_stored_reference((declared, unseen), &stored, one)
        });
        let kept: Vec<&str> = kept.map(|one| &*one.pointer).collect();
        lost_pointers.retain(|pointer| !kept.contains(&&**pointer));
    }
    let mut faults = refuse.faults.clone();
    faults.extend(dangling_faults(&lost_pointers));
    Ok(RequestRefusal::Invalid(faults))
}

/// Whether a reference equals the stored one: that is allowed, even if its target is not visible to the
/// caller. Never true for a field that the caller may not read.
fn is_stored_reference(
    (resource, unseen): (&Resource, UnreadableFields<'_>),
    stored: &Item,
    reference: &Reference,
) -> bool {
    let name = reference.pointer.rsplit('/').next().unwrap_or_default();
    let field = resource.field(name).filter(|(index, _)| !unseen.contains(*index));
    let value = field.and_then(|(index, _)| stored.values.get(index));
    match (value, reference.id) {
        (Some(Value::Text(text)), id @ Id::Uuid(_)) => IdKind::Uuid.parse(text) == Some(id),
        (Some(Value::Integer(number)), Id::Integer(id)) => *number == id,
        (_, _) => false,
    }
}

pub(super) async fn write<D: DatabaseDriver>(
    driver: &mut D,
    context: &StoreContext,
    write: WriteRef<'_>,
    pace: CommitMode,
) -> Result<Outcome, WriteError<Box<WritePlan>>> {
    match write.idempotency.clone() {
        None => execute_write(driver, context, write, pace).await,
        Some(once) => {
            // Authorization first: a stored response is not replayed to a caller who has lost the rights.
            if is_rights_recheck_due(&write) {
                Box::pin(recheck_rights(driver, context, &write)).await?;
            }
            Box::pin(idempotency::write(driver, context, (&once, write), pace)).await
        }
    }
}

/// Executes a write. The decision consumes the action, so that of a borrowed write is cloned.
pub(super) async fn execute_write<D: DatabaseDriver>(
    driver: &mut D,
    context: &StoreContext,
    write: WriteRef<'_>,
    pace: CommitMode,
) -> Result<Outcome, WriteError<Box<WritePlan>>> {
    crate::fault::point("transaction");
    if write.has_clear_text(&context.model) {
        return Err(internal_error("a clear-text secret must not be stored"));
    }
    let found = match load_decision_input(driver, context, &write, pace).await {
        Ok(found) => found,
        Err(WriteError::ExceedsGroup(())) => {
            return Err(WriteError::ExceedsGroup(write.into_owned()));
        }
        Err(WriteError::Error(error)) => return Err(WriteError::Error(error)),
    };
    // After the lookup, which may have waited for a row lock.
    if is_rights_recheck_due(&write) {
        Box::pin(recheck_rights(driver, context, &write)).await?;
    }
    let is_guarded =
        write.collection.resource == context.model.users && !write.can_remove_last_admin;
    let user = found.item.as_ref().filter(|_| is_guarded).cloned();
    let owned;
    let (collection, by, action) = match write {
        WriteRef::Borrowed(WritePlan {
            collection,
            action,
            preconditions: conditions,
            author: by,
            ..
        }) => (collection, by, (action.clone(), conditions)),
        WriteRef::Owned(write) => {
            let WritePlan { collection, action, preconditions: conditions, author: by, .. } =
                *write;
            owned = (collection, by, conditions);
            (&owned.0, &owned.1, (action, &owned.2))
        }
    };
    let log = ChangeLogContext { collection, by, now: found.now };
    let is_amended = found.draft.is_some();
    let script = decide_write(context, collection, action, found)?;
    if let Some(user) = user {
        Box::pin(users::require_remaining_admin(driver, context, &user, &script.steps)).await?;
    }
    let items = script::run(driver, context, &log, script.steps).await?;
    match script.result.into_outcome(items) {
        Some(Outcome::Updated(item)) if is_amended => Ok(Outcome::Patched(item)),
        outcome => outcome.ok_or_else(|| internal_error("an update returned no row")),
    }
}

/// Whether the rights that permitted the write are due for a recheck.
pub(super) fn is_rights_recheck_due(write: &WritePlan) -> bool {
    write.rights_lease.as_ref().is_some_and(|mandate| clock::now() >= mandate.valid_until)
}

/// Refuses a write whose caller's rights have changed since it was permitted.
async fn recheck_rights<D: DatabaseDriver>(
    driver: &mut D,
    context: &StoreContext,
    write: &WritePlan,
) -> Result<(), WriteError<Box<WritePlan>>> {
    let Some(mandate) = &write.rights_lease else { return Ok(()) };
    let stored = users::find_by_name(driver, context, mandate.user.name()).await?;
    match mandate.user.is_still_valid(stored.as_ref()) {
        true => Ok(()),
        false => Err(WriteError::Error(StoreError::RightsChanged)),
    }
}

/// Decides a write. A patched item is written as a replacement.
fn decide_write(
    context: &StoreContext,
    collection: &Collection,
    (action, conditions): (WriteAction, &Preconditions),
    mut found: StoredState,
) -> Result<Script, RequestRefusal> {
    let action = match (action, found.draft.take()) {
        (WriteAction::Patch { id, .. }, Some(draft)) => WriteAction::Replace { id, draft },
        (action, _) => action,
    };
    decide(&context.model, collection, (action, conditions), found)
}

pub(super) fn internal_error<T>(what: &str) -> WriteError<T> {
    WriteError::Error(StoreError::internal(what))
}
