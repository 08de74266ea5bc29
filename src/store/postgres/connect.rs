//! Opening one connection to PostgreSQL: connect, TLS, authentication, session settings.
//!
//! It does no pooling. The hosts of a URL are tried in turn, the one that took writes last before the others; each
//! has its share of the remaining time, and each IP address of its name a share of that, so that a host that drops
//! packets leaves time for the next. The session settings are sent
//! with the startup message (`options`), and one statement after it verifies them. A transaction-pooling
//! proxy gives every transaction to another session: no setting can be made behind it, and that statement
//! only verifies. `synchronous_commit` is pinned to the value found, and `off` is raised to `on`. An
//! acknowledged write is on disk, and a reload of the server's settings must not change that for sessions
//! that live for days.

pub mod error;
#[cfg(test)]
pub mod tests;

use std::fmt::Write as _;
use std::net::IpAddr;
use std::pin::pin;
use std::time::{Duration, Instant};

use futures_util::future::{Either, select};
use tokio::net::lookup_host;
use tokio::time::timeout_at;
use tokio_postgres::config::{Host, SslMode};
use tokio_postgres::{CancelToken, Client, Config, Connection, Error, SimpleQueryMessage, Socket};

use crate::clock;
use crate::model::settings::{Pooling, ServerTable};
use crate::store::postgres::connect::error::{ConnectError, HostFailure};
use crate::store::postgres::connection_url::address::{HostTarget, PostgresUrl, TlsMode};
use crate::store::postgres::database_clock::DATABASE_MICROS;
use crate::store::postgres::primary::{INCARNATION, PrimaryAddress, PrimarySession, PrimaryState};
use crate::store::postgres::tls::{PostgresTlsConnector, PostgresTlsStream};

/// The connection's I/O future: a task has to poll it, or nothing is sent or read.
pub type ConnectionDriver = Connection<Socket, PostgresTlsStream>;

/// A connection whose session has our settings.
pub struct OpenConnection {
    pub client: Client,
    /// The caller has to poll it.
    pub driver: ConnectionDriver,
    pub primary: PrimarySession,
}

/// The settings of every session, where a session can have settings.
#[derive(Debug, Clone, Copy)]
pub struct SessionSettings {
    /// With `Transaction`, every transaction has to make the settings that it needs.
    pub pooling: Pooling,
    pub statement_ms_max: u64,
    pub lock_ms_max: u64,
    pub idle_in_transaction_ms_max: u64,
}

impl SessionSettings {
    /// No statement runs, and none waits for a lock, longer than a request may take.
    pub fn new(settings: &ServerTable) -> Self {
        let millis = u64::from(settings.limits.statement_seconds_max) * 1_000;
        Self {
            pooling: settings.database_pooling.unwrap_or(Pooling::Session),
            // The lock timeout fires first, because its error says more.
            statement_ms_max: millis + 250,
            lock_ms_max: millis,
            idle_in_transaction_ms_max: 4 * millis,
        }
    }

    /// The `options` of the startup message. The options of the URL come first, so that ours override them.
    fn startup_options(&self, own: Option<&str>) -> Option<String> {
        if self.pooling == Pooling::Transaction {
            return own.map(str::to_owned);
        }
        let mut options = own.unwrap_or_default().to_owned();
        let settings = [
            ("statement_timeout", &*self.statement_ms_max.to_string()),
            ("lock_timeout", &*self.lock_ms_max.to_string()),
            ("idle_in_transaction_session_timeout", &*self.idle_in_transaction_ms_max.to_string()),
            ("TimeZone", "UTC"),
            ("standard_conforming_strings", "on"),
            // Makes PostgreSQL send the warning about a commit that stopped waiting for its standbys.
            ("client_min_messages", "warning"),
            ("default_transaction_isolation", "read\\ committed"),
            // Shows that the other settings have arrived.
            ("nouns.told", "yes"),
        ];
        for (name, value) in settings {
            let space = if options.is_empty() { "" } else { " " };
            let _ = write!(options, "{space}-c {name}={value}");
        }
        Some(options)
    }
}

