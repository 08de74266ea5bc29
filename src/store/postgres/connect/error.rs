//! Errors of opening a connection: whether to retry, and the message for the operator.
//!
//! tokio_postgres does not expose the kind of its errors, so a few are identified by their text; the tests
//! get each of them from a real server.

use std::error::Error as _;
use std::time::Duration;
use std::{fmt, io};

use rustls::CertificateError;
use tokio_postgres::Error;
use tokio_postgres::config::Host;
use tokio_postgres::error::{DbError, SqlState};

use crate::model::settings::Pooling;
use crate::store::postgres::connection_url::address::{HostTarget, PostgresUrl};

/// One message for the operator, with a remedy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConnectError {
    /// It may resolve itself: the server is starting, full, or not reachable yet.
    Transient(String),
    /// It will fail until the operator changes the configuration.
    Permanent(String),
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Transient(message) | Self::Permanent(message)) = self;
        f.write_str(message)
    }
}

/// Why the connection to one host failed.
#[derive(Debug)]
pub enum HostFailure {
    Engine(Error),
    /// The host's name has no address.
    Unresolved(io::Error),
    TimedOut(Duration),
    /// The server closed the connection during the session check.
    Closed,
    /// The host is a standby.
    ReadOnly,
    AsynchronousCommit,
    /// Transactions have another isolation level than the one we rely on.
    WrongIsolation(String),
    /// The session does not have our settings.
    SettingsIgnored,
    NotUtf8(String),
}

impl From<Error> for HostFailure {
    fn from(error: Error) -> Self {
        Self::Engine(error)
    }
}

const UNEXPECTED_MESSAGE: &str = "unexpected message from server";
const PARSE_ERROR: &str = "error parsing response from server";
const TLS_HANDSHAKE_ERROR: &str = "error performing TLS handshake";
const INVALID_CONFIGURATION: &str = "invalid configuration";
const AUTHENTICATION_ERROR: &str = "authentication error";

impl HostFailure {
    /// Whether every host would give the same error, because the error is about the user or the database.
    pub fn is_same_for_all_hosts(&self) -> bool {
        let Self::Engine(error) = self else { return false };
        let code = error.code().map_or("", SqlState::code);
        code.starts_with("28")
            || code.starts_with("3D")
            || error.to_string() == INVALID_CONFIGURATION
    }

    /// Whether the connection may succeed without TLS: the handshake failed, or `pg_hba.conf` admits this
    /// user only without TLS.
    pub fn can_retry_without_tls(&self) -> bool {
        let Self::Engine(error) = self else { return false };
        error.to_string() == TLS_HANDSHAKE_ERROR
            || tls_error(error).is_some()
            || error.code() == Some(&SqlState::INVALID_AUTHORIZATION_SPECIFICATION)
    }

    /// The message about one host, and whether a retry may succeed.
    fn describe(
        &self,
        address: &PostgresUrl,
        pooling: Pooling,
        target: &HostTarget,
    ) -> ConnectError {
        let host = target.display_name();
        let lasting = |text: String| ConnectError::Permanent(text);
        match self {
            Self::Engine(error) => match error.as_db_error() {
                Some(refusal) => describe_refusal(refusal, address, pooling, target),
                None => describe_failure(error, address, target),
            },
            Self::Unresolved(error) => {
                unreachable_host(&host, &describe_io_error(error, &target.host))
            }
            Self::TimedOut(limit) => {
                unreachable_host(&host, &format!("no answer within {limit:.1?}"))
            }
            Self::Closed => unreachable_host(&host, "it closed the connection"),
            Self::ReadOnly => ConnectError::Transient(format!(
                "PostgreSQL at {host} takes no writes; it is a standby, or default_transaction_read_only \
                 is on: name the primary too, as in postgres://USER@HOST,HOST/NAME"
            )),
            Self::AsynchronousCommit => lasting(format!(
                "synchronous_commit is off at {host}, so an acknowledged write could be lost; run: \
                 ALTER ROLE {} SET synchronous_commit = on",
                quoted(&address.user)
            )),
            Self::WrongIsolation(found) => lasting(format!(
                "transactions at {host} are {found}, and we rely on read committed; run: \
                 ALTER ROLE {} SET default_transaction_isolation = 'read committed'",
                quoted(&address.user)
            )),
            Self::SettingsIgnored => lasting(format!(
                "a proxy at {host} does not pass our settings on to PostgreSQL; {POOLING_HINT}"
            )),
            Self::NotUtf8(name) => lasting(format!(
                "the database {:?} at {host} has the encoding {name}, which cannot store all of Unicode; make one \
                 with: createdb --encoding=UTF8 --template=template0 NAME",
                address.database
            )),
        }
    }
}

