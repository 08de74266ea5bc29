//! The `[server]` table: settings, which flags and environment variables can override.
//!
//! Settings that the file does not have are `None`; the command line supplies their defaults, while limits
//! have theirs here. Nothing is opened or bound.

use std::fmt;
use std::ops::Range;
use std::time::Duration;

use super::ip_network::Network;

/// The settings that locate the data. Commands that need nothing else of the model read only these.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StorageSettings {
    pub database: Option<String>,
    /// The path of the server key.
    pub key_file: Option<String>,
}

/// The settings in the model file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerTable {
    pub storage: StorageSettings,
    pub database_pooling: Option<Pooling>,
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
    /// The realm of `/` and `/-/`.
    pub realm: RealmIndex,
    /// Begins with `/`, does not end with it.
    pub base_path: Option<String>,
    /// Scheme, host and optional port.
    pub base_url: Option<String>,
    pub changes_keep: Option<ChangeRetention>,
    /// Origins whose pages may use the server (CORS), as browsers send them.
    pub cors_origins: Vec<String>,
    pub http2_prior_knowledge: Option<bool>,
    /// Whether webhooks may lead to private addresses, and use http.
    pub webhook_allow_private: Option<bool>,
    pub limits: ServerLimits,
    /// Rate limits of roles; other roles have none.
    pub rate_limits: Vec<RateLimit>,
}

/// The index of a resource; `file` guarantees that it is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ResourceIndex(pub usize);

/// The index of a realm in `Model::realms`; by default the first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct RealmIndex(pub usize);

/// The number of requests that one caller may send within a fixed window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RateLimit {
    pub role: Box<str>,
    pub requests: u32,
    pub seconds: u32,
}

impl ServerTable {
    /// Whether webhooks may lead to private addresses.
    pub fn allows_private_webhooks(&self) -> bool {
        self.webhook_allow_private == Some(true)
    }
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
    /// The time, unless it is forever.
    pub fn duration(self) -> Option<Duration> {
        match self {
            Self::Forever => None,
            Self::For(time) => Some(time),
        }
    }

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
            /// Sets the limit of this name to a number within `LIMIT_RANGE`.
            pub fn set(&mut self, name: &str, limit: u64) {
                match name {
                    $(stringify!($name) => self.$name = fit_limit(limit),)*
                    _ => unreachable!("LIMITS has no {name}"),
                }
            }
        }
    };
}

/// The maximum window, a day: a restarted server begins to count again.
pub const RATE_SECONDS_MAX: u64 = 24 * 60 * 60;

/// The range of every limit, so that each fits its type.
pub const LIMIT_RANGE: Range<u64> = 1..(1 << 31) + 1;

#[expect(clippy::expect_used, reason = "LIMIT_RANGE fits the types of all limits")]
fn fit_limit<T: TryFrom<u64, Error: fmt::Debug>>(limit: u64) -> T {
    limit.try_into().expect("a limit within LIMIT_RANGE")
}

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
    heartbeat_seconds: u32 = 15, "time between two heartbeats of an event stream";
    exports_max: usize = 32, "concurrent exports of whole collections";
    export_wal_bytes_max: usize = 1 << 30, "size of the write-ahead log of SQLite at which exports are aborted";
    database_connections_max: usize = 20, "connections in the PostgreSQL pool";
    page_items_default: usize = 50, "default page size";
    page_items_max: usize = 500, "largest page size";
    filter_terms_max: usize = 50, "filters of one list request, also those in groups";
    filter_values_max: usize = 100, "values of one `in` filter";
    sort_keys_max: usize = 4, "fields of one `sort`";
    bulk_items_max: usize = 1000, "new items in one request";
    references_max: usize = 10_000, "different items that one request refers to";
    cascade_items_max: usize = 10_000, "items that one delete removes by cascade";
    failed_logins_max: u32 = 30, "failed logins of one user from one address in a minute";
    idempotency_key_seconds: u32 = 86_400, "time that a response is kept under its Idempotency-Key";
    idempotency_wait_seconds_max: u32 = 5, "time that a request waits for a concurrent one with the same Idempotency-Key";
    webhooks_max: usize = 100, "number of webhooks";
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
