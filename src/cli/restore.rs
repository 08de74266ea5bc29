//! `nouns restore`: puts a backup in the place of an SQLite database that no server uses.
//!
//! A key that is missing or of another database does not prevent it: the data is what is at risk, the key can
//! be put back later, and `serve` refuses to start until it is.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use super::backup::{describe_copy, existing_file, stored_fingerprint, warn_broken_references};
use super::cert::shell_quoted;
use super::model_source::{database, find_storage_settings, key_source};
use super::report::{CommandError, command_error, print_done, print_line};
use crate::store::{self, Database, PostgresUrl};

#[derive(Debug, Args)]
#[command(after_help = "\
The file is copied and verified before anything is replaced. Stop the server first: a database that is open \
is refused. Users, passwords and the change log are then those of the backup.

It is for SQLite. A dump of a PostgreSQL database is restored by pg_restore, and the command says how.")]
pub struct RestoreArgs {
    /// The backup
    file: PathBuf,

    /// The model file, for its database [default: nouns.toml here, else the built-in store]
    model: Option<PathBuf>,

    /// The database to write: sqlite:PATH [default: sqlite:nouns.db]
    #[arg(long, env = "NOUNS_DATABASE", hide_env = true, value_name = "DATABASE")]
    database: Option<String>,

    /// The key file, which is compared with the backup [default: nouns.key beside the SQLite file]
    #[arg(long, env = "NOUNS_KEY_FILE", hide_env = true, value_name = "FILE")]
    key_file: Option<PathBuf>,

    /// Replace the database if it exists; what it holds is lost
    #[arg(long)]
    force: bool,
}

pub fn run(flags: &RestoreArgs) -> Result<ExitCode, CommandError> {
    let settings = find_storage_settings(flags.model.as_deref(), flags.database.as_deref())?;
    let database = database(flags.database.as_deref(), &settings)?;
    let path = match &database {
        Database::Sqlite(path) => path,
        Database::Postgres(url) => return Err(pg_restore_commands(url, &flags.file)),
    };
    let key = key_source(flags.key_file.as_deref(), &settings, &database)?;
    let summary = store::restore(&flags.file, path, existing_file(flags.force))?;
    warn_broken_references(&summary, path);
    // With a fingerprint, `resolve` creates nothing.
    let key = stored_fingerprint(path)
        .map(|fingerprint| key.resolve(Some(&fingerprint)).map(|_| key.name()));
    let fits = match &key {
        Some(Ok(name)) => format!("; the key in {name} fits it"),
        Some(Err(_)) | None => String::new(),
    };
    let (file, contents) = (flags.file.display(), describe_copy(&summary));
    print_done(format_args!("restored {database} from {file}, {contents}{fits}"));
    if let Some(Err(error)) = key {
        print_line(&mut std::io::stderr(), format_args!("nouns: warning: {error}"));
    }
    Ok(ExitCode::SUCCESS)
}

fn pg_restore_commands(url: &PostgresUrl, file: &Path) -> CommandError {
    let (url, file) = (shell_quoted(Path::new(&url.to_string())), shell_quoted(file));
    command_error(format!(
        "PostgreSQL is restored by its own program, from a dump of pg_dump; into an empty database:\n  \
         pg_restore --exit-on-error --dbname={url} {file}\n\
         over an existing one, with all servers stopped:\n  \
         pg_restore --exit-on-error --clean --if-exists --dbname={url} {file}"
    ))
}
