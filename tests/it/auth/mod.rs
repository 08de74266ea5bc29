//! Authentication: logins, their revocation, replay protection, and responses that reveal nothing.
//!
//! `spec/section_5.rs` tests the rules of the specification; `src/pipeline/grants.rs` tests
//! permissions.

mod failover;
mod first_start;
mod guessing;
mod logins;
mod realms;
mod replay;
mod revocation;
mod schemes;
mod auth_int;
