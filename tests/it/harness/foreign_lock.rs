//! A foreign connection that holds the write lock of a server's database, as a backup or an operator
//! might.
//!
//! It changes nothing.
//! `psql` creates a file to report that it has the lock, since its standard output is buffered.

use std::fs;
use std::io::Write;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::{Backend, Postgres, Server, TIMEOUT, wait_until};

/// Held until dropped.
#[derive(Debug)]
pub enum ForeignLock {
    Sqlite(Connection),
    Postgres(Child),
}

impl ForeignLock {
    /// Whether a server on SQLite may have given up waiting for a lock since then: its writer waits for five seconds.
    /// A response after that proves nothing. On PostgreSQL the model sets the limit.
    pub fn may_have_timed_out(backend: Backend, since: Instant) -> bool {
        backend == Backend::Sqlite && since.elapsed() > Duration::from_secs(4)
    }

    /// Writers wait and readers do not.
    pub fn hold(server: &Server) -> Self {
        Self::lock_table(server, "customers", "")
    }

    /// Locks a table, after some statements that `commit` commits and a drop rolls back.
    pub fn lock_table(server: &Server, table: &str, statements: &str) -> Self {
        match server.backend() {
            Backend::Sqlite => {
                let connection = Connection::open(server.folder().join("nouns.db")).unwrap();
                connection.busy_timeout(TIMEOUT).unwrap();
                connection.execute_batch(&format!("BEGIN IMMEDIATE; {statements}")).unwrap();
                Self::Sqlite(connection)
            }
            Backend::Postgres => Self::lock_with_psql(server, table, statements),
        }
    }

    fn lock_with_psql(server: &Server, table: &str, statements: &str) -> Self {
        let folder = server.folder();
        let mut command = Postgres::shared().psql(&Postgres::database_name(folder));
        command.current_dir(folder).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut child = command.spawn().unwrap();
        let lines = format!(
            "BEGIN;\nLOCK TABLE {table} IN EXCLUSIVE MODE;\n{statements}\n\\! touch locked\n"
        );
        child.stdin.as_mut().unwrap().write_all(lines.as_bytes()).unwrap();
        let held = Self::Postgres(child);
        wait_until("the other process has the lock", || {
            fs::remove_file(folder.join("locked")).is_ok().then_some(())
        });
        held
    }

    pub fn commit(mut self) {
        match &mut self {
            Self::Sqlite(connection) => connection.execute_batch("COMMIT").unwrap(),
            Self::Postgres(psql) => {
                psql.stdin.take().unwrap().write_all(b"COMMIT;\n").unwrap();
                assert!(psql.wait().unwrap().success());
            }
        }
    }
}

impl Drop for ForeignLock {
    fn drop(&mut self) {
        // The end of its input ends it, and with it the transaction.
        if let Self::Postgres(psql) = self {
            drop(psql.stdin.take());
            drop(psql.wait());
        }
    }
}
