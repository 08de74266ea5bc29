//! The `--database` setting.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::store::error::OpenError;
use crate::store::postgres::connection_url::address::{LibpqEnvironment, PostgresUrl};
use crate::store::sqlite::database_files::{DatabaseFiles, resolve_links};

/// The database engine and its location: the `--database` setting.
#[derive(Debug, Clone)]
pub enum Database {
    Sqlite(PathBuf),
    Postgres(Arc<PostgresUrl>),
}

/// For messages; without a password.
impl fmt::Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => path.display().fmt(f),
            Self::Postgres(address) => address.fmt(f),
        }
    }
}

impl Database {
    pub fn parse(text: &str, environment: &LibpqEnvironment) -> Result<Self, String> {
        const EXPECTED: &str = "database: expected sqlite:PATH or postgres://…";
        if PostgresUrl::is_postgres_url(text) {
            let address = PostgresUrl::parse(text, environment)?;
            return Ok(Self::Postgres(Arc::new(address)));
        }
        match text.split_once(':') {
            Some(("sqlite", path)) if !path.is_empty() => Ok(Self::Sqlite(path.into())),
            // Not shown further: the rest may contain a password.
            Some((scheme, _)) => Err(format!("{EXPECTED}, got \"{scheme}:…\"")),
            None => Err(format!("{EXPECTED}, got \"{text}\"")),
        }
    }

    /// The file for the generated password of the first user. It is named after the database, and lies in the
    /// folder of the SQLite file or of the key file.
    pub fn password_file(&self, key_folder: &Path) -> PathBuf {
        const END: &str = "admin-password";
        match self {
            // Two databases with the same file name lie in different folders, so the names cannot clash.
            Self::Sqlite(path) => resolve_links(path).with_extension(END),
            Self::Postgres(address) => {
                let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.');
                let name = address.database_name().replace(|c| !is_plain(c), "_");
                key_folder.join(format!("{name}.{END}"))
            }
        }
    }

    /// The error of a command that needs an existing database.
    pub fn missing_error(&self) -> OpenError {
        OpenError::new(match self {
            Self::Sqlite(_) => format!(
                "there is no database {self}; name another with --database sqlite:PATH, or create it with: nouns serve"
            ),
            Self::Postgres(_) => format!(
                "there are no tables of nouns in {self}; name another --database, or create them with: \
                 nouns serve"
            ),
        })
    }

    /// SQLite only: whether the database does not exist yet, or is an empty file.
    pub fn is_absent(&self) -> bool {
        match self {
            Self::Sqlite(path) => DatabaseFiles::find(path).is_ok_and(|files| files.is_empty()),
            Self::Postgres(_) => false,
        }
    }

    /// Whether a path leads to a file of this database.
    pub fn has_file(&self, path: &Path) -> bool {
        match self {
            Self::Sqlite(own) => DatabaseFiles::find(own).is_ok_and(|files| files.has_file(path)),
            Self::Postgres(_) => false,
        }
    }

    /// SQLite only: whether the same folder has another `nouns` database.
    pub fn has_neighbour(&self) -> bool {
        match self {
            Self::Sqlite(path) => {
                DatabaseFiles::find(path).is_ok_and(|files| files.has_neighbour())
            }
            Self::Postgres(_) => false,
        }
    }

    /// SQLite only: the names of the other databases in the same folder, some of which may be copies.
    pub fn neighbour_names(&self) -> Vec<String> {
        let Self::Sqlite(path) = self else { return Vec::new() };
        let others = DatabaseFiles::find(path).map(|files| files.neighbours()).unwrap_or_default();
        let names = others.iter().filter_map(|path| path.file_name());
        names.map(|name| name.to_string_lossy().into_owned()).collect()
    }
}
