//! 3, done: where items live. The only stage that touches anything.
//!
//! A `Store` is opened once; each worker thread takes a `Worker` from it. What goes in is a plan,
//! what comes out is an outcome or a `StoreError`. The store knows no HTTP.

mod beside;
mod changes;
mod claims;
mod driver;
mod empty_tables;
mod export;
#[cfg(test)]
mod faulty;
mod gather;
mod ids;
mod look;
mod once;
mod pipe;
mod place;
mod plain;
mod positions;
mod postgres;
mod reached;
#[cfg(test)]
pub mod real;
mod rows;
mod schema;
mod script;
mod sql;
mod sqlite;
mod sweep;
mod transaction;
mod users;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::OwnedSemaphorePermit;

use crate::log::Log;
use crate::metrics::Metrics;
use crate::model::Model;
use crate::plan::{Outcome, Read, Refusal, Write};
use crate::reservation::Reservation;
pub use beside::Beside;
pub use changes::Changes;
pub use claims::{Claim, Claimed, NONCE_SECONDS};
use driver::Failure;
pub use export::{Export, Exported};
pub use pipe::{Fetcher, Stopper};
pub use postgres::{Address, Environment};
pub use users::RoleGroup;

/// Why a plan came to nothing.
#[derive(Debug)]
pub enum StoreError {
    /// The data does not allow it.
    Refused(Refusal),
    /// Too many are waiting; nothing was done.
    Busy,
    /// It took too long; nothing was done.
    TimedOut,
    /// The data cannot be reached or written; nothing was done. The cause is for the log.
    Unavailable(String),
    /// Whoever asked may no longer do it, or is no user any more; nothing was done.
    RightsChanged,
    /// It failed at the moment of saving.
    OutcomeUnknown(String),
    /// What is stored does not fit the model, or our code is wrong.
    Broken(Broken),
}

impl StoreError {
    /// With the words for the log.
    pub fn broken(words: impl Into<String>) -> Self {
        Self::Broken(Broken(words.into()))
    }
}

/// For the operator; a client is told by `reply`.
impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => write!(f, "the data does not allow it: {refusal:?}"),
            Self::Busy => f.write_str("too many are waiting"),
            Self::TimedOut => f.write_str("it took too long"),
            Self::RightsChanged => f.write_str("the rights of the caller have changed"),
            Self::Unavailable(cause) => f.write_str(cause),
            Self::OutcomeUnknown(cause) => {
                write!(f, "{cause}; it is not known whether the change was made")
            }
            Self::Broken(Broken(cause)) => f.write_str(cause),
        }
    }
}

/// Something that cannot be, with the words for the log.
#[derive(Debug, PartialEq, Eq)]
pub struct Broken(pub String);

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::TimedOut => Self::TimedOut,
            Failure::Locked => {
                Self::Unavailable("another process has locked the database".to_owned())
            }
            Failure::Storage(cause) => Self::Unavailable(cause),
            Failure::Sync(cause) => Self::OutcomeUnknown(cause),
            // A statement that is wrong, or a unique index that no rule of the model explains.
            Failure::Engine(cause) | Failure::Taken(cause) => Self::Broken(Broken(cause)),
            Failure::Broken(broken) => Self::Broken(broken),
        }
    }
}

/// As many as the kernel follows.
const LINKS_MAX: usize = 40;

/// The file that a path leads to. A link that leads nowhere yet is as good as the file it names.
pub fn follow_links(path: &Path) -> PathBuf {
    let mut target = path.to_owned();
    for _ in 0..LINKS_MAX {
        let Ok(to) = fs::read_link(&target) else { break };
        target = target.parent().unwrap_or(Path::new("")).join(to);
    }
    target
}

/// Which engine, and where: the `--database` setting.
#[derive(Debug, Clone)]
pub enum Database {
    Sqlite(PathBuf),
    Postgres(Arc<Address>),
}

impl Database {
    pub fn parse(text: &str, environment: &Environment) -> Result<Self, String> {
        const EXPECTED: &str = "database: expected sqlite:PATH or postgres://…";
        if Address::is_meant(text) {
            let address = Address::parse(text, environment)?;
            return Ok(Self::Postgres(Arc::new(address)));
        }
        match text.split_once(':') {
            Some(("sqlite", path)) if !path.is_empty() => Ok(Self::Sqlite(path.into())),
            // The rest may hold a password.
            Some((scheme, _)) => Err(format!("{EXPECTED}, got \"{scheme}:…\"")),
            None => Err(format!("{EXPECTED}, got \"{text}\"")),
        }
    }

    /// Where the password of the first user is written: named after the database, and beside the SQLite
    /// file, or in the folder of the key file.
    pub fn password_file(&self, key_folder: &Path) -> PathBuf {
        const END: &str = "admin-password";
        match self {
            // Other files of the same name may hold other databases, but not in other folders.
            Self::Sqlite(path) => follow_links(path).with_extension(END),
            Self::Postgres(address) => {
                let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
                let name = address.database_name().replace(|c| !is_plain(c), "_");
                key_folder.join(format!("{name}.{END}"))
            }
        }
    }

    /// For commands that work only on a database that is there.
    fn is_missing(&self) -> OpenError {
        OpenError(match self {
            Self::Sqlite(path) => format!(
                "there is no database {}; name it with --database sqlite:PATH, or make it with: nouns serve",
                path.display()
            ),
            Self::Postgres(address) => format!(
                "there are no tables of nouns in {address}; name another --database, or make them with: \
                 nouns serve"
            ),
        })
    }
}

