//! A foreign process that holds the write lock of a server's database, as a backup or a curious
//! operator might.
//!
//! It changes nothing.
//! The one surprising thing: it says that it has the lock by making a file, since what it prints
//! would stay in its own buffer.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use super::{Backend, Server, wait_until};

/// Held until dropped.
#[derive(Debug)]
pub struct Lock(Child);

impl Lock {
    pub fn hold(server: &Server) -> Self {
        match server.backend() {
            Backend::Sqlite => Self::hold_sqlite(server.folder()),
        }
    }

    fn hold_sqlite(folder: &Path) -> Self {
        let mut command = Command::new("sqlite3");
        command.args(["-bail", "nouns.db"]).current_dir(folder);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        let lines = "BEGIN IMMEDIATE;\n.system touch locked\n";
        child.stdin.as_mut().unwrap().write_all(lines.as_bytes()).unwrap();
        let held = Self(child);
        wait_until("the other process has the lock", || {
            fs::remove_file(folder.join("locked")).is_ok().then_some(())
        });
        held
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // The end of its input ends it, and with it the transaction.
        drop(self.0.stdin.take());
        drop(self.0.wait());
    }
}
