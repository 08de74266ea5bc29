//! PostgreSQL connection URL, as libpq parses it.
//!
//! The form is libpq's `postgres://user:password@host:port/name?key=value`; the environment supplies the
//! parts that it leaves out, as in libpq. This module opens no connection; it reads files, because one may
//! hold the password. Error messages never repeat the text before the query, because a password with an
//! unescaped character can end up in any part of it.

pub mod address;
pub mod parameters;
mod passfile;
#[cfg(test)]
mod tests;

use percent_encoding::percent_decode_str;

use crate::store::postgres::connection_url::address::{
    LibpqEnvironment, PostgresUrl, UrlParameters,
};

/// The URL schemes.
const SCHEMES: [&str; 2] = ["postgres://", "postgresql://"];

impl PostgresUrl {
    /// The name of the database.
    pub fn database_name(&self) -> &str {
        &self.database
    }

    /// Whether a text has the scheme of a PostgreSQL URL.
    pub fn is_postgres_url(text: &str) -> bool {
        strip_scheme(text).is_some()
    }

    /// Whether a text contains a password, so that it must not be where others can read it.
    pub fn has_password(text: &str) -> bool {
        match strip_scheme(text).map(split_parameters) {
            None => false,
            Some(Ok(values)) => values.contains_key("password"),
            // A URL that cannot be parsed may contain one.
            Some(Err(_)) => text.contains('@') || text.contains("password"),
        }
    }

    /// Parses a URL. The error is one message for the operator, without the password.
    pub fn parse(text: &str, environment: &LibpqEnvironment) -> Result<Self, String> {
        let rest = strip_scheme(text).ok_or_else(|| {
            "database: expected an address that begins with postgres://".to_owned()
        })?;
        let read = split_parameters(rest)
            .and_then(|values| parameters::url_from_parameters(values, environment));
        read.map_err(|mistake| {
            let mistake =
                if has_unescaped_at_sign(rest) { UNESCAPED_MESSAGE.to_owned() } else { mistake };
            format!("database: {mistake}")
        })
    }
}

const UNESCAPED_MESSAGE: &str = "cannot read the address; in its user name and password write each of \
     / ? # @ : % as %2F %3F %23 %40 %3A %25";

fn strip_scheme(text: &str) -> Option<&str> {
    SCHEMES.iter().find_map(|scheme| text.strip_prefix(scheme))
}

/// The parts before and after the `@`. libpq looks only up to the first `/`.
fn split_credentials(rest: &str) -> (Option<&str>, &str) {
    match rest.find(['@', '/']).map(|at| rest.split_at(at)) {
        Some((before, after)) => match after.strip_prefix('@') {
            Some(after) => (Some(before), after),
            None => (None, rest),
        },
        None => (None, rest),
    }
}

/// Whether a second or late `@` suggests that an unescaped character has split the password.
fn has_unescaped_at_sign(rest: &str) -> bool {
    split_credentials(rest).1.contains('@')
}

fn split_parameters(rest: &str) -> Result<UrlParameters, String> {
    let mut values = UrlParameters::new();
    let mut keep = |key: &str, value: String| {
        if !value.is_empty() {
            values.insert(key.to_owned(), value);
        }
    };
    let (credentials, rest) = split_credentials(rest);
    if let Some(credentials) = credentials {
        let (user, password) = credentials.split_once(':').unwrap_or((credentials, ""));
        keep("user", percent_decode(user, "the user name")?);
        keep("password", percent_decode(password, "the password")?);
    }
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    if rest.contains('@') {
        // libpq would look up a host of that name, and show it in its error.
        return Err(UNESCAPED_MESSAGE.to_owned());
    }
    let (hosts, name) = rest.split_once('/').unwrap_or((rest, ""));
    let hosts: Vec<(String, &str)> = hosts.split(',').map(parse_host).collect::<Result<_, _>>()?;
    // One empty host is none; among several it means the socket.
    let names = hosts.iter().map(|(name, _)| &**name).collect::<Vec<_>>().join(",");
    let ports = hosts.iter().map(|(_, port)| *port).collect::<Vec<_>>().join(",");
    keep("host", names);
    if ports.bytes().any(|byte| byte != b',') {
        keep("port", ports);
    }
    keep("dbname", percent_decode(name, "the name of the database")?);
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair
            .split_once('=')
            .filter(|(_, value)| !value.contains('='))
            .ok_or("expected key=value after the ?, with & between pairs; another = is %3D")?;
        let key = percent_decode(key, "the name of a parameter")?;
        let value = percent_decode(value, &format!("the parameter {key:?}"))?;
        match (&*key, &*value) {
            // JDBC's spelling, which libpq accepts too.
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

fn parse_host(text: &str) -> Result<(String, &str), String> {
    if let Some(bracketed) = text.strip_prefix('[') {
        let (number, rest) =
            bracketed.split_once(']').ok_or("the [ before an IPv6 address has no ] behind it")?;
        let port = match rest.strip_prefix(':') {
            Some(port) => port,
            None if rest.is_empty() => "",
            None => return Err("expected : and a port, or nothing, after the ]".to_owned()),
        };
        return Ok((percent_decode(number, "the host")?, port));
    }
    let (name, port) = text.split_once(':').unwrap_or((text, ""));
    if port.contains(':') {
        return Err("an IPv6 address stands in brackets, such as [::1]".to_owned());
    }
    Ok((percent_decode(name, "the host")?, port))
}

fn percent_decode(text: &str, what: &str) -> Result<String, String> {
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
