//! The storage backends, and access to a server's database with the backend's own tool.
//!
//! It knows none of our tables.
//! The one surprising thing: a PostgreSQL database has the name of the test's folder, so that the owner
//! of the folder finds it again, also after a restart.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Folder, Postgres, Process};

/// The storage backend of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    Sqlite,
    Postgres,
}

impl Backend {
    pub fn on(self) -> Self {
        self
    }

    /// The value of `--database` for a server in `folder`. Where the database must exist before the
    /// server, the first call creates it.
    pub fn database(self, folder: &Folder, name: &str) -> String {
        match self {
            Self::Sqlite => format!("sqlite:{}", folder.path().join(name).display()),
            Self::Postgres => {
                assert_eq!(name, "nouns.db", "only a file can have another name");
                folder.with_database(Postgres::create_database);
                Postgres::shared().database_url(&Postgres::database_name(folder.path()))
            }
        }
    }

    /// The file to which the first start on a database writes the password of the first user.
    pub fn password_file(self, database: &str, key_file: &Path) -> PathBuf {
        match self {
            Self::Sqlite => {
                let file = database.strip_prefix("sqlite:").unwrap();
                Path::new(file).with_extension("admin-password")
            }
            Self::Postgres => {
                let name = database.rsplit('/').next().unwrap();
                key_file.with_file_name(format!("{name}.admin-password"))
            }
        }
    }

    /// A new folder with a copy of a stopped server's database.
    pub fn copy_database(self, of: &Folder) -> Folder {
        let copy = Folder::new();
        match self {
            Self::Sqlite => {
                fs::copy(of.path().join("nouns.db"), copy.path().join("nouns.db")).unwrap();
            }
            Self::Postgres => {
                copy.with_database(|name| {
                    Postgres::copy_database(&Postgres::database_name(of.path()), name);
                });
            }
        }
        copy
    }
}

/// Runs SQL next to the server, as an operator with the database's own tool would. The columns of a row
/// are separated by `|`.
pub fn run_sql(backend: Backend, folder: &Path, text: &str) -> String {
    match backend {
        Backend::Sqlite => {
            let mut command = Command::new("sqlite3");
            command.arg(folder.join("nouns.db")).arg(text);
            let ended = Process::spawn(&mut command).end();
            assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{text}");
            ended.stdout
        }
        Backend::Postgres => Postgres::shared().sql(&Postgres::database_name(folder), text),
    }
}
