//! The command line: one file per command.
//!
//! Settings come from the flag, else the environment, else the model's `[server]` table, else the default.

mod accounts;
mod allocator;
mod backup;
mod cert;
mod change_line;
mod changes;
mod check;
mod command_hint;
mod database_move;
mod demo;
mod doctor;
mod environment;
mod export;
mod first_steps;
mod first_user;
mod generate;
mod import;
mod import_file;
mod import_position;
mod init;
mod key;
mod migrate;
mod migration_report;
mod model_source;
mod openapi;
mod output_file;
mod plan;
mod progress;
mod prompt;
mod record_reader;
mod reload;
mod report;
mod restore;
mod roles;
mod serve;
mod serve_args;
mod serve_settings;
mod stored_credentials;
mod transfer;
mod user;
mod webhook;

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use clap::builder::styling::{AnsiColor, Styles};
use clap::{CommandFactory as _, Parser, Subcommand};

use crate::fault;
use report::{CommandError, internal_error_message, print_line};

const STYLES: Styles = Styles::styled()
    .header(AnsiColor::Green.on_default().bold())
    .usage(AnsiColor::Green.on_default().bold())
    .literal(AnsiColor::Cyan.on_default().bold())
    .placeholder(AnsiColor::Cyan.on_default());

/// Declare the nouns. HTTP already has the verbs.
///
/// You write a small model file that names your resources; nouns serves them as a complete HTTP
/// interface. Without a model file it serves a small store of customers and orders.
#[derive(Debug, Parser)]
#[command(name = "nouns", version, styles = STYLES, max_term_width = 100)]
#[command(after_help = "\
Try it:
  nouns serve                                      the store, at http://127.0.0.1:8080
  curl -u \"admin:$(cat nouns.admin-password)\" http://127.0.0.1:8080/customers
  nouns init && nouns check                        a model file of your own to start from")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve a model over HTTP
    Serve(serve_args::ServeArgs),
    /// Create a commented model file, nouns.toml
    Init(init::InitArgs),
    /// Check a model file and list all mistakes
    Check(check::CheckArgs),
    /// Show what a changed model does to the stored data
    Plan(plan::PlanArgs),
    /// Apply a changed model to the stored data
    Migrate(migrate::MigrateArgs),
    /// Print the OpenAPI document of a model
    Openapi(openapi::OpenapiArgs),
    /// Write all items of a resource into a file
    Export(export::ExportArgs),
    /// Create items of a resource from a file
    Import(import::ImportArgs),
    /// Print the change log, one line per change
    Changes(changes::ChangesArgs),
    /// Copy the database to a file, while servers run
    Backup(backup::BackupArgs),
    /// Put a backup in the place of the database
    Restore(restore::RestoreArgs),
    /// Copy a stopped database to PostgreSQL, or back to SQLite
    Move(database_move::MoveArgs),
    /// Check the database, the key and the machine, and say what to mend
    Doctor(doctor::DoctorArgs),
    /// Manage users
    #[command(subcommand)]
    User(user::UserCommand),
    /// Create a self-signed certificate to try HTTPS
    Cert(cert::CertArgs),
    /// Rotate the server's secret key
    #[command(subcommand)]
    Key(key::KeyCommand),
    /// Try webhooks
    #[command(subcommand)]
    Webhook(webhook::WebhookCommand),
    /// Print a shell completion script
    Completions(generate::CompletionsArgs),
    /// Print the manual page of nouns or of one command
    Man(generate::ManArgs),
}

/// The exit code of every refusal.
const EXIT_REFUSED: u8 = 2;

pub fn run() -> ExitCode {
    let command = Cli::parse().command;
    let done = catch_unwind(AssertUnwindSafe(|| {
        let has_settings = !matches!(
            command,
            Command::Cert(_) | Command::Webhook(_) | Command::Completions(_) | Command::Man(_)
        );
        let unknown_variables = match has_settings {
            true => environment::check(&Cli::command())?,
            false => Vec::new(),
        };
        match command {
            Command::Serve(flags) => serve::run(flags, &unknown_variables),
            Command::Init(flags) => init::run(&flags),
            Command::Check(flags) => check::run(&flags),
            Command::Plan(flags) => plan::run(&flags),
            Command::Migrate(flags) => migrate::run(&flags),
            Command::Openapi(flags) => openapi::run(&flags),
            Command::Export(flags) => export::run(&flags),
            Command::Import(flags) => import::run(&flags),
            Command::Changes(flags) => changes::run(&flags),
            Command::Backup(flags) => backup::run(&flags),
            Command::Restore(flags) => restore::run(&flags),
            Command::Move(flags) => database_move::run(&flags),
            Command::Doctor(flags) => doctor::run(&flags),
            Command::User(command) => user::run(&command),
            Command::Cert(flags) => cert::run(&flags),
            Command::Key(command) => key::run(&command),
            Command::Webhook(command) => webhook::run(&command),
            Command::Completions(flags) => generate::print_completions(Cli::command(), &flags),
            Command::Man(flags) => generate::print_man_page(Cli::command(), &flags),
        }
    }));
    match done {
        Ok(Ok(code)) => code,
        Ok(Err(CommandError(message))) => {
            print_line(&mut io::stderr(), message.trim_end());
            ExitCode::from(EXIT_REFUSED)
        }
        Err(panic) => {
            print_line(&mut io::stderr(), internal_error_message(&fault::panic_message(&*panic)));
            ExitCode::FAILURE
        }
    }
}
