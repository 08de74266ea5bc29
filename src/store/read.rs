//! Reads: items, pages of lists, and the refusal of an invalid body. Written once for both backends.

use std::collections::BTreeSet;

use crate::model::ResourceIndex;
use crate::permit::FactReader;
use crate::plan::decide::{check_item_preconditions, check_preconditions};
use crate::plan::stored_faults::dangling_faults;
use crate::plan::{
    Collection, InvalidWrite, Outcome, ReadPlan, RequestRefusal, changed_references,
};
use crate::store::change_log::history::read_past_item;
use crate::store::change_log::page::read_page;
use crate::store::change_log::{self, not_modified_page};
use crate::store::context::StoreContext;
use crate::store::driver::Driver;
use crate::store::error::{StatementError, StoreError};
use crate::store::existence::{ExistenceCheck, check_existence};
use crate::store::list_page::PageRead;
use crate::store::related_facts::{FactMoment, evaluate_with_facts, look_up};
use crate::store::sql::statements::PING;
use crate::store::statement::{Columns, Statement};
use crate::store::{deliveries, expand, idempotency, users};
use crate::value::{Id, Item};

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
        ReadPlan::RelatedFacts { facts, sequence } => {
            let mut answers = Vec::with_capacity(facts.len());
            let moment = FactMoment::After(*sequence);
            for fact in facts {
                answers.push(Box::pin(look_up(driver, context, fact, moment)).await?);
            }
            Ok(Outcome::RelatedFacts(answers))
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
        ReadPlan::ModelInForce => deliveries::read_model_in_force(driver).await,
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
            let page = match not_modified_page(driver, context, collection, list).await? {
                Some(page) => page,
                // Boxed: otherwise the future of a single item would be as large as that of a page.
                None => Box::pin(PageRead::new(context, collection, list).load(driver)).await?,
            };
            Ok(Outcome::Page(page))
        }
        ReadPlan::Expanded(read) => Box::pin(expand::read_expanded(driver, context, read)).await,
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
        let judge = |facts: &FactReader<'_>| {
            let (collection, conditions) = (&refuse.collection, &refuse.preconditions);
            let required = check_item_preconditions(collection, conditions, &stored, facts);
            (required, scope.unreadable(declared, &stored, facts))
        };
        let judged = evaluate_with_facts(driver, context, FactMoment::Now, judge);
        let (required, unseen) = Box::pin(judged).await?;
        if let Err(refusal) = required {
            return Ok(refusal);
        }
        // A stored reference may stay, even if its target is not visible to the caller.
        let changed = changed_references(declared, unseen, &stored, refuse.references.iter());
        let changed: BTreeSet<&str> = changed.into_iter().map(|one| &*one.pointer).collect();
        lost_pointers.retain(|pointer| changed.contains(&**pointer));
    }
    let mut faults = refuse.faults.clone();
    faults.extend(dangling_faults(&lost_pointers));
    Ok(RequestRefusal::Invalid(faults))
}
