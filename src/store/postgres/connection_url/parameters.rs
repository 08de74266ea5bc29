//! Parameters of a connection URL and their defaults.
//!
//! The names are libpq's. A parameter that libpq knows and this server does not is refused by name: a URL
//! that asks for a revocation list must not be accepted without one.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio_postgres::Config;
use tokio_postgres::config::{ChannelBinding, Host};

use crate::model::nearest;
use crate::store::postgres::connection_url::address::{
    ClientCertificateFiles, DEFAULT_PORT, DatabasePassword, HostTarget, LibpqEnvironment,
    PostgresTls, PostgresUrl, SOCKET_DIRECTORY, TlsMode, TrustRoots, UrlParameters,
};
use crate::store::postgres::connection_url::passfile;

const KNOWN_PARAMETERS: &[&str] = &[
    "application_name",
    "channel_binding",
    "client_encoding",
    "connect_timeout",
    "dbname",
    "gssencmode",
    "host",
    "hostaddr",
    "keepalives",
    "keepalives_count",
    "keepalives_idle",
    "keepalives_interval",
    "load_balance_hosts",
    "options",
    "passfile",
    "password",
    "port",
    "sslcert",
    "sslkey",
    "sslmode",
    "sslnegotiation",
    "sslrootcert",
    "target_session_attrs",
    "tcp_user_timeout",
    "user",
];

/// Parameters of libpq that would have no effect here.
const UNSUPPORTED_PARAMETERS: &[&str] = &[
    "fallback_application_name",
    "gssdelegation",
    "gsslib",
    "krbsrvname",
    "max_protocol_version",
    "min_protocol_version",
    "replication",
    "require_auth",
    "requirepeer",
    "service",
    "ssl_max_protocol_version",
    "ssl_min_protocol_version",
    "sslcertmode",
    "sslcompression",
    "sslcrl",
    "sslcrldir",
    "sslkeylogfile",
    "sslpassword",
    "sslsni",
];

pub fn url_from_parameters(
    mut values: UrlParameters,
    environment: &LibpqEnvironment,
) -> Result<PostgresUrl, String> {
    if let Some(key) = values.keys().find(|key| !KNOWN_PARAMETERS.contains(&&***key)) {
        return Err(unknown_parameter(key));
    }
    refuse_unsupported_values(&values)?;
    let mut take = |key: &str| values.remove(key);
    let user = take("user")
        .or_else(|| environment.user.clone())
        .ok_or("no user is named: write postgres://USER@HOST/NAME, or set PGUSER")?;
    let name = take("dbname").unwrap_or_else(|| user.clone());
    let password = take("password").map(DatabasePassword).or_else(|| environment.password.clone());
    let passfile = take("passfile").map(PathBuf::from);
    let mut config = parse_session(&mut take)?;
    config.user(&user).dbname(&name);
    let mut targets = parse_targets(&mut take, &config)?;
    match password {
        Some(password) => {
            for target in &mut targets {
                target.config.password(&password.0);
            }
        }
        None => passfile::fill_passwords(&mut targets, passfile, &user, &name, environment)?,
    }
    Ok(PostgresUrl {
        targets,
        user,
        database: name,
        is_standby_allowed: parse_target_session(take("target_session_attrs").as_deref())?,
        tls: parse_tls(&mut take, environment)?,
    })
}

fn unknown_parameter(key: &str) -> String {
    if UNSUPPORTED_PARAMETERS.contains(&key) {
        return format!("the parameter {key:?} is not supported; leave it out");
    }
    match nearest(key, KNOWN_PARAMETERS.iter().copied()) {
        Some(near) => format!("there is no parameter {key:?}; did you mean {near:?}?"),
        None => format!("there is no parameter {key:?}; known are {}", KNOWN_PARAMETERS.join(", ")),
    }
}

/// Refuses parameters that are accepted only with the value of the built-in behaviour.
fn refuse_unsupported_values(values: &UrlParameters) -> Result<(), String> {
    let only = |key: &str, taken: &[&str], why: &str| match values.get(key) {
        Some(value) if !taken.contains(&&**value) => {
            Err(format!("{key} expected {}, got {value:?}: {why}", taken.join(" or ")))
        }
        _ => Ok(()),
    };
    only("client_encoding", &["UTF8", "utf8", "UTF-8", "auto"], "text is always sent as UTF-8")?;
    only("gssencmode", &["disable", "prefer"], "encryption is by TLS alone")?;
    only(
        "load_balance_hosts",
        &["disable"],
        "only the primary takes writes, so hosts are tried in turn",
    )?;
    only("sslnegotiation", &["postgres"], "only the negotiation that every server supports is used")
}

