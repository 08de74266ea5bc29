//! The certificate that is served, its reload, and the warnings before it expires.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustls::pki_types::DnsName;
use rustls::server::ServerConfig;
use tokio::signal::unix::Signal;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::certificate::format_to_seconds;
use super::certificate_pair::{self, CertificateError, CertificateFiles, CertificatePair};
use crate::clock;
use crate::log::{Level, Logger};
use crate::metrics::Metrics;
use crate::value::Moment;

/// How long before the expiry of its certificate the server warns.
const EXPIRY_WARNINGS: [Duration; 3] =
    [Duration::from_secs(14 * 86_400), Duration::from_secs(86_400), Duration::ZERO];
/// The system clock may be set, so it is checked now and then.
const EXPIRY_CHECK_INTERVAL: Duration = Duration::from_secs(60 * 60);

/// The certificate and the configuration of the TLS listeners.
#[derive(Debug)]
pub struct TlsConfig {
    files: CertificateFiles,
    pair: RwLock<CertificatePair>,
}

impl TlsConfig {
    pub fn read(files: CertificateFiles) -> Result<Self, CertificateError> {
        let pair = certificate_pair::read(&files, clock::moment())?;
        Ok(Self { files, pair: RwLock::new(pair) })
    }

    /// Whether the certificate is self-signed, so that clients must be configured to trust it.
    pub fn is_self_signed(&self) -> bool {
        self.with_pair(|pair| pair.info.is_self_signed)
    }

    pub fn files(&self) -> &CertificateFiles {
        &self.files
    }

    fn with_pair<T>(&self, look: impl FnOnce(&CertificatePair) -> T) -> T {
        look(&self.pair.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// The configuration for one more connection.
    pub(super) fn server_config(&self) -> Arc<ServerConfig> {
        self.with_pair(|pair| Arc::clone(&pair.config))
    }

    pub fn expiry(&self) -> Moment {
        self.with_pair(|pair| pair.info.not_after)
    }

    /// Reads both files again. Existing connections keep the old pair; its session tickets become invalid.
    pub fn reload(&self, log: &Logger) {
        let certificate = self.files.certificate.display();
        match certificate_pair::read(&self.files, clock::moment()) {
            Ok(pair) => {
                let end = format_to_seconds(pair.info.not_after);
                *self.pair.write().unwrap_or_else(PoisonError::into_inner) = pair;
                let pairs: [(&str, &dyn std::fmt::Display); 2] =
                    [("certificate", &certificate), ("end", &end)];
                log.event(Level::Info, "certificate reloaded", &pairs);
            }
            Err(error) => log.event(
                Level::Warning,
                "certificate not reloaded: the previous one is still served",
                &[("cause", &error)],
            ),
        }
    }
}

/// Whether a certificate can be issued for such a name.
pub fn is_dns_name(name: &str) -> bool {
    DnsName::try_from(name.strip_prefix("*.").unwrap_or(name)).is_ok()
}

/// Reloads the certificate at SIGHUP, and warns before it expires, for as long as it is polled.
pub async fn watch_certificate(
    tls: Option<Arc<TlsConfig>>,
    mut hangups: Signal,
    (log, metrics): (Logger, Arc<Metrics>),
) {
    let (told_again, mut again) = mpsc::channel(1);
    let Some(tls) = tls else { return };
    let warn = async {
        let mut warned_at = 0;
        loop {
            let end = tls.expiry();
            metrics.server.set_certificate_expiry(end.since_1970().0);
            let (passed, wait) = due_warnings(end, clock::moment());
            if passed > warned_at {
                warn_expiry(&log, &tls, passed);
            }
            warned_at = passed;
            tokio::select! {
                () = sleep(wait) => {}
                // Another certificate: the warnings start again.
                _ = again.recv() => warned_at = 0,
            }
        }
    };
    let reload = async {
        while hangups.recv().await.is_some() {
            tls.reload(&log);
            // When the channel is full, a check is pending anyway.
            let _ = told_again.try_send(());
        }
        std::future::pending::<()>().await;
    };
    tokio::join!(warn, reload);
}

/// How many of the warnings are due, and how long to wait before the next check.
fn due_warnings(end: Moment, now: Moment) -> (usize, Duration) {
    let left = u64::try_from(end.micros().saturating_sub(now.micros())).unwrap_or(0);
    let left = Duration::from_micros(left);
    let due = EXPIRY_WARNINGS.iter().filter(|warning| left <= **warning).count();
    let next = EXPIRY_WARNINGS.get(due).map(|warning| left - *warning);
    // A little later than the moment itself, so that it has passed.
    (
        due,
        next.map_or(EXPIRY_CHECK_INTERVAL, |next| {
            (next + Duration::from_millis(10)).min(EXPIRY_CHECK_INTERVAL)
        }),
    )
}

fn warn_expiry(log: &Logger, tls: &TlsConfig, due: usize) {
    let (level, message) = match due {
        1 => (Level::Warning, "the certificate expires within 14 days: renew it, then send SIGHUP"),
        2 => (Level::Warning, "the certificate expires within a day: renew it, then send SIGHUP"),
        _ => (
            Level::Error,
            "the certificate has expired: clients refuse it; renew it, then send SIGHUP",
        ),
    };
    let (certificate, end) = (tls.files.certificate.display(), format_to_seconds(tls.expiry()));
    log.event(level, message, &[("certificate", &certificate), ("end", &end)]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificate_expiry_warnings_are_due_at_their_time() {
        let end = Moment::from_micros(1_000 * 86_400 * 1_000_000).unwrap();
        let seconds = |seconds: u64| Duration::from_secs(seconds);
        let day = 86_400;
        for (left, due, wait) in [
            (100 * day, 0, EXPIRY_CHECK_INTERVAL),
            (14 * day + 60, 0, seconds(60) + Duration::from_millis(10)),
            (14 * day, 1, EXPIRY_CHECK_INTERVAL),
            (day + 1, 1, seconds(1) + Duration::from_millis(10)),
            (day, 2, EXPIRY_CHECK_INTERVAL),
            (5, 2, seconds(5) + Duration::from_millis(10)),
            (0, 3, EXPIRY_CHECK_INTERVAL),
        ] {
            let now = end.checked_sub(seconds(left)).unwrap();
            assert_eq!(due_warnings(end, now), (due, wait), "{left}");
        }
        let after = Moment::from_micros(end.micros() + 1).unwrap();
        assert_eq!(due_warnings(end, after), (3, EXPIRY_CHECK_INTERVAL));
    }

    #[test]
    fn certificate_dns_names_are_distinguished_from_other_names() {
        for good in ["localhost", "a.example", "*.a.example", "x-1.example"] {
            assert!(is_dns_name(good), "{good}");
        }
        for bad in ["", "*", "*.", "a b", "é.example", "a..b", "-a.example", "a/b", "*.*.a"] {
            assert!(!is_dns_name(bad), "{bad}");
        }
    }
}