impl PostgresUrl {
    /// Opens one connection, and reads the database's clock.
    pub async fn connect(
        &self,
        session: &SessionSettings,
        primary: &PrimaryState,
        deadline: Instant,
    ) -> Result<OpenConnection, ConnectError> {
        let connector = PostgresTlsConnector::new(&self.tls)
            .map_err(|cause| ConnectError::Permanent(format!("database: {cause}")))?;
        let mut faults: Vec<(&HostTarget, HostFailure)> = Vec::new();
        let mut targets: Vec<_> = self.targets.iter().enumerate().collect();
        let last = primary.last_address().host;
        // Stable: the others stay in the order of the URL.
        targets.sort_by_key(|(index, _)| *index != last);
        for (place, (index, target)) in targets.iter().copied().enumerate() {
            let left = deadline.saturating_duration_since(clock::now());
            let limit = target.config.get_connect_timeout().copied();
            let share = host_timeout(left, targets.len() - place, limit);
            let attempt =
                ConnectAttempt { address: self, target, session, connector: &connector, primary };
            match attempt.run(clock::now() + share).await {
                Ok((connected, ip)) => {
                    primary.set_last_address(PrimaryAddress { host: index, ip });
                    return Ok(connected);
                }
                Err(fault) => {
                    // The other hosts have the same users and databases, so libpq does not try them either.
                    let ends = fault.is_same_for_all_hosts();
                    faults.push((target, fault));
                    if ends {
                        break;
                    }
                }
            }
        }
        Err(error::report_failures(self, session.pooling, &faults))
    }
}

impl PostgresUrl {
    /// Sends a cancel request, over a separate connection.
    pub async fn cancel(&self, token: CancelToken) -> Result<(), Error> {
        match PostgresTlsConnector::new(&self.tls) {
            Ok(connector) => token.cancel_query(connector).await,
            // The certificate files were valid when the connection was made.
            Err(_) => Ok(()),
        }
    }
}

/// The timeout for one host, given the time left for all remaining hosts; also for one of its addresses.
fn host_timeout(left: Duration, hosts: usize, limit: Option<Duration>) -> Duration {
    let even = left / u32::try_from(hosts).unwrap_or(u32::MAX).max(1);
    limit.map_or(even, |limit| limit.min(left))
}

/// An attempt to connect to one host, at each of its addresses in turn.
struct ConnectAttempt<'a> {
    address: &'a PostgresUrl,
    target: &'a HostTarget,
    session: &'a SessionSettings,
    connector: &'a PostgresTlsConnector,
    primary: &'a PrimaryState,
}

