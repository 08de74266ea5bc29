//! The errors of the store: what a caller gets, and what a statement, a write or a migration fails with.

use std::fmt;

use crate::plan::RequestRefusal;

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

impl From<RequestRefusal> for StoreError {
    fn from(refusal: RequestRefusal) -> Self {
        Self::Refused(refusal)
    }
}

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

/// Why a store could not be opened: one message for the operator. Nothing was changed.
#[derive(Debug)]
pub struct OpenError {
    message: String,
    /// The stored data is of another model, to which startup does not migrate.
    pub is_other_model: bool,
}

impl OpenError {
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), is_other_model: false }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Which of several statements failed, and how.
#[derive(Debug)]
pub struct FailedStatement {
    pub at: usize,
    pub failure: StatementError,
}

impl From<FailedStatement> for StatementError {
    fn from(stopped: FailedStatement) -> Self {
        stopped.failure
    }
}

impl From<FailedStatement> for StoreError {
    fn from(stopped: FailedStatement) -> Self {
        stopped.failure.into()
    }
}

/// A statement guarded by a version did not find its row.
pub fn changed_while_locked_error() -> StatementError {
    StatementError::Engine("the item changed while it was locked".into())
}

/// Why a statement failed.
#[derive(Debug)]
pub enum StatementError {
    /// A unique index was violated. The text is the engine's message or the index's name.
    UniqueViolation(String),
    /// The statement exceeded its time limit and was cancelled.
    TimedOut,
    /// Another process holds the lock of the database.
    Locked,
    /// The storage failed (disk full, I/O error); the transaction may be rolled back.
    Storage(String),
    /// fsync failed: it is unknown what is on the disk.
    Sync(String),
    /// Any other error of the engine, such as an invalid statement.
    Engine(String),
    Internal(InternalError),
}

impl StatementError {
    /// The message for the operator.
    pub fn message(&self) -> &str {
        match self {
            Self::TimedOut => "the time limit was exceeded",
            Self::Locked => "another process has locked it",
            Self::UniqueViolation(cause)
            | Self::Storage(cause)
            | Self::Sync(cause)
            | Self::Engine(cause)
            | Self::Internal(InternalError(cause)) => cause,
        }
    }
}

/// Why a write was not executed.
#[derive(Debug)]
pub enum WriteError {
    /// It has more rows than a commit group should wait for: run it again with `CommitMode::Exclusive`.
    ExceedsGroup,
    Error(StoreError),
}

impl<E: Into<StoreError>> From<E> for WriteError {
    fn from(error: E) -> Self {
        Self::Error(error.into())
    }
}

/// Why the tables were not migrated.
#[derive(Debug)]
pub enum MigrationError {
    /// The differences, a line each.
    Refused(Vec<String>),
    /// The rules that running servers with another model rely on, a line each.
    InUse(Vec<String>),
    /// The same, of servers that have started while the indexes of this model were built.
    InUseSinceBuild(Vec<String>),
    /// The items that are in the way of a migration, a line for each rule.
    Blocked(Vec<String>),
    /// The message is complete.
    Declined(String),
    Failed(StatementError),
}

impl From<StatementError> for MigrationError {
    fn from(failure: StatementError) -> Self {
        Self::Failed(failure)
    }
}

impl MigrationError {
    pub fn describe(&self, database: &str) -> OpenError {
        let message = match self {
            Self::Refused(lines) => format!(
                "{database} holds data of another model, and this one would lose or break some of it:\n  {}\n\
                 nothing was changed; see what would be done with: nouns plan; do it with: nouns migrate; or take these changes back",
                lines.join("\n  ")
            ),
            Self::Declined(message) => message.clone(),
            Self::Blocked(lines) => format!(
                "{database}: the migration was not made, because stored items are in the way:\n  {}\nnothing was changed",
                lines.join("\n  ")
            ),
            Self::InUse(lines) => format!(
                "{database} is used by servers with another model, and this one would change what they rely on:\n  {}\n\
                 nothing was changed; stop those servers first, or start with --wait, which waits until they have \
                 stopped (one that was killed counts for some minutes)",
                lines.join("\n  ")
            ),
            Self::InUseSinceBuild(lines) => format!(
                "{database}: servers with another model have started while the indexes of this one were built, and \
                 this one would change what they rely on:\n  {}\n\
                 the model does not count as applied; stop those servers first, or start with --wait, which waits \
                 until they have stopped (one that was killed counts for some minutes)",
                lines.join("\n  ")
            ),
            Self::Failed(failure) => {
                let (cause, way_out) = match failure {
                    StatementError::Storage(cause) | StatementError::Sync(cause) => {
                        (cause.as_str(), "check that the disk has space and can be written")
                    }
                    StatementError::TimedOut | StatementError::Locked => {
                        ("another process has locked it", "wait until it is done, then start again")
                    }
                    StatementError::UniqueViolation(cause)
                    | StatementError::Engine(cause)
                    | StatementError::Internal(InternalError(cause)) => {
                        (cause.as_str(), "restore it from a backup, or name another --database")
                    }
                };
                format!("{database}: cannot migrate its tables to the model ({cause}); {way_out}")
            }
        };
        OpenError { message, is_other_model: matches!(self, Self::Refused(_)) }
    }
}

/// The error for a database written by a newer version.
pub fn newer_format_error(database: &str, format: i64, known: i64) -> OpenError {
    OpenError::new(format!(
        "{database} was written by a newer nouns (format {format}, this one supports {known}); use that version, or name another --database"
    ))
}

/// The error for a database made by a version without users.
pub fn missing_users_error(database: &str) -> OpenError {
    OpenError::new(format!(
        "{database} was made by an earlier nouns, which had no users; start a server of this version first: nouns serve"
    ))
}

pub fn writer_stopped_error() -> StoreError {
    StoreError::Unavailable("the writer has stopped after a storage failure".to_owned())
}
