//! Online index builds on tables that are in use (`CREATE INDEX CONCURRENTLY`), and
//! validation of foreign keys against existing rows (`VALIDATE CONSTRAINT`).
//!
//! They run after the start's transaction, since such a build cannot run in one, and before the server
//! serves. Reads and writes are not blocked. PostgreSQL waits for every transaction that was open when a build
//! began, such as an export, so the timeout is long, and the log says what the build waits for.
//! One server builds at a time: it holds a transaction-level advisory lock on another connection than the one
//! that builds; a session-level lock would be lost behind a pooling proxy. Such a transaction has no snapshot
//! between its statements, so the build does not wait for it; and no server waits for the lock inside a
//! statement, whose snapshot the build would wait for.

use std::time::{Duration, Instant};

use tokio_postgres::SimpleQueryMessage;
use tokio_postgres::error::SqlState;

use crate::clock;
use crate::log::{Level, Logger};
use crate::model::settings::Pooling;
use crate::store::driver::Driver;
use crate::store::error::OpenError;
use crate::store::postgres::commit_wait::{CONNECT_TIMEOUT, StartFailure};
use crate::store::postgres::driver::{PostgresDriver, TransactionStage};
use crate::store::postgres::error_class::error_message;
use crate::store::postgres::pool::{ConnectionPool, DatabaseConnection};
use crate::store::schema::Deferred;
use crate::store::sql::columns::quote_name;
use crate::store::sql::ddl::{ForeignKey, IndexDefinition};
use crate::store::statement::{Bind, Columns};

/// The timeout of a build, longer than an export may take.
const BUILD_TIMEOUT: Duration = Duration::from_secs(15 * 60);
/// Delay between two checks of another server's build.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// True for the one server that may build now. The first number is the namespace of our advisory locks.
/// Sent as one simple query: an extended query would leave its portal open, with a snapshot.
const BUILD_LOCK: &str = "BEGIN; SET LOCAL idle_in_transaction_session_timeout = 0; \
    SELECT pg_try_advisory_xact_lock(1313821262, 4)";

/// 1: the index. Whether it is valid, and whether it is being built.
const INDEX_STATE: &str = "SELECT indisvalid, \
    EXISTS (SELECT 1 FROM pg_stat_progress_create_index WHERE index_relid = pg_class.oid) \
    FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid \
    WHERE relnamespace = current_schema()::regnamespace AND relname = $1";

/// The state of the index of one name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IndexState {
    Absent,
    Valid,
    /// Another session is building it.
    Building,
    /// A failed build left it behind.
    Invalid,
}

/// Why a statement failed.
struct IndexBuildError {
    cause: String,
    code: Option<SqlState>,
}

/// The context of the index builds.
pub struct IndexBuilder<'a> {
    pub pool: &'a ConnectionPool,
    pub log: &'a Logger,
    /// The URL of the database, for messages.
    pub display_url: &'a str,
}

