//! References to other items, and what deleting those items does.

mod clear;
mod link_writes;
mod many;
