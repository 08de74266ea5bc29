//! Storage of items: stage 3 of the pipeline (execute), and the only stage with side effects.
//!
//! `open` opens a `Store` once; each worker thread gets a `StoreWorker` from it, which executes a plan and
//! returns an `Outcome` or a `StoreError`. The store knows nothing of HTTP.

mod admin;
mod batchable_create;
mod cascade;
mod change_hint;
mod change_log;
mod change_tail;
mod context;
mod database;
mod database_move;
mod deliveries;
mod driver;
mod empty_tables;
mod error;
mod existence;
mod expand;
mod links;
mod export;
mod export_stream;
#[cfg(test)]
mod fault_injection;
mod idempotency;
mod import;
mod integer_ids;
mod list_page;
mod migration;
mod missing_parts;
mod present_parts;
mod postgres;
mod read;
mod related_facts;
mod replay_protection;
mod retention;
mod rows;
mod schema;
mod script;
mod sql;
mod sqlite;
mod statement;
mod system_values;
mod table_scan;
#[cfg(test)]
pub mod test_stores;
mod users;
mod uuid_v7;
mod webhooks;
mod write;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;

use crate::clock;
use crate::log::Logger;
use crate::metrics::Metrics;
use crate::model::Model;
use crate::model::database_tables::DatabaseTables;
use crate::permit::RelatedFact;
use crate::plan::{
    ChangeBatch, ChangeLogBounds, DeliveryOutcome, DeliveryTask, FactAnswer, Outcome, ReadPlan,
    WritePlan,
};
use crate::store::postgres::worker::{PostgresStore, PostgresWorker};
use crate::store::sqlite::database_files::DatabaseFiles;
use crate::store::sqlite::worker::{SqliteStore, SqliteWorker};

pub use admin::AdminStore;
pub use change_tail::{ChangeTail, TailBatch};
pub use database::Database;
pub use database_move::copy::{MoveProgress, MoveSummary};
pub use database_move::{MoveRequest, move_database};
pub use error::{InternalError, OpenError, StoreError};
pub use export::{ExportEncoder, ExportRequest, SnapshotStart};
pub use export_stream::{ExportBody, ExportControl, ExportStream};
pub use import::{ImportEnd, ImportJob, ImportSource, ImportedBatch, PositionStep};
pub use migration::apply::{MIGRATION_STAMP, MigrationProgress};
pub use migration::steps::{MigrationPlan, MigrationStep, StepAction};
pub use migration::{Migrated, MigrationRequest};
pub use missing_parts::MissingParts;
pub use postgres::connection_url::address::{LibpqEnvironment, PostgresUrl};
pub use postgres::health::PostgresHealth;
pub use replay_protection::{NONCE_SECONDS, NonceClaim, NonceClaimResult};
pub use sqlite::backup::{CopySummary, ExistingFile};
pub use sqlite::database_files::{is_same_place, resolve_links};
pub use sqlite::health::{PageCheck, ReferenceCheck, SqliteHealth, examine as examine_sqlite};
pub use sqlite::restore::restore;
pub use users::{FIELDS_KEY, RoleGroup, missing_fields};
pub use write::WriteOptions;

/// The timeout for the bounds of the change log: scrapes are far apart, and have their own timeouts.
const BOUNDS_TIMEOUT: Duration = Duration::from_secs(1);

/// The connections of the thread that sends webhooks.
const DELIVERY_CONNECTIONS: usize = 2;
/// The timeout of a task of the delivery queue.
const DELIVERY_TASK_TIMEOUT: Duration = Duration::from_secs(10);

/// An open store, shared by all threads.
#[derive(Debug, Clone)]
pub enum Store {
    Sqlite(Arc<SqliteStore>),
    Postgres(Arc<PostgresStore>),
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
        Database::Sqlite(path) => sqlite::open::open(path, model, log, metrics).map(Store::Sqlite),
        Database::Postgres(address) => {
            postgres::worker::open(address, model, (log, metrics), is_patient).map(Store::Postgres)
        }
    }
}

/// Copies an SQLite database to a file, while servers use it.
pub fn back_up(
    database: &Path,
    target: &Path,
    existing: ExistingFile,
) -> Result<CopySummary, OpenError> {
    sqlite::backup::back_up(&DatabaseFiles::find(database)?, target, existing)
}

/// The tables of a database of another program.
pub fn read_tables(database: &Database) -> Result<DatabaseTables, OpenError> {
    match database {
        Database::Sqlite(path) => sqlite::catalogue::read_tables(path),
        Database::Postgres(address) => postgres::catalogue::read_tables(address),
    }
}

/// Migrates an existing database to a model, while no server uses it.
pub fn migrate(database: &Database, request: MigrationRequest<'_>) -> Result<Migrated, OpenError> {
    match database {
        Database::Sqlite(path) => sqlite::migrate::migrate(path, request),
        Database::Postgres(address) => {
            let plan = postgres::migrate::migrate(address, request)?;
            Ok(Migrated { plan, backup: None })
        }
    }
}

/// Whether the tables of one model can be created, migrated to another and queried. `Ok(false)`: the
/// migration was refused.
#[cfg(any(fuzzing, test))]
pub fn check_migration(before: &Model, after: &Model) -> Result<bool, String> {
    sqlite::migration_check::check_migration(before, after)
}

