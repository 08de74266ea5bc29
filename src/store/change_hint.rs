//! A hint that the change log may have new entries: this process has committed, or another one says that it has.
//!
//! A hint may be missing or wrong; `change_tail` polls for commits that gave none. On PostgreSQL, servers notify
//! each other (`postgres/notifications.rs`), as long as somebody here wants to know.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;
use tokio::sync::watch::{Receiver, Sender};

/// Counts the commits while somebody waits for them.
#[derive(Debug, Default)]
pub struct ChangeHint {
    /// Commits of all processes, for readers of the log.
    commits: Sender<u64>,
    /// Commits of this process, for whoever passes them on.
    local_commits: Sender<u64>,
    /// Whether somebody has waited for a hint since the last check.
    is_wanted: AtomicBool,
    wanted: Notify,
    /// Whether commits of other servers give hints.
    has_remote_hints: AtomicBool,
    /// A webhook was written by this process.
    webhook_written: Notify,
}

impl ChangeHint {
    /// Called after every commit of this process; without subscribers it is two atomic loads.
    pub fn notify(&self) {
        increment(&self.commits);
        increment(&self.local_commits);
    }

    /// Called when another process has committed, or may have.
    pub fn notify_remote(&self) {
        increment(&self.commits);
    }

    pub fn subscribe(&self) -> Receiver<u64> {
        self.commits.subscribe()
    }

    pub fn subscribe_to_local(&self) -> Receiver<u64> {
        self.local_commits.subscribe()
    }

    /// Called after a webhook was written.
    pub fn notify_webhook(&self) {
        self.webhook_written.notify_one();
    }

    /// Waits until this process has written a webhook.
    pub async fn webhook_written(&self) {
        self.webhook_written.notified().await;
    }

    /// Asks for the hints of other servers. They are requested until nobody has asked for a while. Returns
    /// whether they are being received, so that frequent polls are not needed.
    pub fn want_remote(&self) -> bool {
        if !self.is_wanted.swap(true, Ordering::Relaxed) {
            self.wanted.notify_one();
        }
        self.has_remote_hints.load(Ordering::Relaxed)
    }

    /// Waits until somebody asks for the hints of other servers.
    pub async fn remote_wanted(&self) {
        self.wanted.notified().await;
    }

    /// Whether somebody has asked for the hints of other servers since the last call.
    pub fn take_remote_wanted(&self) -> bool {
        self.is_wanted.swap(false, Ordering::Relaxed)
    }

    /// Records whether commits of other servers give hints. Readers look once more: what was committed before is
    /// not announced again.
    pub fn set_remote_hints(&self, has_remote_hints: bool) {
        if self.has_remote_hints.swap(has_remote_hints, Ordering::Relaxed) != has_remote_hints {
            self.notify_remote();
        }
    }
}

fn increment(counter: &Sender<u64>) {
    if counter.receiver_count() > 0 {
        counter.send_modify(|count| *count = count.wrapping_add(1));
    }
}
