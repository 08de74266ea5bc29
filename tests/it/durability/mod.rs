//! An answered write is on disk, whatever happens to the process or the disk.
//!
//! `ledger.rs` asks and keeps what was asked and answered, `judge.rs` holds a database against it; the
//! other files bring the server to its end.
//! The one surprising thing: all of it is about the files of SQLite, so nothing here runs on every
//! backend; what a database server does with its own disk is for its own tests to show. The book and the
//! judge are `tests/it/replicas/`'s as well.

mod calls;
pub mod chance;
mod delays;
mod faults;
mod full;
pub mod judge;
mod judged;
mod kill;
pub mod ledger;
mod left;
pub mod line;
pub mod serving;
mod short;
mod trace;
pub mod workload;
