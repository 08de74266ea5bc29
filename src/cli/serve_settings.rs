//! The settings of `nouns serve`: by flags and environment, else by the model, else the defaults.

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::path::PathBuf;

use super::model_source::database;
use super::report::{CommandError, command_error, wants_colours};
use super::serve_args::ServeArgs;
use crate::fault::OrBug as _;
use crate::log::LogStyle;
use crate::model::settings;
use crate::model::{AuthScheme, Model, Network};
use crate::server::tls::{CertificateFiles, TlsConfig};
use crate::store::Database;

const DEFAULT_LISTEN: &str = "127.0.0.1:8080";

/// The settings that take effect when a process starts.
#[derive(Debug, PartialEq)]
pub struct ProcessSettings {
    /// The addresses to listen on.
    pub listen: Vec<String>,
    /// Plain addresses that redirect to HTTPS.
    redirect: Vec<String>,
    /// The text of the `--database` setting.
    database: Option<String>,
    key_file: Option<PathBuf>,
    tls_cert: Option<PathBuf>,
    tls_key: Option<PathBuf>,
    /// Without authentication.
    pub is_open: bool,
    /// Whether the start waits for the database.
    pub is_patient: bool,
    log: Option<settings::LogFormat>,
}

impl ProcessSettings {
    pub fn resolve(flags: &ServeArgs, model: &Model) -> Self {
        let declared = &model.server;
        let listen = [
            flags.port.map(|port| format!("127.0.0.1:{port}")).into_iter().collect(),
            flags.listen.clone(),
            declared.listen.clone().unwrap_or_default(),
            vec![DEFAULT_LISTEN.to_owned()],
        ];
        let listen = listen.into_iter().find(|addresses| !addresses.is_empty());
        let redirect = match flags.redirect.is_empty() {
            true => declared.redirect.clone().unwrap_or_default(),
            false => flags.redirect.clone(),
        };
        let path = |flag: &Option<PathBuf>, declared: Option<&str>| {
            flag.clone().or(declared.map(PathBuf::from))
        };
        Self {
            listen: listen.or_bug("there is a default address"),
            redirect,
            database: flags.database.clone().or(declared
                .storage
                .database
                .as_deref()
                .map(Into::into)),
            key_file: path(&flags.key_file, declared.storage.key_file.as_deref()),
            tls_cert: path(&flags.tls_cert, declared.tls_cert.as_deref()),
            tls_key: path(&flags.tls_key, declared.tls_key.as_deref()),
            is_open: flags.open.or(declared.open).unwrap_or(false),
            is_patient: flags.wait.or(declared.wait).unwrap_or(false),
            log: flags.log.or(declared.log),
        }
    }

    /// The keys of the `[server]` table that have other values in `other`.
    pub fn changed_keys(&self, other: &Self) -> Vec<&'static str> {
        let all = [
            ("listen", self.listen == other.listen),
            ("redirect", self.redirect == other.redirect),
            ("database", self.database == other.database),
            ("key_file", self.key_file == other.key_file),
            ("tls_cert", self.tls_cert == other.tls_cert),
            ("tls_key", self.tls_key == other.tls_key),
            ("open", self.is_open == other.is_open),
            ("wait", self.is_patient == other.is_patient),
            ("log", self.log == other.log),
        ];
        all.into_iter().filter(|(_, is_equal)| !is_equal).map(|(key, _)| key).collect()
    }

    /// `demo` is the address of the temporary database.
    pub fn database(&self, demo: Option<&str>, model: &Model) -> Result<Database, CommandError> {
        database(demo.or(self.database.as_deref()), &model.server.storage)
    }

    pub fn log_style(&self) -> LogStyle {
        let stderr = std::io::stderr();
        let by_default = match stderr.is_terminal() {
            true => settings::LogFormat::Pretty,
            false => settings::LogFormat::Json,
        };
        match self.log.unwrap_or(by_default) {
            settings::LogFormat::Pretty => LogStyle::Pretty { colour: wants_colours(&stderr) },
            settings::LogFormat::Json => LogStyle::Json,
        }
    }

    pub fn read_tls(&self, model: &Model) -> Result<Option<TlsConfig>, CommandError> {
        read_tls((self.tls_cert.clone(), self.tls_key.clone()), model)
    }

    /// The addresses that redirect to HTTPS, which requires a certificate.
    pub fn redirect_addresses(&self, model: &Model) -> Result<&[String], CommandError> {
        let base_url = model.server.base_url.as_deref().unwrap_or_default();
        match (self.redirect.first(), self.tls_cert.is_some()) {
            (Some(address), false) => Err(command_error(format!(
                "--redirect {address} redirects to HTTPS, which is not served; name a certificate by \
                 --tls-cert and --tls-key, or create a self-signed pair with: nouns cert"
            ))),
            (Some(address), true) if base_url.starts_with("http:") => Err(command_error(format!(
                "--redirect {address} redirects to HTTPS, but base_url is {base_url}; let base_url begin \
                 with https://"
            ))),
            (None, _) | (Some(_), true) => Ok(&self.redirect),
        }
    }

    /// Refuses a server that would be reachable without the protection that it needs.
    pub fn check_exposure(
        &self,
        model: &Model,
        bound: &[Vec<SocketAddr>],
        proxies: &[Network],
    ) -> Result<(), CommandError> {
        if self.is_open {
            require_loopback_for_open(&self.listen, bound, proxies)
        } else if self.tls_cert.is_none() && proxies.is_empty() {
            require_loopback_for_clear_basic(model, &self.listen, bound)
        } else {
            Ok(())
        }
    }
}

