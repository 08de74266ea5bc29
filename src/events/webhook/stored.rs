//! Reads of the delivery engine: the webhooks, how far they are, and the model in force.

use std::sync::Arc;

use super::attempt::AttemptContext;
use crate::intent::ListQuery;
use crate::model::{self, Model};
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

/// The model that the database was last migrated to.
#[derive(Debug)]
pub enum ModelInForce {
    /// The one that changes are evaluated with.
    Current,
    Other(Arc<Model>),
    /// A newer version has written it.
    Unreadable,
}

/// Reads the model in force. Its limits are those of this server.
pub async fn find_model_in_force(
    context: &AttemptContext,
    current: &Model,
) -> Result<ModelInForce, StoreError> {
    let shape = match context.store.read(ReadPlan::ModelInForce).await? {
        Outcome::ModelInForce(Some(shape)) => shape,
        _ => return Err(unexpected_outcome()),
    };
    if shape == current.shape {
        return Ok(ModelInForce::Current);
    }
    if shape == context.model.shape {
        return Ok(ModelInForce::Other(Arc::clone(&context.model)));
    }
    let Ok(mut model) = model::read_shape(&shape) else { return Ok(ModelInForce::Unreadable) };
    model.server.limits = context.model.server.limits;
    Ok(ModelInForce::Other(Arc::new(model)))
}

pub fn unexpected_outcome() -> StoreError {
    StoreError::internal("a read of the webhooks had another outcome")
}
