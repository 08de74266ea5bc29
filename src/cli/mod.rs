//! The command line: one file per command.
//!
//! This file defines the flags, and prints messages for the operator. Settings come from the flag, else the
//! environment, else the model's `[server]` table, else the default.

mod accounts;
mod allocator;
mod cert;
mod changes;
mod check;
mod environment;
mod first_user;
mod generate;
mod init;
mod key;
mod prompt;
mod roles;
mod serve;
mod stored_credentials;
mod user;

use std::fmt::Display;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::builder::styling::{AnsiColor, Styles};
use clap::builder::{BoolishValueParser, PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};

use crate::auth;
use crate::fault;
use crate::model::settings;
use crate::model::{self, Model};
use crate::store::{Database, LibpqEnvironment, PostgresUrl};

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
    Serve(ServeArgs),
    /// Create a commented model file, nouns.toml
    Init(InitArgs),
    /// Check a model file and list all mistakes
    Check(CheckArgs),
    /// Print the change log, one line of JSON per change
    Changes(ChangesArgs),
    /// Manage users
    #[command(subcommand)]
    User(user::UserCommand),
    /// Create a self-signed certificate to try HTTPS
    Cert(cert::CertArgs),
    /// Rotate the server's secret key
    #[command(subcommand)]
    Key(key::KeyCommand),
    /// Print a shell completion script
    Completions(generate::CompletionsArgs),
    /// Print the manual page of nouns or of one command
    Man(generate::ManArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Settings:
  Every flag but --port is also an environment variable and a key of the model's [server] table: \
--database is NOUNS_DATABASE and database. The flag wins, then the environment, then the file. \
A variable NOUNS_... that looks like a misspelled setting is refused.

Files:
  nouns.db              the database; nouns.db-wal and nouns.db-shm belong to it
  nouns.db-lock         prevents a second server
  nouns.key             encrypts Digest credentials; back it up separately
  nouns.admin-password  the first password, written by the first start

Ending:
  SIGHUP reloads the certificate and its key.
  SIGTERM or SIGINT (Ctrl-C) finishes requests in flight, up to 10 seconds; a second one ends at once.
  Exit code 0: shut down on request. 1: ended by an internal error; answered writes are saved. \
2: could not start; the message says why, and nothing was changed.")]
struct ServeArgs {
    /// The model file [default: nouns.toml here, else the built-in store]
    model: Option<PathBuf>,

    /// The database: sqlite:PATH or postgres://USER@HOST/NAME [default: sqlite:nouns.db]
    #[arg(long, env = "NOUNS_DATABASE", hide_env = true, value_name = "DATABASE")]
    database: Option<String>,

    /// Address and port to listen on; may be repeated; port 0 picks a free one [default: 127.0.0.1:8080]
    #[arg(
        long,
        env = "NOUNS_LISTEN",
        hide_env = true,
        value_name = "ADDRESS",
        value_delimiter = ',',
        overrides_with = "port"
    )]
    listen: Vec<String>,

    /// Port to listen on at 127.0.0.1: short for --listen 127.0.0.1:PORT
    #[arg(long, value_name = "PORT", overrides_with = "listen")]
    port: Option<u16>,

    /// The certificate with its chain, in PEM: all addresses then serve HTTPS; reloaded on SIGHUP
    #[arg(long, env = "NOUNS_TLS_CERT", hide_env = true, value_name = "FILE")]
    tls_cert: Option<PathBuf>,

    /// The key of the certificate, in PEM, without a passphrase
    #[arg(long, env = "NOUNS_TLS_KEY", hide_env = true, value_name = "FILE")]
    tls_key: Option<PathBuf>,

    /// Plain HTTP address that redirects to HTTPS; may be repeated
    #[arg(
        long,
        env = "NOUNS_REDIRECT",
        hide_env = true,
        value_name = "ADDRESS",
        value_delimiter = ','
    )]
    redirect: Vec<String>,

    /// The file with the server's secret key, 32 bytes in base64; NOUNS_KEY may hold the key itself
    /// [default: nouns.key beside the SQLite file]
    #[arg(long, env = "NOUNS_KEY_FILE", hide_env = true, value_name = "FILE")]
    key_file: Option<PathBuf>,

    /// Network of a trusted proxy, such as 10.0.0.0/8, whose headers name the address and the
    /// scheme of a client (Forwarded, X-Forwarded-For, X-Forwarded-Proto); may be repeated
    #[arg(
        long,
        env = "NOUNS_BEHIND_PROXY",
        hide_env = true,
        value_name = "CIDR",
        value_delimiter = ','
    )]
    behind_proxy: Vec<String>,

    /// Serve without authentication: everyone who reaches it may do everything; loopback addresses only
    #[arg(long, env = "NOUNS_OPEN", hide_env = true, value_parser = BoolishValueParser::new())]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true", hide_possible_values = true)]
    #[arg(value_name = "BOOL")]
    open: Option<bool>,

    /// Retry while the database cannot be reached
    #[arg(long, env = "NOUNS_WAIT", hide_env = true, value_parser = BoolishValueParser::new())]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true", hide_possible_values = true)]
    #[arg(value_name = "BOOL")]
    wait: Option<bool>,

    /// Log format, on standard error: pretty or json [default: pretty on a terminal, else json]
    #[arg(
        long,
        env = "NOUNS_LOG",
        hide_env = true,
        value_name = "STYLE",
        hide_possible_values = true
    )]
    #[arg(value_parser = PossibleValuesParser::new(["pretty", "json"]).map(|word| log_style(&word)))]
    log: Option<settings::LogFormat>,

    /// Failpoint of a debug build, for tests
    #[cfg(debug_assertions)]
    #[arg(long, env = "NOUNS_FAULT", hide = true)]
    fault: Option<String>,
}

