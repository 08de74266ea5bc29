//! How old entries of the change log and old answers go, on every backend: in steps, so that writers never
//! wait for more than one.

use std::fmt::Debug;
use std::time::Duration;

use crate::log::{Level, Log};
use crate::model::settings::Keep;

pub(super) const SWEEP_EVERY: Duration = Duration::from_secs(60);
/// Entries that one step looks at.
pub(super) const SWEEP_STEP: i64 = 1_000;
const SWEEP_PAUSE: Duration = Duration::from_millis(10);

/// How long the next step can wait, after one that took so many.
pub(super) fn pause(count: u64) -> Duration {
    if count > 0 { SWEEP_PAUSE } else { SWEEP_EVERY }
}

/// Tells the operator of a step that failed.
pub(super) fn failed(log: &Log, what: &str, cause: &dyn Debug) {
    let cause = format!("{cause:?}");
    log.event(Level::Warning, &format!("{what} could not be swept"), &[("cause", &cause)]);
}

/// Thirty days unless the model says otherwise; `None` is for ever.
pub(super) fn changes_keep(setting: Option<Keep>) -> Option<Duration> {
    match setting {
        None => Some(Duration::from_secs(30 * 24 * 60 * 60)),
        Some(Keep::For(time)) => Some(time),
        Some(Keep::Forever) => None,
    }
}
