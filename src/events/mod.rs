//! Events: what the server tells others of the changes in its log.

pub mod webhook;
