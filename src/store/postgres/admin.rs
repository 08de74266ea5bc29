//! The connection of a command on PostgreSQL, while servers run: for one blocking caller.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::time::timeout;

use crate::clock;
use crate::plan::{Outcome, WritePlan};
use crate::store::context::StoreContext;
use crate::store::driver::Driver as _;
use crate::store::error::{OpenError, StoreError};
use crate::store::postgres::attempt::{PostgresWorkerState, ROLLBACK_TIMEOUT, WriteAttempt};
use crate::store::postgres::connect::SessionSettings;
use crate::store::postgres::connection_url::address::PostgresUrl;
use crate::store::postgres::driver::{PostgresDriver, TransactionStage};
use crate::store::postgres::error_class::classify;
use crate::store::postgres::open;
use crate::store::postgres::pool::{ConnectionPool, DatabaseConnection, LeasePurpose};

/// The time limit of a command that only reads.
const READ_ONLY_TIMEOUT: Duration = Duration::from_secs(30);

/// The time limit of a transaction that writes many rows; each of its statements has its own.
const LONG_TRANSACTION_TIMEOUT: Duration = Duration::from_secs(24 * 60 * 60);
/// A reader that pauses, such as a person behind a pipe, must not end the transaction.
const BEGIN_SNAPSHOT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; \
     SET LOCAL idle_in_transaction_session_timeout = 0";

/// A worker's state, and the runtime that drives it.
pub struct PostgresAdmin {
    // These two are dropped before the runtime that drives them.
    /// Of a store that only reads. It never connects again: after a failover the numbers of the change log
    /// may stand for other changes.
    connection: Option<Box<DatabaseConnection>>,
    state: PostgresWorkerState,
    runtime: LocalRuntime,
    /// Timeout of one call, as for a request.
    call_max: Duration,
    /// Timeout of one call that reads on the connection of a store that only reads; the session limits its statements.
    read_max: Option<Duration>,
}

impl fmt::Debug for PostgresAdmin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresAdmin").field("state", &self.state).finish_non_exhaustive()
    }
}

impl PostgresAdmin {
    /// `None`: the database has none of our tables.
    pub fn find(
        address: &Arc<PostgresUrl>,
        context: &Arc<StoreContext>,
    ) -> Result<Option<Self>, OpenError> {
        let settings = &context.model.server;
        let session = SessionSettings::new(settings);
        let call_max = Duration::from_secs(settings.limits.request_seconds_max.into());
        let admin = Self::new(address, context, session, call_max)?;
        let shown = address.to_string();
        let late = |_| {
            Err(OpenError::new(format!(
                "{shown} did not answer within {} s; if commits wait for a synchronous standby, check that one is connected",
                call_max.as_secs()
            )))
        };
        let opened = async {
            let Some(connection) = admin.connect(&shown).await? else { return Ok(false) };
            open::check_admin_tables(&connection, &shown).await.map(|()| true)
        };
        let opened = admin.runtime.block_on(async { timeout(call_max, opened).await });
        Ok(opened.unwrap_or_else(late)?.then_some(admin))
    }

    /// As `find`, for reads only: the database may have no users.
    pub fn find_read_only(
        address: &Arc<PostgresUrl>,
        context: &Arc<StoreContext>,
        read_max: Option<Duration>,
    ) -> Result<Option<Self>, OpenError> {
        let millis = u64::try_from(READ_ONLY_TIMEOUT.as_millis()).unwrap_or(u64::MAX);
        let session = SessionSettings {
            statement_ms_max: millis,
            lock_ms_max: millis,
            idle_in_transaction_ms_max: millis,
            ..SessionSettings::new(&context.model.server)
        };
        let open_max = read_max.unwrap_or(READ_ONLY_TIMEOUT);
        let admin = Self::new(address, context, session, open_max)?;
        let shown = address.to_string();
        let connection =
            admin.runtime.block_on(async { timeout(open_max, admin.connect(&shown)).await });
        let connection = connection.unwrap_or_else(|_| {
            Err(OpenError::new(format!("{shown} did not answer within {} s", open_max.as_secs())))
        })?;
        Ok(connection.map(|connection| Self { connection: Some(connection), read_max, ..admin }))
    }