impl Store {
    /// A handle for one of `workers` worker threads.
    pub fn worker(&self, workers: usize) -> Result<StoreWorker, OpenError> {
        match self {
            Self::Sqlite(shared) => {
                SqliteWorker::new(shared).map(|worker| StoreWorker::Sqlite(Box::new(worker)))
            }
            Self::Postgres(shared) => {
                Ok(StoreWorker::Postgres(PostgresWorker::new(shared, workers)))
            }
        }
    }

    /// A handle for a thread that follows the change log: with few connections of its own.
    pub fn feed_worker(&self) -> StoreWorker {
        self.background_worker(1)
    }

    /// A handle for the thread that sends webhooks.
    pub fn delivery_worker(&self) -> StoreWorker {
        self.background_worker(DELIVERY_CONNECTIONS)
    }

    fn background_worker(&self, connections: usize) -> StoreWorker {
        match self {
            Self::Sqlite(shared) => StoreWorker::Sqlite(Box::new(SqliteWorker::for_feed(shared))),
            Self::Postgres(shared) => {
                StoreWorker::Postgres(PostgresWorker::with_connections(shared, connections))
            }
        }
    }

    /// Whether no other process can have claimed deliveries.
    pub fn is_sole_server(&self) -> bool {
        matches!(self, Self::Sqlite(_))
    }

    /// Reads the change log in order, as it grows.
    pub fn tail(&self) -> ChangeTail {
        match self {
            Self::Sqlite(shared) => ChangeTail::on_sqlite(shared),
            Self::Postgres(shared) => ChangeTail::on_postgres(shared),
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

/// The handle of one worker thread to the store.
#[derive(Debug)]
pub enum StoreWorker {
    Sqlite(Box<SqliteWorker>),
    Postgres(PostgresWorker),
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
            Self::Postgres(worker) => worker.claims.epoch().await,
        }
    }

    /// `claim_nonce` without I/O. `None` if the other servers have to be asked.
    pub fn claim_nonce_locally(&self, claim: &NonceClaim) -> Option<NonceClaimResult> {
        match self {
            Self::Sqlite(worker) => Some(worker.claim_nonce(claim)),
            Self::Postgres(worker) => worker.claims.claim_nonce_locally(claim),
        }
    }

    /// Replay protection: claims one (nonce, count) pair. Across all servers exactly one claim is the first.
    pub async fn claim_nonce(&self, claim: &NonceClaim) -> Result<NonceClaimResult, StoreError> {
        match self {
            Self::Sqlite(worker) => Ok(worker.claim_nonce(claim)),
            Self::Postgres(worker) => worker.claims.claim(claim).await,
        }
    }

    /// Returns after the commit is durable.
    pub async fn write(
        &self,
        write: Box<WritePlan>,
        options: WriteOptions,
    ) -> Result<Outcome, StoreError> {
        let resource = write.collection.resource;
        let (outcome, context) = match self {
            Self::Sqlite(worker) => (worker.write(write, options).await, worker.context()),
            Self::Postgres(worker) => (worker.write(write, options).await, &*worker.state.context),
        };
        if outcome.is_ok() && resource == context.model.webhooks {
            context.change_hint.notify_webhook();
        }
        outcome
    }

    /// Runs a task of the delivery queue of webhooks.
    pub async fn deliver(&self, task: DeliveryTask) -> Result<DeliveryOutcome, StoreError> {
        let until = clock::now() + DELIVERY_TASK_TIMEOUT;
        let outcome = match self {
            Self::Sqlite(worker) => {
                worker.deliver(task, WriteOptions::with_deadline(until)).await?
            }
            Self::Postgres(worker) => worker.deliver(task, until).await?,
        };
        match outcome {
            Outcome::Delivery(outcome) => Ok(outcome),
            _ => Err(StoreError::internal("a task of the delivery queue had another outcome")),
        }
    }

    /// The entries of the change log after a position, of limited number and size.
    pub async fn read_log_batch(
        &self,
        after: i64,
        bytes_max: usize,
    ) -> Result<ChangeBatch, StoreError> {
        match self.read(ReadPlan::ChangeBatch { after, bytes_max }).await? {
            Outcome::ChangeBatch(batch) => Ok(batch),
            _ => Err(StoreError::internal("a read of the change log had another outcome")),
        }
    }

    /// The facts that row filters need for the entry of the change log with this number, in the same order.
    pub async fn read_related_facts(
        &self,
        facts: Vec<RelatedFact>,
        sequence: i64,
    ) -> Result<Vec<FactAnswer>, StoreError> {
        match self.read(ReadPlan::RelatedFacts { facts, sequence }).await? {
            Outcome::RelatedFacts(answers) => Ok(answers),
            _ => Err(StoreError::internal("a read of facts had another outcome")),
        }
    }

    /// `None` if the store fails, or does not answer in time.
    pub async fn change_log_bounds(&self) -> Option<ChangeLogBounds> {
        match tokio::time::timeout(BOUNDS_TIMEOUT, self.read(ReadPlan::ChangeLogBounds)).await {
            Ok(Ok(Outcome::ChangeLogBounds(positions))) => Some(positions),
            Ok(_) | Err(_) => None,
        }
    }
}
