//! The delivery queue of webhooks (transactional outbox), written once for both backends.
//!
//! The position of a webhook moves in the transaction that inserts its deliveries, and only from the value that the
//! server has read: so each change is fanned out once, whichever servers try.
//!
//! Order for each item: of its pending deliveries one at most is due, and the others wait. Whoever ends or deletes a
//! delivery makes the next one due. On PostgreSQL the row of the webhook's position is the lock of its queue: without it, a fan-out that
//! sees an earlier delivery and a completion that does not see the new one would leave the new one waiting for ever.
//!
//! A claim is a lease: a random token, and `due` moves to the end of the lease, after which the delivery is due for
//! everyone. A server whose lease has ended finds another token or none, and changes nothing.

use std::time::Duration;

use crate::fault::OrBug as _;
use crate::intent::{ItemPath, LoggedChange};
use crate::model::builtin::webhook;
use crate::plan::{
    AttemptFailure, AttemptResult, ClaimedDelivery, CompletedAttempt, DeliveryClaim,
    DeliveryOutcome, DeliveryTask, FanOut, Outcome, WebhookPosition, WebhookProgress, WebhookQueue,
};
use crate::store::change_log::item_log::{find_creation, read_item_row};
use crate::store::change_log::read_marks;
use crate::store::context::StoreContext;
use crate::store::driver::{Driver, Then};
use crate::store::error::{StatementError, StoreError};
use crate::store::sql::deliveries as sql;
use crate::store::statement::{Bind, Columns, Statement};
use crate::store::{system_values, uuid_v7};
use crate::value::{Id, IdKind, Item, Moment, Value};

/// The creation of a younger webhook may still be above the low-water mark.
const SETTLING_MAX: Duration = Duration::from_secs(60 * 60);

/// Runs one task. The caller commits.
pub async fn run<D: Driver>(
    driver: &mut D,
    task: &DeliveryTask,
) -> Result<DeliveryOutcome, StatementError> {
    crate::fault::point("delivery");
    let now = driver.now();
    match task {
        DeliveryTask::Start(WebhookPosition { webhook, position, is_active }) => {
            let binds = [Bind::Id(*webhook), Bind::Integer(*position), Bind::Boolean(*is_active)];
            driver.execute(&sql::insert_position(D::DIALECT), &binds).await?;
            Ok(DeliveryOutcome::Done)
        }
        DeliveryTask::FanOut(fan_out) => insert_fan_out(driver, fan_out, now).await,
        DeliveryTask::Claim(request) => claim(driver, request, now).await,
        DeliveryTask::Complete(attempt) => complete(driver, attempt, now).await,
        DeliveryTask::EndLeases => {
            driver.execute(&sql::end_leases(D::DIALECT), &[Bind::Moment(now)]).await?;
            Ok(DeliveryOutcome::Done)
        }
    }
}

pub async fn lock_queue<D: Driver>(driver: &mut D, webhook: Id) -> Result<(), StatementError> {
    driver.query(&sql::lock_queue(D::DIALECT), &[Bind::Id(webhook)], |_| Ok(())).await.map(drop)
}

/// Removes a delivery from the queue of its webhook, which is locked, before it is deleted. The next one of its item
/// does not wait for it any more.
pub async fn remove_from_queue<D: Driver>(
    driver: &mut D,
    (webhook, delivery): (Id, Id),
    now: Moment,
) -> Result<(), StatementError> {
    let remove = sql::remove_queue_row(D::DIALECT);
    let read = |row: &dyn Columns| row.required_text(0);
    for subject in driver.query(&remove, &[Bind::Id(delivery)], read).await? {
        make_next_due(driver, webhook, &subject, now).await?;
    }
    Ok(())
}

async fn make_next_due<D: Driver>(
    driver: &mut D,
    webhook: Id,
    subject: &str,
    now: Moment,
) -> Result<(), StatementError> {
    let binds = [Bind::Id(webhook), Bind::Text(subject), Bind::Moment(now)];
    driver.execute(&sql::make_next_due(D::DIALECT), &binds).await.map(drop)
}