    fn new(
        address: &Arc<PostgresUrl>,
        context: &Arc<StoreContext>,
        session: SessionSettings,
        call_max: Duration,
    ) -> Result<Self, OpenError> {
        let runtime =
            Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
        let pool = ConnectionPool::new(Arc::clone(address), session, 1, Arc::default());
        let statement_seconds_max = context.model.server.limits.statement_seconds_max;
        Ok(Self {
            connection: None,
            state: PostgresWorkerState {
                context: Arc::clone(context),
                pool: Arc::new(pool),
                statement_max: Duration::from_secs(statement_seconds_max.into()),
            },
            runtime: runtime.map_err(|error| OpenError::new(format!("cannot start: {error}")))?,
            call_max,
            read_max: None,
        })
    }

    /// `None`: the database has none of our tables.
    async fn connect(&self, shown: &str) -> Result<Option<Box<DatabaseConnection>>, OpenError> {
        let connection = self.state.pool.open_connection(clock::now() + self.call_max).await;
        let connection = connection.map_err(|error| OpenError::new(error.to_string()))?;
        let is_there = open::has_tables(&connection, shown).await?;
        Ok(is_there.then_some(connection))
    }

    /// Runs statements that read, each its own transaction.
    pub fn read<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut PostgresDriver<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let Self { connection, state, runtime, call_max, read_max } = self;
        runtime.block_on(async {
            if let Some(connection) = connection {
                let mut driver = PostgresDriver::new(connection, TransactionStage::Autocommit);
                let Some(max) = read_max else { return work(&mut driver).await };
                return timeout(*max, work(&mut driver)).await.unwrap_or_else(|_| {
                    let seconds = max.as_secs();
                    Err(StoreError::Unavailable(format!("it did not answer within {seconds} s")))
                });
            }
            let lease = state.pool.lease(LeasePurpose::Read, clock::now() + *call_max).await?;
            let mut driver = PostgresDriver::new(&lease, TransactionStage::Autocommit);
            let done = work(&mut driver).await;
            if driver.error_class().is_none() {
                lease.return_to_pool();
            }
            done
        })
    }

    /// Runs statements that read, all from one snapshot.
    pub fn snapshot<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut PostgresDriver<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let Self { connection, runtime, .. } = self;
        let connection = connection.as_ref();
        let connection = connection
            .ok_or_else(|| StoreError::internal("a snapshot needs a store that only reads"))?;
        runtime.block_on(async {
            let begun = connection.client.batch_execute(BEGIN_SNAPSHOT).await;
            begun.map_err(|error| StoreError::from(classify(&error).0))?;
            let mut driver = PostgresDriver::new(connection, TransactionStage::Open);
            let done = work(&mut driver).await;
            // Nothing was written; closing the connection ends the snapshot too.
            let _ = timeout(ROLLBACK_TIMEOUT, connection.client.batch_execute("ROLLBACK")).await;
            done
        })
    }

    /// Runs statements that write, in one transaction.
    pub fn write<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut PostgresDriver<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let until = clock::now() + self.call_max;
        self.write_until(until, async |driver| work(driver).await.map(|done| (done, true)))
    }

    /// As `write`, for many rows. The transaction is rolled back unless the work says that it is to be committed.
    pub fn write_unless_refused<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut PostgresDriver<'_>) -> Result<(T, bool), StoreError>,
    ) -> Result<T, StoreError> {
        self.write_until(clock::now() + LONG_TRANSACTION_TIMEOUT, work)
    }

    fn write_until<T>(
        &mut self,
        until: Instant,
        work: impl AsyncFnOnce(&mut PostgresDriver<'_>) -> Result<(T, bool), StoreError>,
    ) -> Result<T, StoreError> {
        let work = async |driver: &mut PostgresDriver<'_>| {
            let (done, is_to_commit) = work(driver).await?;
            match is_to_commit {
                true => driver.commit().await?,
                false => driver.recover().await?,
            }
            Ok(done)
        };
        let attempt = self.state.attempt_write(TransactionStage::BeginPending, until, work);
        match self.runtime.block_on(attempt) {
            WriteAttempt::Done(done) => done,
            WriteAttempt::Retry(undone) => Err(undone.error),
        }
    }

    /// Carries out a plan as a server does, with its retries.
    pub fn execute(&mut self, write: &WritePlan) -> Result<Outcome, StoreError> {
        self.runtime.block_on(self.state.write_individually(write, clock::now() + self.call_max))
    }
}