fn log_style(word: &str) -> settings::LogFormat {
    if word == "pretty" { settings::LogFormat::Pretty } else { settings::LogFormat::Json }
}

#[derive(Debug, Args)]
struct InitArgs {
    /// The example to start from
    #[arg(long, default_value = "store", value_name = "EXAMPLE")]
    #[arg(value_parser = PossibleValuesParser::new(EXAMPLES.iter().map(|example| example.name)))]
    from: String,
}

#[derive(Debug, Args)]
struct CheckArgs {
    /// The model file [default: nouns.toml here, else the built-in store]
    model: Option<PathBuf>,

    /// Print the JSON Schema of the model file, for editors
    #[arg(long)]
    schema: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
It runs while servers run, and changes nothing. A change that is committed late is never missed: \
on PostgreSQL it shows changes only up to the low-water mark, below which none can be committed.")]
struct ChangesArgs {
    /// The model file, for its database [default: nouns.toml here, else the built-in store]
    model: Option<PathBuf>,

    /// The database: sqlite:PATH or postgres://USER@HOST/NAME [default: sqlite:nouns.db]
    #[arg(long, env = "NOUNS_DATABASE", hide_env = true, value_name = "DATABASE")]
    database: Option<String>,

    /// Start after this sequence number
    #[arg(long, default_value_t = 0, value_name = "NUMBER", allow_negative_numbers = true)]
    since: i64,

