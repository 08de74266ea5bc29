//! `nouns backup`: a verified copy of an SQLite database in one file, while servers run.
//!
//! PostgreSQL has its own programs for this, which the command names.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;

use super::cert::shell_quoted;
use super::model_source::{
    built_in_store, database, find_storage_settings, key_source, read_model,
};
use super::output_file::refuse_own_files;
use super::report::{CommandError, command_error, print_done, print_line};
use crate::auth::key::FINGERPRINT_NAME;
use crate::store::{self, AdminStore, CopySummary, Database, ExistingFile, PostgresUrl};

#[derive(Debug, Args)]
#[command(after_help = "\
The copy is one snapshot of the database: every write that was answered before the command began is in it. \
It is written to FILE.part, verified, and then renamed, so FILE is whole or not there. It is one file, which \
nouns restore puts back, and which sqlite3 can read.

The key is not in it: keep a copy of nouns.key in another place.

It is for SQLite. A PostgreSQL database is copied by pg_dump, and the command says how.")]
pub struct BackupArgs {
    /// The file to write
    file: PathBuf,

    /// The model file, for its database [default: nouns.toml here, else the built-in store]
    model: Option<PathBuf>,

    /// The database: sqlite:PATH or postgres://USER@HOST/NAME [default: sqlite:nouns.db]
    #[arg(long, env = "NOUNS_DATABASE", hide_env = true, value_name = "DATABASE")]
    database: Option<String>,

    /// Replace FILE if it exists
    #[arg(long)]
    force: bool,
}

pub fn run(flags: &BackupArgs) -> Result<ExitCode, CommandError> {
    let settings = find_storage_settings(flags.model.as_deref(), flags.database.as_deref())?;
    let database = database(flags.database.as_deref(), &settings)?;
    let path = match &database {
        Database::Sqlite(path) => path,
        Database::Postgres(url) => return Err(pg_dump_commands(url, &flags.file)),
    };
    if database.is_absent() {
        return Err(database.missing_error().into());
    }
    let key = key_source(None, &settings, &database).ok();
    refuse_own_files(&flags.file, &database, (key.as_ref(), flags.model.as_deref()))?;
    let summary = store::back_up(path, &flags.file, existing_file(flags.force))?;
    warn_broken_references(&summary, path);
    let key = match stored_fingerprint(&flags.file) {
        Some(_) => {
            let key = key.map_or("the key file".to_owned(), |key| key.name());
            format!("; the key is not in it: keep a copy of {key} in another place")
        }
        None => String::new(),
    };
    let (file, contents) = (flags.file.display(), describe_copy(&summary));
    print_done(format_args!("wrote {file}, {contents}{key}"));
    Ok(ExitCode::SUCCESS)
}

pub fn existing_file(is_forced: bool) -> ExistingFile {
    if is_forced { ExistingFile::Replace } else { ExistingFile::Refuse }
}

/// The fingerprint of the key that belongs to an SQLite database. The copy is complete also if it cannot be read.
pub fn stored_fingerprint(path: &Path) -> Option<String> {
    let read = || -> Result<Option<String>, CommandError> {
        // The values of the system are the same for all models.
        let model = Arc::new(read_model(&built_in_store())?);
        let mut copy = AdminStore::open_read_only(&Database::Sqlite(path.to_owned()), &model)?;
        Ok(copy.read_system_value(FINGERPRINT_NAME)?)
    };
    read().unwrap_or_else(|CommandError(cause)| {
        let (path, cause) = (path.display(), cause.strip_prefix("nouns: ").unwrap_or(&cause));
        let warning = format!("it is not known which key belongs to {path} ({cause})");
        print_line(&mut std::io::stderr(), format_args!("nouns: warning: {warning}"));
        None
    })
}

/// The size of a copy and how far its change log goes.
pub fn describe_copy(summary: &CopySummary) -> String {
    let CopySummary { bytes, last_sequence, .. } = summary;
    let tenths = bytes.div_ceil(100_000);
    let size = format!("{}.{} MB", tenths / 10, tenths % 10);
    match last_sequence {
        0 => format!("{size}, verified, with no changes"),
        last => format!("{size}, verified, with the changes up to {last}"),
    }
}

pub fn warn_broken_references(summary: &CopySummary, database: &Path) {
    if summary.broken_references > 0 {
        let (count, database) = (summary.broken_references, shell_quoted(database));
        print_line(
            &mut std::io::stderr(),
            format_args!(
                "nouns: warning: {count} rows refer to rows that do not exist, which another program has caused; \
                 the copy has them too; list them with: sqlite3 -readonly {database} 'PRAGMA foreign_key_check'"
            ),
        );
    }
}

fn pg_dump_commands(url: &PostgresUrl, file: &Path) -> CommandError {
    let (url, file) = (shell_quoted(Path::new(&url.to_string())), shell_quoted(file));
    command_error(format!(
        "PostgreSQL is backed up by its own program, while servers run:\n  \
         (umask 077; pg_dump --no-unlogged-table-data --format=custom --file={file} {url})\n\
         restore it into a new, empty database with:\n  \
         pg_restore --exit-on-error --dbname=postgres://USER@HOST/NEW {file}\n\
         and keep a copy of the key in another place"
    ))
}
