//! `nouns move`: copies a database that no server uses to an empty one, of the same or the other engine.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use super::cert::shell_quoted;
use super::model_source::{
    database, find_model, key_source, postgres_environment, read_model, refuse_shown_password,
};
use super::progress::{Progress, with_separators};
use super::report::{CommandError, command_error, print_done, print_line};
use crate::auth::key::FINGERPRINT_NAME;
use crate::auth::key_source::KeySource;
use crate::model::Model;
use crate::store::{self, Database, MoveProgress, MoveRequest, MoveSummary};

#[derive(Debug, Args)]
#[command(after_help = "\
Stop the servers first. The database is read, and stays as it is; the other one has to be empty, and is complete or \
empty at the end: a file gets its name when it is complete, and PostgreSQL commits one transaction.

Ids, versions, times, users with their passwords, webhooks with their deliveries, idempotency keys and the change log \
with its numbers stay the same, and so does the key. The number of rows and a checksum of each table are compared \
before the end.

  nouns move --to postgres://nouns@db.example/nouns
  nouns move --database postgres://nouns@db.example/nouns --to sqlite:new.db")]
pub struct MoveArgs {
    /// The model file, for its settings [default: nouns.toml here, else the built-in store]
    model: Option<PathBuf>,

    /// The database to move: sqlite:PATH or postgres://USER@HOST/NAME [default: sqlite:nouns.db]
    #[arg(long, env = "NOUNS_DATABASE", hide_env = true, value_name = "DATABASE")]
    database: Option<String>,

    /// The empty database to write: sqlite:PATH or postgres://USER@HOST/NAME
    #[arg(long, value_name = "DATABASE")]
    to: String,

    /// The key file, which is compared with the database [default: nouns.key beside the SQLite file]
    #[arg(long, env = "NOUNS_KEY_FILE", hide_env = true, value_name = "FILE")]
    key_file: Option<PathBuf>,

    /// Failpoint of a debug build, for tests
    #[cfg(debug_assertions)]
    #[arg(long, env = "NOUNS_FAULT", hide = true)]
    fault: Option<String>,
}

pub fn run(flags: &MoveArgs) -> Result<ExitCode, CommandError> {
    #[cfg(debug_assertions)]
    flags.fault.as_deref().map_or(Ok(()), crate::fault::inject)?;
    let model = read_model(&find_model(flags.model.as_deref())?)?;
    let source = database(flags.database.as_deref(), &model.server.storage)?;
    refuse_shown_password("--to", &flags.to)?;
    let target = Database::parse(&flags.to, &postgres_environment())
        .map_err(|message| command_error(message.replacen("database:", "--to:", 1)))?;
    let summary = move_with_progress(&source, &target, &model)?;
    print_done(format_args!(
        "moved {source} to {target}; all counts and checksums are equal:{}",
        describe_tables(&summary)
    ));
    if !summary.other_tables.is_empty() {
        print_warning(format_args!(
            "{source} also has tables that are not of nouns, which were not moved: {}",
            summary.other_tables.join(", ")
        ));
    }
    let fingerprint = summary.system_values.get(FINGERPRINT_NAME).map(String::as_str);
    let key = find_key(flags, &model, [&source, &target], fingerprint);
    let model =
        flags.model.as_deref().map_or(String::new(), |path| format!(" {}", shell_quoted(path)));
    let command =
        format!("nouns serve{model} --database {}{key}", shell_quoted(Path::new(&flags.to)));
    let same_key = if fingerprint.is_some() { ", with the same key" } else { "" };
    print_done(format_args!(
        "{source} was not changed; serve the new database{same_key}: {command}"
    ));
    Ok(ExitCode::SUCCESS)
}

fn move_with_progress(
    source: &Database,
    target: &Database,
    model: &Model,
) -> Result<MoveSummary, CommandError> {
    let mut shown = None;
    let mut report = |MoveProgress { copied, done, total }: MoveProgress| {
        let progress = shown.get_or_insert_with(|| Progress::new("moving", Some(total)));
        progress.update(copied, done);
    };
    Ok(store::move_database(MoveRequest { source, target, model, report: &mut report })?)
}

/// A line for each table with rows.
fn describe_tables(summary: &MoveSummary) -> String {
    let tables = summary.tables.iter().filter(|(_, rows)| *rows > 0);
    let lines = tables.map(|(label, rows)| format!("\n  {label}: {}", with_separators(*rows)));
    let lines: String = lines.collect();
    if lines.is_empty() { " there are no rows".to_owned() } else { lines }
}

/// The flag that names the key for the new database. Warns if the key of the old one is not where a server looks for it.
fn find_key(
    flags: &MoveArgs,
    model: &Model,
    [source, target]: [&Database; 2],
    fingerprint: Option<&str>,
) -> String {
    // A database of `--open` has no key yet.
    let Some(fingerprint) = fingerprint else { return String::new() };
    let named = flags.key_file.as_deref();
    // With a fingerprint, `resolve` creates nothing.
    let fits = |key: &KeySource| key.resolve(Some(fingerprint)).is_ok();
    let flag = |key: &KeySource| format!(" --key-file {}", shell_quoted(Path::new(&key.name())));
    let [of_source, of_target] =
        [source, target].map(|one| key_source(named, &model.server.storage, one));
    match (of_target, of_source) {
        (Ok(key), _) if named.is_none() && fits(&key) => String::new(),
        (_, Ok(key)) if fits(&key) => flag(&key),
        _ => {
            print_warning(format_args!(
                "the new database needs the same key, of fingerprint {fingerprint}, and it was not found; name it with \
                 --key-file"
            ));
            " --key-file FILE".to_owned()
        }
    }
}

fn print_warning(message: impl std::fmt::Display) {
    print_line(&mut std::io::stderr(), format_args!("nouns: warning: {message}"));
}
