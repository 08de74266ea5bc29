//! The bounds of the change log: its first and last entry, for the metrics.
//!
//! Written once for both backends. A failure is `None`, not an error: a scrape must succeed while the
//! database is down, without waiting for it.

use std::time::Duration;

use super::StoreWorker;
use super::driver::{Columns, DatabaseDriver, StatementError};
use super::sql::CHANGE_LOG_BOUNDS;
use crate::plan::{ChangeLogBounds, Outcome, ReadPlan};

/// The timeout: scrapes are far apart, and have their own timeouts.
const READ_TIMEOUT: Duration = Duration::from_secs(1);

/// Reads the bounds through any driver.
pub(super) async fn read<D: DatabaseDriver>(
    driver: &mut D,
) -> Result<ChangeLogBounds, StatementError> {
    let read = |row: &dyn Columns| {
        Ok(ChangeLogBounds { oldest: row.integer(0)?, newest: row.integer(1)? })
    };
    let found = driver.query(CHANGE_LOG_BOUNDS, &[], read).await?.pop();
    Ok(found.unwrap_or(ChangeLogBounds { oldest: None, newest: None }))
}

impl StoreWorker {
    /// `None` if the store fails, or does not answer in time.
    pub async fn change_log_bounds(&self) -> Option<ChangeLogBounds> {
        match tokio::time::timeout(READ_TIMEOUT, self.read(ReadPlan::ChangeLogBounds)).await {
            Ok(Ok(Outcome::ChangeLogBounds(positions))) => Some(positions),
            Ok(_) | Err(_) => None,
        }
    }
}
