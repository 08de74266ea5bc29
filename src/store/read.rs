//! Reads: items, pages of lists, and the refusal of an invalid body. Written once for both backends.

use std::cell::RefCell;

use crate::intent::ListQuery;
use crate::model::{Resource, ResourceIndex, SORTED_CHARS_MAX};
use crate::permit::UnreadableFields;
use crate::plan::decide::{check_item_preconditions, check_preconditions, dangling_faults};
use crate::plan::{Collection, InvalidWrite, Outcome, ReadPlan, Reference, RequestRefusal};
use crate::store::change_log::history::read_past_item;
use crate::store::change_log::item_log::ancestor_at;
use crate::store::change_log::page::read_page;
use crate::store::change_log::{
    self, CollectionKey, LogPosition, not_modified_page, read_position, stable_version,
};
use crate::store::context::StoreContext;
use crate::store::driver::Driver;
use crate::store::error::{StatementError, StoreError};
use crate::store::existence::{ExistenceCheck, check_existence, require_parents};
use crate::store::sql::list::ListStatements;
use crate::store::sql::statements::PING;
use crate::store::statement::{Columns, Statement};
use crate::store::{deliveries, idempotency, users};
use crate::value::{Id, IdKind, Item, Page, Value};

/// A page of large items ends early: the size of a response is bounded too.
const PAGE_BYTES_MAX: usize = 8 << 20;

pub async fn read<D: Driver>(
    driver: &mut D,
    context: &StoreContext,
    read: &ReadPlan,
) -> Result<Outcome, StoreError> {
    match read.flat_item() {
        None => read_nested(driver, context, read).await,
        Some(item) => Box::pin(read_located(driver, context, read, item)).await,
    }
}

/// Any read but those of an item with a flat path.
async fn read_nested<D: Driver>(
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
            Ok(Outcome::ChangeLogBounds(change_log::read_bounds(driver).await?))
        }
        ReadPlan::Changes(read) => {
            Ok(Outcome::Changes(Box::pin(read_page(driver, context, read)).await?))
        }
        ReadPlan::ChangeBatch { after, bytes_max } => {
            let batch = change_log::read_log_batch(driver, *after, *bytes_max).await?;
            Ok(Outcome::ChangeBatch(batch))
        }
        ReadPlan::LogMarks => Ok(Outcome::LogMarks(change_log::read_marks(driver).await?)),
        ReadPlan::ItemStates { paths, sequence } => {
            let mut states = Vec::with_capacity(paths.len());
            for path in paths {
                states.push(Box::pin(ancestor_at(driver, context, path, *sequence)).await?);
            }
            Ok(Outcome::ItemStates(states))
        }
        ReadPlan::WatchStart(collection, item) => {
            // The marks come first: a deletion that the check does not see has a larger number.
            let marks = change_log::read_marks(driver).await?;
            let place = match item {
                Some(id) => ExistenceCheck::Item(collection, *id),
                None => ExistenceCheck::ParentOf(collection),
            };
            match check_existence(driver, context, place, &[]).await? {
                (true, _) => Ok(Outcome::LogMarks(marks)),
                (false, _) => Err(StoreError::Refused(RequestRefusal::Missing)),
            }
        }
        ReadPlan::User(name) => {
            Ok(Outcome::User(users::find_by_name(driver, context, name).await?))
        }
        ReadPlan::IsModelInForce => deliveries::check_model_in_force(driver, context).await,
        ReadPlan::WebhookQueues => deliveries::read_queues(driver).await,
        ReadPlan::WebhookProgress(id) => deliveries::read_progress(driver, *id).await,
        ReadPlan::WebhookStart(id) => Box::pin(deliveries::find_start(driver, context, *id)).await,
        ReadPlan::UsersStamp => Ok(Outcome::Stamp(users::read_stamp(driver).await?)),
        ReadPlan::IdempotentResponse(kept) => idempotency::read(driver, context, kept).await,
        ReadPlan::Item(collection, id, _) => {
            let reached = context.scoped_statements(collection.resource, &collection.scope);
            let statement = reached.item(*id, &collection.ancestors);
            let item = match collection.resource == context.model.users {
                // A patch of a user is decided outside of the store, because its password is hashed there.
                true => load_for_decision(driver, context, collection.resource, statement).await?,
                false => load_item(driver, context, collection.resource, statement).await?,
            };
            item.map(Outcome::Item).ok_or(StoreError::Refused(RequestRefusal::Missing))
        }
        ReadPlan::PastItem(read) => {
            Ok(Outcome::PastItem(Box::pin(read_past_item(driver, context, read)).await?))
        }
        ReadPlan::Page(collection, list) => {
            let known = not_modified_page(driver, context, collection, list).await?;
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

/// Reads an item by its id alone. Its ancestors are looked up with it, because its own path names them.
async fn read_located<D: Driver>(
    driver: &mut D,
    context: &StoreContext,
    plan: &ReadPlan,
    (collection, id): (&Collection, Id),
) -> Result<Outcome, StoreError> {
    let reached = context.scoped_statements(collection.resource, &collection.scope);
    let statement = reached.flat_item(id);
    let resource = collection.resource;
    let row = |row: &dyn Columns| context.read_located_item(resource, row);
    let found = driver.query_statement(&statement, row).await?.pop();
    let (item, ancestors) = found.ok_or(StoreError::Refused(RequestRefusal::Missing))?;
    let outcome = match plan.under(ancestors.clone()) {
        Some(ReadPlan::Item(..)) => Outcome::Item(item),
        Some(nested) => Box::pin(read_nested(driver, context, &nested)).await?,
        None => return Err(StoreError::internal("only reads of items have a flat path")),
    };
    Ok(Outcome::Located(ancestors, Box::new(outcome)))
}

/// Reads one item, with the statement that only reads it or the one that locks it.
pub async fn load_item<D: Driver>(
    driver: &mut D,
    context: &StoreContext,
    resource: ResourceIndex,
    statement: Statement<'_>,
) -> Result<Option<Item>, StatementError> {
    Ok(driver.query_statement(&statement, |row| context.read_item(resource, row)).await?.pop())
}

/// The rows of a page, as they are loaded.
struct PageRows<'a> {
    context: &'a StoreContext,
    resource: ResourceIndex,
    items: Vec<Item>,
    bytes: usize,
    position: Option<LogPosition>,
}

