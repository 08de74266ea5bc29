//! The sweep: old entries of the change log and old answers go, in steps, on the writer's thread.

use std::time::Duration;

use super::writer::Writer;
use crate::clock;
use crate::fault;
use crate::store::StoreError;
use crate::store::driver::{Bind, Driver, at_once};
use crate::store::once;
use crate::store::sweep::{self, SWEEP_EVERY, SWEEP_STEP};
use crate::value::Moment;

impl Writer {
    /// One step of each sweep. Says how long the next one can wait.
    pub(super) fn sweep(&self) -> Duration {
        fault::point("sweep");
        let (now, sql) = (clock::moment(), &self.context.sql);
        let changes = self.changes_keep.and_then(|keep| now.earlier(keep));
        let changes = self.sweep_one("the change log", &sql.sweep, changes);
        let keys =
            self.sweep_one("kept answers", &sql.keys.sweep, once::expired(&self.context, now));
        self.metrics.changes_swept.add(changes.unwrap_or(0));
        match (changes, keys) {
            (Some(changes), Some(keys)) => sweep::pause(changes + keys),
            (None, _) | (_, None) => SWEEP_EVERY,
        }
    }

    /// How many went; nothing when it failed.
    fn sweep_one(&self, what: &str, sql: &str, before: Option<Moment>) -> Option<u64> {
        match before.map(|before| self.sweep_step(sql, before)) {
            None => Some(0),
            Some(Ok(count)) => Some(count),
            Some(Err(error)) => {
                sweep::failed(&self.log, what, &error);
                None
            }
        }
    }

    fn sweep_step(&self, sql: &str, before: Moment) -> Result<u64, StoreError> {
        self.begin()?;
        let binds = [Bind::Moment(before), Bind::Integer(SWEEP_STEP)];
        let count = at_once(self.driver().execute(sql, &binds)).unwrap_or(Ok(0));
        match count {
            Ok(count) if self.commit(Vec::new()) => Ok(u64::try_from(count).unwrap_or(0)),
            // The commit has told why.
            Ok(_) => Ok(0),
            Err(failure) => {
                self.roll_back(&format!("{failure:?}"));
                Err(failure.into())
            }
        }
    }
}
