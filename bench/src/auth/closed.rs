//! A server with authentication and a filled database.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::TestUser;
use crate::Result;
use crate::process::{Folder, Server};
use crate::store::{self, FilledDatabase};

/// The relevant part of the built-in model.
const MODEL: &str = r#"
title = "Closed"

[realms.store]

[resources.customer.fields]
name  = { type = "text",  required = true, max_length = 200, filter = true }
email = { type = "email", required = true, filter = true }
"#;

/// A filled database that is served with authentication.
#[derive(Debug)]
pub struct AuthenticatedDatabase {
    folder: PathBuf,
    database: Option<String>,
    pub filled: FilledDatabase,
}

impl AuthenticatedDatabase {
    /// Fills a database with this many customers. `more` is appended to the model.
    pub fn fill(nouns: &Path, folder: &Folder, rows: usize, more: &str) -> Result<Self> {
        let folder = folder.0.join("closed");
        std::fs::create_dir(&folder)?;
        std::fs::write(folder.join("nouns.toml"), format!("{MODEL}{more}"))?;
        let filled = store::fill(nouns, &folder, rows)?;
        Ok(Self { folder, database: None, filled })
    }

    /// The same on PostgreSQL.
    pub fn fill_at(nouns: &Path, folder: &Folder, rows: usize, database: &str) -> Result<Self> {
        let folder = folder.0.join("closed");
        let filled = store::fill_at(nouns, &folder, rows, database)?;
        Ok(Self { folder, database: Some(database.to_owned()), filled })
    }

    /// Starts the server; returns it with its first user.
    pub fn serve(&self, nouns: &Path) -> Result<(Server, TestUser)> {
        let mut command = Command::new(nouns);
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--log", "json", "--key-file", "nouns.key"])
            .current_dir(&self.folder);
        if let Some(database) = &self.database {
            command.args(["--database", database]);
        }
        let server = Server::start(&mut command, &self.log())?;
        // The password file is named after the database: the file `nouns.db`, or the last part of the
        // URL.
        let name = match &self.database {
            Some(database) => database.rsplit('/').next().unwrap_or_default(),
            None => "nouns",
        };
        let password = self.folder.join(format!("{name}.admin-password"));
        let password = std::fs::read_to_string(password)?;
        Ok((server, TestUser::new("admin", password.trim())))
    }

    pub fn log(&self) -> PathBuf {
        self.folder.join("closed.json")
    }
}
