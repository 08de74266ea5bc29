//! TLS: which certificate is served, and what happens when its files change or its time ends.
//!
//! How a handshake runs is in `handshake`, what a pair of files must be in `pair`. The provider of the
//! cryptography is named there: the process has no default one that another crate could change.
//! The one surprising thing: a pair that cannot be served is refused at the start, but while the server
//! runs it only costs a warning, because the pair that is served is better than none.

mod certificate;
mod handshake;
mod pair;
mod stream;

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustls::pki_types::DnsName;
use rustls::server::ServerConfig;
use tokio::signal::unix::Signal;
use tokio::sync::mpsc;
use tokio::time::sleep;

pub(super) use self::handshake::{Turns, serve};
pub use self::pair::{Files, PairError};
use crate::clock;
use crate::log::{Level, Log};
use crate::metrics::Metrics;
use crate::value::Moment;
use certificate::shown;
use pair::Pair;

/// How long before its end a certificate is warned of.
const WARNINGS: [Duration; 3] =
    [Duration::from_secs(14 * 86_400), Duration::from_secs(86_400), Duration::ZERO];
/// The clock may be set anew, so it is looked at now and then.
const LOOK: Duration = Duration::from_secs(60 * 60);

/// What is served to those who speak TLS.
#[derive(Debug)]
pub struct Tls {
    files: Files,
    pair: RwLock<Pair>,
}

impl Tls {
    pub fn read(files: Files) -> Result<Self, PairError> {
        let pair = pair::read(&files, clock::moment())?;
        Ok(Self { files, pair: RwLock::new(pair) })
    }

    /// Nobody else vouches for the certificate, so that clients need it named.
    pub fn is_self_signed(&self) -> bool {
        self.with(|pair| pair.said.is_self_signed)
    }

    pub fn files(&self) -> &Files {
        &self.files
    }

    fn with<T>(&self, look: impl FnOnce(&Pair) -> T) -> T {
        look(&self.pair.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// For one more connection.
    fn config(&self) -> Arc<ServerConfig> {
        self.with(|pair| Arc::clone(&pair.config))
    }

    fn end(&self) -> Moment {
        self.with(|pair| pair.said.end)
    }

    /// Reads both files again. Connections that are there stay as they are; the tickets of the old pair
    /// end with it.
    fn reload(&self, log: &Log) {
        let certificate = self.files.certificate.display();
        match pair::read(&self.files, clock::moment()) {
            Ok(pair) => {
                let end = shown(pair.said.end);
                *self.pair.write().unwrap_or_else(PoisonError::into_inner) = pair;
                let pairs: [(&str, &dyn std::fmt::Display); 2] =
                    [("certificate", &certificate), ("end", &end)];
                log.event(Level::Info, "certificate read again", &pairs);
            }
            Err(error) => log.event(
                Level::Warning,
                "certificate not read again: the one before is still served",
                &[("cause", &error)],
            ),
        }
    }
}

/// Whether a certificate can be made out for such a name.
pub fn is_dns_name(name: &str) -> bool {
    DnsName::try_from(name.strip_prefix("*.").unwrap_or(name)).is_ok()
}

/// Listens to SIGHUP, and warns of a certificate that is about to end, for as long as it is polled.
pub(super) async fn keep(
    tls: Option<Arc<Tls>>,
    mut hangups: Signal,
    (log, metrics): (Log, Arc<Metrics>),
) {
    let (told_again, mut again) = mpsc::channel(1);
    let Some(tls) = tls else {
        while hangups.recv().await.is_some() {
            log.event(Level::Info, "SIGHUP ignored: there is no certificate to read again", &[]);
        }
        return;
    };
    let warn = async {
        let mut told = 0;
        loop {
            let end = tls.end();
            metrics.server.set_certificate_end(end.since_1970().0);
            let (passed, wait) = nearing(end, clock::moment());
            if passed > told {
                warn(&log, &tls, passed);
            }
            told = passed;
            tokio::select! {
                () = sleep(wait) => {}
                // Another certificate: whatever was said of the one before is said anew.
                _ = again.recv() => told = 0,
            }
        }
    };
    let reload = async {
        while hangups.recv().await.is_some() {
            tls.reload(&log);
            // When it is full, it will be looked at anyway.
            let _ = told_again.try_send(());
        }
        std::future::pending::<()>().await;
    };
    tokio::join!(warn, reload);
}

/// How many of the warnings are due, and how long to wait before looking again.
fn nearing(end: Moment, now: Moment) -> (usize, Duration) {
    let left = u64::try_from(end.micros().saturating_sub(now.micros())).unwrap_or(0);
    let left = Duration::from_micros(left);
    let due = WARNINGS.iter().filter(|warning| left <= **warning).count();
    let next = WARNINGS.get(due).map(|warning| left - *warning);
    // A little later than the moment itself, so that it has come.
    (due, next.map_or(LOOK, |next| (next + Duration::from_millis(10)).min(LOOK)))
}

fn warn(log: &Log, tls: &Tls, due: usize) {
    let (level, message) = match due {
        1 => (Level::Warning, "the certificate ends within 14 days: renew it, then send SIGHUP"),
        2 => (Level::Warning, "the certificate ends within a day: renew it, then send SIGHUP"),
        _ => (
            Level::Error,
            "the certificate has ended: clients refuse it; renew it, then send SIGHUP",
        ),
    };
    let (certificate, end) = (tls.files.certificate.display(), shown(tls.end()));
    log.event(level, message, &[("certificate", &certificate), ("end", &end)]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_come_at_their_time_and_not_before() {
        let end = Moment::from_micros(1_000 * 86_400 * 1_000_000).unwrap();
        let seconds = |seconds: u64| Duration::from_secs(seconds);
        let day = 86_400;
        for (left, due, wait) in [
            (100 * day, 0, LOOK),
            (14 * day + 60, 0, seconds(60) + Duration::from_millis(10)),
            (14 * day, 1, LOOK),
            (day + 1, 1, seconds(1) + Duration::from_millis(10)),
            (day, 2, LOOK),
            (5, 2, seconds(5) + Duration::from_millis(10)),
            (0, 3, LOOK),
        ] {
            let now = end.earlier(seconds(left)).unwrap();
            assert_eq!(nearing(end, now), (due, wait), "{left}");
        }
        let after = Moment::from_micros(end.micros() + 1).unwrap();
        assert_eq!(nearing(end, after), (3, LOOK));
    }

    #[test]
    fn names_of_hosts_are_told_from_others() {
        for good in ["localhost", "a.example", "*.a.example", "x-1.example"] {
            assert!(is_dns_name(good), "{good}");
        }
        for bad in ["", "*", "*.", "a b", "é.example", "a..b", "-a.example", "a/b", "*.*.a"] {
            assert!(!is_dns_name(bad), "{bad}");
        }
    }
}
