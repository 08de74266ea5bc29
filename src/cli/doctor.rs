//! `nouns doctor`: checks the model, the database, the key and the machine, and names what to mend.
//!
//! It changes nothing, and goes on after a fault. Each check is one line.

mod database;
mod health_check;
mod machine;

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;

use self::health_check::{HealthChecks, HealthStatus};
use super::check::summary;
use super::command_hint::CommandHint;
use super::model_source::{database, find_model, key_source, read_model};
use super::report::{CommandError, print_line};
use crate::model::settings::StorageSettings;
use crate::model::{self, Model};
use crate::store::Database;

#[derive(Debug, Args)]
#[command(after_help = "\
Run it as the user of the server and with the same settings: permissions and limits are those of the process \
that checks. It changes nothing, and works while servers run.

Exit code 0: all is well. 1: there are warnings. 2: there are faults.")]
pub struct DoctorArgs {
    /// The model file [default: nouns.toml here, else the built-in store]
    model: Option<PathBuf>,

    /// The database: sqlite:PATH or postgres://USER@HOST/NAME [default: sqlite:nouns.db]
    #[arg(long, env = "NOUNS_DATABASE", hide_env = true, value_name = "DATABASE")]
    database: Option<String>,

    /// The key file; NOUNS_KEY may hold the key itself [default: nouns.key beside the SQLite file]
    #[arg(long, env = "NOUNS_KEY_FILE", hide_env = true, value_name = "FILE")]
    key_file: Option<PathBuf>,

    /// The certificate that the server serves
    #[arg(long, env = "NOUNS_TLS_CERT", hide_env = true, value_name = "FILE")]
    tls_cert: Option<PathBuf>,

    /// The key of the certificate
    #[arg(long, env = "NOUNS_TLS_KEY", hide_env = true, value_name = "FILE")]
    tls_key: Option<PathBuf>,

    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
}

pub fn run(flags: &DoctorArgs) -> Result<ExitCode, CommandError> {
    let DoctorArgs { model, database, key_file, .. } = flags;
    let hint = CommandHint::new(model.as_deref(), database.as_deref(), key_file.as_deref());
    let mut checks = HealthChecks::new(flags.json, hint);
    if let Some((model, settings)) = check_model(flags, &mut checks)
        && let Some(database) = find_database(flags, &settings, &mut checks)
    {
        let key = key_source(flags.key_file.as_deref(), &settings, &database);
        let is_key_named = flags.key_file.is_some() || settings.key_file.is_some();
        let model = model.as_ref();
        database::check_all(&mut checks, (model, &database), (&key, is_key_named))?;
        machine::check_password_file(&mut checks, &database, &key);
        if let Some(model) = model {
            machine::check_connections(&mut checks, model);
            machine::check_certificate(&mut checks, model, (&flags.tls_cert, &flags.tls_key));
        }
    }
    Ok(ExitCode::from(match checks.worst {
        HealthStatus::Ok => 0,
        HealthStatus::Warning => 1,
        HealthStatus::Fault => 2,
    }))
}

/// The model, if it has no mistakes, and where the data is; nothing can be checked without the latter.
fn check_model(
    flags: &DoctorArgs,
    checks: &mut HealthChecks,
) -> Option<(Option<Arc<Model>>, StorageSettings)> {
    const NAME: &str = "model";
    let (message, text) = match find_model(flags.model.as_deref()) {
        Ok(source) => match read_model(&source) {
            Ok(model) => {
                checks.ok(NAME, &format!("{}: {}", source.name, summary(&model)));
                let settings = model.server.storage.clone();
                return Some((Some(Arc::new(model)), settings));
            }
            Err(CommandError(message)) => (message, Some(source.text)),
        },
        Err(CommandError(message)) => (message, None),
    };
    // The whole list of mistakes, as `nouns check` has it, is of many lines.
    print_line(&mut io::stderr(), message.trim_end());
    let settings = text.and_then(|text| model::read_storage_settings(&text));
    let is_known = settings.is_some() || flags.database.is_some();
    let rest = match is_known {
        true => "the checks below need nothing else of it",
        false => "name the database with --database to check the rest",
    };
    checks.fault(NAME, &format!("it cannot be used; correct its mistakes: nouns check; {rest}"));
    is_known.then(|| (None, settings.unwrap_or_default()))
}

fn find_database(
    flags: &DoctorArgs,
    settings: &StorageSettings,
    checks: &mut HealthChecks,
) -> Option<Database> {
    match database(flags.database.as_deref(), settings) {
        Ok(database) => Some(database),
        Err(CommandError(message)) => {
            checks.fault("database", message.strip_prefix("nouns: ").unwrap_or(&message));
            None
        }
    }
}
