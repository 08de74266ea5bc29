//! The attacks, as a library: the benchmark measures the cost of each, and the black-box tests check
//! that the server ends each.
//!
//! Nothing here measures or judges.

#![expect(clippy::disallowed_methods, reason = "attacks are paced by the real clock")]

pub mod attack;
