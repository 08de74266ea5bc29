//! `nouns migrate` on PostgreSQL: one transaction under the lock of starts, while no server is registered.

use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, LocalOptions};

use crate::store::driver::Driver as _;
use crate::store::error::{MigrationError, OpenError, StatementError};
use crate::store::migration::steps::MigrationPlan;
use crate::store::migration::{self, MigrationRequest};
use crate::store::postgres::connection_url::address::PostgresUrl;
use crate::store::postgres::driver::{PostgresDriver, TransactionStage};
use crate::store::postgres::open;
use crate::store::postgres::server_registry::{START_LOCK, ServerRegistration};

/// How long the migration waits for the lock of a table, such as one that an export holds.
const TABLE_LOCK_TIMEOUT: Duration = Duration::from_secs(20);

pub fn migrate(
    address: &Arc<PostgresUrl>,
    request: MigrationRequest<'_>,
) -> Result<MigrationPlan, OpenError> {
    let cannot_start =
        |error: &dyn std::fmt::Display| OpenError::new(format!("cannot start: {error}"));
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
    let runtime = runtime.map_err(|error| cannot_start(&error))?;
    let registration = ServerRegistration::new().map_err(|error| cannot_start(&error))?;
    let shown = address.to_string();
    runtime.block_on(async {
        // The transaction sets its own timeouts.
        let connection = open::connect_once(address, &request.model.server).await?;
        if !open::has_tables(&connection, &shown).await? {
            return Err(OpenError::new(format!(
                "there are no tables of nouns in {shown}; create them with: nouns serve"
            )));
        }
        open::check_admin_tables(&connection, &shown).await?;
        let mut driver = PostgresDriver::new(&connection, TransactionStage::BeginPending);
        let done = run(&mut driver, &registration, request).await;
        if done.is_err() {
            driver.rollback_uncommitted().await;
        }
        done.map_err(|error| error.describe(&shown))
    })
}

async fn run(
    driver: &mut PostgresDriver<'_>,
    registration: &ServerRegistration,
    request: MigrationRequest<'_>,
) -> Result<MigrationPlan, MigrationError> {
    let lock_ms = TABLE_LOCK_TIMEOUT.as_millis();
    let begin = format!(
        "SELECT {START_LOCK}, set_config('lock_timeout', '{lock_ms}', true), \
         set_config('statement_timeout', '0', true), \
         set_config('idle_in_transaction_session_timeout', '0', true)"
    );
    let declined = |message: &str| Err(MigrationError::Declined(message.to_owned()));
    if !driver.query_is_true(&begin).await? {
        return declined(
            "a server is starting on this database; try again when it serves or has stopped",
        );
    }
    registration.other_models(driver, request.model).await?;
    if registration.has_others(driver).await? {
        return declined(
            "servers are running on this database, with the model of before: stop them first, then migrate (one that \
             was killed counts for some minutes)",
        );
    }
    let plan = migration::run(driver, request).await?;
    driver.commit().await.map_err(|failure| match failure {
        StatementError::Storage(cause) => StatementError::Storage(format!(
            "{cause}; it is not known whether the migration was made: see nouns plan"
        )),
        failure => failure,
    })?;
    Ok(plan)
}
