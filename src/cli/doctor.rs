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
use super::model_source::{self, find_model, key_source, read_model};
use super::report::{CommandError, print_line};
use crate::model::Model;
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
    let mut checks = HealthChecks::new(flags.json);
    if let Some((model, database)) = check_model(flags, &mut checks) {
        let key = key_source(flags.key_file.as_deref(), &model, &database);
        let is_key_named = flags.key_file.is_some() || model.server.key_file.is_some();
        database::check_all(&mut checks, (&model, &database), (&key, is_key_named));
        machine::check_password_file(&mut checks, &database, &key);
        machine::check_connections(&mut checks, &model);
        machine::check_certificate(&mut checks, &model, (&flags.tls_cert, &flags.tls_key));
    }
    Ok(ExitCode::from(match checks.worst {
        HealthStatus::Ok => 0,
        HealthStatus::Warning => 1,
        HealthStatus::Fault => 2,
    }))
}

/// The model and its database. Without them there is nothing else to check.
fn check_model(flags: &DoctorArgs, checks: &mut HealthChecks) -> Option<(Arc<Model>, Database)> {
    const NAME: &str = "model";
    let read = find_model(flags.model.as_deref()).and_then(|source| {
        let model = read_model(&source)?;
        Ok((source.name, model))
    });
    let (name, model) = match read {
        Ok(read) => read,
        Err(CommandError(message)) => {
            // The whole list of mistakes, as `nouns check` has it, is of many lines.
            print_line(&mut io::stderr(), message.trim_end());
            checks.fault(NAME, "it cannot be used; correct its mistakes, which nouns check lists");
            return None;
        }
    };
    let database = match model_source::database(flags.database.as_deref(), &model) {
        Ok(database) => database,
        Err(CommandError(message)) => {
            checks.fault("database", message.strip_prefix("nouns: ").unwrap_or(&message));
            return None;
        }
    };
    checks.ok(NAME, &format!("{name}: {}", summary(&model)));
    Some((Arc::new(model), database))
}
