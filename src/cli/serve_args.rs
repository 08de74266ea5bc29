//! The flags of `nouns serve`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::{BoolishValueParser, PossibleValuesParser, TypedValueParser};

use crate::model::settings;

#[derive(Debug, Args)]
#[command(after_help = "\
Settings:
  Every flag but --port and --demo is also an environment variable and a key of the model's [server] table: \
--database is NOUNS_DATABASE and database. The flag wins, then the environment, then the file. \
A variable NOUNS_... that looks like a misspelled setting is refused.

Files:
  nouns.db              the database; nouns.db-wal and nouns.db-shm belong to it
  nouns.db-lock         prevents a second server
  nouns.key             encrypts Digest credentials; back it up separately
  nouns.admin-password  the first password, written by the first start

Ending:
  SIGHUP reloads the certificate, its key and a changed model.
  SIGTERM or SIGINT (Ctrl-C) finishes requests in flight, up to 10 seconds; a second one ends at once.
  Exit code 0: shut down on request. 1: ended by an internal error; answered writes are saved. \
2: could not start; the message says why, and nothing was changed.")]
pub struct ServeArgs {
    /// The model file [default: nouns.toml here, else the built-in store]
    pub model: Option<PathBuf>,

    /// The database: sqlite:PATH or postgres://USER@HOST/NAME [default: sqlite:nouns.db]
    #[arg(long, env = "NOUNS_DATABASE", hide_env = true, value_name = "DATABASE")]
    pub database: Option<String>,

    /// Address and port to listen on; may be repeated; port 0 picks a free one [default: 127.0.0.1:8080]
    #[arg(
        long,
        env = "NOUNS_LISTEN",
        hide_env = true,
        value_name = "ADDRESS",
        value_delimiter = ',',
        overrides_with = "port"
    )]
    pub listen: Vec<String>,

    /// Port to listen on at 127.0.0.1: short for --listen 127.0.0.1:PORT
    #[arg(long, value_name = "PORT", overrides_with = "listen")]
    pub port: Option<u16>,

    /// The certificate with its chain, in PEM: all addresses then serve HTTPS; reloaded on SIGHUP
    #[arg(long, env = "NOUNS_TLS_CERT", hide_env = true, value_name = "FILE")]
    pub tls_cert: Option<PathBuf>,

    /// The key of the certificate, in PEM, without a passphrase
    #[arg(long, env = "NOUNS_TLS_KEY", hide_env = true, value_name = "FILE")]
    pub tls_key: Option<PathBuf>,

    /// Plain HTTP address that redirects to HTTPS; may be repeated
    #[arg(
        long,
        env = "NOUNS_REDIRECT",
        hide_env = true,
        value_name = "ADDRESS",
        value_delimiter = ','
    )]
    pub redirect: Vec<String>,

    /// The file with the server's secret key, 32 bytes in base64; NOUNS_KEY may hold the key itself
    /// [default: nouns.key beside the SQLite file]
    #[arg(long, env = "NOUNS_KEY_FILE", hide_env = true, value_name = "FILE")]
    pub key_file: Option<PathBuf>,

    /// Network of a trusted proxy, such as 10.0.0.0/8, whose headers name the address and the
    /// scheme of a client (Forwarded, X-Forwarded-For, X-Forwarded-Proto); may be repeated
    #[arg(
        long,
        env = "NOUNS_BEHIND_PROXY",
        hide_env = true,
        value_name = "CIDR",
        value_delimiter = ','
    )]
    pub behind_proxy: Vec<String>,

    /// Serve without authentication: everyone who reaches it may do everything; loopback addresses only
    #[arg(long, env = "NOUNS_OPEN", hide_env = true, value_parser = BoolishValueParser::new())]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true", hide_possible_values = true)]
    #[arg(value_name = "BOOL")]
    pub open: Option<bool>,

    /// Retry while the database cannot be reached
    #[arg(long, env = "NOUNS_WAIT", hide_env = true, value_parser = BoolishValueParser::new())]
    #[arg(num_args = 0..=1, require_equals = true, default_missing_value = "true", hide_possible_values = true)]
    #[arg(value_name = "BOOL")]
    pub wait: Option<bool>,

    /// Serve the built-in store with a few hundred customers and orders, in a temporary database that is
    /// deleted at the end
    #[arg(long, conflicts_with_all = ["model", "database", "key_file"])]
    pub demo: bool,

    /// Log format, on standard error: pretty or json [default: pretty on a terminal, else json]
    #[arg(
        long,
        env = "NOUNS_LOG",
        hide_env = true,
        value_name = "STYLE",
        hide_possible_values = true
    )]
    #[arg(value_parser = PossibleValuesParser::new(["pretty", "json"]).map(|word| log_format(&word)))]
    pub log: Option<settings::LogFormat>,

    /// Failpoint of a debug build, for tests
    #[cfg(debug_assertions)]
    #[arg(long, env = "NOUNS_FAULT", hide = true)]
    pub fault: Option<String>,
}

fn log_format(word: &str) -> settings::LogFormat {
    if word == "pretty" { settings::LogFormat::Pretty } else { settings::LogFormat::Json }
}
