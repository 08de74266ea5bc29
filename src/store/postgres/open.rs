//! Opening the database at startup: check that it is ours, and migrate its tables to the model.
//!
//! All table changes are in one transaction under one lock, so that of several servers that start together
//! one creates the tables, and the others wait, compare models, and serve or fail. Indexes of tables in use
//! are built after it, and foreign keys validated (`index_build`); a second transaction then puts the
//! model into force.
//! A session that waits for a table lock blocks all later sessions, so a start never waits longer than
//! `TABLE_LOCK_MS`. Without its locks the transaction is rolled back and retried, with pauses, for as long as
//! a start may take. Behind a pooling proxy session settings have no effect, so each transaction sets its own
//! timeouts.

use std::sync::Arc;
use std::time::Duration;

use crate::clock;
use crate::model::Model;
use crate::model::settings::ServerTable;
use crate::store::driver::Driver;
use crate::store::error::{
    MigrationError, OpenError, StatementError, missing_users_error, newer_format_error,
};
use crate::store::postgres::commit_wait::{CONNECT_TIMEOUT, CommitGuard, StartFailure};
use crate::store::postgres::connect::SessionSettings;
use crate::store::postgres::connection_url::address::PostgresUrl;
use crate::store::postgres::driver::{PostgresDriver, TransactionStage};
use crate::store::postgres::error_class::ErrorClass;
use crate::store::postgres::index_build::IndexBuilder;
use crate::store::postgres::pool::{ConnectionPool, DatabaseConnection};
use crate::store::postgres::replay_protection::tables;
use crate::store::postgres::server_registry::{START_LOCK, ServerRegistration};
use crate::store::schema::{self, Deferred};
use crate::store::statement::{Bind, Columns};
use crate::store::system_values;
use crate::store::users::STAMP_KEY;

/// The format of our system tables; a larger number was written by a newer version.
pub const FORMAT: i64 = 1;

/// How long a migration waits for a table lock while requests queue behind it.
const TABLE_LOCK_MS: u32 = 200;
/// How long a start tries to lock its tables, and to acquire the lock of starts.
const TABLE_LOCKS_TIMEOUT: Duration = Duration::from_secs(20);
/// How long one statement of a start may take.
pub const START_LOCK_TIMEOUT: Duration = Duration::from_secs(60);
/// Bounds of the backoff between retries.
const RETRY_DELAY_MAX: Duration = Duration::from_secs(2);
const RETRY_DELAY_MIN: Duration = Duration::from_millis(100);

/// Finds our system table, and any table whose name we would use. 1: these names, comma-separated.
const INSPECT: &str = "SELECT to_regclass('nouns_system') IS NOT NULL, \
    (SELECT string_agg(relname, ', ' ORDER BY relname) FROM pg_class \
     WHERE relnamespace = current_schema()::regnamespace \
     AND relname = ANY (string_to_array($1, ',')))";

const HAS_TABLES: &str = "SELECT to_regclass('nouns_system') IS NOT NULL";

/// The obstacle that blocked a transaction, which was rolled back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Obstacle {
    /// Sessions that use the tables.
    Tables,
    /// Another server that is starting.
    Start,
}

/// Why one attempt failed.
#[derive(Debug)]
enum StartError {
    Blocked(Obstacle),
    Mismatch(MigrationError),
    Open(OpenError),
}

impl From<MigrationError> for StartError {
    fn from(mismatch: MigrationError) -> Self {
        match mismatch {
            MigrationError::Failed(StatementError::Locked) => Self::Blocked(Obstacle::Tables),
            mismatch => Self::Mismatch(mismatch),
        }
    }
}

impl From<StatementError> for StartError {
    fn from(failure: StatementError) -> Self {
        MigrationError::Failed(failure).into()
    }
}

/// The migration at the start of one server.
pub struct StartupMigration<'a> {
    pub model: &'a Model,
    pub server: &'a ServerRegistration,
    pub commits: CommitGuard<'a>,
}