    /// Keep running, and print changes as they are committed
    #[arg(long)]
    follow: bool,
}

/// A built-in example model.
#[derive(Debug)]
struct ExampleModel {
    name: &'static str,
    text: &'static str,
}

/// The first one is served when there is no model file.
static EXAMPLES: &[ExampleModel] = &[
    ExampleModel { name: "store", text: include_str!("../../examples/store/nouns.toml") },
    ExampleModel { name: "library", text: include_str!("../../examples/library/nouns.toml") },
];

const MODEL_FILE: &str = "nouns.toml";

/// The exit code of every refusal.
const EXIT_REFUSED: u8 = 2;

pub fn run() -> ExitCode {
    let command = Cli::parse().command;
    let done = catch_unwind(AssertUnwindSafe(|| match command {
        Command::Serve(flags) => serve::run(flags),
        Command::Init(flags) => environment::check().and_then(|_| init::run(&flags)),
        Command::Check(flags) => environment::check().and_then(|_| check::run(&flags)),
        Command::Changes(flags) => environment::check().and_then(|_| changes::run(&flags)),
        Command::User(command) => environment::check().and_then(|_| user::run(&command)),
        Command::Cert(flags) => cert::run(&flags),
        Command::Key(command) => environment::check().and_then(|_| key::run(&command)),
        Command::Completions(flags) => generate::print_completions(&flags),
        Command::Man(flags) => generate::print_man_page(&flags),
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

fn internal_error_message(cause: &str) -> String {
    format!("nouns: ended by an internal error: {cause}")
}

/// A complete message for the operator: what is wrong and how to fix it. It is not `Display`, so that every
/// error that is can be converted by `?`.
#[derive(Debug, PartialEq, Eq)]
struct CommandError(String);

impl<E: Display> From<E> for CommandError {
    fn from(error: E) -> Self {
        Self(format!("nouns: {error}"))
    }
}

fn command_error(message: impl Display) -> CommandError {
    message.into()
}

/// Tells the user what a command has done.
fn print_done(what: impl Display) {
    print_line(&mut io::stdout(), format_args!("nouns: {what}"));
}

/// Creates a file and syncs it. Half a file is worse than none.
fn create_file(path: &Path, text: &str, mode: u32) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    let done = file.write_all(text.as_bytes()).and_then(|()| file.sync_all());
    if done.is_err() {
        let _ = std::fs::remove_file(path);
    }
    done
}

/// Writes one line. If that fails, there is no other place to report to.
fn print_line(to: &mut impl Write, line: impl Display) {
    let _ = writeln!(to, "{line}");
}

/// The text of a model and its name in messages.
struct ModelSource {
    name: String,
    text: String,
}

fn find_model(path: Option<&Path>) -> Result<ModelSource, CommandError> {
    let path = match path {
        Some(path) => path,
        None if Path::new(MODEL_FILE).exists() => Path::new(MODEL_FILE),
        None => {
            let text = EXAMPLES.first().map_or("", |example| example.text).to_owned();
            return Ok(ModelSource { name: "the built-in store".to_owned(), text });
        }
    };
    let name = path.display().to_string();
    let bytes = std::fs::read(path).map_err(|error| {
        command_error(match error.kind() {
            io::ErrorKind::NotFound => {
                format!("there is no model file {name}; create one with: nouns init")
            }
            _ => format!("cannot read the model file {name}: {error}"),
        })
    })?;
    let text = String::from_utf8(bytes)
        .map_err(|_| command_error(format!("the model file {name} is not text in UTF-8")))?;
    Ok(ModelSource { name, text })
}

fn read_model(source: &ModelSource) -> Result<Model, CommandError> {
    let colour = wants_colours(&io::stderr());
    model::read(&source.name, &source.text).map_err(|errors| CommandError(errors.render(colour)))
}

const DEFAULT_DATABASE: &str = "sqlite:nouns.db";

/// The database that the flag or the environment names, else the model, else the default.
fn database(flag: Option<&str>, model: &Model) -> Result<Database, CommandError> {
    let text = flag.or(model.server.database.as_deref()).unwrap_or(DEFAULT_DATABASE);
    refuse_shown_password(text)?;
    Ok(Database::parse(text, &postgres_environment())?)
}

/// Everyone on the machine can read the arguments of a process, but not its environment.
fn refuse_shown_password(database: &str) -> Result<(), CommandError> {
    let is_argument =
        || std::env::args_os().any(|argument| argument.to_string_lossy().ends_with(database));
    if PostgresUrl::has_password(database) && is_argument() {
        return Err(command_error(
            "a password in --database can be read by everyone on this machine; leave it out there, and \
             set NOUNS_DATABASE to the whole address, PGPASSWORD to the password, or put it into ~/.pgpass",
        ));
    }
    Ok(())
}

/// The environment variables that libpq uses for the parts that an address leaves out.
fn postgres_environment() -> LibpqEnvironment {
    #[expect(clippy::disallowed_methods, reason = "names that every client of PostgreSQL knows")]
    let value = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let text = |name: &str| value(name).and_then(|value| value.into_string().ok());
    LibpqEnvironment {
        password: text("PGPASSWORD").map(Into::into),
        passfile: value("PGPASSFILE").map(Into::into),
        user: text("PGUSER").or_else(|| text("USER")),
        home: value("HOME").map(Into::into),
    }
}

/// The source of the key: the flag, else the environment, else the model, else beside the SQLite file.
fn key_source(
    flag: Option<&Path>,
    model: &Model,
    database: &Database,
) -> Result<auth::key_source::KeySource, auth::key_source::KeyError> {
    #[expect(clippy::disallowed_methods, reason = "a key must not be seen among the arguments")]
    let key = std::env::var_os("NOUNS_KEY").filter(|key| !key.is_empty());
    // A value that is not UTF-8 is no valid key either.
    let key = key.map(|key| key.to_string_lossy().into_owned());
    let named = model.server.key_file.as_deref().map(Path::new).filter(|_| key.is_none());
    auth::key_source::KeySource::choose(flag.or(named), key, database)
}

/// Whether to use colours: on a terminal, unless `NO_COLOR` is set.
fn wants_colours(to: &impl io::IsTerminal) -> bool {
    #[expect(
        clippy::disallowed_methods,
        reason = "NO_COLOR is a convention between programs, not a setting of ours"
    )]
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    to.is_terminal() && !refused
}
