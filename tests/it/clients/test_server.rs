//! The server at which clients log in, with or without TLS, whose clock can be moved.
//!
//! Its clock is behind from the start, because PostgreSQL uses its own clock, and accepts only nonces
//! that are not much older or newer than that.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::client_row::OfferedSchemes;
use crate::harness::{Backend, CertificatePair, FakeClock, Person, Server, Setup};

/// Offsets to the real time in seconds: between the two a nonce expires.
const CLOCK_BEFORE_SECONDS: i64 = -200;
const CLOCK_AFTER_SECONDS: i64 = 110;

#[derive(Debug)]
pub struct ClientTestServer {
    pub server: Server,
    pub admin: Person,
    /// The base of all URLs.
    pub base: String,
    clock: FakeClock,
}

impl ClientTestServer {
    pub fn start(backend: Backend, offered: OfferedSchemes, is_tls: bool) -> Self {
        let clock = FakeClock::new(CLOCK_BEFORE_SECONDS);
        let setup = with_schemes(Setup::new(backend), offered).run_under(&clock.command_prefix());
        let setup = if is_tls { setup.tls(certificate_pair()) } else { setup };
        let server = setup.start();
        let scheme = if is_tls { "https" } else { "http" };
        let base = format!("{scheme}://{}", server.address);
        Self { admin: server.admin(), server, base, clock }
    }

    /// Moves the clock, so that every issued nonce is expired.
    pub fn wait_five_minutes(&self) {
        self.clock.set(CLOCK_AFTER_SECONDS);
    }

    /// Moves the clock back, before the next nonce is issued.
    pub fn reset_clock(&self) {
        self.clock.set(CLOCK_BEFORE_SECONDS);
    }
}

/// The example store with authentication, with these schemes for its items. A separate realm with both
/// schemes is for the management of users.
pub fn with_schemes(setup: Setup, offered: OfferedSchemes) -> Setup {
    let schemes = match offered {
        OfferedSchemes::Both => "\"digest\", \"basic\"",
        OfferedSchemes::Digest => "\"digest\"",
        OfferedSchemes::Basic => "\"basic\"",
    };
    let model = include_str!("../../../examples/store/nouns.toml");
    let (front, back) = model.split_once("\"digest\", \"basic\"").unwrap();
    let desk = "[realms.desk]\n\n[server]\nrealm = \"desk\"\n";
    setup.model(&format!("{front}{schemes}{back}\n{desk}")).with_authentication()
}

/// Writes the CA certificate, which clients are to trust, into a folder.
pub fn write_ca_certificate(folder: &Path) -> PathBuf {
    let path = folder.join("authority.pem");
    fs::write(&path, &certificate_pair().authority).unwrap();
    path
}

fn certificate_pair() -> &'static CertificatePair {
    static PAIR: OnceLock<CertificatePair> = OnceLock::new();
    PAIR.get_or_init(CertificatePair::issued_by_ca)
}
