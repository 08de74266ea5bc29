//! Where a server keeps its items, and how an operator looks at them beside the server.
//!
//! It knows no table of ours.
//! The one surprising thing: a database of PostgreSQL has the name of the test's folder, so that it is
//! found again by whoever has the folder, after a stop and a start too.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::{Folder, Postgres, Process};

/// Where a server keeps its items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    Sqlite,
    Postgres,
}

impl Backend {
    pub fn on(self) -> Self {
        self
    }

    /// The value of `--database` for a server that lives in `folder`. Where the database must be there
    /// before the server, it is made at the first call.
    pub fn database(self, folder: &Folder, name: &str) -> String {
        match self {
            Self::Sqlite => format!("sqlite:{}", folder.path().join(name).display()),
            Self::Postgres => {
                assert_eq!(name, "nouns.db", "only a file can have another name");
                folder.with_database(Postgres::create);
                Postgres::of_the_tests().address_of(&Postgres::name(folder.path()))
            }
        }
    }

    /// Where the first start on a database writes the password of the first user.
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

    /// A new folder with all that is stored in a database whose server has stopped.
    pub fn copy(self, of: &Folder) -> Folder {
        let copy = Folder::new();
        match self {
            Self::Sqlite => {
                fs::copy(of.path().join("nouns.db"), copy.path().join("nouns.db")).unwrap();
            }
            Self::Postgres => {
                copy.with_database(|name| Postgres::copy(&Postgres::name(of.path()), name));
            }
        }
        copy
    }
}

/// Runs SQL beside the server, as an operator with the database's own tool would. The columns of a row
/// have `|` between them.
pub fn sql(backend: Backend, folder: &Path, text: &str) -> String {
    match backend {
        Backend::Sqlite => {
            let mut command = Command::new("sqlite3");
            command.arg(folder.join("nouns.db")).arg(text);
            let ended = Process::spawn(&mut command).end();
            assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{text}");
            ended.stdout
        }
        Backend::Postgres => Postgres::of_the_tests().sql(&Postgres::name(folder), text),
    }
}