/// How long sent data may stay unacknowledged before the connection counts as lost.
const TCP_USER_TIMEOUT_DEFAULT: Duration = Duration::from_secs(10);

/// The settings that all hosts share.
fn parse_session(take: &mut impl FnMut(&str) -> Option<String>) -> Result<Config, String> {
    let mut config = Config::new();
    config.application_name(take("application_name").unwrap_or_else(|| "nouns".to_owned()));
    if let Some(options) = take("options") {
        config.options(options);
    }
    config.channel_binding(match take("channel_binding").as_deref() {
        None | Some("prefer") => ChannelBinding::Prefer,
        Some("disable") => ChannelBinding::Disable,
        Some("require") => ChannelBinding::Require,
        Some(other) => {
            return Err(format!(
                "channel_binding expected disable, prefer or require, got {other:?}"
            ));
        }
    });
    let mut number = |key| take(key).map(|text| parse_number(&text, key)).transpose();
    if let Some(seconds) = number("connect_timeout")?.filter(|seconds| *seconds > 0) {
        config.connect_timeout(Duration::from_secs(seconds));
    }
    match number("tcp_user_timeout")? {
        None => drop(config.tcp_user_timeout(TCP_USER_TIMEOUT_DEFAULT)),
        Some(0) => {}
        Some(millis) => drop(config.tcp_user_timeout(Duration::from_millis(millis))),
    }
    config.keepalives(number("keepalives")? != Some(0));
    let mut positive = |key, default| {
        Ok::<_, String>(number(key)?.filter(|number| *number > 0).unwrap_or(default))
    };
    config
        .keepalives_idle(Duration::from_secs(positive("keepalives_idle", 30)?))
        .keepalives_interval(Duration::from_secs(positive("keepalives_interval", 5)?))
        .keepalives_retries(u32::try_from(positive("keepalives_count", 3)?).unwrap_or(u32::MAX));
    Ok(config)
}

/// A value of more than a day is equivalent to none, and could overflow an instant.
const NUMBER_MAX: u64 = 86_400_000;

fn parse_number(text: &str, key: &str) -> Result<u64, String> {
    let number = text.parse::<u64>().ok().filter(|number| *number <= NUMBER_MAX);
    number.ok_or_else(|| format!("{key} expected a number from 0 to {NUMBER_MAX}, got {text:?}"))
}

/// Whether a standby is acceptable.
fn parse_target_session(text: Option<&str>) -> Result<bool, String> {
    match text {
        None | Some("read-write" | "primary") => Ok(false),
        Some("any") => Ok(true),
        Some(other) => Err(format!(
            "target_session_attrs expected read-write, primary or any, got {other:?}: this server writes to the database"
        )),
    }
}

fn parse_targets(
    take: &mut impl FnMut(&str) -> Option<String>,
    config: &Config,
) -> Result<Vec<HostTarget>, String> {
    let addresses = take("hostaddr").map(|text| parse_ip_addresses(&text)).transpose()?;
    let hosts: Vec<String> = match (take("host"), &addresses) {
        (None, Some(addresses)) => addresses.iter().map(ToString::to_string).collect(),
        (hosts, _) => hosts.unwrap_or_default().split(',').map(str::to_owned).collect(),
    };
    let count = hosts.len();
    if let Some(addresses) = addresses.as_ref().filter(|addresses| addresses.len() != count) {
        return Err(format!(
            "hostaddr has {} entries for {count} hosts; give one to each",
            addresses.len()
        ));
    }
    let ports = take("port").unwrap_or_default();
    let ports: Vec<u16> = ports.split(',').map(parse_port).collect::<Result<_, _>>()?;
    if ports.len() != 1 && ports.len() != count {
        let ports = ports.len();
        return Err(format!("{ports} ports for {count} hosts; give one, or one to each host"));
    }
    let mut addresses = addresses.into_iter().flatten();
    let targets = hosts.into_iter().zip(ports.into_iter().cycle()).map(|(name, port)| {
        let (mut config, address) = (config.clone(), addresses.next());
        config.port(port);
        let host = match &*name {
            "" => Host::Unix(SOCKET_DIRECTORY.into()),
            folder if folder.starts_with('/') => Host::Unix(folder.into()),
            _ => Host::Tcp(name),
        };
        match &host {
            Host::Unix(folder) => drop(config.host_path(folder)),
            // The certificate is checked against the name; the address, if there is one, is used to connect.
            Host::Tcp(name) => {
                config.host(name);
                address.map(|address| config.hostaddr(address));
            }
        }
        HostTarget { host, port, config }
    });
    Ok(targets.collect())
}

