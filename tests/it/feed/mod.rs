//! The change feed: the log as a resource, the history of items, event streams.

mod event_source;
