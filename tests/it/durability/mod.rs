//! Durability of answered writes on SQLite, whatever happens to the process or the disk.
//!
//! `ledger.rs` sends requests and records them with their responses, `judge.rs` compares a database
//! with the record; the other files end the server.
//! All of it is about the files of SQLite, so nothing here runs on every backend; PostgreSQL's
//! durability is for its own tests. `tests/it/replicas/` uses the ledger and the judge as well.

mod calls;
pub mod seeded_random;
mod delays;
mod faults;
mod disk_full;
pub mod judge;
mod judge_tests;
mod kill;
pub mod ledger;
mod leftover_database;
pub mod fallible_connection;
pub mod serving;
mod partial_writes;
mod trace;
pub mod workload;