fn parse_ip_addresses(text: &str) -> Result<Vec<IpAddr>, String> {
    let address = |text: &str| {
        text.parse().map_err(|_| format!("hostaddr expected an IP address, got {text:?}"))
    };
    text.split(',').map(address).collect()
}

fn parse_port(text: &str) -> Result<u16, String> {
    if text.is_empty() {
        return Ok(DEFAULT_PORT);
    }
    // The text in the port's place may be the password of a URL without a host.
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|port| *port > 0 && digits).ok_or_else(|| {
        "expected a port from 1 to 65535 after the host; is the host missing, as in USER:PASSWORD@HOST?"
            .to_owned()
    })
}

fn parse_tls(
    take: &mut impl FnMut(&str) -> Option<String>,
    environment: &LibpqEnvironment,
) -> Result<PostgresTls, String> {
    let roots = take("sslrootcert").map(|text| match &*text {
        "system" => TrustRoots::System,
        file => TrustRoots::File(file.into()),
    });
    let mode = parse_tls_mode(take("sslmode").as_deref(), roots.as_ref())?;
    // As in libpq, the default file is used if it exists.
    let usual = || {
        let file = environment.home.as_ref()?.join(".postgresql/root.crt");
        file.is_file().then_some(TrustRoots::File(file))
    };
    let roots = roots.or_else(usual);
    let mode = match (mode, &roots) {
        // As in libpq, a root certificate turns on verification.
        (TlsMode::Require, Some(_)) => TlsMode::VerifyCa,
        (TlsMode::VerifyCa, None) => {
            return Err("sslmode=verify-ca needs a trust anchor: add sslrootcert=FILE".to_owned());
        }
        (TlsMode::VerifyFull, None) => {
            return Err("sslmode=verify-full needs a trust anchor: add sslrootcert=FILE, or \
                 sslrootcert=system"
                .to_owned());
        }
        (mode, _) => mode,
    };
    let client = match (take("sslcert"), take("sslkey")) {
        (None, None) => None,
        (Some(certificate), Some(key)) => Some(ClientCertificateFiles {
            certificate: certificate.into(),
            key: Path::new(&key).into(),
        }),
        _ => {
            return Err(
                "sslcert and sslkey must be given together: a certificate and its key".to_owned()
            );
        }
    };
    Ok(PostgresTls { mode, roots, client })
}

const TLS_MODES: &[(&str, TlsMode)] = &[
    ("disable", TlsMode::Disable),
    ("allow", TlsMode::Prefer),
    ("prefer", TlsMode::Prefer),
    ("require", TlsMode::Require),
    ("verify-ca", TlsMode::VerifyCa),
    ("verify-full", TlsMode::VerifyFull),
];

fn parse_tls_mode(text: Option<&str>, roots: Option<&TrustRoots>) -> Result<TlsMode, String> {
    let found = text.map(|text| {
        let found = TLS_MODES.iter().find(|(word, _)| *word == text).map(|(_, mode)| *mode);
        found.ok_or_else(|| {
            let words = TLS_MODES.iter().map(|(word, _)| *word);
            let help = match nearest(text, words.clone()) {
                Some(near) => format!("did you mean {near:?}?"),
                None => format!("expected one of {}", words.collect::<Vec<_>>().join(", ")),
            };
            format!("there is no sslmode {text:?}; {help}")
        })
    });
    match (found.transpose()?, roots) {
        // The system's CAs sign certificates for everyone, so a valid chain alone proves nothing.
        (None | Some(TlsMode::VerifyFull), Some(TrustRoots::System)) => Ok(TlsMode::VerifyFull),
        (Some(_), Some(TrustRoots::System)) => Err(
            "sslrootcert=system requires sslmode=verify-full: anyone can get a certificate from \
             those it trusts"
                .to_owned(),
        ),
        (mode, _) => Ok(mode.unwrap_or(TlsMode::Prefer)),
    }
}
