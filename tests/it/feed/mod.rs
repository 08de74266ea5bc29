//! The change feed: the log as a resource, the history of items, event streams.

mod command;
mod event_source;
mod history;
mod history_replay;
mod list;
mod list_copy;
mod log_rights;
mod log_stream;
mod long_poll;
mod replicas;
mod retention;
mod snapshot;
mod stream;
mod stream_limits;
mod stream_rights;
mod under_fire;
