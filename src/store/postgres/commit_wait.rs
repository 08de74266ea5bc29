//! Commits of a start that wait for a synchronous standby: the wait is reported, and has a timeout.
//!
//! A commit that waits keeps its locks, and a start may have locked tables that others read. So the first
//! commit of a start is a probe that touches no table: while it waits, no table is locked.
//! Such a commit is never cancelled, see `postgres::attempt`; a start that times out leaves it to PostgreSQL.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::pin::{Pin, pin};
use std::time::Duration;

use tokio::time::timeout;

use crate::clock;
use crate::log::{Level, Logger};
use crate::store::driver::Driver;
use crate::store::error::OpenError;
use crate::store::postgres::connect::error::ConnectError;
use crate::store::postgres::driver::{PostgresDriver, TransactionStage};
use crate::store::postgres::error_class::{ErrorClass, classify, error_message};
use crate::store::postgres::pool::{ConnectionPool, DatabaseConnection};
use crate::store::statement::Columns;

/// Timeout for one connection.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// The interval between two checks of what a commit waits for.
const CHECK_INTERVAL: Duration = Duration::from_secs(3);
/// How long a start waits for the standbys to confirm a commit.
const COMMIT_MAX: Duration = Duration::from_secs(15);
/// The timeout of one check, which opens a connection and queries the standbys that a commit waits for.
const CHECK_TIMEOUT: Duration = Duration::from_secs(5);

/// A transaction that writes only a message to the WAL, so that standbys have to confirm it.
const PROBE: &str = "SELECT pg_logical_emit_message(true, 'nouns', 'start')";

/// Whether commits of ours wait for a standby, and the configured standbys. Normally some wait at any
/// moment, but not for this long.
const WAITS: &str = "SELECT count(*) > 0, current_setting('synchronous_standby_names') \
    FROM pg_stat_activity WHERE datname = current_database() AND usename = current_user \
    AND wait_event = 'SyncRep' AND query_start < clock_timestamp() - interval '2 seconds'";

const REMEDY: &str =
    "start the standby, or take it out of synchronous_standby_names and reload PostgreSQL";

/// The commits of one start.
pub struct CommitGuard<'a> {
    pub pool: &'a ConnectionPool,
    pub log: &'a Logger,
    /// The URL of the database, for messages.
    pub display_url: &'a str,
    /// Whether it retries failures that may be temporary (`--wait`).
    pub is_patient: bool,
    /// Whether it was reported that a commit waits.
    pub has_reported_wait: Cell<bool>,
}