impl IndexBuilder<'_> {
    /// Builds the deferred indexes and validates the deferred foreign keys.
    pub async fn run(&self, deferred: &Deferred) -> Result<(), StartFailure> {
        let until = clock::now() + BUILD_TIMEOUT;
        let builder = self.connect().await?;
        if self.pool.session.pooling == Pooling::Session {
            // The build is expected to wait for locks, and blocks no request.
            let millis = BUILD_TIMEOUT.as_millis();
            let set = format!("SET lock_timeout = 0; SET statement_timeout = {millis}");
            self.run_outside_transaction(&builder, &set, until)
                .await
                .map_err(|error| self.retryable(&error.cause))?;
        }
        let guard = self.connect().await?;
        while !self.try_build_lock(&guard).await? {
            if clock::now() >= until {
                return Err(self.retryable("another server has been building indexes for too long"));
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        for index in &deferred.indexes {
            self.build_index(&builder, index, until).await?;
        }
        for key in &deferred.foreign_keys {
            self.validate(&builder, key, until).await?;
        }
        Ok(())
    }

    async fn connect(&self) -> Result<Box<DatabaseConnection>, StartFailure> {
        let connection = self.pool.open_connection(clock::now() + CONNECT_TIMEOUT).await;
        connection.map_err(|error| match error.into() {
            StartFailure::Unreachable(error) => StartFailure::Retryable(error),
            failure => failure,
        })
    }

    /// Whether this server may build, until the connection ends.
    async fn try_build_lock(&self, guard: &DatabaseConnection) -> Result<bool, StartFailure> {
        let asked = guard.client.simple_query(BUILD_LOCK).await;
        let asked = asked.map_err(|error| self.retryable(&error_message(&error)))?;
        let is_ours = asked.iter().any(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0) == Some("t"),
            _ => false,
        });
        if !is_ours {
            let undone = guard.client.batch_execute("ROLLBACK").await;
            undone.map_err(|error| self.retryable(&error_message(&error)))?;
        }
        Ok(is_ours)
    }

    async fn build_index(
        &self,
        connection: &DatabaseConnection,
        index: &IndexDefinition,
        until: Instant,
    ) -> Result<(), StartFailure> {
        let name = &index.name;
        loop {
            match self.index_state(connection, name).await? {
                IndexState::Valid => return Ok(()),
                // An operator is building it by hand.
                IndexState::Building if clock::now() < until => {
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
                IndexState::Invalid | IndexState::Building => {
                    let drop = drop_index_sql(name);
                    let dropped = self.run_outside_transaction(connection, &drop, until).await;
                    dropped.map_err(|error| self.retryable(&error.cause))?;
                }
                IndexState::Absent => break,
            }
        }
        let waits = "for all transactions that are open now, such as exports";
        self.log.event(Level::Info, "building an index", &[("index", name), ("waits", &waits)]);
        let text = index.create.replacen("INDEX ", "INDEX CONCURRENTLY ", 1);
        if let Err(error) = self.run_outside_transaction(connection, &text, until).await {
            // A failed build leaves an invalid index, which slows down every write and serves no read.
            if let Ok(connection) = self.connect().await {
                let until = clock::now() + CONNECT_TIMEOUT;
                let _ =
                    self.run_outside_transaction(&connection, &drop_index_sql(name), until).await;
            }
            return Err(match error.code == Some(SqlState::UNIQUE_VIOLATION) {
                true => self
                    .refused(&format!("items have the same value where {name} allows each once")),
                false => self.retryable(&format!("{name}: {}", error.cause)),
            });
        }
        self.log.event(Level::Info, "built an index", &[("index", name)]);
        Ok(())
    }

    /// Costs nothing if another server has validated it in the meantime.
    async fn validate(
        &self,
        connection: &DatabaseConnection,
        key: &ForeignKey,
        until: Instant,
    ) -> Result<(), StartFailure> {
        let name = &key.name;
        self.log.event(Level::Info, "validating a foreign key", &[("foreign_key", name)]);
        let done = self.run_outside_transaction(connection, &key.validate(), until).await;
        done.map_err(|error| match error.code == Some(SqlState::FOREIGN_KEY_VIOLATION) {
            true => {
                self.refused(&format!("items refer to others that are not there, against {name}"))
            }
            false => self.retryable(&format!("{name}: {}", error.cause)),
        })
    }

    async fn index_state(
        &self,
        connection: &DatabaseConnection,
        name: &str,
    ) -> Result<IndexState, StartFailure> {
        let mut driver = PostgresDriver::new(connection, TransactionStage::Autocommit);
        let read = |row: &dyn Columns| Ok((row.boolean(0)?, row.boolean(1)?));
        let found = driver.query_one(INDEX_STATE, &[Bind::Text(name)], read).await;
        let found = found.map_err(|failure| self.retryable(failure.message()))?;
        Ok(match found {
            None => IndexState::Absent,
            Some((Some(true), _)) => IndexState::Valid,
            Some((_, Some(true))) => IndexState::Building,
            Some(_) => IndexState::Invalid,
        })
    }

    /// Runs one statement outside a transaction. After a timeout the connection cannot be reused.
    async fn run_outside_transaction(
        &self,
        connection: &DatabaseConnection,
        text: &str,
        until: Instant,
    ) -> Result<(), IndexBuildError> {
        let run = connection.client.batch_execute(text);
        match tokio::time::timeout_at(until.into(), run).await {
            Ok(done) => done.map_err(|error| IndexBuildError {
                cause: error_message(&error),
                code: error.code().cloned(),
            }),
            Err(_) => {
                self.pool.cancel_and_wait((*connection.cancel).clone()).await;
                let minutes = BUILD_TIMEOUT.as_secs() / 60;
                let cause = format!(
                    "transactions that began before the build were still open after {minutes} minutes"
                );
                Err(IndexBuildError { cause, code: None })
            }
        }
    }

    /// A retry may succeed: the connection broke, others held locks, the disk was full.
    fn retryable(&self, cause: &str) -> StartFailure {
        StartFailure::Retryable(self.build_error(cause, "end what is in the way, and start again"))
    }

    /// Stored data violates the rule: a retry fails until the data is changed.
    fn refused(&self, cause: &str) -> StartFailure {
        StartFailure::Refused(self.build_error(cause, "change these items, and start again"))
    }

    fn build_error(&self, cause: &str, remedy: &str) -> OpenError {
        OpenError::new(format!(
            "{}: an index could not be built, or a foreign key not be validated ({cause}); until that is done \
             the model does not count as applied, and servers with the former one go on: {remedy}",
            self.display_url
        ))
    }
}

fn drop_index_sql(name: &str) -> String {
    format!("DROP INDEX CONCURRENTLY IF EXISTS {}", quote_name(name))
}
