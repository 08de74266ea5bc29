//! The bounds of the change log: its first and last entry, for the metrics.
//!
//! Written once for both backends. The one surprising thing: a failure is `None` and no error. A scrape must
//! succeed while the database is down, without waiting for it.

use std::time::Duration;

use super::Worker;
use super::driver::{Columns, Driver, Failure};
use super::sql::POSITIONS;
use crate::plan::{Outcome, Positions, Read};

/// The timeout: scrapes are far apart, and have timeouts of their own.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Reads the bounds through any driver.
pub(super) async fn read<D: Driver>(driver: &mut D) -> Result<Positions, Failure> {
    let read =
        |row: &dyn Columns| Ok(Positions { oldest: row.integer(0)?, newest: row.integer(1)? });
    let found = driver.rows(POSITIONS, &[], read).await?.pop();
    Ok(found.unwrap_or(Positions { oldest: None, newest: None }))
}

impl Worker {
    /// `None` if the store fails, or does not answer in time.
    pub async fn positions(&self) -> Option<Positions> {
        match tokio::time::timeout(WAIT_MAX, self.read(Read::Positions)).await {
            Ok(Ok(Outcome::Positions(positions))) => Some(positions),
            Ok(_) | Err(_) => None,
        }
    }
}
