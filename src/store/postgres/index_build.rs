//! Indexes of tables that are in use, built beside those who use them (`CREATE INDEX CONCURRENTLY`), and
//! foreign keys, to which the rows that are there are held (`VALIDATE CONSTRAINT`).
//!
//! It runs after the start's transaction, since such a build cannot be in one, and before the server
//! serves. Reads and writes go on meanwhile. PostgreSQL waits for every transaction that was open when it
//! began, such as an export, so the time for it is long, and the log tells what is waited for.
//! One server builds at a time. What says so is a lock of a transaction on a connection beside the one that
//! builds: a lock of a session would be lost behind a pooling proxy. Such a transaction has no snapshot
//! between its statements, so the build does not wait for it; and nobody waits for the lock inside of a
//! statement, whose snapshot the build would wait for.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use tokio_postgres::error::SqlState;
use tokio_postgres::{Error, SimpleQueryMessage};

use super::connect::ConnectError;
use super::driver::{PostgresDriver, Stage};
use super::failure::words;
use super::pool::{Connection, Pool};
use crate::clock;
use crate::log::{Level, Log};
use crate::model::settings::Pooling;
use crate::store::OpenError;
use crate::store::driver::{Bind, Columns, Driver};
use crate::store::ids::Ids;
use crate::store::schema::Deferred;
use crate::store::sql::{ForeignKey, Index, quoted};

/// Longer than an export may take.
const BUILD_MAX: Duration = Duration::from_secs(15 * 60);
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// Delay between two checks of another server's build.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// True for the one server that may build now. The first number is the namespace of our advisory locks.
/// Sent as one simple query: an extended query would leave its portal open, with a snapshot.
const BUILD_LOCK: &str = "BEGIN; SET LOCAL idle_in_transaction_session_timeout = 0; \
    SELECT pg_try_advisory_xact_lock(1313821262, 4)";

/// 1: the index. Whether it is valid, and whether it is being built.
const STATE: &str = "SELECT indisvalid, \
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

/// Why it was not all done.
#[derive(Debug)]
pub(super) enum BuildError {
    /// It may go the next time: the connection broke, others were in the way, the disk was full.
    Passing(OpenError),
    /// What is stored is in the way, until somebody changes it.
    Lasting(OpenError),
}

/// Why a statement failed.
struct StatementError {
    cause: String,
    code: Option<SqlState>,
}

impl StatementError {
    fn new(error: &Error) -> Self {
        Self { cause: words(error), code: error.code().cloned() }
    }

    fn late() -> Self {
        let minutes = BUILD_MAX.as_secs() / 60;
        let cause = format!("transactions from before were still open after {minutes} minutes");
        Self { cause, code: None }
    }

    fn is(&self, code: &SqlState) -> bool {
        self.code.as_ref() == Some(code)
    }
}

/// What a build needs.
pub(super) struct Builder<'a> {
    pub(super) pool: &'a Pool,
    pub(super) pooling: Pooling,
    pub(super) log: &'a Log,
    /// The URL of the database, for messages.
    pub(super) shown: &'a str,
}

