//! Events: what the server tells others of the changes in its log.
//!
//! The change feed is one thread that reads the change log in order; event streams follow it.
//!
//! ```text
//!  commit ─► ChangeTail ─► for each interested View: evaluate ─► ring of encoded events ─► wakes its streams
//!                          streams that are behind the ring: pages of the log (catch-up), same `evaluate`
//! ```
//!
//! Equal subscriptions share one view, so that an event is evaluated and encoded once for all of them. There is no
//! queue for each stream: a stream is a position, and takes what it has not sent yet from its view. One that is
//! behind the ring of its view (a slow reader, or a client that resumes) catches up from the log.

mod fact_lookup;
mod catch_up;
mod evaluate;
mod feed;
mod long_poll;
mod publish;
mod slot;
mod store_failures;
mod stream;
mod view;
pub mod webhook;

pub use evaluate::{Subscription, write_snapshot_item};
pub use feed::{Feed, FeedContext};
pub use long_poll::{LogWait, WaitEnd};
pub use slot::StreamSlot;
pub use stream::{EventStream, SnapshotSource, StreamStart};
