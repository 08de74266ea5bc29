//! Where clients log in: a server with or without TLS, whose clock can be moved.
//!
//! The one surprising thing: its clock is late from the beginning, because PostgreSQL goes by its own, and
//! believes only those nonces that are not much older or newer than that says.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::kind::Offered;
use crate::harness::{Backend, FakeClock, Pair, Person, Server, Setup};

/// Seconds beside the real time: from the one to the other a nonce gets too old.
const BEFORE: i64 = -200;
const AFTER: i64 = 110;

#[derive(Debug)]
pub struct Place {
    pub server: Server,
    pub admin: Person,
    /// What all URLs begin with.
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

    /// Makes every nonce too old that was given out.
    pub fn wait_five_minutes(&self) {
        self.clock.set(AFTER);
    }

    /// Before the next one is given out.
    pub fn set_back(&self) {
        self.clock.set(BEFORE);
    }
}

/// The store of the examples, closed, with these schemes for its items. Users are seen to in a realm of
/// their own, which has both.
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

/// Puts the certificate of the authority, which clients are to trust, into a folder.
pub fn authority(folder: &Path) -> PathBuf {
    let path = folder.join("authority.pem");
    fs::write(&path, &pair().authority).unwrap();
    path
}

fn pair() -> &'static Pair {
    static PAIR: OnceLock<Pair> = OnceLock::new();
    PAIR.get_or_init(Pair::issued)
}
