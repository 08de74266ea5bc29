//! Long polling: a request that waits for a change which its caller sees.
//!
//! It takes part in a view like an event stream, but sends nothing: the view tells it when to read the log. While
//! it waits it holds neither a database connection nor an admission permit.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{sleep, timeout};

use super::evaluate::Subscription;
use super::feed::{Feed, ViewMembership};
use super::view::ViewRead;
use crate::admission::CallerKey;

/// The pause before a wait that was woken for nothing goes on.
const AGAIN_PAUSE: Duration = Duration::from_millis(20);

/// Why a wait is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitEnd {
    /// The log has something after the position that the caller may see.
    Changed,
    /// The server shuts down, or cannot tell.
    Closed,
}

/// A wait for changes.
#[derive(Debug)]
pub struct LogWait {
    feed: Arc<Feed>,
    membership: ViewMembership,
    /// The caller sees nothing of the log between where it began to wait and this number.
    position: i64,
}

impl LogWait {
    pub fn begin(
        feed: &Arc<Feed>,
        subscription: Subscription,
        caller: CallerKey,
        position: i64,
    ) -> Self {
        let membership = feed.subscribe(subscription, caller);
        Self { feed: Arc::clone(feed), membership, position }
    }

    pub fn position(&self) -> i64 {
        self.position
    }

    /// Waits for a change after the position, for some time at most. May be called again.
    pub async fn changed(&mut self, time: Duration) -> Option<WaitEnd> {
        timeout(time, poll_fn(|context| self.poll_changed(context))).await.ok()
    }

    /// Goes on after a change that was none for the caller: the view has forgotten what there was, or the connection
    /// that has read the log is behind the feed.
    pub async fn go_on_after(&mut self, position: i64) {
        self.position = self.position.max(position);
        sleep(AGAIN_PAUSE).await;
    }

    fn poll_changed(&mut self, context: &Context<'_>) -> Poll<WaitEnd> {
        // Registered before anything is checked, so that no wake-up is lost. Nothing is sent, so there is no chunk
        // to wait for.
        self.membership.slot.register(context);
        if self.feed.is_closed() {
            return Poll::Ready(WaitEnd::Closed);
        }
        match self.membership.view.read_after(self.position) {
            ViewRead::Events { .. } | ViewRead::Behind => Poll::Ready(WaitEnd::Changed),
            ViewRead::UpToDate(end) => {
                self.position = self.position.max(end);
                Poll::Pending
            }
            ViewRead::NotLive => Poll::Pending,
            ViewRead::Ended | ViewRead::Failed(_) => Poll::Ready(WaitEnd::Closed),
        }
    }
}

impl Drop for LogWait {
    fn drop(&mut self) {
        self.feed.unsubscribe(&self.membership);
    }
}
