//! Parameters of a connection URL and their defaults.
//!
//! The names are libpq's. A parameter that libpq knows and this server does not is refused by name: a URL
//! that asks for a revocation list must not be accepted without one.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::model::nearest;
use crate::store::postgres::connection_url::address::{
    ChannelBindingMode, ClientCertificateFiles, DEFAULT_PORT, DatabasePassword, HostTarget,
    Keepalive, LibpqEnvironment, PostgresHost, PostgresTls, PostgresUrl, SOCKET_DIRECTORY,
    TargetSession, TlsMode, TrustRoots, UrlParameters,
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
    let (hosts, numbers, ports) = (take("host"), take("hostaddr"), take("port"));
    let mut targets = parse_targets(hosts.as_deref(), numbers.as_deref(), ports.as_deref())?;
    match password {
        Some(password) => {
            targets.iter_mut().for_each(|target| target.password = Some(password.clone()));
        }
        None => passfile::fill_passwords(&mut targets, passfile, &user, &name, environment)?,
    }
    Ok(PostgresUrl {
        targets,
        user,
        database: name,
        application_name: take("application_name").unwrap_or_else(|| "nouns".to_owned()),
        options: take("options"),
        target_session: parse_target_session(take("target_session_attrs").as_deref())?,
        connect_timeout: parse_number(take("connect_timeout"), "connect_timeout")?
            .map(Duration::from_secs),
        keepalive: parse_keepalive(&mut take)?,
        tcp_user_timeout: match parse_number(take("tcp_user_timeout"), "tcp_user_timeout")? {
            None => Some(TCP_USER_TIMEOUT_DEFAULT),
            Some(millis) => Some(millis).filter(|millis| *millis > 0).map(Duration::from_millis),
        },
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

fn parse_keepalive(
    take: &mut impl FnMut(&str) -> Option<String>,
) -> Result<Option<Keepalive>, String> {
    let mut seconds = |key: &str, default: u64| {
        let seconds =
            parse_number(take(key), key)?.filter(|seconds| *seconds > 0).unwrap_or(default);
        Ok::<_, String>(Duration::from_secs(seconds))
    };
    let idle = seconds("keepalives_idle", 30)?;
    let interval = seconds("keepalives_interval", 5)?;
    let count =
        parse_number(take("keepalives_count"), "keepalives_count")?.filter(|count| *count > 0);
    let count = count.map_or(3, |count| u32::try_from(count).unwrap_or(u32::MAX));
    match parse_number(take("keepalives"), "keepalives")? {
        Some(0) => Ok(None),
        _ => Ok(Some(Keepalive { idle, interval, count })),
    }
}

/// A value of more than a day is equivalent to none, and could overflow an instant.
const NUMBER_MAX: u64 = 86_400_000;

fn parse_number(text: Option<String>, key: &str) -> Result<Option<u64>, String> {
    let Some(text) = text else { return Ok(None) };
    match text.parse::<u64>().ok().filter(|number| *number <= NUMBER_MAX) {
        Some(0) if key == "connect_timeout" => Ok(None),
        Some(number) => Ok(Some(number)),
        None => Err(format!("{key} expected a number from 0 to {NUMBER_MAX}, got {text:?}")),
    }
}

fn parse_target_session(text: Option<&str>) -> Result<TargetSession, String> {
    match text {
        None | Some("read-write" | "primary") => Ok(TargetSession::Writable),
        Some("any") => Ok(TargetSession::Any),
        Some(other) => Err(format!(
            "target_session_attrs expected read-write, primary or any, got {other:?}: this server writes to the database"
        )),
    }
}

fn parse_targets(
    hosts: Option<&str>,
    numbers: Option<&str>,
    ports: Option<&str>,
) -> Result<Vec<HostTarget>, String> {
    let numbers = numbers.map(parse_ip_addresses).transpose()?;
    let hosts = match (hosts, &numbers) {
        (Some(hosts), None) => hosts.split(',').map(|name| host_from_name(name, None)).collect(),
        (None, None) => vec![host_from_name("", None)],
        (None, Some(numbers)) => {
            let of = |number: &IpAddr| host_from_name(&number.to_string(), Some(*number));
            numbers.iter().map(of).collect()
        }
        (Some(hosts), Some(numbers)) => {
            let hosts: Vec<&str> = hosts.split(',').collect();
            if hosts.len() != numbers.len() {
                let (hosts, numbers) = (hosts.len(), numbers.len());
                return Err(format!(
                    "hostaddr has {numbers} entries for {hosts} hosts; give one to each"
                ));
            }
            hosts
                .iter()
                .zip(numbers)
                .map(|(name, number)| host_from_name(name, Some(*number)))
                .collect::<Vec<_>>()
        }
    };
    let ports: Vec<u16> =
        ports.unwrap_or("").split(',').map(parse_port).collect::<Result<_, _>>()?;
    let count = hosts.len();
    let target = |(index, host)| {
        let port = match ports.as_slice() {
            [port] => Some(port),
            ports if ports.len() == count => ports.get(index),
            _ => None,
        };
        let port = port.copied().ok_or_else(|| {
            format!("{} ports for {count} hosts; give one, or one to each host", ports.len())
        })?;
        Ok(HostTarget { host, port, password: None })
    };
    hosts.into_iter().enumerate().map(target).collect()
}

fn host_from_name(name: &str, number: Option<IpAddr>) -> PostgresHost {
    match name {
        "" => PostgresHost::SocketDirectory(SOCKET_DIRECTORY.into()),
        folder if folder.starts_with('/') => PostgresHost::SocketDirectory(folder.into()),
        name => PostgresHost::Name { name: name.to_owned(), ip: number },
    }
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
    let binding = match take("channel_binding").as_deref() {
        None | Some("prefer") => ChannelBindingMode::Prefer,
        Some("disable") => ChannelBindingMode::Disable,
        Some("require") => ChannelBindingMode::Require,
        Some(other) => {
            return Err(format!(
                "channel_binding expected disable, prefer or require, got {other:?}"
            ));
        }
    };
    Ok(PostgresTls { mode, roots, client, binding })
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
