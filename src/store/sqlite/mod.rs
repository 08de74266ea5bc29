//! The SQLite backend: one file, one writer thread with group commit, reads on the worker threads.
//!
//! Writes queue for the one thread that owns the read-write connection and share its commits (`writer`). A
//! fast read runs inline on the worker thread, on that thread's own connection. While the disk is slow, reads
//! go through a small pool (`reader`) until they are fast there, so that cold reads do not block the other
//! requests of a worker thread.

pub mod admin;
pub mod backup;
pub mod catalogue;
pub mod checkpoint;
pub mod completions;
pub mod connection;
pub mod database_files;
pub mod database_lock;
pub mod database_move;
pub mod driver;
pub mod export;
pub mod health;
pub mod migrate;
#[cfg(any(fuzzing, test))]
pub mod migration_check;
pub mod open;
pub mod reader;
pub mod recovery;
pub mod restore;
#[cfg(test)]
mod startup_faults;
pub mod wal_file;
pub mod wal_maintenance;
pub mod wal_reset;
pub mod worker;
#[cfg(test)]
mod write_faults;
pub mod write_queue;
pub mod writer;
