//! The retention sweep on the writer thread.

use std::time::Duration;

use super::writer::Writer;
use crate::clock;
use crate::fault;
use crate::store::StoreError;
use crate::store::driver::{Failure, at_once};
use crate::store::sweep::{self, SWEEP_EVERY, Step};

impl Writer {
    /// Runs one batch of the sweep; returns the delay before the next one.
    pub(super) fn sweep(&self) -> Duration {
        fault::point("sweep");
        match self.sweep_step() {
            Ok(step) => {
                self.metrics.changes_swept.add(step.changes);
                self.doubts.tell(&self.log, &step);
                sweep::pause(step.changes + step.keys)
            }
            Err(error) => {
                sweep::failed(&self.log, &error);
                SWEEP_EVERY
            }
        }
    }

    fn sweep_step(&self) -> Result<Step, StoreError> {
        self.begin()?;
        let step = at_once(sweep::step(&mut self.driver(), &self.context, clock::moment()));
        match step.unwrap_or(Err(Failure::TimedOut)) {
            Ok(step) if self.commit(Vec::new()) => Ok(step),
            // `commit` has logged the cause.
            Ok(_) => Ok(Step::default()),
            Err(failure) => {
                self.roll_back(&format!("{failure:?}"));
                Err(failure.into())
            }
        }
    }
}