impl CommitGuard<'_> {
    /// The connection that the last step of the start has given back to the pool, or a new one.
    pub async fn connect(&self) -> Result<Box<DatabaseConnection>, StartFailure> {
        match self.pool.pop_idle() {
            Some(connection) => Ok(connection),
            None => Ok(self.pool.open_connection(clock::now() + CONNECT_TIMEOUT).await?),
        }
    }

    /// Commits a transaction that changes no table, and waits until it is confirmed.
    pub async fn probe_commit(&self) -> Result<(), StartFailure> {
        let probe = async {
            let connection = self.connect().await?;
            match connection.client.batch_execute(PROBE).await {
                // Without the privilege for the probe, the first real commit waits instead.
                Err(error) if classify(&error).1 == Some(ErrorClass::ConnectionLost) => {
                    let cause = error_message(&error);
                    Err(StartFailure::Retryable(OpenError::new(format!(
                        "{}: {cause}",
                        self.display_url
                    ))))
                }
                Ok(()) | Err(_) => {
                    self.pool.push_idle(connection);
                    Ok(())
                }
            }
        };
        self.guard_commit(probe).await
    }

    /// Runs work that ends with a commit. Reports to the operator if the commit waits for a standby, and
    /// times out, unless the start runs with `--wait`.
    pub async fn guard_commit<T>(
        &self,
        work: impl Future<Output = Result<T, StartFailure>>,
    ) -> Result<T, StartFailure> {
        let mut work = pin!(work);
        let began = clock::now();
        loop {
            if let Ok(done) = timeout(CHECK_INTERVAL, work.as_mut()).await {
                return done;
            }
            if self.is_patient && self.has_reported_wait.get() {
                return work.await;
            }
            let names = match finish_during(work.as_mut(), self.find_standbys()).await {
                ControlFlow::Break(done) => return done,
                ControlFlow::Continue(names) => names,
            };
            let Some(names) = names else { continue };
            if !self.has_reported_wait.replace(true) {
                let message =
                    "a commit of the start waits for a synchronous standby, and none answers";
                let fields: [(&str, &dyn std::fmt::Display); 2] =
                    [("synchronous_standby_names", &names), ("remedy", &REMEDY)];
                self.log.event(Level::Warning, message, &fields);
            }
            if !self.is_patient && clock::now() >= began + COMMIT_MAX {
                return Err(StartFailure::Retryable(self.unconfirmed(&names)));
            }
        }
    }

    /// The standbys that commits wait for; `None` when no commit waits, or when the query fails.
    async fn find_standbys(&self) -> Option<String> {
        let check = async {
            let connection = self.pool.open_connection(clock::now() + CHECK_TIMEOUT).await.ok()?;
            let mut driver = PostgresDriver::new(&connection, TransactionStage::Autocommit);
            let read = |row: &dyn Columns| Ok((row.boolean(0)?, row.required_text(1)?));
            let (waits, names) = driver.query_one(WAITS, &[], read).await.ok()??;
            (waits == Some(true)).then_some(names)
        };
        timeout(CHECK_TIMEOUT, check).await.ok().flatten()
    }

    fn unconfirmed(&self, names: &str) -> OpenError {
        OpenError::new(format!(
            "{}: PostgreSQL has not confirmed a commit within {} seconds, because no synchronous standby \
             answers (synchronous_standby_names = '{names}'); {REMEDY}; with --wait the start goes on \
             waiting",
            self.display_url,
            COMMIT_MAX.as_secs()
        ))
    }
}

/// Runs a check while the work goes on. Breaks with the result of the work if that is done first: a slow check
/// does not delay it.
async fn finish_during<T, C>(
    work: Pin<&mut impl Future<Output = T>>,
    check: impl Future<Output = C>,
) -> ControlFlow<T, C> {
    tokio::select! {
        biased;
        done = work => ControlFlow::Break(done),
        checked = check => ControlFlow::Continue(checked),
    }
}

/// Why the database was not opened.
#[derive(Debug)]
pub enum StartFailure {
    /// The connection broke, or others held locks: a retry may succeed.
    Retryable(OpenError),
    /// There was no connection; a retry may succeed.
    Unreachable(OpenError),
    Refused(OpenError),
}

impl From<ConnectError> for StartFailure {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::Permanent(message) => Self::Refused(OpenError::new(message)),
            ConnectError::Transient(message) => Self::Unreachable(OpenError::new(message)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[tokio::test]
    async fn commit_that_finishes_during_a_check_is_noticed_at_once() {
        let (finish, finished) = tokio::sync::oneshot::channel();
        let check = async {
            finish.send("committed").unwrap();
            pending::<()>().await;
        };
        let outcome = finish_during(pin!(finished), check).await;
        assert_eq!(outcome, ControlFlow::Break(Ok("committed")));
    }

    #[tokio::test]
    async fn commit_that_still_waits_after_a_check_can_be_polled_again() {
        let mut work = pin!(pending::<()>());
        let outcome = finish_during(work.as_mut(), ready("standby")).await;
        assert_eq!(outcome, ControlFlow::Continue("standby"));
        let outcome = finish_during(work, ready("standby")).await;
        assert_eq!(outcome, ControlFlow::Continue("standby"));
    }
}