impl PageRows<'_> {
    /// Runs the statement that reads the position, if there is one, and one that reads items, in one round trip.
    async fn load<D: Driver>(
        &mut self,
        driver: &mut D,
        position: Option<Statement<'_>>,
        page: Option<Statement<'_>>,
    ) -> Result<(), StatementError> {
        let Self { context, resource, items, bytes, position: found } = self;
        let has_position = position.is_some();
        let statements: Vec<_> = position.into_iter().chain(page).collect();
        // The items go to their list at once, because copying them costs a list 1 % of its time.
        let (items, found) = (RefCell::new(items), RefCell::new(found));
        let read = |at: usize, row: &dyn Columns| {
            if at == 0 && has_position {
                **found.borrow_mut() = Some(read_position(row)?);
                return Ok(0);
            }
            let item = context.read_item(*resource, row)?;
            let item_bytes = item.approximate_bytes();
            items.borrow_mut().push(item);
            Ok(item_bytes)
        };
        let is_enough = |item_bytes: &usize| {
            *bytes += item_bytes;
            *bytes > PAGE_BYTES_MAX
        };
        driver.query_all(&statements, read, is_enough).await?;
        Ok(())
    }

    fn is_full(&self, limit: usize) -> bool {
        self.bytes > PAGE_BYTES_MAX || self.items.len() > limit
    }
}

/// As `load_item`, for an item that a decision depends on.
pub async fn load_for_decision<D: Driver>(
    driver: &mut D,
    context: &StoreContext,
    resource: ResourceIndex,
    statement: Statement<'_>,
) -> Result<Option<Item>, StatementError> {
    let item = load_item(driver, context, resource, statement).await?;
    if let Some(item) = &item {
        context.check_lists_and_objects(resource, item)?;
    }
    Ok(item)
}