impl StartupMigration<'_> {
    /// Migrates the tables to the model. It writes in any case, so that a read-only database is detected at
    /// startup.
    pub async fn run(&self) -> Result<(), StartFailure> {
        self.commits.probe_commit().await?;
        let deferred = self.in_turn(async |driver| self.change_tables(driver).await).await?;
        self.server.set_registered(true);
        if deferred.is_empty() {
            return Ok(());
        }
        let CommitGuard { pool, log, display_url, .. } = self.commits;
        let builder = IndexBuilder { pool, log, display_url };
        let done = match builder.run(&deferred).await {
            Ok(()) => self.in_turn(async |driver| self.complete(driver).await).await,
            Err(error) => Err(error),
        };
        if done.is_err() {
            self.deregister().await;
        }
        done
    }

    /// Removes this server's registration. If that fails, the registration expires by itself.
    async fn deregister(&self) {
        self.server.set_registered(false);
        let Ok(connection) = self.commits.connect().await else { return };
        let mut driver = PostgresDriver::new(&connection, TransactionStage::Autocommit);
        let _ = self.server.remove(&mut driver).await;
    }

    fn lock_timeout_error(&self, obstacle: Obstacle) -> OpenError {
        let (shown, seconds) = (self.commits.display_url, TABLE_LOCKS_TIMEOUT.as_secs());
        OpenError::new(match obstacle {
            Obstacle::Tables => format!(
                "{shown}: cannot migrate its tables to the model, because other sessions hold locks on them, such as an \
                 export or a tool, and still did after {seconds} seconds; nothing was changed, and nobody was \
                 held up: wait until they are done and start again, or start with --wait"
            ),
            Obstacle::Start => format!(
                "{shown}: another server that starts has not finished for {seconds} seconds; see what it waits \
                 for, and start again, or start with --wait"
            ),
        })
    }

    /// Runs a transaction under the lock of starts. If another session holds a needed lock, the transaction
    /// is rolled back and retried.
    async fn in_turn<T>(
        &self,
        work: impl AsyncFn(&mut PostgresDriver<'_>) -> Result<T, StartError>,
    ) -> Result<T, StartFailure> {
        let until = clock::now() + TABLE_LOCKS_TIMEOUT;
        let mut pause = RETRY_DELAY_MIN;
        loop {
            let obstacle = match self.commits.guard_commit(self.attempt_migration(&work)).await? {
                Ok(done) => return Ok(done),
                Err(obstacle) => obstacle,
            };
            if clock::now() >= until {
                return Err(StartFailure::Retryable(self.lock_timeout_error(obstacle)));
            }
            tokio::time::sleep(with_jitter(pause)).await;
            if obstacle == Obstacle::Tables {
                pause = (pause * 2).min(RETRY_DELAY_MAX);
            }
        }
    }

    /// Makes one attempt; if others held a needed lock, nothing was changed.
    async fn attempt_migration<T>(
        &self,
        work: impl AsyncFn(&mut PostgresDriver<'_>) -> Result<T, StartError>,
    ) -> Result<Result<T, Obstacle>, StartFailure> {
        let connection = self.commits.connect().await?;
        let mut driver = PostgresDriver::new(&connection, TransactionStage::BeginPending);
        let done = migrate_in_transaction(&mut driver, work).await;
        let trouble = driver.error_class();
        let error = match done {
            Ok(done) => {
                self.commits.pool.push_idle(connection);
                return Ok(Ok(done));
            }
            Err(error) => error,
        };
        driver.rollback_uncommitted().await;
        match (error, trouble) {
            (StartError::Blocked(obstacle), _) => Ok(Err(obstacle)),
            (_, Some(ErrorClass::Retryable | ErrorClass::ReadOnly)) => Ok(Err(Obstacle::Tables)),
            (StartError::Open(error), _) => Err(StartFailure::Refused(error)),
            (StartError::Mismatch(mismatch), trouble) => {
                // The servers that use the database may stop meanwhile.
                let is_in_use = matches!(
                    mismatch,
                    MigrationError::InUse(_) | MigrationError::InUseSinceBuild(_)
                );
                let error = mismatch.describe(self.commits.display_url);
                Err(match is_in_use || trouble.is_some() {
                    true => StartFailure::Retryable(error),
                    false => StartFailure::Refused(error),
                })
            }
        }
    }

    async fn change_tables(&self, driver: &mut PostgresDriver<'_>) -> Result<Deferred, StartError> {
        let is_ours = check_ownership(driver, self.model, self.commits.display_url).await?;
        let others = self.server.other_models(driver, self.model).await?.require_readable()?;
        let deferred = match is_ours {
            true => schema::migrate(driver, self.model, &others).await?,
            false => {
                schema::create(driver, self.model).await?;
                system_values::write(driver, "format", &FORMAT.to_string()).await?;
                Deferred::default()
            }
        };
        tables::create_tables(driver).await?;
        self.server.register(driver, self.model).await?;
        let now = driver.now().to_string();
        system_values::write(driver, "started_at", &now).await?;
        Ok(deferred)
    }

    async fn complete(&self, driver: &mut PostgresDriver<'_>) -> Result<(), StartError> {
        let others = self.server.other_models(driver, self.model).await?.require_readable();
        let others = others.map_err(|error| match error {
            MigrationError::InUse(lines) => MigrationError::InUseSinceBuild(lines),
            other => other,
        })?;
        Ok(schema::complete(driver, self.model, &others).await?)
    }
}

/// Runs work under the lock of starts, and commits it.
async fn migrate_in_transaction<T>(
    driver: &mut PostgresDriver<'_>,
    work: impl AsyncFn(&mut PostgresDriver<'_>) -> Result<T, StartError>,
) -> Result<T, StartError> {
    let limit = START_LOCK_TIMEOUT.as_millis();
    let begin = format!(
        "SELECT {START_LOCK}, set_config('lock_timeout', '{TABLE_LOCK_MS}', true), \
         set_config('statement_timeout', '{limit}', true), \
         set_config('idle_in_transaction_session_timeout', '{limit}', true)"
    );
    if !driver.query_is_true(&begin).await? {
        return Err(StartError::Blocked(Obstacle::Start));
    }
    let done = work(driver).await?;
    driver.commit().await?;
    Ok(done)
}

/// Equal jitter: half of the delay, and a random part of the other half.
fn with_jitter(pause: Duration) -> Duration {
    let half = pause / 2;
    let millis = u64::try_from(half.as_millis()).unwrap_or(1).max(1);
    half + Duration::from_millis(getrandom::u64().unwrap_or(0) % millis)
}

/// One connection for a command that needs no pool.
pub async fn connect_once(
    address: &Arc<PostgresUrl>,
    settings: &ServerTable,
) -> Result<Box<DatabaseConnection>, OpenError> {
    let session = SessionSettings::new(settings);
    let pool = ConnectionPool::new(Arc::clone(address), session, 1, Arc::default());
    let connection = pool.open_connection(clock::now() + CONNECT_TIMEOUT).await;
    connection.map_err(|error| OpenError::new(error.to_string()))
}

/// Whether the database has our system table. Takes no table lock.
pub async fn has_tables(connection: &DatabaseConnection, shown: &str) -> Result<bool, OpenError> {
    let mut driver = PostgresDriver::new(connection, TransactionStage::Autocommit);
    let found = driver.query_is_true(HAS_TABLES).await;
    found.map_err(|failure| MigrationError::Failed(failure).describe(shown))
}

/// Checks for CLI commands, on a database with our system table, that the tables they need exist; changes
/// nothing. The model may differ from the servers' one, because no model defines the users.
pub async fn check_admin_tables(
    connection: &DatabaseConnection,
    shown: &str,
) -> Result<(), OpenError> {
    let mut driver = PostgresDriver::new(connection, TransactionStage::Autocommit);
    let explain = |failure: StatementError| MigrationError::Failed(failure).describe(shown);
    if let Some(newer) = check_format(&mut driver, shown).await.map_err(explain)? {
        return Err(newer);
    }
    let stamp = system_values::read(&mut driver, STAMP_KEY).await.map_err(explain)?;
    stamp.map(drop).ok_or_else(|| missing_users_error(shown))
}

/// The error for a database that a newer version has written.
async fn check_format(
    driver: &mut PostgresDriver<'_>,
    shown: &str,
) -> Result<Option<OpenError>, StatementError> {
    let stored = system_values::read(driver, "format").await?;
    let format = stored.and_then(|text| text.parse::<i64>().ok()).unwrap_or(FORMAT);
    Ok((format > FORMAT).then(|| newer_format_error(shown, format, FORMAT)))
}

/// Whether the database is ours: false if it is empty, an error if it belongs to another program.
async fn check_ownership(
    driver: &mut PostgresDriver<'_>,
    model: &Model,
    shown: &str,
) -> Result<bool, StartError> {
    let ours = [
        "nouns_system",
        "nouns_changes",
        "nouns_keys",
        "nouns_delivery_queue",
        "nouns_webhook_positions",
    ];
    let tables = model.resources.iter().map(|resource| &*resource.table);
    let names = ours.into_iter().chain(tables).collect::<Vec<_>>().join(",");
    let read = |row: &dyn Columns| {
        let is_ours = row.boolean(0)?.unwrap_or(false);
        Ok((is_ours, row.text(1)?.map(str::to_owned)))
    };
    match driver.query_one(INSPECT, &[Bind::Text(&names)], read).await? {
        Some((true, _)) => {}
        Some((false, Some(tables))) => {
            return Err(StartError::Open(OpenError::new(format!(
                "{shown} holds tables of another program ({tables}); name another --database, or a schema of its own: …?options=-c%20search_path%3DNAME"
            ))));
        }
        Some((false, None)) | None => return Ok(false),
    }
    check_format(driver, shown).await?.map_or(Ok(true), |newer| Err(StartError::Open(newer)))
}
