//! Failures of the store in the threads of the feed and of the webhooks: the pause after one, and how they are logged.

use std::time::{Duration, Instant};

use crate::clock;
use crate::log::{Level, Logger};
use crate::store::StoreError;

/// The pause after a failed read or write.
pub const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// How often failures are logged.
const LOG_EVERY: Duration = Duration::from_secs(60);

/// Logs failures: the first of a series, and then one a minute.
#[derive(Debug)]
pub struct StoreFailures {
    message: &'static str,
    logged_at: Option<Instant>,
}

impl StoreFailures {
    pub fn new(message: &'static str) -> Self {
        Self { message, logged_at: None }
    }

    pub fn record(&mut self, log: &Logger, error: &StoreError) {
        let now = clock::now();
        let is_due = |at: Instant| now.saturating_duration_since(at) >= LOG_EVERY;
        if self.logged_at.is_none_or(is_due) {
            self.logged_at = Some(now);
            log.event(Level::Error, self.message, &[("cause", error)]);
        }
    }

    /// Ends a series.
    pub fn record_success(&mut self) {
        self.logged_at = None;
    }
}