async fn insert_fan_out<D: Driver>(
    driver: &mut D,
    FanOut { from, to, deliveries }: &FanOut,
    now: Moment,
) -> Result<DeliveryOutcome, StatementError> {
    let binds = [
        Bind::Id(to.webhook),
        Bind::Integer(*from),
        Bind::Integer(to.position),
        Bind::Boolean(to.is_active),
    ];
    // The row stays locked until the commit.
    if driver.execute(&sql::move_position(D::DIALECT), &binds).await? == 0 {
        return Ok(DeliveryOutcome::Superseded);
    }
    let ids = uuid_v7::next_ids(deliveries.len(), now)?;
    let [delivery_sql, queue_sql] =
        [sql::insert_delivery(D::DIALECT), sql::insert_queue_row(D::DIALECT)];
    let mut statements = Vec::with_capacity(2 * deliveries.len());
    for (id, delivery) in ids.into_iter().zip(deliveries) {
        let [id, webhook, now] = [Bind::Id(id), Bind::Id(to.webhook), Bind::Moment(now)];
        let sequence = Bind::Integer(delivery.sequence);
        let subject = Bind::Text(&delivery.subject);
        let event_type = Bind::Text(&delivery.event_type);
        let row = vec![id, webhook, now, sequence, event_type, subject];
        statements.push(Statement::new(&delivery_sql, row));
        let row = vec![id, webhook, subject, sequence, Bind::Text(&delivery.body), now];
        statements.push(Statement::new(&queue_sql, row));
    }
    driver.execute_all(&statements, Then::Continue).await?;
    Ok(DeliveryOutcome::Done)
}

async fn claim<D: Driver>(
    driver: &mut D,
    DeliveryClaim { webhook, count, lease, token }: &DeliveryClaim,
    now: Moment,
) -> Result<DeliveryOutcome, StatementError> {
    let binds = [
        Bind::Id(*webhook),
        Bind::Text(token),
        Bind::Moment(later(now, *lease)),
        Bind::Moment(now),
        Bind::Integer(i64::try_from(*count).unwrap_or(i64::MAX)),
    ];
    let read = |row: &dyn Columns| {
        Ok(ClaimedDelivery {
            id: row.id(0, IdKind::Uuid)?.or_bug("a primary key has a value"),
            sequence: row.required_integer(1)?,
            subject: row.required_text(2)?,
            body: row.required_text(3)?,
            tries: row.required_integer(4)?,
        })
    };
    let deliveries = driver.query(&sql::claim(D::DIALECT), &binds, read).await?;
    let due_in = match deliveries.len() < *count {
        // There may be more.
        false => Some(Duration::ZERO),
        true => {
            let webhook = [Bind::Id(*webhook)];
            let read = |row: &dyn Columns| row.moment(0);
            let due = driver.query_one(&sql::next_due(D::DIALECT), &webhook, read).await?;
            due.flatten().map(|due| duration_between(now, due))
        }
    };
    Ok(DeliveryOutcome::Claimed { deliveries, due_in })
}

async fn complete<D: Driver>(
    driver: &mut D,
    CompletedAttempt { webhook, delivery, subject, token, result }: &CompletedAttempt,
    now: Moment,
) -> Result<DeliveryOutcome, StatementError> {
    let [id, token] = [Bind::Id(*delivery), Bind::Text(token)];
    let retry = match result {
        AttemptResult::Released => Some((now, 0)),
        AttemptResult::Postponed { pause, .. } => Some((later(now, *pause), 0)),
        AttemptResult::Delivered { .. } => None,
        AttemptResult::Failed(AttemptFailure { retry_after, .. }) => {
            retry_after.map(|after| (later(now, after), 1))
        }
    };
    lock_queue(driver, *webhook).await?;
    let ended = match retry {
        None => driver.execute(&sql::finish(D::DIALECT), &[id, token]).await?,
        Some((due, tries)) => {
            let binds = [id, token, Bind::Moment(due), Bind::Integer(tries)];
            driver.execute(&sql::postpone(D::DIALECT), &binds).await?
        }
    };
    if ended == 0 {
        return Ok(DeliveryOutcome::Superseded);
    }
    let (status, answer, error) = match result {
        AttemptResult::Released => return Ok(DeliveryOutcome::Done),
        AttemptResult::Delivered { status } => ("delivered", Some(*status), None),
        AttemptResult::Postponed { error, .. } => ("pending", None, Some(*error)),
        AttemptResult::Failed(AttemptFailure { status, error, retry_after }) => {
            let state = if retry_after.is_some() { "pending" } else { "dead" };
            (state, *status, Some(error.as_str()))
        }
    };
    let binds = [
        id,
        Bind::Text(status),
        retry.map_or(Bind::Null, |(due, _)| Bind::Moment(due)),
        answer.map_or(Bind::Null, |status| Bind::Integer(status.into())),
        Bind::optional_text(error),
        Bind::Moment(now),
    ];
    driver.execute(&sql::record_attempt(D::DIALECT), &binds).await?;
    if retry.is_none() {
        make_next_due(driver, *webhook, subject, now).await?;
    }
    Ok(DeliveryOutcome::Done)
}

