//! The `[server]` table: settings, which flags and environment variables can override.
//!
//! Settings that the file does not have are `None`; the command line supplies their defaults, while limits
//! have theirs here. Nothing is opened or bound.

use std::time::Duration;

use http::Uri;
use toml::de::DeValue;

use super::builtin::{ADMIN, ANYONE};
use super::cors_origins;
use super::file::keys;
use super::file::toml_tree::{TomlEntry, TomlTable, TomlText};
use super::ip_network::is_port;
use super::report::Mistakes;
use super::types::is_url;
use super::{Network, Realm, Role};

/// The settings in the model file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerTable {
    pub database: Option<String>,
    pub database_pooling: Option<Pooling>,
    /// The path of the server key.
    pub key_file: Option<String>,
    pub listen: Option<Vec<String>>,
    /// Trusted proxies, whose `Forwarded` headers are used.
    pub behind_proxy: Option<Vec<Network>>,
    /// The paths of the TLS certificate and its private key.
    pub tls_cert: Option<String>,
    pub tls_key: Option<String>,
    /// Addresses to listen on without TLS, which redirect to HTTPS.
    pub redirect: Option<Vec<String>>,
    /// How long clients must use HTTPS only (HSTS).
    pub hsts: Option<Duration>,
    pub open: Option<bool>,
    pub wait: Option<bool>,
    pub log: Option<LogFormat>,
    /// The realm of `/` and `/-/`, one of the declared ones.
    pub realm: Option<String>,
    /// Begins with `/`, does not end with it.
    pub base_path: Option<String>,
    /// Scheme, host and optional port.
    pub base_url: Option<String>,
    pub changes_keep: Option<ChangeRetention>,
    /// Origins whose pages may use the server (CORS), as browsers send them.
    pub cors_origins: Vec<String>,
    pub http2_prior_knowledge: Option<bool>,
    pub limits: ServerLimits,
    /// Rate limits of roles; other roles have none.
    pub rate_limits: Vec<RateLimit>,
}

/// The number of requests that one caller may send within a fixed window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RateLimit {
    pub role: Box<str>,
    pub requests: u32,
    pub seconds: u32,
}

impl RateLimit {
    pub fn window(&self) -> Duration {
        Duration::from_secs(self.seconds.into())
    }
}

/// The format of log lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogFormat {
    Pretty,
    Json,
}

/// Whether each database connection is a dedicated session, or belongs to a transaction-level connection
/// pooler.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pooling {
    Session,
    Transaction,
}

/// The retention of the change log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeRetention {
    Forever,
    For(Duration),
}

