//! Reads of the delivery engine: the webhooks, how far they are, and the model in force.

use super::attempt::AttemptContext;
use crate::intent::ListQuery;
use crate::permit::AccessScope;
use crate::plan::{
    Collection, DeliveryTask, Outcome, ReadPlan, WebhookPosition, WebhookProgress, WebhookQueue,
};
use crate::store::StoreError;
use crate::value::{Id, Item};

/// Webhooks of one page.
const PAGE_WEBHOOKS: usize = 500;

pub async fn read_webhooks(context: &AttemptContext) -> Result<Vec<Item>, StoreError> {
    let resource = context.model.webhooks;
    let (mut items, mut after) = (Vec::new(), None);
    loop {
        let collection = Collection::nested(resource, Vec::new(), AccessScope::default());
        let list = ListQuery::by_id(PAGE_WEBHOOKS, after).into();
        match context.store.read(ReadPlan::Page(collection, list)).await? {
            Outcome::Page(page) => {
                items.extend(page.items);
                after = items.last().map(|item| item.id);
                if page.next.is_none() {
                    return Ok(items);
                }
            }
            _ => return Err(unexpected_outcome()),
        }
    }
}

pub async fn read_queues(context: &AttemptContext) -> Result<Vec<WebhookQueue>, StoreError> {
    match context.store.read(ReadPlan::WebhookQueues).await? {
        Outcome::WebhookQueues(queues) => Ok(queues),
        _ => Err(unexpected_outcome()),
    }
}

/// `None`: it has been deleted.
pub async fn read_progress(
    context: &AttemptContext,
    webhook: Id,
) -> Result<Option<WebhookProgress>, StoreError> {
    match context.store.read(ReadPlan::WebhookProgress(webhook)).await? {
        Outcome::WebhookProgress(progress) => Ok(progress),
        _ => Err(unexpected_outcome()),
    }
}

/// Finds and stores the position at which a new webhook begins.
pub async fn begin(
    context: &AttemptContext,
    webhook: Id,
) -> Result<Option<WebhookPosition>, StoreError> {
    let start = match context.store.read(ReadPlan::WebhookStart(webhook)).await? {
        Outcome::WebhookStart(start) => start,
        _ => return Err(unexpected_outcome()),
    };
    if let Some(start) = start {
        context.store.deliver(DeliveryTask::Start(start)).await?;
    }
    Ok(start)
}

/// Whether the database was last migrated to the model of this server.
pub async fn is_model_in_force(context: &AttemptContext) -> Result<bool, StoreError> {
    match context.store.read(ReadPlan::IsModelInForce).await? {
        Outcome::IsModelInForce(is_in_force) => Ok(is_in_force),
        _ => Err(unexpected_outcome()),
    }
}

pub fn unexpected_outcome() -> StoreError {
    StoreError::internal("a read of the webhooks had another outcome")
}
