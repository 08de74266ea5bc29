//! Where a PostgreSQL is and who we are there: an address as libpq reads it.
//!
//! The form is libpq's `postgres://user:password@host:port/name?key=value`, and the parts that it leaves
//! out come from the environment as libpq takes them. Nothing is connected to here; files are read, since
//! the password may stand in one.
//! The one surprising thing: messages never repeat what stands before the query, because a password with
//! a character that is not escaped can end up in any part of it.

mod parameters;
mod passfile;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use percent_encoding::percent_decode_str;

pub use parameters::Mode;

pub(super) const PORT: u16 = 5432;

/// Where Debian, Red Hat and Alpine put the socket.
const SOCKET_FOLDER: &str = "/run/postgresql";

/// The beginnings of an address.
const SCHEMES: [&str; 2] = ["postgres://", "postgresql://"];

/// One database, by one or several hosts that have it, and how to talk to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    pub(super) targets: Vec<Target>,
    pub(super) user: String,
    pub(super) name: String,
    pub(super) application_name: String,
    pub(super) options: Option<String>,
    pub(super) wanted: Wanted,
    /// For one host; without it the time there is is shared by those that are left.
    pub(super) connect_timeout: Option<Duration>,
    pub(super) keepalive: Option<Keepalive>,
    pub(super) tcp_user_timeout: Option<Duration>,
    pub(super) tls: Tls,
}

/// One host of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub host: Host,
    pub port: u16,
    /// A passfile may have another one for each host.
    pub password: Option<Password>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Host {
    /// The folder of a Unix socket.
    Folder(PathBuf),
    /// The name is what a certificate is held against; the number, where given, is what is connected to.
    Name { name: String, number: Option<IpAddr> },
}

/// Which servers of the list will do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// One that takes writes: not a standby.
    Writable,
    Any,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Keepalive {
    pub idle: Duration,
    pub interval: Duration,
    pub count: u32,
}

/// What is asked of the connection's encryption.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Tls {
    pub mode: Mode,
    pub roots: Option<Roots>,
    pub client: Option<ClientFiles>,
    pub binding: Binding,
}

/// Who is trusted to sign a server's certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Roots {
    System,
    File(PathBuf),
}

/// Our own certificate, for servers that ask for one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClientFiles {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

/// Whether the proof of the password covers the server's certificate too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Binding {
    Disable,
    Prefer,
    Require,
}

/// A password: it can be used, and never seen.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(pub(super) String);

impl From<String> for Password {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

/// What the environment of the process says, for what an address leaves out.
/// Only `cli` reads the environment, so it fills this.
#[derive(Debug, Clone, Default)]
pub struct Environment {
    /// `PGPASSWORD`
    pub password: Option<Password>,
    /// `PGPASSFILE`
    pub passfile: Option<PathBuf>,
    /// `PGUSER`, else `USER`
    pub user: Option<String>,
    /// `HOME`, for `.pgpass` and `.postgresql/root.crt` in it
    pub home: Option<PathBuf>,
}

impl Address {
    /// Whether a text is meant to be an address of a PostgreSQL.
    pub fn database_name(&self) -> &str {
        &self.name
    }

    pub fn is_meant(text: &str) -> bool {
        strip_scheme(text).is_some()
    }

    /// Whether a text has a password in it, so that it may not stand where others can read it.
    pub fn shows_password(text: &str) -> bool {
        match strip_scheme(text).map(parts) {
            None => false,
            Some(Ok(values)) => values.contains_key("password"),
            // What cannot be read may have one.
            Some(Err(_)) => text.contains('@') || text.contains("password"),
        }
    }

