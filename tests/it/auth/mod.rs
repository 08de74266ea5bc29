//! Who is asking: logins, what ends them, replays, and what is never told.
//!
//! The rules of the specification are in `spec/section_5.rs`; who may do what is in `src/pipeline/grants.rs`.

mod failover;
mod first_start;
mod guessing;
mod logins;
mod realms;
mod replay;
mod revocation;
mod schemes;
mod whole;
