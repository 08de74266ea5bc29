//! How far the change log goes: its first and last entry, for whoever watches the server.
//!
//! Once for every backend. The one surprising thing: no answer is no error. Who asks wants to see a server
//! whose database is away, and will not wait for it.

use std::time::Duration;

use super::Worker;
use super::driver::{Columns, Driver, Failure};
use super::sql::POSITIONS;
use crate::plan::{Outcome, Positions, Read};

/// How long it may take: scrapes are far apart, and have limits of their own.
const WAIT_MAX: Duration = Duration::from_secs(1);

/// Reads them through any driver.
pub(super) async fn read<D: Driver>(driver: &mut D) -> Result<Positions, Failure> {
    let read =
        |row: &dyn Columns| Ok(Positions { oldest: row.integer(0)?, newest: row.integer(1)? });
    let found = driver.rows(POSITIONS, &[], read).await?.pop();
    Ok(found.unwrap_or(Positions { oldest: None, newest: None }))
}

impl Worker {
    /// `None` when the store does not answer, or not soon.
    pub async fn positions(&self) -> Option<Positions> {
        match tokio::time::timeout(WAIT_MAX, self.read(Read::Positions)).await {
            Ok(Ok(Outcome::Positions(positions))) => Some(positions),
            Ok(_) | Err(_) => None,
        }
    }
}
