//! Storage of items: stage 3 of the pipeline (execute), and the only stage with side effects.
//!
//! `open` opens a `Store` once; each worker thread gets a `StoreWorker` from it, which executes a plan and
//! returns an `Outcome` or a `StoreError`. The store knows nothing of HTTP.

mod admin;
mod change_reader;
mod replay_protection;
mod driver;
mod empty_tables;
mod export;
#[cfg(test)]
mod fault_injection;
mod cascade;
mod uuid_v7;
mod decision_input;
mod idempotency;
mod byte_channel;
mod collection_version;
mod batchable_create;
mod change_log_bounds;
mod postgres;
mod scoped_statements;
#[cfg(test)]
pub mod test_stores;
mod rows;
mod schema_migration;
mod script;
mod sql;
mod sqlite;
mod retention;
mod transaction;
mod users;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::OwnedSemaphorePermit;

use crate::log::Logger;
use crate::metrics::Metrics;
use crate::model::Model;
use crate::plan::{Outcome, ReadPlan, RequestRefusal, WritePlan};
use crate::reservation::SharedReservation;
pub use admin::AdminStore;
pub use byte_channel::{Consumer, ExportCanceller};
pub use change_reader::ChangeReader;
use driver::StatementError;
pub use export::{ExportBody, ExportRequest};
pub use postgres::{LibpqEnvironment, PostgresUrl};
pub use replay_protection::{NONCE_SECONDS, NonceClaim, NonceClaimResult};
pub use users::RoleGroup;

/// Why a plan was not carried out.
#[derive(Debug)]
pub enum StoreError {
    /// The stored data does not allow it: not found, a conflict, a failed precondition.
    Refused(RequestRefusal),
    /// Load shedding: a queue is full; nothing was written.
    Busy,
    /// The deadline passed; nothing was written.
    TimedOut,
    /// The database cannot be reached or written; nothing was written. The cause is for the log.
    Unavailable(String),
    /// The caller has lost the right to do this, or the account is gone; nothing was written.
    RightsChanged,
    /// The commit itself failed, so it is unknown whether the change is durable.
    OutcomeUnknown(String),
    /// The stored data does not fit the model, or there is a bug in this program.
    Broken(InternalError),
}

impl StoreError {
    /// An internal error with a message for the log.
    pub fn internal(words: impl Into<String>) -> Self {
        Self::Broken(InternalError(words.into()))
    }
}

/// The message for the operator; `reply` writes the one for the client.
impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => write!(f, "the data does not allow it: {refusal:?}"),
            Self::Busy => f.write_str("too many requests are queued"),
            Self::TimedOut => f.write_str("the time limit was exceeded"),
            Self::RightsChanged => f.write_str("the rights of the caller have changed"),
            Self::Unavailable(cause) => f.write_str(cause),
            Self::OutcomeUnknown(cause) => {
                write!(f, "{cause}; it is not known whether the change was made")
            }
            Self::Broken(InternalError(cause)) => f.write_str(cause),
        }
    }
}

/// A violated invariant (corrupt data or a bug), with a message for the log.
#[derive(Debug, PartialEq, Eq)]
pub struct InternalError(pub String);

impl From<StatementError> for StoreError {
    fn from(failure: StatementError) -> Self {
        match failure {
            StatementError::TimedOut => Self::TimedOut,
            StatementError::Locked => {
                Self::Unavailable("another process has locked the database".to_owned())
            }
            StatementError::Storage(cause) => Self::Unavailable(cause),
            StatementError::Sync(cause) => Self::OutcomeUnknown(cause),
            // An invalid statement, or a unique index that no rule of the model explains.
            StatementError::Engine(cause) | StatementError::UniqueViolation(cause) => {
                Self::Broken(InternalError(cause))
            }
            StatementError::Internal(broken) => Self::Broken(broken),
        }
    }
}

/// The limit of the Linux kernel on symbolic links in one path.
const SYMLINKS_MAX: usize = 40;