impl Builder<'_> {
    /// Builds and validates what is deferred; ends when all of it is in force.
    pub(super) async fn run(&self, deferred: &Deferred) -> Result<(), BuildError> {
        let until = clock::now() + BUILD_MAX;
        let builder = self.connect().await?;
        if self.pooling == Pooling::Session {
            // The build is expected to wait for locks, and blocks no request.
            let millis = BUILD_MAX.as_millis();
            let set = format!("SET lock_timeout = 0; SET statement_timeout = {millis}");
            self.run_alone(&builder, &set, until)
                .await
                .map_err(|error| self.passing(&error.cause))?;
        }
        let guard = self.connect().await?;
        while !self.lock(&guard).await? {
            if clock::now() >= until {
                return Err(self.passing("another server has been building indexes for too long"));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        for index in &deferred.indexes {
            self.build(&builder, index, until).await?;
        }
        for key in &deferred.foreign_keys {
            self.validate(&builder, key, until).await?;
        }
        Ok(())
    }

    async fn connect(&self) -> Result<Box<Connection>, BuildError> {
        let connection = self.pool.connection(clock::now() + CONNECT_MAX).await;
        connection.map_err(|error| match error {
            ConnectError::Lasting(message) => BuildError::Lasting(OpenError(message)),
            ConnectError::Passing(message) => BuildError::Passing(OpenError(message)),
        })
    }

    /// Whether this server may build, until the connection ends.
    async fn lock(&self, guard: &Connection) -> Result<bool, BuildError> {
        let asked = guard.client.simple_query(BUILD_LOCK).await;
        let asked = asked.map_err(|error| self.passing(&words(&error)))?;
        let is_ours = asked.iter().any(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0) == Some("t"),
            _ => false,
        });
        if !is_ours {
            let undone = guard.client.batch_execute("ROLLBACK").await;
            undone.map_err(|error| self.passing(&words(&error)))?;
        }
        Ok(is_ours)
    }

    async fn build(
        &self,
        connection: &Connection,
        index: &Index,
        until: Instant,
    ) -> Result<(), BuildError> {
        let name = &index.name;
        loop {
            match self.state(connection, name).await? {
                IndexState::Valid => return Ok(()),
                // An operator is building it by hand.
                IndexState::Building if clock::now() < until => {
                    tokio::time::sleep(LOOK_EVERY).await;
                }
                IndexState::Invalid | IndexState::Building => {
                    let drop = drop_text(name);
                    let dropped = self.run_alone(connection, &drop, until).await;
                    dropped.map_err(|error| self.passing(&error.cause))?;
                }
                IndexState::Absent => break,
            }
        }
        let waits = "for all transactions that are open now, such as exports";
        self.log.event(Level::Info, "building an index", &[("index", name), ("waits", &waits)]);
        let text = index.create.replacen("INDEX ", "INDEX CONCURRENTLY ", 1);
        if let Err(error) = self.run_alone(connection, &text, until).await {
            // What it leaves behind costs every write, and is of no use.
            if let Ok(connection) = self.connect().await {
                let until = clock::now() + CONNECT_MAX;
                let _ = self.run_alone(&connection, &drop_text(name), until).await;
            }
            return Err(match error.is(&SqlState::UNIQUE_VIOLATION) {
                true => self
                    .lasting(&format!("items have the same value where {name} allows each once")),
                false => self.passing(&format!("{name}: {}", error.cause)),
            });
        }
        self.log.event(Level::Info, "built an index", &[("index", name)]);
        Ok(())
    }

    /// Another server may have done it meanwhile, and then it costs nothing.
    async fn validate(
        &self,
        connection: &Connection,
        key: &ForeignKey,
        until: Instant,
    ) -> Result<(), BuildError> {
        let name = &key.name;
        self.log.event(Level::Info, "validating a foreign key", &[("foreign_key", name)]);
        let done = self.run_alone(connection, &key.validate(), until).await;
        done.map_err(|error| match error.is(&SqlState::FOREIGN_KEY_VIOLATION) {
            true => {
                self.lasting(&format!("items refer to others that are not there, against {name}"))
            }
            false => self.passing(&format!("{name}: {}", error.cause)),
        })
    }

    async fn state(&self, connection: &Connection, name: &str) -> Result<IndexState, BuildError> {
        let ids = Mutex::new(Ids::default());
        let mut driver = PostgresDriver::new(connection, &ids, self.pooling, Stage::None);
        let read = |row: &dyn Columns| Ok((row.boolean(0)?, row.boolean(1)?));
        let found = driver.rows(STATE, &[Bind::Text(name)], read).await;
        let found = found.map_err(|failure| self.passing(failure.words()))?.pop();
        Ok(match found {
            None => IndexState::Absent,
            Some((Some(true), _)) => IndexState::Valid,
            Some((_, Some(true))) => IndexState::Building,
            Some(_) => IndexState::Invalid,
        })
    }

    /// Runs one statement outside a transaction. After a timeout the connection cannot be reused.
    async fn run_alone(
        &self,
        connection: &Connection,
        text: &str,
        until: Instant,
    ) -> Result<(), StatementError> {
        let run = connection.client.batch_execute(text);
        match tokio::time::timeout_at(until.into(), run).await {
            Ok(done) => done.map_err(|error| StatementError::new(&error)),
            Err(_) => {
                self.pool.stop((*connection.cancel).clone()).await;
                Err(StatementError::late())
            }
        }
    }

    fn passing(&self, cause: &str) -> BuildError {
        BuildError::Passing(self.failed(cause, "end what is in the way, and start again"))
    }

    fn lasting(&self, cause: &str) -> BuildError {
        BuildError::Lasting(self.failed(cause, "change these items, and start again"))
    }

    fn failed(&self, cause: &str, remedy: &str) -> OpenError {
        OpenError(format!(
            "{}: an index could not be built, or a foreign key not be validated ({cause}); until that is done \
             the model does not count as applied, and servers with the former one go on: {remedy}",
            self.shown
        ))
    }
}

fn drop_text(name: &str) -> String {
    format!("DROP INDEX CONCURRENTLY IF EXISTS {}", quoted(name))
}