    /// The mistake is one message for the operator, without the password.
    pub fn parse(text: &str, environment: &Environment) -> Result<Self, String> {
        let rest = strip_scheme(text).ok_or_else(|| {
            "database: expected an address that begins with postgres://".to_owned()
        })?;
        let read = parts(rest).and_then(|values| parameters::read(values, environment));
        read.map_err(|mistake| {
            let mistake = if is_torn(rest) { UNESCAPED.to_owned() } else { mistake };
            format!("database: {mistake}")
        })
    }
}

const UNESCAPED: &str = "cannot read the address; in its user name and password write each of \
     / ? # @ : % as %2F %3F %23 %40 %3A %25";

fn strip_scheme(text: &str) -> Option<&str> {
    SCHEMES.iter().find_map(|scheme| text.strip_prefix(scheme))
}

/// What comes before the `@`, and what comes behind it. libpq looks no further than to the first `/`.
fn credentials(rest: &str) -> (Option<&str>, &str) {
    match rest.find(['@', '/']).map(|at| rest.split_at(at)) {
        Some((before, after)) => match after.strip_prefix('@') {
            Some(after) => (Some(before), after),
            None => (None, rest),
        },
        None => (None, rest),
    }
}

/// Whether a second `@`, or one that comes late, makes it likely that a password was cut in two.
fn is_torn(rest: &str) -> bool {
    credentials(rest).1.contains('@')
}

/// All that an address says, by libpq's names; what is empty is not said.
type Values = BTreeMap<String, String>;

fn parts(rest: &str) -> Result<Values, String> {
    let mut values = Values::new();
    let mut keep = |key: &str, value: String| {
        if !value.is_empty() {
            values.insert(key.to_owned(), value);
        }
    };
    let (credentials, rest) = credentials(rest);
    if let Some(credentials) = credentials {
        let (user, password) = credentials.split_once(':').unwrap_or((credentials, ""));
        keep("user", decode(user, "the user name")?);
        keep("password", decode(password, "the password")?);
    }
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    if rest.contains('@') {
        // libpq would look for a host of that name, and say it aloud.
        return Err(UNESCAPED.to_owned());
    }
    let (hosts, name) = rest.split_once('/').unwrap_or((rest, ""));
    let hosts: Vec<(String, &str)> = hosts.split(',').map(host).collect::<Result<_, _>>()?;
    // One empty host is none; among several it stands for the socket.
    let names = hosts.iter().map(|(name, _)| &**name).collect::<Vec<_>>().join(",");
    let ports = hosts.iter().map(|(_, port)| *port).collect::<Vec<_>>().join(",");
    keep("host", names);
    if ports.bytes().any(|byte| byte != b',') {
        keep("port", ports);
    }
    keep("dbname", decode(name, "the name of the database")?);
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair
            .split_once('=')
            .filter(|(_, value)| !value.contains('='))
            .ok_or("expected key=value after the ?, with & between pairs; another = is %3D")?;
        let key = decode(key, "the name of a parameter")?;
        let value = decode(value, &format!("the parameter {key:?}"))?;
        match (&*key, &*value) {
            // JDBC's word, which libpq takes too.
            ("ssl", "true") => keep("sslmode", "require".to_owned()),
            _ => keep(&key, value),
        }
    }
    match values
        .iter()
        .find(|(key, value)| *key != "password" && value.chars().any(char::is_control))
    {
        Some((key, _)) => Err(format!("{key} has a control character in it")),
        None => Ok(values),
    }
}

fn host(text: &str) -> Result<(String, &str), String> {
    if let Some(bracketed) = text.strip_prefix('[') {
        let (number, rest) =
            bracketed.split_once(']').ok_or("the [ before an IPv6 address has no ] behind it")?;
        let port = match rest.strip_prefix(':') {
            Some(port) => port,
            None if rest.is_empty() => "",
            None => return Err("expected : and a port, or nothing, after the ]".to_owned()),
        };
        return Ok((decode(number, "the host")?, port));
    }
    let (name, port) = text.split_once(':').unwrap_or((text, ""));
    if port.contains(':') {
        return Err("an IPv6 address stands in brackets, such as [::1]".to_owned());
    }
    Ok((decode(name, "the host")?, port))
}

fn decode(text: &str, what: &str) -> Result<String, String> {
    let mut rest = text;
    while let Some((_, after)) = rest.split_once('%') {
        let hex = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !after.get(..2).is_some_and(hex) {
            return Err(format!(
                "{what} has a % without two hexadecimal digits; a % itself is %25"
            ));
        }
        rest = after;
    }
    let decoded = percent_decode_str(text)
        .decode_utf8()
        .map_err(|_| format!("{what} is not text in UTF-8"))?;
    if decoded.contains('\0') {
        return Err(format!("{what} has a zero byte in it"));
    }
    Ok(decoded.into_owned())
}

/// For messages: `postgres://user@host:5432/name`, which could be used as an address.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "postgres://{}@", escaped(&self.user))?;
        for (index, target) in self.targets.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            write!(f, "{comma}{target}")?;
        }
        write!(f, "/{}", escaped(&self.name))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Folder(folder) => escaped(&folder.to_string_lossy()).fmt(f)?,
            // Only the % of a zone has to be escaped there.
            Host::Name { name, .. } if name.contains(':') => {
                write!(f, "[{}]", name.replace('%', "%25"))?;
            }
            Host::Name { name, .. } => escaped(name).fmt(f)?,
        }
        write!(f, ":{}", self.port)
    }
}

impl Target {
    /// For people, who need not read escapes: `host:5432`, or the path of the socket.
    pub(super) fn place(&self) -> String {
        match &self.host {
            Host::Folder(folder) => format!("{}/.s.PGSQL.{}", folder.display(), self.port),
            Host::Name { .. } => self.to_string(),
        }
    }
}

fn escaped(text: &str) -> impl fmt::Display {
    const KEPT: &percent_encoding::AsciiSet =
        &percent_encoding::NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
    percent_encoding::utf8_percent_encode(text, KEPT)
}