/// Resolves symbolic links. A dangling link resolves to the path it names, where a file can be created.
pub fn resolve_links(path: &Path) -> PathBuf {
    let mut target = path.to_owned();
    for _ in 0..SYMLINKS_MAX {
        let Ok(to) = fs::read_link(&target) else { break };
        target = target.parent().unwrap_or(Path::new("")).join(to);
    }
    target
}

/// The database engine and its location: the `--database` setting.
#[derive(Debug, Clone)]
pub enum Database {
    Sqlite(PathBuf),
    Postgres(Arc<PostgresUrl>),
}

impl Database {
    pub fn parse(text: &str, environment: &LibpqEnvironment) -> Result<Self, String> {
        const EXPECTED: &str = "database: expected sqlite:PATH or postgres://…";
        if PostgresUrl::is_postgres_url(text) {
            let address = PostgresUrl::parse(text, environment)?;
            return Ok(Self::Postgres(Arc::new(address)));
        }
        match text.split_once(':') {
            Some(("sqlite", path)) if !path.is_empty() => Ok(Self::Sqlite(path.into())),
            // Not shown further: the rest may contain a password.
            Some((scheme, _)) => Err(format!("{EXPECTED}, got \"{scheme}:…\"")),
            None => Err(format!("{EXPECTED}, got \"{text}\"")),
        }
    }

    /// The file for the generated password of the first user. It is named after the database, and lies in the
    /// folder of the SQLite file or of the key file.
    pub fn password_file(&self, key_folder: &Path) -> PathBuf {
        const END: &str = "admin-password";
        match self {
            // Two databases with the same file name lie in different folders, so the names cannot clash.
            Self::Sqlite(path) => resolve_links(path).with_extension(END),
            Self::Postgres(address) => {
                let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
                let name = address.database_name().replace(|c| !is_plain(c), "_");
                key_folder.join(format!("{name}.{END}"))
            }
        }
    }

    /// The error of a command that needs an existing database.
    fn missing_error(&self) -> OpenError {
        OpenError(match self {
            Self::Sqlite(path) => format!(
                "there is no database {}; name it with --database sqlite:PATH, or create it with: nouns serve",
                path.display()
            ),
            Self::Postgres(address) => format!(
                "there are no tables of nouns in {address}; name another --database, or create them with: \
                 nouns serve"
            ),
        })
    }
}

impl Database {
    /// SQLite only: whether the database does not exist yet, or is an empty file.
    pub fn is_absent(&self) -> bool {
        match self {
            Self::Sqlite(path) => sqlite::is_absent(path),
            Self::Postgres(_) => false,
        }
    }

    /// SQLite only: whether the same folder has another `nouns` database.
    pub fn has_neighbour(&self) -> bool {
        match self {
            Self::Sqlite(path) => sqlite::has_neighbour(path),
            Self::Postgres(_) => false,
        }
    }
}

/// Why a store could not be opened: one message for the operator. Nothing was changed.
#[derive(Debug)]
pub struct OpenError(pub String);

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// An open store, shared by all threads.
#[derive(Debug)]
pub enum Store {
    Sqlite(Arc<sqlite::SqliteStore>),
    Postgres(Arc<postgres::PostgresStore>),
}

/// Opens the store for serving: acquires its lock, migrates its tables to the model, starts its threads. With
/// `is_patient` it retries until the database can be reached.
pub fn open(
    database: &Database,
    model: &Arc<Model>,
    (log, metrics): (&Logger, &Arc<Metrics>),
    is_patient: bool,
) -> Result<Store, OpenError> {
    match database {
        Database::Sqlite(path) => sqlite::open(path, model, log, metrics).map(Store::Sqlite),
        Database::Postgres(address) => {
            postgres::open(address, model, (log, metrics), is_patient).map(Store::Postgres)
        }
    }
}

/// Whether the tables of one model can be created, migrated to another and queried. `Ok(false)`: the
/// migration was refused.
#[cfg(any(fuzzing, test))]
pub fn check_migration(before: &Model, after: &Model) -> Result<bool, String> {
    sqlite::check_migration(before, after)
}