impl Database {
    /// SQLite alone: whether there is no database yet, or an empty file in its place.
    pub fn is_absent(&self) -> bool {
        match self {
            Self::Sqlite(path) => sqlite::is_absent(path),
            Self::Postgres(_) => false,
        }
    }

    /// SQLite alone: whether another database of ours is in the same folder.
    pub fn has_neighbour(&self) -> bool {
        match self {
            Self::Sqlite(path) => sqlite::has_neighbour(path),
            Self::Postgres(_) => false,
        }
    }
}

/// Why a store could not be opened: one message for the operator, and nothing was changed.
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
    Sqlite(Arc<sqlite::Shared>),
    Postgres(Arc<postgres::Shared>),
}

/// Opens the store for serving: takes its lock, brings its tables up to the model, starts its threads.
/// `is_patient`: a database that cannot be reached yet is waited for.
pub fn open(
    database: &Database,
    model: &Arc<Model>,
    (log, metrics): (&Log, &Arc<Metrics>),
    is_patient: bool,
) -> Result<Store, OpenError> {
    match database {
        Database::Sqlite(path) => sqlite::open(path, model, log, metrics).map(Store::Sqlite),
        Database::Postgres(address) => {
            postgres::open(address, model, (log, metrics), is_patient).map(Store::Postgres)
        }
    }
}

/// Whether the tables of one model can be made, brought up to another, and used: `Ok(false)` says
/// that bringing them up was refused.
#[cfg(any(fuzzing, test))]
pub fn rehearse(before: &Model, after: &Model) -> Result<bool, String> {
    sqlite::rehearse(before, after)
}

impl Store {
    /// A handle for one worker thread, of so many.
    pub fn worker(&self, workers: usize) -> Result<Worker, OpenError> {
        match self {
            Self::Sqlite(shared) => {
                sqlite::Worker::new(shared).map(|worker| Worker::Sqlite(Box::new(worker)))
            }
            Self::Postgres(shared) => Ok(Worker::Postgres(postgres::Worker::new(shared, workers))),
        }
    }

    /// Finishes what is queued and lets go of the files.
    pub fn close(&self) {
        match self {
            Self::Sqlite(shared) => shared.close(),
            Self::Postgres(shared) => shared.close(),
        }
    }
}

/// How a write is carried out.
#[derive(Debug)]
pub struct WriteOptions {
    /// The size of what the client sent: what is written together has a limit.
    pub bytes: usize,
    /// Still in the queue then, it is not done at all; once begun, it is waited for.
    pub deadline: Instant,
    /// Held until the write has ended, also when its client has left.
    pub memory: Option<Arc<Reservation>>,
    /// A place of the gate, held for as long as something is done that nothing else bounds.
    pub place: Option<OwnedSemaphorePermit>,
}

impl WriteOptions {
    /// For a write that the server makes by itself.
    pub fn until(deadline: Instant) -> Self {
        Self { bytes: 0, deadline, memory: None, place: None }
    }
}

/// One thread's way into the store.
#[derive(Debug)]
pub enum Worker {
    Sqlite(Box<sqlite::Worker>),
    Postgres(postgres::Worker),
}

impl Worker {
    /// For a read that the server makes by itself.
    pub async fn read(&self, read: Read) -> Result<Outcome, StoreError> {
        self.read_in(None, read).await
    }

    /// Reads in a place of the gate, which is held until the work has ended, also when its client has left.
    pub async fn read_in(
        &self,
        place: Option<OwnedSemaphorePermit>,
        read: Read,
    ) -> Result<Outcome, StoreError> {
        match self {
            Self::Sqlite(worker) => worker.read(read, place).await,
            Self::Postgres(worker) => worker.read(read, place).await,
        }
    }

    /// Reads a collection whole, from one state of the data; answers when the first of it is there.
    pub async fn export(&self, export: Export) -> Result<Exported, StoreError> {
        match self {
            Self::Sqlite(worker) => worker.export(export).await,
            Self::Postgres(worker) => worker.export(export).await,
        }
    }

    /// What the nonces that are given out now carry; those of another epoch are stale.
    pub async fn epoch(&self) -> Result<u64, StoreError> {
        match self {
            Self::Sqlite(worker) => Ok(worker.epoch()),
            Self::Postgres(worker) => worker.epoch().await,
        }
    }

    /// Whether `claim_here` can tell.
    pub fn can_claim_here(&self, claim: &Claim) -> bool {
        match self {
            Self::Sqlite(_) => true,
            Self::Postgres(worker) => worker.can_claim_here(claim),
        }
    }

    /// `claim` without waiting, where no other server has to be asked; nothing where one has.
    pub fn claim_here(&self, claim: &Claim) -> Option<Claimed> {
        match self {
            Self::Sqlite(worker) => Some(worker.claim(claim)),
            Self::Postgres(worker) => worker.claim_here(claim),
        }
    }

    /// Uses one count of a nonce: of all who try, at all servers, one is the first.
    pub async fn claim(&self, claim: &Claim) -> Result<Claimed, StoreError> {
        match self {
            Self::Sqlite(worker) => Ok(worker.claim(claim)),
            Self::Postgres(worker) => worker.claim(claim).await,
        }
    }

    /// When it answers, the disk has it.
    pub async fn write(
        &self,
        write: Box<Write>,
        options: WriteOptions,
    ) -> Result<Outcome, StoreError> {
        match self {
            Self::Sqlite(worker) => worker.write(write, options).await,
            Self::Postgres(worker) => worker.write(write, options).await,
        }
    }
}
