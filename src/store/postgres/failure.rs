//! PostgreSQL's errors, by what they mean for a request.

use tokio_postgres::Error;
use tokio_postgres::error::{DbError, Severity, SqlState};

use crate::store::driver::Failure;

/// What to do about an error beside telling it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trouble {
    /// Nothing was done, and it may well go through the next time, over another connection.
    Again,
    /// The connection is of no more use; nobody knows what became of what was on its way.
    Lost,
}

/// Sorts an error: what is told, and what to do about it.
pub(super) fn sort(error: &Error) -> (Failure, Option<Trouble>) {
    let Some(database) = error.as_db_error() else {
        return (Failure::Storage(words(error)), Some(Trouble::Lost));
    };
    let cause = words(error);
    let is_fatal =
        !matches!(database.parsed_severity(), None | Some(Severity::Error | Severity::Warning));
    if is_fatal {
        return (Failure::Storage(cause), Some(Trouble::Lost));
    }
    match database.code() {
        code if *code == SqlState::UNIQUE_VIOLATION => {
            (Failure::Taken(database.constraint().unwrap_or_default().to_owned()), None)
        }
        code if is_passing(code) => (Failure::Storage(cause), Some(Trouble::Again)),
        code if *code == SqlState::QUERY_CANCELED => (Failure::TimedOut, None),
        code if *code == SqlState::LOCK_NOT_AVAILABLE => (Failure::Locked, None),
        code if is_of_a_proxy(code) => {
            let hint =
                "behind a proxy that pools transactions set database_pooling = \"transaction\"";
            (Failure::Storage(format!("{cause}; {hint}")), None)
        }
        // 53: resources are short; 58: its own system failed; XX: its files are damaged.
        code if ["53", "58", "XX"].iter().any(|class| code.code().starts_with(class)) => {
            (Failure::Storage(cause), None)
        }
        _ => (Failure::Engine(cause), None),
    }
}

/// What another transaction did meanwhile; and plans that another replica's change of tables made old.
fn is_passing(code: &SqlState) -> bool {
    [
        SqlState::T_R_SERIALIZATION_FAILURE,
        SqlState::T_R_DEADLOCK_DETECTED,
        // Everything is looked up before it is written: an item was there, and is no more.
        SqlState::FOREIGN_KEY_VIOLATION,
        SqlState::FEATURE_NOT_SUPPORTED,
        // The server is no longer the one that writes: the next connection finds the one that is.
        SqlState::READ_ONLY_SQL_TRANSACTION,
    ]
    .contains(code)
}

/// Our prepared statement is on another connection.
fn is_of_a_proxy(code: &SqlState) -> bool {
    [SqlState::INVALID_SQL_STATEMENT_NAME, SqlState::DUPLICATE_PSTATEMENT].contains(code)
}

/// Whether a notice warns that a commit no longer waits for its synchronous standbys. Its code is that of
/// any warning and its text depends on `lc_messages`, so the function that raises it tells.
pub(super) fn is_unreplicated(notice: &DbError) -> bool {
    notice.routine() == Some("SyncRepWaitForLSN")
}

/// For the log: without the values that PostgreSQL puts into its details.
pub(super) fn words(error: &Error) -> String {
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