/// The remedy for servers behind pgbouncer.
pub const POOLING_HINT: &str = "if it is a pooling proxy such as pgbouncer, put database_pooling = \"transaction\" into [server]";

fn unreachable_host(host: &str, why: &str) -> ConnectError {
    ConnectError::Transient(format!(
        "cannot reach PostgreSQL at {host} ({why}); start it, or check --database"
    ))
}

/// The error for a server that has answered with a refusal.
fn describe_refusal(
    refusal: &DbError,
    address: &PostgresUrl,
    pooling: Pooling,
    target: &HostTarget,
) -> ConnectError {
    let host = target.display_name();
    let message = refusal.message();
    let code = refusal.code().code();
    let passing =
        |why: &str| ConnectError::Transient(format!("PostgreSQL at {host} {why} ({message})"));
    let lasting = |why: &str, way: &str| {
        ConnectError::Permanent(format!("PostgreSQL at {host} {why} ({message}); {way}"))
    };
    let name = quoted(&address.database);
    match code {
        "57P03" => passing("is not ready"),
        "57P01" | "57P02" => passing("is stopping"),
        "53300" => passing("has no free connection"),
        _ if code.starts_with("53") || code.starts_with("58") => passing("reports a system error"),
        "28P01" => lasting("refuses the password", PASSWORD_HINT),
        _ if message.contains("no encryption") || message.contains("SSL off") => lasting(
            "does not let us in without encryption",
            "add sslmode=require to the address, or a line to its pg_hba.conf",
        ),
        _ if message.contains("client certificate") => {
            lasting("does not let us in", "add sslcert and sslkey to the address")
        }
        _ if message.contains("channel binding") => lasting(
            "sees another certificate than we do",
            "find out what terminates TLS in between; if it is your own proxy, add channel_binding=disable",
        ),
        "28000" if message.contains("pg_hba.conf") => {
            lasting("does not let us in", "add a line for this user and host to its pg_hba.conf")
        }
        _ if code.starts_with("28") => {
            lasting("does not let us in", "check the user of the address")
        }
        "3D000" => lasting(
            "has no such database",
            &format!("run: CREATE DATABASE {name}, or check the address"),
        ),
        "42501" => {
            let grant =
                format!("run: GRANT CONNECT ON DATABASE {name} TO {}", quoted(&address.user));
            lasting("does not let this user in", &grant)
        }
        // pgbouncer uses this code for all its errors.
        "08P01" if message.contains("unsupported startup parameter") => {
            let way = match pooling {
                Pooling::Session => POOLING_HINT,
                Pooling::Transaction => {
                    "leave options out of the address; ALTER ROLE … SET does the same"
                }
            };
            lasting("is behind a proxy that does not pass our settings on", way)
        }
        "08P01" if message.contains("no such database") || message.contains("no such user") => {
            lasting(
                "is behind a proxy without a route for this user or database",
                "check its settings, or the address",
            )
        }
        _ if code.starts_with("08") => passing("cannot be reached through the proxy"),
        _ => lasting("refuses the connection", "check the address"),
    }
}

const PASSWORD_HINT: &str = "set the right one: in NOUNS_DATABASE, PGPASSWORD or a passfile";

/// The error for a failure without an error message of the server.
fn describe_failure(error: &Error, address: &PostgresUrl, target: &HostTarget) -> ConnectError {
    let host = target.display_name();
    if let Some(tls) = tls_error(error) {
        return describe_tls_error(tls, address, target);
    }
    let cause = error.source().map(ToString::to_string).unwrap_or_default();
    let lasting = |text: String| ConnectError::Permanent(text);
    match &*error.to_string() {
        INVALID_CONFIGURATION => {
            lasting(format!("PostgreSQL at {host} requires a password; {PASSWORD_HINT}"))
        }
        TLS_HANDSHAKE_ERROR if cause.contains("does not support TLS") => lasting(format!(
            "PostgreSQL at {host} does not support TLS, and sslmode requires it; turn ssl on there, or use \
             sslmode=prefer on a trusted network"
        )),
        TLS_HANDSHAKE_ERROR => {
            lasting(format!("TLS with PostgreSQL at {host} failed ({cause}); check sslmode"))
        }
        AUTHENTICATION_ERROR => lasting(format!(
            "PostgreSQL at {host} failed authentication ({cause}); check the password and channel_binding"
        )),
        UNEXPECTED_MESSAGE | PARSE_ERROR => {
            lasting(format!("what answers at {host} is not PostgreSQL; check host and port"))
        }
        _ => match error.source().and_then(|source| source.downcast_ref::<io::Error>()) {
            Some(error) if error.kind() == io::ErrorKind::PermissionDenied => lasting(format!(
                "we may not connect to PostgreSQL at {host} ({error}); check who may use this socket"
            )),
            Some(error) if error.kind() == io::ErrorKind::InvalidInput => {
                lasting(format!("what answers at {host} is not PostgreSQL; check host and port"))
            }
            Some(error) => unreachable_host(&host, &describe_io_error(error, &target.host)),
            None if error.is_closed() => unreachable_host(&host, "it closed the connection"),
            None => unreachable_host(&host, &error.to_string()),
        },
    }
}

