//! The retention sweep on the writer thread.

use std::time::Duration;

use super::writer::SqliteWriter;
use crate::clock;
use crate::fault;
use crate::store::StoreError;
use crate::store::driver::{StatementError, poll_once};
use crate::store::retention::{self, SWEEP_EVERY, SweepResult};

impl SqliteWriter {
    /// Runs one batch of the sweep; returns the delay before the next one.
    pub(super) fn sweep(&self) -> Duration {
        fault::point("sweep");
        match self.sweep_step() {
            Ok(step) => {
                self.metrics.changes_swept.add(step.changes);
                self.doubt_log.log_new(&self.log, &step);
                retention::next_delay(step.changes + step.keys)
            }
            Err(error) => {
                retention::log_failure(&self.log, &error);
                SWEEP_EVERY
            }
        }
    }

    fn sweep_step(&self) -> Result<SweepResult, StoreError> {
        self.begin()?;
        let step =
            poll_once(retention::sweep_batch(&mut self.driver(), &self.context, clock::moment()));
        match step.unwrap_or(Err(StatementError::TimedOut)) {
            Ok(step) if self.commit(Vec::new()) => Ok(step),
            // `commit` has logged the cause.
            Ok(_) => Ok(SweepResult::default()),
            Err(failure) => {
                self.roll_back(&format!("{failure:?}"));
                Err(failure.into())
            }
        }
    }
}
