//! A hint that this process has committed: the change log may have new entries.
//!
//! Commits of other processes give no hint here; `change_tail` polls for those.

use tokio::sync::watch::{Receiver, Sender};

/// Counts the commits while somebody waits for them.
#[derive(Debug, Default)]
pub struct ChangeHint(Sender<u64>);

impl ChangeHint {
    /// Called after every commit; without subscribers it is one atomic load.
    pub fn notify(&self) {
        if self.0.receiver_count() > 0 {
            self.0.send_modify(|count| *count = count.wrapping_add(1));
        }
    }

    pub fn subscribe(&self) -> Receiver<u64> {
        self.0.subscribe()
    }
}