fn describe_io_error(error: &io::Error, host: &Host) -> String {
    match (error.kind(), host) {
        (io::ErrorKind::ConnectionRefused, _) => "connection refused".to_owned(),
        (io::ErrorKind::ConnectionReset, _) => "connection reset".to_owned(),
        (io::ErrorKind::UnexpectedEof, _) => "it closed the connection".to_owned(),
        (io::ErrorKind::NotFound, Host::Unix(_)) => "there is no such socket".to_owned(),
        (io::ErrorKind::TimedOut, _) => "no answer in time".to_owned(),
        // The text of tokio_postgres's message parser.
        _ if error.to_string() == "bytes remaining on stream" => {
            "its answer was cut short; is it PostgreSQL?".to_owned()
        }
        _ => error.to_string(),
    }
}

/// The rustls error in the chain of causes, if there is one.
fn tls_error(error: &Error) -> Option<&rustls::Error> {
    let io = error.source()?.downcast_ref::<io::Error>()?;
    io.get_ref()?.downcast_ref()
}

fn describe_tls_error(
    error: &rustls::Error,
    address: &PostgresUrl,
    target: &HostTarget,
) -> ConnectError {
    use CertificateError::{
        Expired, ExpiredContext, NotValidForName, NotValidForNameContext, NotValidYet,
        NotValidYetContext, UnknownIssuer,
    };
    let host = target.display_name();
    let (what, way) = match error {
        rustls::Error::InvalidCertificate(fault) => match fault {
            Expired | ExpiredContext { .. } => ("has expired", "renew it"),
            NotValidYet | NotValidYetContext { .. } => ("is not valid yet", "check both clocks"),
            UnknownIssuer => ("is signed by an unknown CA", "name the CA with sslrootcert=FILE"),
            NotValidForName | NotValidForNameContext { .. } => (
                "is issued for another host name",
                "use the host name that it has as a subject alternative name (its common name is not \
                 looked at), or sslmode=verify-ca",
            ),
            _ => ("cannot be used", "make one of X.509 version 3, with a key of 2048 bits or more"),
        },
        rustls::Error::AlertReceived(alert) => {
            let own = if address.tls.client.is_some() {
                "check sslcert"
            } else {
                "it may want one of ours: sslcert and sslkey"
            };
            return ConnectError::Permanent(format!(
                "PostgreSQL at {host} ended the TLS handshake ({alert:?}); {own}"
            ));
        }
        other => {
            return ConnectError::Permanent(format!(
                "TLS with PostgreSQL at {host} failed ({other}); check sslmode"
            ));
        }
    };
    ConnectError::Permanent(format!(
        "the certificate of PostgreSQL at {host} {what} ({error}); {way}"
    ))
}

/// One message about all hosts that were tried. It is transient if the error of any host is transient, and
/// none of the errors is about the user or the database.
pub fn report_failures(
    address: &PostgresUrl,
    pooling: Pooling,
    faults: &[(&HostTarget, HostFailure)],
) -> ConnectError {
    let errors: Vec<_> =
        faults.iter().map(|(target, fault)| fault.describe(address, pooling, target)).collect();
    let words = errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; and ");
    let passes = |error: &ConnectError| matches!(error, ConnectError::Transient(_));
    let is_about_us = faults.iter().any(|(_, fault)| fault.is_same_for_all_hosts());
    if errors.iter().any(passes) && !is_about_us {
        ConnectError::Transient(words)
    } else {
        ConnectError::Permanent(words)
    }
}

/// An identifier, quoted for a statement that the operator can run.
fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