impl ConnectAttempt<'_> {
    /// A name may have the address of a standby, or of a host that is gone, before that of the primary.
    async fn run(&self, until: Instant) -> Result<(OpenConnection, Option<IpAddr>), HostFailure> {
        let mut addresses = self.resolve(until).await?;
        let last = self.primary.last_address().ip;
        // Stable: the others stay in the order of the resolver.
        addresses.sort_by_key(|ip| *ip != last);
        self.run_at(&addresses, until).await
    }

    /// The addresses of the host's name; one that is `None` where there is nothing to resolve.
    async fn resolve(&self, until: Instant) -> Result<Vec<Option<IpAddr>>, HostFailure> {
        let Host::Tcp(name) = &self.target.host else { return Ok(vec![None]) };
        if !self.target.config.get_hostaddrs().is_empty() {
            return Ok(vec![None]);
        }
        let left = until.saturating_duration_since(clock::now());
        match timeout_at(until.into(), lookup_host((&**name, self.target.port))).await {
            Ok(Ok(found)) => Ok(found.map(|address| Some(address.ip())).collect()),
            Ok(Err(error)) => Err(HostFailure::Unresolved(error)),
            Err(_) => Err(HostFailure::TimedOut(left)),
        }
    }

    async fn run_at(
        &self,
        addresses: &[Option<IpAddr>],
        until: Instant,
    ) -> Result<(OpenConnection, Option<IpAddr>), HostFailure> {
        let mut failure = HostFailure::TimedOut(Duration::ZERO);
        for (place, ip) in addresses.iter().enumerate() {
            let left = until.saturating_duration_since(clock::now());
            let share = host_timeout(left, addresses.len() - place, None);
            match self.run_once(*ip, share).await {
                Ok(connected) => return Ok((connected, *ip)),
                Err(fault) => failure = fault,
            }
            if failure.is_same_for_all_hosts() {
                break;
            }
        }
        Err(failure)
    }

    /// With `sslmode=prefer` it may try a second time, without TLS.
    async fn run_once(
        &self,
        ip: Option<IpAddr>,
        share: Duration,
    ) -> Result<OpenConnection, HostFailure> {
        if share.is_zero() {
            return Err(HostFailure::TimedOut(share));
        }
        let until = clock::now() + share;
        let mode = match (&self.target.host, self.address.tls.mode) {
            // A Unix socket is local, and PostgreSQL does not encrypt it.
            (Host::Unix(_), _) | (_, TlsMode::Disable) => SslMode::Disable,
            (_, TlsMode::Prefer) => SslMode::Prefer,
            (_, TlsMode::Require | TlsMode::VerifyCa | TlsMode::VerifyFull) => SslMode::Require,
        };
        let connect = async |mode| {
            let attempt = self.connect_once(self.config(mode, ip, share));
            timeout_at(until.into(), attempt).await.unwrap_or(Err(HostFailure::TimedOut(share)))
        };
        match connect(mode).await {
            Err(fault) if mode == SslMode::Prefer && fault.can_retry_without_tls() => {
                connect(SslMode::Disable).await.map_err(|_| fault)
            }
            first => first,
        }
    }

    async fn connect_once(&self, config: Config) -> Result<OpenConnection, HostFailure> {
        let (client, mut driver) = config.connect(self.connector.clone()).await?;
        if let Some(encoding) = driver.parameter("server_encoding").filter(|name| *name != "UTF8") {
            return Err(HostFailure::NotUtf8(encoding.to_owned()));
        }
        let looked = {
            let look = pin!(self.verify_session(&client));
            match select(look, &mut driver).await {
                Either::Left((looked, _)) => looked,
                Either::Right((Err(error), _)) => Err(error.into()),
                Either::Right((Ok(()), _)) => Err(HostFailure::Closed),
            }
        };
        looked.map(|primary| OpenConnection { client, driver, primary })
    }

    fn config(&self, mode: SslMode, ip: Option<IpAddr>, timeout: Duration) -> Config {
        let mut config = self.target.config.clone();
        config.ssl_mode(mode).connect_timeout(timeout);
        // The certificate is still checked against the name.
        ip.map(|ip| config.hostaddr(ip));
        if let Some(options) = self.session.startup_options(config.get_options()) {
            config.options(options);
        }
        config
    }

    /// Verifies the session's settings, and pins those that must not change later.
    async fn verify_session(&self, client: &Client) -> Result<PrimarySession, HostFailure> {
        let pooled = self.session.pooling == Pooling::Transaction;
        let statement = if pooled { SESSION_QUERY } else { SESSION_QUERY_AND_PIN };
        let sent_at = clock::now();
        let statement = format!("{statement}, {DATABASE_MICROS}, {INCARNATION}");
        let answer = client.simple_query(&statement).await?;
        let received_at = clock::now();
        let row = answer.iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => Some(row),
            _ => None,
        });
        let value = |index| row.and_then(|row| row.try_get(index).ok().flatten());
        let number = |index| value(index).and_then(|text: &str| text.parse().ok());
        if let Some(micros) = number(3) {
            self.primary.clock.record_reading(sent_at, received_at, micros);
        }
        if value(0) == Some("on") && !self.address.is_standby_allowed {
            return Err(HostFailure::ReadOnly);
        }
        if value(1) == Some("off") {
            return Err(HostFailure::AsynchronousCommit);
        }
        match (pooled, value(2)) {
            (false, Some("yes")) | (true, Some("read committed")) => {
                let incarnation = number(4).ok_or(HostFailure::SettingsIgnored)?;
                Ok(self.primary.opened(incarnation))
            }
            (false, _) => Err(HostFailure::SettingsIgnored),
            (true, found) => {
                Err(HostFailure::WrongIsolation(found.unwrap_or("not known").to_owned()))
            }
        }
    }
}

/// The database's clock and incarnation are appended as the last columns of both.
const SESSION_QUERY: &str = "SELECT current_setting('transaction_read_only'), current_setting('synchronous_commit'), \
     current_setting('transaction_isolation')";

/// `local` and the `remote_` values all wait for the primary's own disk; whether to wait for standbys is
/// the operator's decision.
const SESSION_QUERY_AND_PIN: &str = "SELECT current_setting('transaction_read_only'), \
     set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' \
     ELSE current_setting('synchronous_commit') END, false), current_setting('nouns.told', true)";
