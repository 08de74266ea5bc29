//! The attacks, as a library: the benchmark measures what each costs, and the black-box tests see that
//! each is cut.
//!
//! Nothing here measures or judges.

#![expect(clippy::disallowed_methods, reason = "attacks are paced by the real clock")]

pub mod attack;
