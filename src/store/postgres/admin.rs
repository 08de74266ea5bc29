//! Admin access for CLI commands while servers run: one connection, for one blocking caller.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::time::timeout;

use crate::clock;
use crate::model::Model;
use crate::plan::{Outcome, ReadPlan, WritePlan};
use crate::store::context::StoreContext;
use crate::store::driver::Driver;
use crate::store::error::{OpenError, StatementError, StoreError};
use crate::store::postgres::attempt::{PostgresWorkerState, WriteAttempt, no_connection};
use crate::store::postgres::connect::SessionSettings;
use crate::store::postgres::connection_url::address::PostgresUrl;
use crate::store::postgres::driver::{PostgresDriver, TransactionStage};
use crate::store::postgres::open;
use crate::store::postgres::pool::{ConnectionPool, LeasePurpose};
use crate::store::sql::dialect::POSTGRES;
use crate::store::users::{self, RoleGroup};
use crate::store::{read, system_values};

/// A worker's state, and the runtime that drives it.
#[derive(Debug)]
pub struct PostgresAdminStore {
    // Dropped before the runtime that drives it.
    inner: Arc<PostgresWorkerState>,
    runtime: LocalRuntime,
    /// Timeout of one call, as for a request.
    call_max: Duration,
}

impl PostgresAdminStore {
    /// `None`: the database has none of our tables.
    pub fn find(address: &Arc<PostgresUrl>, model: &Arc<Model>) -> Result<Option<Self>, OpenError> {
        let session = SessionSettings::new(&model.server);
        let pool = ConnectionPool::new(Arc::clone(address), session, 1, Arc::default());
        let runtime =
            Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
        let runtime = runtime.map_err(|error| OpenError(format!("cannot start: {error}")))?;
        let shown = address.to_string();
        let limits = &model.server.limits;
        let call_max = Duration::from_secs(limits.request_seconds_max.into());
        let opened = async {
            let connection = pool.open_connection(clock::now() + call_max).await;
            let connection = connection.map_err(|error| OpenError(error.to_string()))?;
            if !open::has_tables(&connection, session.pooling, &shown).await? {
                return Ok(false);
            }
            open::check_admin_tables(&connection, session.pooling, &shown).await.map(|()| true)
        };
        let late = |_| {
            Err(OpenError(format!(
                "{shown} did not answer within {} s; if commits wait for a synchronous standby, check that one is connected",
                call_max.as_secs()
            )))
        };
        let opened = runtime.block_on(async { timeout(call_max, opened).await });
        if !opened.unwrap_or_else(late)? {
            return Ok(None);
        }
        let inner = PostgresWorkerState {
            context: StoreContext::new(model, &POSTGRES),
            pool: Arc::new(pool),
            ids: Mutex::default(),
            pooling: session.pooling,
            statement_max: Duration::from_secs(limits.statement_seconds_max.into()),
        };
        Ok(Some(Self { inner: Arc::new(inner), runtime, call_max }))
    }

    pub fn read(&mut self, read: &ReadPlan) -> Result<Outcome, StoreError> {
        let context = Arc::clone(&self.inner.context);
        self.with_driver(async |driver| read::read(driver, &context, read).await)
    }

    pub fn write(&mut self, write: &WritePlan) -> Result<Outcome, StoreError> {
        self.runtime.block_on(self.inner.write_individually(write, clock::now() + self.call_max))
    }

    pub fn read_system_value(&mut self, name: &str) -> Result<Option<String>, StoreError> {
        self.with_driver(async |driver| Ok(system_values::read(driver, &POSTGRES, name).await?))
    }

    pub fn role_groups(&mut self) -> Result<Vec<RoleGroup>, StoreError> {
        let context = Arc::clone(&self.inner.context);
        self.with_driver(async |driver| Ok(users::role_groups(driver, &context.model).await?))
    }

    pub fn write_system_value(&mut self, name: &str, value: &str) -> Result<(), StoreError> {
        self.in_transaction(async |driver| {
            system_values::write(driver, &POSTGRES, name, value).await
        })
    }

    pub fn write_system_value_if_absent(
        &mut self,
        name: &str,
        value: &str,
    ) -> Result<String, StoreError> {
        self.in_transaction(async |driver| {
            system_values::write_if_absent(driver, &POSTGRES, name, value).await
        })
    }

    /// Runs statements that write, in one transaction.
    fn in_transaction<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut PostgresDriver<'_>) -> Result<T, StatementError>,
    ) -> Result<T, StoreError> {
        let work = async |driver: &mut PostgresDriver<'_>| {
            let done = work(driver).await?;
            driver.finish(&[]).await.map_err(|stopped| stopped.failure)?;
            Ok(done)
        };
        let attempt = self.inner.attempt_write(
            TransactionStage::BeginPending,
            clock::now() + self.call_max,
            work,
        );
        match self.runtime.block_on(attempt) {
            WriteAttempt::Done(done) => done,
            WriteAttempt::Retry(undone) => Err(undone.error),
        }
    }

    /// Runs statements that read, each its own transaction.
    fn with_driver<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut PostgresDriver<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let (inner, until) = (&self.inner, clock::now() + self.call_max);
        self.runtime.block_on(async {
            let lease = inner.pool.lease(LeasePurpose::Read, until).await?;
            let connection = lease.connection().ok_or_else(no_connection)?;
            let mut driver = PostgresDriver::new(
                connection,
                &inner.ids,
                inner.pooling,
                TransactionStage::Autocommit,
            );
            let done = work(&mut driver).await;
            if driver.error_class().is_none() {
                lease.return_to_pool();
            }
            done
        })
    }
}
