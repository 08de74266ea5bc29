//! The address of a database as its URL describes it: hosts, credentials, TLS and timeouts.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use tokio_postgres::Config;
use tokio_postgres::config::Host;

pub const DEFAULT_PORT: u16 = 5432;

/// The socket directory of Debian, Red Hat and Alpine.
pub const SOCKET_DIRECTORY: &str = "/run/postgresql";

/// One database on one or several hosts, and how to connect to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostgresUrl {
    pub targets: Vec<HostTarget>,
    pub user: String,
    pub database: String,
    /// Whether a standby, which accepts no writes, is acceptable (`target_session_attrs`).
    pub is_standby_allowed: bool,
    pub tls: PostgresTls,
}

/// One host of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostTarget {
    pub host: Host,
    pub port: u16,
    /// For this host alone: a passfile may have a different password for each host. Its `connect_timeout` is
    /// the limit for one host; without it the remaining hosts share the remaining time.
    pub config: Config,
}

/// TLS settings of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostgresTls {
    pub mode: TlsMode,
    pub roots: Option<TrustRoots>,
    pub client: Option<ClientCertificateFiles>,
}

/// The trust anchors for the server's certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TrustRoots {
    System,
    File(PathBuf),
}

/// Our own certificate, for servers that require one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificateFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// A password; `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct DatabasePassword(pub String);

impl From<String> for DatabasePassword {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for DatabasePassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

/// The environment of the process, for the parts that a URL leaves out. Only `cli` reads the environment, so
/// it fills this.
#[derive(Debug, Clone, Default)]
pub struct LibpqEnvironment {
    /// `PGPASSWORD`
    pub password: Option<DatabasePassword>,
    /// `PGPASSFILE`
    pub passfile: Option<PathBuf>,
    /// `PGUSER`, else `USER`
    pub user: Option<String>,
    /// `HOME`, for `.pgpass` and `.postgresql/root.crt` in it
    pub home: Option<PathBuf>,
}

/// All parts of a URL, by libpq's parameter names, without empty values.
pub type UrlParameters = BTreeMap<String, String>;

/// For messages: `postgres://user@host:5432/name`, which is a valid URL.
impl fmt::Display for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "postgres://{}@", percent_encode(&self.user))?;
        for (index, target) in self.targets.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            write!(f, "{comma}{target}")?;
        }
        write!(f, "/{}", percent_encode(&self.database))
    }
}

impl fmt::Display for HostTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Unix(folder) => {
                percent_encode(&folder.to_string_lossy()).fmt(f)?;
            }
            // Only the % of a zone has to be escaped there.
            Host::Tcp(name) if name.contains(':') => {
                write!(f, "[{}]", name.replace('%', "%25"))?;
            }
            Host::Tcp(name) => percent_encode(name).fmt(f)?,
        }
        write!(f, ":{}", self.port)
    }
}

impl HostTarget {
    /// Without percent-encoding, for people: `host:5432`, or the path of the socket.
    pub fn display_name(&self) -> String {
        match &self.host {
            Host::Unix(folder) => {
                format!("{}/.s.PGSQL.{}", folder.display(), self.port)
            }
            Host::Tcp(_) => self.to_string(),
        }
    }
}

pub fn percent_encode(text: &str) -> impl fmt::Display {
    const KEPT: &percent_encoding::AsciiSet =
        &percent_encoding::NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
    percent_encoding::utf8_percent_encode(text, KEPT)
}

/// Encryption, and the verification of the certificate: libpq's `sslmode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsMode {
    Disable,
    /// TLS if the server supports it. libpq's `allow` prefers the opposite order, and is the same here.
    Prefer,
    /// TLS, without verification.
    Require,
    /// TLS, with a certificate signed by a trust anchor (`verify-ca`).
    VerifyCa,
    /// As `verify-ca`, and the certificate has the host's name (`verify-full`).
    VerifyFull,
}
