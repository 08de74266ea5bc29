//! The tables of the webhooks, their deliveries and the delivery queue: created at startup on both backends.
//!
//! Like the users they belong to the program and not to the model. A row of `nouns_system` records that they exist,
//! and is the lock under which webhooks are counted. Older programs on the same database leave the tables alone.
//!
//! A delivery has no foreign key to its webhook: deleting a webhook deletes one row, whatever the number of its
//! deliveries, and retention deletes those later, in batches.

use crate::fault::OrBug as _;
use crate::model::Model;
use crate::plan::{Collection, Dependent, RequestRefusal, ScriptStep, WriteAction, WritePlan};
use crate::store::context::StoreContext;
use crate::store::driver::Driver;
use crate::store::error::{InternalError, StatementError, WriteError};
use crate::store::sql::{ddl, webhooks as sql};
use crate::store::statement::{Bind, Columns};
use crate::store::{deliveries, system_values};
use crate::value::{Id, IdKind, Moment};

/// The key in `nouns_system` that records that the tables exist.
const FORMAT_KEY: &str = "webhooks";

/// Creates the tables, unless they exist.
pub async fn create<D: Driver>(driver: &mut D, model: &Model) -> Result<(), StatementError> {
    if exist(driver).await? {
        return Ok(());
    }
    let dialect = D::DIALECT;
    for resource in [model.webhooks, model.deliveries].map(|index| model.resource(index)) {
        driver.execute(&ddl::create_table(model, resource, dialect), &[]).await?;
        for index in ddl::indexes(resource, dialect) {
            driver.execute(&index.create, &[]).await?;
        }
    }
    for table in dialect.webhook_tables {
        driver.execute(table, &[]).await?;
    }
    system_values::write(driver, FORMAT_KEY, "1").await
}

/// Whether a server has created the tables.
pub async fn exist<D: Driver>(driver: &mut D) -> Result<bool, StatementError> {
    Ok(system_values::read(driver, FORMAT_KEY).await?.is_some())
}

/// Locks the queue of a webhook before its deliveries, in the same order as the completion of an attempt.
pub async fn lock_for_write<D: Driver>(
    driver: &mut D,
    context: &StoreContext,
    write: &WritePlan,
) -> Result<(), WriteError> {
    let Collection { resource, ancestors, .. } = &write.collection;
    match ancestors.last() {
        Some(webhook) if *resource == context.model.deliveries => {
            Ok(deliveries::lock_queue(driver, *webhook).await?)
        }
        _ => Ok(()),
    }
}

/// Checks and prepares a write to webhooks or deliveries, before its rows are written.
pub async fn prepare_write<D: Driver>(
    driver: &mut D,
    context: &StoreContext,
    (write, steps): (&WritePlan, &[ScriptStep]),
    now: Moment,
) -> Result<(), WriteError> {
    let resource = write.collection.resource;
    match (&write.action, steps.first()) {
        (WriteAction::Create { .. }, _) if resource == context.model.webhooks => {
            require_room(driver, context, steps.len()).await
        }
        (_, Some(ScriptStep::Update { after, .. })) if resource == context.model.deliveries => {
            let binds = [Bind::Id(after.id), Bind::Moment(now)];
            driver.execute(&sql::queue_again(D::DIALECT), &binds).await?;
            Ok(())
        }
        (_, Some(ScriptStep::Delete(Dependent { collection, id })))
            if resource == context.model.deliveries =>
        {
            let webhook = collection.ancestors.last();
            let webhook = webhook.or_bug("a delivery has the id of its webhook");
            Ok(deliveries::remove_from_queue(driver, (*webhook, *id), now).await?)
        }
        _ => Ok(()),
    }
}

/// Refuses new webhooks beyond the limit. The lock is held until the transaction ends, so that each creation counts
/// the ones before it.
async fn require_room<D: Driver>(
    driver: &mut D,
    context: &StoreContext,
    new: usize,
) -> Result<(), WriteError> {
    if let Some(lock) = D::DIALECT.webhooks_lock {
        driver.query(lock, &[], |_| Ok(())).await?;
    }
    let count = driver.query_one(sql::COUNT, &[], |row| row.required_integer(0)).await?;
    let count = usize::try_from(count.unwrap_or(0)).unwrap_or(usize::MAX);
    let webhooks_max = context.model.server.limits.webhooks_max;
    match count.saturating_add(new) > webhooks_max {
        true => Err(RequestRefusal::TooManyWebhooks { webhooks_max }.into()),
        false => Ok(()),
    }
}

/// The stored secret of a webhook.
#[derive(Debug)]
pub struct StoredSecret {
    pub id: Id,
    /// The sealed text.
    pub sealed: String,
    /// The version of the webhook.
    pub version: i64,
}

/// The stored secrets of all webhooks.
pub async fn read_secrets<D: Driver>(driver: &mut D) -> Result<Vec<StoredSecret>, StatementError> {
    if !exist(driver).await? {
        return Ok(Vec::new());
    }
    let read = |row: &dyn Columns| {
        let id = row.id(0, IdKind::Uuid)?;
        let id = id.ok_or_else(|| InternalError("a webhook without an id".into()))?;
        let (sealed, version) = (row.optional_text(1)?, row.required_integer(2)?);
        Ok(StoredSecret { id, sealed: sealed.unwrap_or_default(), version })
    };
    driver.query(sql::SECRETS, &[], read).await
}

/// Replaces the stored secret of a webhook by the same secret, sealed with another key, unless it has changed. This is
/// no change of the webhook, so it has no entry in the change log.
pub async fn replace_sealed<D: Driver>(
    driver: &mut D,
    stored: &StoredSecret,
    sealed: &str,
) -> Result<(), StatementError> {
    let binds = [Bind::Id(stored.id), Bind::Text(&stored.sealed), Bind::Text(sealed)];
    driver.execute(&sql::replace_sealed(D::DIALECT), &binds).await.map(drop)
}

/// Deletes some deliveries of a webhook that was deleted; returns how many.
pub async fn sweep_orphans<D: Driver>(
    driver: &mut D,
    rows_max: i64,
) -> Result<usize, StatementError> {
    driver.execute(&sql::sweep_orphans(D::DIALECT), &[Bind::Integer(rows_max)]).await
}