impl ChangeRetention {
    /// `30d`, `12h`, `90m` or `forever`.
    pub fn parse(text: &str) -> Option<Self> {
        if text == "forever" {
            return Some(Self::Forever);
        }
        let (number, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
        let seconds = match unit {
            "d" => 24 * 60 * 60,
            "h" => 60 * 60,
            "m" => 60,
            _ => return None,
        };
        let digits = number.bytes().all(|b| b.is_ascii_digit());
        let count: u32 = number.parse().ok().filter(|count| *count > 0 && digits)?;
        Some(Self::For(Duration::from_secs(u64::from(count) * seconds)))
    }
}

macro_rules! limits {
    ($($name:ident: $type:ty = $default:expr, $about:literal;)*) => {
        /// Limits for everything that a client can make large, numerous or slow.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct ServerLimits {
            $(#[doc = $about] pub $name: $type,)*
        }

        impl Default for ServerLimits {
            fn default() -> Self {
                Self { $($name: $default,)* }
            }
        }

        /// Each limit with its default and a line of help.
        pub static LIMITS: &[(&str, u64, &str)] = &[$((stringify!($name), $default, $about),)*];

        impl ServerLimits {
            fn set(&mut self, entry: &TomlEntry<'_>, mistakes: &mut Mistakes) {
                let Some(count) = entry.count(1..LIMIT_MAX + 1, mistakes) else { return };
                match entry.key {
                    $(stringify!($name) => if let Ok(count) = count.try_into() { self.$name = count },)*
                    _ => {}
                }
            }
        }
    };
}

/// The maximum window, a day: a restarted server begins to count again.
const RATE_SECONDS_MAX: u64 = 24 * 60 * 60;

/// The maximum of every limit, so that each fits its type.
const LIMIT_MAX: u64 = 1 << 31;

limits! {
    body_bytes_max: usize = 1024 * 1024, "size of a request body";
    bulk_bytes_max: usize = 8 * 1024 * 1024, "size of a request body with a list of new items";
    target_bytes_max: usize = 8 * 1024, "size of the path and query";
    headers_bytes_max: usize = 32 * 1024, "size of the request headers";
    headers_max: usize = 100, "number of request headers";
    handshake_seconds_max: u32 = 10, "time for a TLS handshake";
    header_seconds_max: u32 = 10, "time for the request headers to arrive";
    body_seconds_max: u32 = 30, "time for the request body to arrive";
    request_seconds_max: u32 = 30, "time from the first byte of a request to its outcome";
    send_seconds_max: u32 = 30, "time that a client may read nothing of a response";
    idle_seconds_max: u32 = 75, "time that a connection may be idle between requests";
    statement_seconds_max: u32 = 5, "time for one database statement that reads";
    connections_max: usize = 10_000, "concurrent connections";
    memory_bytes_max: usize = 128 << 20, "memory for all connections, requests and responses together";
    requests_max: usize = 1024, "requests in flight; as many more are queued";
    streams_max: usize = 4096, "concurrent streaming responses";
    streams_per_caller_max: usize = 20, "concurrent streaming responses of one caller";
    stream_seconds_max: u32 = 600, "time for a streaming response";
    stream_idle_seconds_max: u32 = 30, "time that a client may read nothing of a streaming response";
    exports_max: usize = 32, "concurrent exports of whole collections";
    export_wal_bytes_max: usize = 1 << 30, "size of the write-ahead log of SQLite at which exports are aborted";
    database_connections_max: usize = 20, "connections in the PostgreSQL pool";
    page_items_default: usize = 50, "default page size";
    page_items_max: usize = 500, "largest page size";
    filter_terms_max: usize = 20, "filters of one list request";
    filter_values_max: usize = 100, "values of one `in` filter";
    sort_keys_max: usize = 4, "fields of one `sort`";
    bulk_items_max: usize = 1000, "new items in one request";
    cascade_items_max: usize = 10_000, "items that one delete removes by cascade";
    failed_logins_max: u32 = 30, "failed logins of one user from one address in a minute";
    idempotency_key_seconds: u32 = 86_400, "time that a response is kept under its Idempotency-Key";
    idempotency_wait_seconds_max: u32 = 5, "time that a request waits for a concurrent one with the same Idempotency-Key";
}

impl ServerTable {
    pub fn read(
        entry: &TomlEntry<'_>,
        (realms, roles): (&[Realm], &[Role]),
        mistakes: &mut Mistakes,
    ) -> Option<Self> {
        let table = entry.table(mistakes)?;
        table.refuse_unknown_keys(&keys::names(keys::SERVER), "the server", mistakes);
        Some(Self {
            database: table
                .text("database", mistakes)
                .and_then(|text| check_database(&text, mistakes)),
            database_pooling: table.choice("database_pooling", keys::POOLINGS, mistakes),
            key_file: table
                .text("key_file", mistakes)
                .and_then(|text| check_file("key_file", &text, mistakes)),
            listen: table.find("listen").and_then(|entry| read_listen(entry, mistakes)),
            behind_proxy: table
                .find("behind_proxy")
                .and_then(|entry| Network::read_networks(entry, mistakes)),
            tls_cert: table
                .text("tls_cert", mistakes)
                .and_then(|text| check_file("tls_cert", &text, mistakes)),
            tls_key: table
                .text("tls_key", mistakes)
                .and_then(|text| check_file("tls_key", &text, mistakes)),
            redirect: table.find("redirect").and_then(|entry| read_listen(entry, mistakes)),
            hsts: table.text("hsts", mistakes).and_then(|text| parse_hsts(&text, mistakes)),
            open: table.flag("open", mistakes),
            wait: table.flag("wait", mistakes),
            log: table.choice("log", keys::LOGS, mistakes),
            realm: table
                .text("realm", mistakes)
                .and_then(|text| check_realm(&text, realms, mistakes)),
            base_path: table
                .text("base_path", mistakes)
                .and_then(|text| check_base_path(&text, mistakes)),
            base_url: table
                .text("base_url", mistakes)
                .and_then(|text| check_base_url(&text, mistakes)),
            changes_keep: table
                .text("changes_keep", mistakes)
                .and_then(|text| parse_changes_keep(&text, mistakes)),
            cors_origins: table
                .find("cors_origins")
                .and_then(|entry| cors_origins::read(entry, mistakes))
                .unwrap_or_default(),
            http2_prior_knowledge: table.flag("http2_prior_knowledge", mistakes),
            limits: table
                .find("limits")
                .and_then(|entry| read_limits(entry, mistakes))
                .unwrap_or_default(),
            rate_limits: table
                .find("rate_limits")
                .and_then(|entry| read_rate_limits(entry, roles, mistakes))
                .unwrap_or_default(),
        })
    }
}

fn read_rate_limits(
    entry: &TomlEntry<'_>,
    roles: &[Role],
    mistakes: &mut Mistakes,
) -> Option<Vec<RateLimit>> {
    let table = entry.table(mistakes)?;
    let entries = table.entries().iter();
    Some(entries.filter_map(|entry| read_rate_limit(entry, roles, mistakes)).collect())
}

fn read_rate_limit(
    entry: &TomlEntry<'_>,
    roles: &[Role],
    mistakes: &mut Mistakes,
) -> Option<RateLimit> {
    let known = roles.iter().map(|role| &*role.name).chain([ANYONE]);
    if entry.key == ADMIN {
        let help = "who looks after the server has to get in; leave this line out";
        mistakes.add_with_help(entry.key_span.clone(), "the role `admin` cannot be limited", help);
    } else if !known.clone().any(|name| name == entry.key) {
        let message = format!("there is no role `{}`", entry.key);
        mistakes.add_unknown(entry.key_span.clone(), message, entry.key, known);
    }
    let table = entry.table(mistakes)?;
    table.refuse_unknown_keys(&keys::names(keys::RATE_LIMIT), "a rate limit", mistakes);
    let mut count = |key: &str, max: u64| {
        let Some(entry) = table.find(key) else {
            let help = "so many requests in so many seconds: { requests = 600, seconds = 60 }";
            let message = format!("a rate limit needs `{key}`");
            mistakes.add_with_help(entry.key_span.clone(), message, help);
            return None;
        };
        entry.count(1..max + 1, mistakes)?.try_into().ok()
    };
    let (requests, seconds) = (count("requests", LIMIT_MAX), count("seconds", RATE_SECONDS_MAX));
    Some(RateLimit { role: entry.key.into(), requests: requests?, seconds: seconds? })
}

fn check_database(text: &TomlText<'_>, mistakes: &mut Mistakes) -> Option<String> {
    // The store parses the rest of the address when it opens the database.
    let known = ["sqlite:", "postgres://", "postgresql://"];
    let rest = known.iter().find_map(|scheme| text.value.strip_prefix(scheme));
    if rest.is_some_and(|rest| !rest.is_empty()) {
        return Some(text.value.to_owned());
    }
    // The rest may contain a password.
    let scheme = text.value.split_once(':').map_or(text.value, |(scheme, _)| scheme);
    mistakes.add_with_help(
        text.span.clone(),
        format!("`database` expected sqlite:PATH or postgres://USER@HOST/NAME, got \"{scheme}:…\""),
        "the database is a file, such as sqlite:nouns.db, or a PostgreSQL",
    );
    None
}

fn check_file(key: &str, text: &TomlText<'_>, mistakes: &mut Mistakes) -> Option<String> {
    if text.value.is_empty() {
        let message = format!("`{key}` expected the path of a file, got nothing");
        mistakes.add(text.span.clone(), message);
    }
    (!text.value.is_empty()).then(|| text.value.to_owned())
}

fn read_listen(entry: &TomlEntry<'_>, mistakes: &mut Mistakes) -> Option<Vec<String>> {
    let texts = match entry.node.get_ref() {
        DeValue::String(_) => vec![entry.text(mistakes)?],
        DeValue::Array(_) => entry.texts(mistakes)?,
        _ => {
            entry.add_expected("an address or a list of addresses", mistakes);
            return None;
        }
    };
    if texts.is_empty() {
        mistakes.add(entry.span(), format!("`{}` is empty: nobody could connect", entry.key));
    }
    for text in &texts {
        let split = text.value.rsplit_once(':');
        let bare = split.is_some_and(|(host, _)| {
            host.contains(':') && !(host.starts_with('[') && host.ends_with(']'))
        });
        if bare || !split.is_some_and(|(host, port)| !host.is_empty() && is_port(port)) {
            let message = format!("`{}` expected ADDRESS:PORT, got {:?}", entry.key, text.value);
            mistakes.add_with_help(
                text.span.clone(),
                message,
                "such as 127.0.0.1:8080, [::1]:8080 or localhost:0",
            );
        }
    }
    Some(texts.iter().map(|text| text.value.to_owned()).collect())
}

fn check_realm(text: &TomlText<'_>, realms: &[Realm], mistakes: &mut Mistakes) -> Option<String> {
    if realms.iter().any(|realm| *realm.name == *text.value) {
        return Some(text.value.to_owned());
    }
    let message = format!("there is no realm `{}`", text.value);
    mistakes.add_unknown(
        text.span.clone(),
        message,
        text.value,
        realms.iter().map(|realm| &*realm.name),
    );
    None
}

fn check_base_path(text: &TomlText<'_>, mistakes: &mut Mistakes) -> Option<String> {
    // RFC 3986 §2.3: unreserved characters are equal in every encoding.
    let segment = |segment: &str| {
        !matches!(segment, "" | "." | "..")
            && segment.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._~".contains(&b))
    };
    if text.value.strip_prefix('/').is_some_and(|rest| rest.split('/').all(segment)) {
        return Some(text.value.to_owned());
    }
    let help = "it begins with `/`, does not end with it, and has letters, digits and `-._~`";
    mistakes.add_with_help(
        text.span.clone(),
        format!("`base_path` expected a path such as \"/v1\", got {:?}", text.value),
        help,
    );
    None
}

fn check_base_url(text: &TomlText<'_>, mistakes: &mut Mistakes) -> Option<String> {
    let plain = |uri: Uri| uri.path().trim_start_matches('/').is_empty() && uri.query().is_none();
    let has_tail = text.value.ends_with('/') || text.value.contains(['#', '@']);
    if is_url(text.value) && !has_tail && text.value.parse().is_ok_and(plain) {
        return Some(text.value.to_owned());
    }
    let help = "scheme and host, and a port where needed; a path goes into `base_path`";
    mistakes.add_with_help(
        text.span.clone(),
        format!(
            "`base_url` expected an address such as \"https://example.com\", got {:?}",
            text.value
        ),
        help,
    );
    None
}

fn parse_changes_keep(text: &TomlText<'_>, mistakes: &mut Mistakes) -> Option<ChangeRetention> {
    let keep = ChangeRetention::parse(text.value);
    if keep.is_none() {
        let message =
            format!("`changes_keep` expected a time such as \"30d\", got {:?}", text.value);
        mistakes.add_with_help(
            text.span.clone(),
            message,
            "a number and `d` for days, `h` for hours or `m` for minutes, or \"forever\"",
        );
    }
    keep
}

fn parse_hsts(text: &TomlText<'_>, mistakes: &mut Mistakes) -> Option<Duration> {
    if let Some(ChangeRetention::For(time)) = ChangeRetention::parse(text.value) {
        return Some(time);
    }
    mistakes.add_with_help(
        text.span.clone(),
        format!("`hsts` expected a time such as \"180d\", got {:?}", text.value),
        "a number and `d` for days, `h` for hours or `m` for minutes",
    );
    None
}

fn read_limits(entry: &TomlEntry<'_>, mistakes: &mut Mistakes) -> Option<ServerLimits> {
    let table: TomlTable<'_> = entry.table(mistakes)?;
    table.refuse_unknown_keys(&LIMITS.iter().map(|(name, _, _)| *name), "`limits`", mistakes);
    let mut limits = ServerLimits::default();
    for entry in table.entries() {
        if LIMITS.iter().any(|(name, _, _)| *name == entry.key) {
            limits.set(entry, mistakes);
        }
    }
    let pairs = [
        ("page_items_default", limits.page_items_default, "page_items_max", limits.page_items_max),
        ("body_bytes_max", limits.body_bytes_max, "bulk_bytes_max", limits.bulk_bytes_max),
    ];
    for (low, low_value, high, high_value) in pairs {
        if low_value > high_value
            && let Some(entry) = table.find(low).or_else(|| table.find(high))
        {
            mistakes.add(
                entry.span(),
                format!("`{low}`, {low_value}, is above `{high}`, {high_value}"),
            );
        }
    }
    Some(limits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retention_requires_a_unit() {
        let days = |days: u64| Some(ChangeRetention::For(Duration::from_secs(days * 86_400)));
        assert_eq!(ChangeRetention::parse("30d"), days(30));
        assert_eq!(ChangeRetention::parse("48h"), days(2));
        assert_eq!(ChangeRetention::parse("1440m"), days(1));
        assert_eq!(ChangeRetention::parse("forever"), Some(ChangeRetention::Forever));
        for bad in ["", "d", "30", "0d", "-1d", "+1d", "1.5d", "1w", "30 d", "99999999999d", "é"] {
            assert_eq!(ChangeRetention::parse(bad), None, "{bad}");
        }
    }
}
