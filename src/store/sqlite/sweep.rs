//! The sweep of the change log: old entries go, in steps, on the writer's thread.

use std::time::Duration;

use super::writer::Writer;
use crate::clock;
use crate::fault;
use crate::store::StoreError;
use crate::store::driver::{Bind, Driver, at_once};
use crate::store::sweep::{self, SWEEP_EVERY, SWEEP_STEP};
use crate::value::Moment;

impl Writer {
    /// One step of the sweep: old entries of the change log go. Says how long the next one can wait.
    pub(super) fn sweep(&self) -> Duration {
        fault::point("sweep");
        let before = self.changes_keep.and_then(|keep| clock::moment().earlier(keep));
        match before.map(|before| self.sweep_step(before)) {
            None => SWEEP_EVERY,
            Some(Ok(count)) => sweep::pause(count),
            Some(Err(error)) => sweep::failed(&self.log, &error),
        }
    }

    /// How many entries went.
    fn sweep_step(&self, before: Moment) -> Result<usize, StoreError> {
        self.begin()?;
        let binds = [Bind::Moment(before), Bind::Integer(SWEEP_STEP)];
        let count =
            at_once(self.driver().execute(&self.context.sql.sweep, &binds)).unwrap_or(Ok(0));
        match count {
            Ok(count) => {
                if self.commit(Vec::new()) {
                    self.metrics.changes_swept.add(u64::try_from(count).unwrap_or(0));
                }
                Ok(count)
            }
            Err(failure) => {
                self.roll_back(&format!("{failure:?}"));
                Err(failure.into())
            }
        }
    }
}