impl Store {
    /// A handle for one of `workers` worker threads.
    pub fn worker(&self, workers: usize) -> Result<StoreWorker, OpenError> {
        match self {
            Self::Sqlite(shared) => sqlite::SqliteWorker::new(shared)
                .map(|worker| StoreWorker::Sqlite(Box::new(worker))),
            Self::Postgres(shared) => {
                Ok(StoreWorker::Postgres(postgres::PostgresWorker::new(shared, workers)))
            }
        }
    }

    /// Drains the write queue and closes the files and connections.
    pub fn close(&self) {
        match self {
            Self::Sqlite(shared) => shared.close(),
            Self::Postgres(shared) => shared.close(),
        }
    }
}

/// How a write is executed.
#[derive(Debug)]
pub struct WriteOptions {
    /// The size of the request body: a commit group has a limit in bytes.
    pub bytes: usize,
    /// A write that is still queued at the deadline is dropped; one that has begun runs to its end.
    pub deadline: Instant,
    /// Memory reservation, held until the write has ended, even if the client disconnects.
    pub memory: Option<Arc<SharedReservation>>,
    /// Admission permit, held while the write does work that no other limit bounds.
    pub place: Option<OwnedSemaphorePermit>,
}

impl WriteOptions {
    /// Options of a write that the server makes on its own behalf.
    pub fn with_deadline(deadline: Instant) -> Self {
        Self { bytes: 0, deadline, memory: None, place: None }
    }
}

/// The handle of one worker thread to the store.
#[derive(Debug)]
pub enum StoreWorker {
    Sqlite(Box<sqlite::SqliteWorker>),
    Postgres(postgres::PostgresWorker),
}

impl StoreWorker {
    /// Reads on behalf of the server itself.
    pub async fn read(&self, read: ReadPlan) -> Result<Outcome, StoreError> {
        self.read_in(None, read).await
    }

    /// Reads with an admission permit, which is held until the work has ended, even if its client disconnects.
    pub async fn read_in(
        &self,
        place: Option<OwnedSemaphorePermit>,
        read: ReadPlan,
    ) -> Result<Outcome, StoreError> {
        match self {
            Self::Sqlite(worker) => worker.read(read, place).await,
            Self::Postgres(worker) => worker.read(read, place).await,
        }
    }

    /// Streams a whole collection from one snapshot. Returns when the first chunk is ready.
    pub async fn export(&self, export: ExportRequest) -> Result<ExportBody, StoreError> {
        match self {
            Self::Sqlite(worker) => worker.export(export).await,
            Self::Postgres(worker) => worker.export(export).await,
        }
    }

    /// The epoch that new nonces carry; nonces of another epoch are stale.
    pub async fn nonce_epoch(&self) -> Result<u64, StoreError> {
        match self {
            Self::Sqlite(worker) => Ok(worker.nonce_epoch()),
            Self::Postgres(worker) => worker.epoch().await,
        }
    }

    /// `claim_nonce` without I/O. `None` if the other servers have to be asked.
    pub fn claim_nonce_locally(&self, claim: &NonceClaim) -> Option<NonceClaimResult> {
        match self {
            Self::Sqlite(worker) => Some(worker.claim_nonce(claim)),
            Self::Postgres(worker) => worker.claim_nonce_locally(claim),
        }
    }

    /// Replay protection: claims one (nonce, count) pair. Across all servers exactly one claim is the first.
    pub async fn claim_nonce(&self, claim: &NonceClaim) -> Result<NonceClaimResult, StoreError> {
        match self {
            Self::Sqlite(worker) => Ok(worker.claim_nonce(claim)),
            Self::Postgres(worker) => worker.claim(claim).await,
        }
    }

    /// Returns after the commit is durable.
    pub async fn write(
        &self,
        write: Box<WritePlan>,
        options: WriteOptions,
    ) -> Result<Outcome, StoreError> {
        match self {
            Self::Sqlite(worker) => worker.write(write, options).await,
            Self::Postgres(worker) => worker.write(write, options).await,
        }
    }
}
