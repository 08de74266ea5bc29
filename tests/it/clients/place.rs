//! The server at which clients log in, with or without TLS, whose clock can be moved.
//!
//! The one surprising thing: its clock is behind from the start, because PostgreSQL uses its own clock,
//! and accepts only nonces that are not much older or newer than that.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::kind::Offered;
use crate::harness::{Backend, FakeClock, Pair, Person, Server, Setup};

/// Offsets to the real time in seconds: between the two a nonce expires.
const BEFORE: i64 = -200;
const AFTER: i64 = 110;

#[derive(Debug)]
pub struct Place {
    pub server: Server,
    pub admin: Person,
    /// The base of all URLs.
    pub base: String,
    clock: FakeClock,
}

impl Place {
    pub fn start(backend: Backend, offered: Offered, is_tls: bool) -> Self {
        let clock = FakeClock::new(BEFORE);
        let setup = setup(Setup::new(backend), offered).under(&clock.program());
        let setup = if is_tls { setup.tls(pair()) } else { setup };
        let server = setup.start();
        let scheme = if is_tls { "https" } else { "http" };
        let base = format!("{scheme}://{}", server.address);
        Self { admin: server.admin(), server, base, clock }
    }

    /// Moves the clock, so that every issued nonce is expired.
    pub fn wait_five_minutes(&self) {
        self.clock.set(AFTER);
    }

    /// Moves the clock back, before the next nonce is issued.
    pub fn set_back(&self) {
        self.clock.set(BEFORE);
    }
}

/// The example store with authentication, with these schemes for its items. A separate realm with both
/// schemes is for the management of users.
pub fn setup(setup: Setup, offered: Offered) -> Setup {
    let schemes = match offered {
        Offered::Both => "\"digest\", \"basic\"",
        Offered::Digest => "\"digest\"",
        Offered::Basic => "\"basic\"",
    };
    let model = include_str!("../../../examples/store/nouns.toml");
    let (front, back) = model.split_once("\"digest\", \"basic\"").unwrap();
    let desk = "[realms.desk]\n\n[server]\nrealm = \"desk\"\n";
    setup.model(&format!("{front}{schemes}{back}\n{desk}")).closed()
}

/// Writes the CA certificate, which clients are to trust, into a folder.
pub fn authority(folder: &Path) -> PathBuf {
    let path = folder.join("authority.pem");
    fs::write(&path, &pair().authority).unwrap();
    path
}

fn pair() -> &'static Pair {
    static PAIR: OnceLock<Pair> = OnceLock::new();
    PAIR.get_or_init(Pair::issued)
}
