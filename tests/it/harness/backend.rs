//! The storage backends, and access to a server's database with the backend's own tool.
//!
//! It knows none of our tables.
//! A PostgreSQL database has the name of the test's folder, so that the owner of the folder finds it
//! again, also after a restart.

use std::fs;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use rusqlite::types::ValueRef;

use super::{Folder, Postgres, TIMEOUT};

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
                let name = database.split('?').next().unwrap().rsplit('/').next().unwrap();
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

/// Runs SQL on a separate connection next to the server, as an operator would. The columns of a row are
/// separated by `|`.
pub fn run_sql(backend: Backend, folder: &Path, text: &str) -> String {
    match backend {
        Backend::Sqlite => {
            let connection = Connection::open(folder.join("nouns.db")).unwrap();
            connection.busy_timeout(TIMEOUT).unwrap();
            query_sqlite(&connection, text).unwrap_or_else(|error| panic!("{error} in {text}"))
        }
        Backend::Postgres => Postgres::shared().sql(&Postgres::database_name(folder), text),
    }
}

/// The rows of a statement in the format of `sqlite3`'s list mode, or nothing for several statements.
fn query_sqlite(connection: &Connection, text: &str) -> rusqlite::Result<String> {
    let mut statement = match connection.prepare(text) {
        Err(rusqlite::Error::MultipleStatement) => {
            return connection.execute_batch(text).map(|()| String::new());
        }
        prepared => prepared?,
    };
    let mut lines = String::new();
    let columns = statement.column_count();
    let mut rows = statement.raw_query();
    while let Some(row) = rows.next()? {
        let values = (0..columns).map(|column| {
            Ok(match row.get_ref(column)? {
                ValueRef::Null => String::new(),
                ValueRef::Integer(number) => number.to_string(),
                ValueRef::Real(number) => format!("{number:?}"),
                ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
                    String::from_utf8_lossy(bytes).into_owned()
                }
            })
        });
        lines += &values.collect::<rusqlite::Result<Vec<_>>>()?.join("|");
        lines.push('\n');
    }
    Ok(lines)
}