/// The certificate, if there is one; both of its files are named, or none.
pub fn read_tls(
    (certificate, key): (Option<PathBuf>, Option<PathBuf>),
    model: &Model,
) -> Result<Option<TlsConfig>, CommandError> {
    let certificate = certificate.or(model.server.tls_cert.as_ref().map(PathBuf::from));
    let key = key.or(model.server.tls_key.as_ref().map(PathBuf::from));
    let alone = |given: &str, other: &str, what: &str| {
        Err(command_error(format!(
            "{given} alone is not enough: name {what} by {other} as well, or create a self-signed pair with: \
             nouns cert"
        )))
    };
    match (certificate, key) {
        (None, None) => Ok(None),
        (Some(_), None) => alone("--tls-cert", "--tls-key", "the key of the certificate"),
        (None, Some(_)) => alone("--tls-key", "--tls-cert", "the certificate of the key"),
        (Some(certificate), Some(key)) => {
            Ok(Some(TlsConfig::read(CertificateFiles { certificate, key })?))
        }
    }
}

/// An address that other machines can reach.
fn find_non_loopback<'a>(listen: &'a [String], bound: &[Vec<SocketAddr>]) -> Option<&'a String> {
    let is_strange =
        |addresses: &[SocketAddr]| addresses.iter().any(|address| !address.ip().is_loopback());
    let found = listen.iter().zip(bound).find(|(_, addresses)| is_strange(addresses));
    found.map(|(address, _)| address)
}

/// Trusted proxies: by the flag or the environment, else by the model.
pub fn trusted_proxies(
    flags: &[String],
    model: Option<&[Network]>,
) -> Result<Vec<Network>, CommandError> {
    if flags.is_empty() {
        return Ok(model.unwrap_or_default().to_vec());
    }
    let parsed = flags.iter().map(|text| Network::parse(text.trim()));
    parsed
        .collect::<Result<_, _>>()
        .map_err(|fault| command_error(format!("--behind-proxy: {fault}")))
}

fn require_loopback_for_open(
    listen: &[String],
    bound: &[Vec<SocketAddr>],
    proxies: &[Network],
) -> Result<(), CommandError> {
    if let Some(network) = proxies.first() {
        return Err(command_error(format!(
            "--open lets everyone do everything, and behind a proxy ({network}) that is everyone who reaches the proxy; \
             leave out --behind-proxy or --open"
        )));
    }
    match find_non_loopback(listen, bound) {
        None => Ok(()),
        Some(address) => Err(command_error(format!(
            "--open lets everyone do everything, so it listens on this machine alone: \
             {address} is not a loopback address; use --listen {DEFAULT_LISTEN}"
        ))),
    }
}

/// Basic without TLS is allowed on loopback addresses only.
fn require_loopback_for_clear_basic(
    model: &Model,
    listen: &[String],
    bound: &[Vec<SocketAddr>],
) -> Result<(), CommandError> {
    let Some(realm) = model.realms.iter().find(|realm| realm.schemes.contains(&AuthScheme::Basic))
    else {
        return Ok(());
    };
    match find_non_loopback(listen, bound) {
        None => Ok(()),
        Some(address) => Err(command_error(format!(
            "the realm \"{}\" offers Basic, which sends passwords in clear, and {address} can be reached from \
             other machines; serve HTTPS with --tls-cert and --tls-key (nouns cert creates a self-signed pair), say \
             --behind-proxy where a proxy terminates TLS, listen on a loopback address, or declare \
             schemes = [\"digest\"] for the realm",
            realm.name
        ))),
    }
}