/// Zero if `until` has passed.
fn duration_between(from: Moment, until: Moment) -> Duration {
    let micros = until.micros().saturating_sub(from.micros());
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

fn later(now: Moment, by: Duration) -> Moment {
    let by = i64::try_from(by.as_micros()).unwrap_or(i64::MAX);
    Moment::from_micros(now.micros().saturating_add(by)).unwrap_or(now)
}

/// The position and the queue of each webhook.
pub async fn read_queues<D: Driver>(driver: &mut D) -> Result<Outcome, StoreError> {
    let now = driver.now();
    let read = |row: &dyn Columns| {
        let webhook = row.id(0, IdKind::Uuid)?.or_bug("a primary key has a value");
        let position = row.integer(1)?.zip(row.boolean(2)?);
        let position =
            position.map(|(position, is_active)| WebhookPosition { webhook, position, is_active });
        Ok(WebhookQueue {
            webhook,
            position,
            due_in: row.moment(3)?.map(|due| duration_between(now, due)),
            pending: usize::try_from(row.required_integer(4)?).unwrap_or(0),
            oldest_pending: row.moment(5)?.map(|since| duration_between(since, now)),
        })
    };
    Ok(Outcome::WebhookQueues(driver.query(&sql::queues(), &[], read).await?))
}

/// The model that the database was last migrated to.
pub async fn read_model_in_force<D: Driver>(driver: &mut D) -> Result<Outcome, StoreError> {
    Ok(Outcome::ModelInForce(system_values::read(driver, "model").await?))
}

/// How far a webhook is; `None`: it has been deleted, or nothing was fanned out yet.
pub async fn read_progress<D: Driver>(driver: &mut D, webhook: Id) -> Result<Outcome, StoreError> {
    let now = driver.now();
    let read = |row: &dyn Columns| {
        let position = row.required_integer(0)?;
        let is_active = row.boolean(1)?.or_bug("the column is NOT NULL");
        let due_in = row.moment(2)?.map(|due| duration_between(now, due));
        let position = WebhookPosition { webhook, position, is_active };
        Ok(WebhookProgress { position, due_in })
    };
    let progress = driver.query_one(&sql::progress(D::DIALECT), &[Bind::Id(webhook)], read).await?;
    Ok(Outcome::WebhookProgress(progress))
}

/// Where a webhook begins: with its own creation or, if the log does not show that, with the next change. `None`: not
/// known yet.
pub async fn find_start<D: Driver>(
    driver: &mut D,
    context: &StoreContext,
    id: Id,
) -> Result<Outcome, StoreError> {
    let model = &context.model;
    let marks = read_marks(driver).await?;
    let path = ItemPath { resource: model.webhooks, ancestors: Vec::new(), id };
    if let Some(change) = find_creation(driver, context, &path, marks).await? {
        let position = change.sequence;
        let logged = LoggedChange::new(model, change);
        // An entry that cannot be read says nothing about it.
        let is_active = logged.after(model).is_none_or(is_enabled);
        return Ok(Outcome::WebhookStart(Some(WebhookPosition {
            webhook: id,
            position,
            is_active,
        })));
    }
    let Some(item) = read_item_row(driver, context, &path).await? else {
        return Ok(Outcome::WebhookStart(None));
    };
    let age = driver.now().micros().saturating_sub(item.created_at.micros());
    let is_young = u128::try_from(age).is_ok_and(|age| age < SETTLING_MAX.as_micros()) || age < 0;
    if is_young && marks.has_in_flight {
        return Ok(Outcome::WebhookStart(None));
    }
    let is_active = is_enabled(&item);
    let start = WebhookPosition { webhook: id, position: marks.low_watermark, is_active };
    Ok(Outcome::WebhookStart(Some(start)))
}

fn is_enabled(item: &Item) -> bool {
    item.values.get(webhook::ENABLED) == Some(&Value::Boolean(true))
}
