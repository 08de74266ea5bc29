//! Classification of PostgreSQL's errors by their consequence for a request.

use std::io;

use tokio_postgres::Error;
use tokio_postgres::error::{DbError, Severity, SqlState};

use crate::store::error::StatementError;

/// How to recover from an error, beside reporting it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorClass {
    /// The transaction was rolled back, and a retry on another connection may succeed.
    Retryable,
    /// The transaction was rolled back, because the server takes no writes: it is no longer the primary, or an
    /// operator has made it read-only. It still reads.
    ReadOnly,
    /// The connection is unusable; the outcome of the statements in flight is unknown.
    ConnectionLost,
}

/// Classifies an error: the error to report, and how to recover.
pub fn classify(error: &Error) -> (StatementError, Option<ErrorClass>) {
    let Some(database) = error.as_db_error() else {
        return (StatementError::Storage(error_message(error)), Some(ErrorClass::ConnectionLost));
    };
    let cause = error_message(error);
    let is_fatal =
        !matches!(database.parsed_severity(), None | Some(Severity::Error | Severity::Warning));
    if is_fatal {
        return (StatementError::Storage(cause), Some(ErrorClass::ConnectionLost));
    }
    match database.code() {
        code if *code == SqlState::UNIQUE_VIOLATION => (
            StatementError::UniqueViolation(database.constraint().unwrap_or_default().to_owned()),
            None,
        ),
        code if *code == SqlState::READ_ONLY_SQL_TRANSACTION => {
            (StatementError::Storage(cause), Some(ErrorClass::ReadOnly))
        }
        code if is_retryable(code) => (StatementError::Storage(cause), Some(ErrorClass::Retryable)),
        code if *code == SqlState::QUERY_CANCELED => (StatementError::TimedOut, None),
        code if *code == SqlState::LOCK_NOT_AVAILABLE => (StatementError::Locked, None),
        code if is_pooling_proxy_error(code) => {
            let hint =
                "behind a proxy that pools transactions set database_pooling = \"transaction\"";
            (StatementError::Storage(format!("{cause}; {hint}")), None)
        }
        // Classes 53: insufficient resources; 58: system error; XX: internal error, damaged files.
        code if ["53", "58", "XX"].iter().any(|class| code.code().starts_with(class)) => {
            (StatementError::Storage(cause), None)
        }
        _ => (StatementError::Engine(cause), None),
    }
}

/// Conflicts with concurrent transactions, and plans that another server's migration made obsolete.
fn is_retryable(code: &SqlState) -> bool {
    [
        SqlState::T_R_SERIALIZATION_FAILURE,
        SqlState::T_R_DEADLOCK_DETECTED,
        // References are looked up before a write: the item existed, and was deleted concurrently.
        SqlState::FOREIGN_KEY_VIOLATION,
        SqlState::FEATURE_NOT_SUPPORTED,
    ]
    .contains(code)
}

/// A prepared statement is missing or exists twice, because a proxy changed the session.
fn is_pooling_proxy_error(code: &SqlState) -> bool {
    [SqlState::INVALID_SQL_STATEMENT_NAME, SqlState::DUPLICATE_PSTATEMENT].contains(code)
}

/// A violated foreign key. `table` is the referencing table.
///
/// The lookup before a delete does not find references that only a newer model or the operator has declared, but
/// PostgreSQL's error names the constraint. A constraint that the model declares is violated only by a concurrent
/// transaction, and then the write is retried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ViolatedForeignKey {
    pub table: String,
    pub constraint: String,
}

impl ViolatedForeignKey {
    pub fn from_error(error: &Error) -> Option<Self> {
        let error = error.as_db_error()?;
        if *error.code() != SqlState::FOREIGN_KEY_VIOLATION {
            return None;
        }
        Some(Self { table: error.table()?.to_owned(), constraint: error.constraint()?.to_owned() })
    }
}

/// Whether a connection ended because the machine at the other side is gone.
pub fn is_host_gone(error: &Error) -> bool {
    let source = std::error::Error::source(error);
    let io = source.and_then(|source| source.downcast_ref::<io::Error>());
    io.is_some_and(|io| {
        matches!(
            io.kind(),
            io::ErrorKind::TimedOut
                | io::ErrorKind::HostUnreachable
                | io::ErrorKind::NetworkUnreachable
        )
    })
}

/// Whether a notice warns that a commit no longer waits for its synchronous standbys. It has the code of
/// any warning and its text depends on `lc_messages`, so the function that raises it identifies it.
pub fn is_sync_replication_warning(notice: &DbError) -> bool {
    notice.routine() == Some("SyncRepWaitForLSN")
}

/// The message for the log, without the values that PostgreSQL puts into its details.
pub fn error_message(error: &Error) -> String {
    match error.as_db_error() {
        Some(database) => {
            format!("{} (PostgreSQL {})", database.message(), database.code().code())
        }
        None => {
            let mut text = error.to_string();
            let mut source = std::error::Error::source(error);
            while let Some(cause) = source {
                text = format!("{text}: {cause}");
                source = cause.source();
            }
            text
        }
    }
}
