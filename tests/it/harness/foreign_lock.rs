//! A foreign process that holds the write lock of a server's database, as a backup or an operator
//! might.
//!
//! It changes nothing.
//! The one surprising thing: it creates a file to report that it has the lock, since its standard
//! output is buffered.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::{Backend, Postgres, Server, wait_until};

/// Held until dropped.
#[derive(Debug)]
pub struct ForeignLock(Child);

impl ForeignLock {
    pub fn hold(server: &Server) -> Self {
        match server.backend() {
            Backend::Sqlite => {
                let mut command = Command::new("sqlite3");
                command.args(["-bail", "nouns.db"]);
                Self::run_until_locked(
                    command,
                    "BEGIN IMMEDIATE;\n.system touch locked\n",
                    server.folder(),
                )
            }
            // Writers wait and readers do not, as with a writer of SQLite.
            Backend::Postgres => {
                let command = Postgres::shared().psql(&Postgres::database_name(server.folder()));
                let lines = "BEGIN;\nLOCK TABLE customers IN EXCLUSIVE MODE;\n\\! touch locked\n";
                Self::run_until_locked(command, lines, server.folder())
            }
        }
    }

    /// Locks a table, after some statements that `commit` commits and a drop rolls back.
    pub fn lock_table(server: &Server, table: &str, statements: &str) -> Self {
        match server.backend() {
            Backend::Sqlite => {
                let mut command = Command::new("sqlite3");
                command.args(["-bail", "nouns.db"]);
                let lines = format!("BEGIN IMMEDIATE;\n{statements}\n.system touch locked\n");
                Self::run_until_locked(command, &lines, server.folder())
            }
            Backend::Postgres => {
                let command = Postgres::shared().psql(&Postgres::database_name(server.folder()));
                let lines = format!(
                    "BEGIN;\nLOCK TABLE {table} IN EXCLUSIVE MODE;\n{statements}\n\\! touch locked\n"
                );
                Self::run_until_locked(command, &lines, server.folder())
            }
        }
    }

    pub fn commit(mut self) {
        self.0.stdin.take().unwrap().write_all(b"COMMIT;\n").unwrap();
        assert!(self.0.wait().unwrap().success());
    }

    fn run_until_locked(mut command: Command, lines: &str, folder: &Path) -> Self {
        command.current_dir(folder).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut child = command.spawn().unwrap();
        child.stdin.as_mut().unwrap().write_all(lines.as_bytes()).unwrap();
        let held = Self(child);
        wait_until("the other process has the lock", || {
            fs::remove_file(folder.join("locked")).is_ok().then_some(())
        });
        held
    }
}

impl Drop for ForeignLock {
    fn drop(&mut self) {
        // The end of its input ends it, and with it the transaction.
        drop(self.0.stdin.take());
        drop(self.0.wait());
    }
}