async fn load_page<D: Driver>(
    driver: &mut D,
    context: &StoreContext,
    collection: &Collection,
    list: &ListQuery,
) -> Result<Page, StoreError> {
    // One row more than the limit shows whether there is a next page.
    let limit = i64::try_from(list.limit).unwrap_or(i64::MAX).saturating_add(1);
    let key = CollectionKey::new(context, collection);
    let position = key.as_ref().map(|key| key.statement_for(driver));
    let resource = collection.resource;
    let mut rows = PageRows { context, resource, items: Vec::new(), bytes: 0, position: None };
    if list.is_whole_by_id() {
        let reached = context.scoped_statements(collection.resource, &collection.scope);
        let after = list.after.as_ref().map(|after| after.id);
        let page = reached.page(limit, after, collection);
        rows.load(driver, position, Some(page)).await?;
    } else {
        rows.load(driver, position, None).await?;
        let listing = list_statements(context, collection, list);
        for section in listing.sections() {
            let found = i64::try_from(rows.items.len()).unwrap_or(i64::MAX);
            let page = listing.page(section, limit.saturating_sub(found));
            rows.load(driver, None, Some(page)).await?;
            if rows.is_full(list.limit) {
                break;
            }
        }
    }
    let position = rows.position.and_then(|found| stable_version(driver, found));
    // Items prove that their parents exist; an empty list does not.
    if rows.items.is_empty() {
        require_parents(driver, context, collection).await?;
    }
    let total = match list.is_counted {
        true => Some(count_items(driver, context, collection, list).await?),
        false => None,
    };
    let has_more = rows.is_full(list.limit);
    let mut items = rows.items;
    items.truncate(list.limit);
    let last = items.last().filter(|_| has_more);
    if let Some(item) = last {
        check_cursor_values(context, resource, list, item)?;
    }
    let next = last.map(|item| item.id);
    Ok(Page { items, limit: list.limit, next, total, position })
}

/// Checks the values of the last item of a page, which become the cursor of the next one: another program may
/// have damaged an object, or stored a longer text than the model allows.
fn check_cursor_values(
    context: &StoreContext,
    resource: ResourceIndex,
    list: &ListQuery,
    item: &Item,
) -> Result<(), StatementError> {
    if list.sorts_inside_objects() {
        context.check_lists_and_objects(resource, item)?;
    }
    let values = list.position_after(context.model.resource(resource), item).values;
    let is_too_long = |value: &Value| matches!(value, Value::Text(text) if text.chars().count() > SORTED_CHARS_MAX);
    match values.iter().any(is_too_long) {
        true => Err(context.damaged_item(resource, item, "a text is longer than its field allows")),
        false => Ok(()),
    }
}

pub fn list_statements<'a>(
    context: &'a StoreContext,
    collection: &'a Collection,
    list: &'a ListQuery,
) -> ListStatements<'a> {
    ListStatements::new(&context.model, context.sql.dialect, collection, list)
}

/// The total number of items of a list, over all pages.
async fn count_items<D: Driver>(
    driver: &mut D,
    context: &StoreContext,
    collection: &Collection,
    list: &ListQuery,
) -> Result<i64, StoreError> {
    let listing = list_statements(context, collection, list);
    let count = driver.query_statement(&listing.count(), |row| row.required_integer(0)).await?;
    count.first().copied().ok_or_else(|| StoreError::internal("a count without a row"))
}

/// The refusal of an invalid body: a missing item takes precedence, and all faults are reported together.
async fn refuse_invalid<D: Driver>(
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
    let Collection { resource, ancestors, scope, .. } = &refuse.collection;
    if let (None, Err(refusal)) = (refuse.item, check_preconditions(&refuse.preconditions, None)) {
        return Ok(refusal);
    }
    let declared = context.model.resource(*resource);
    let is_conditional = declared.require_if_match || !refuse.preconditions.is_none();
    let is_doubtful = !scope.is_unrestricted() && !lost_pointers.is_empty();
    if let Some(id) = refuse.item.filter(|_| is_conditional || is_doubtful) {
        let reached = context.scoped_statements(*resource, scope);
        let statement = reached.item(id, ancestors);
        let stored = load_for_decision(driver, context, *resource, statement).await?;
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
        let unseen = scope.unreadable(declared, &stored);
        let kept = references.iter().filter(|one| {
            !scope.is_unrestricted() && is_stored_reference((declared, unseen), &stored, one)
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
