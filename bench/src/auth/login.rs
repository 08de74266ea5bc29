//! Client-side authentication: a fixed Basic header, or a Digest response for each request.
//!
//! All connections of a load share one nonce and its counter, as a client with a connection pool does.
//! A nonce lives for five minutes and a run may take longer, so each load begins with a nonce that is
//! young enough to last.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use md5::Md5;
use sha2::{Digest, Sha256};

use crate::Result;
use crate::load_generator::{Client, RequestTemplate};

/// A nonce is reused for a load when it is not older than this.
const NONCE_AGE_MAX: Duration = Duration::from_secs(100);

/// The path that is requested to get a challenge, and by clients without one.
pub const CLOSED_PATH: &str = "/customers?limit=1";

/// A user with a password.
#[derive(Debug, Clone)]
pub struct TestUser {
    pub name: String,
    pub password: String,
}

impl TestUser {
    pub fn new(name: &str, password: &str) -> Self {
        Self { name: name.to_owned(), password: password.to_owned() }
    }

    pub fn basic(&self) -> Credentials {
        let pair = format!("{}:{}", self.name, self.password);
        Credentials::Basic(STANDARD.encode(pair).into())
    }

    /// Logs in by Digest with a new nonce.
    pub fn digest(&self, address: SocketAddr, algorithm: Algorithm) -> Result<Credentials> {
        let challenge = DigestChallenge::fetch(address)?;
        let (person, state) = (self.clone(), Mutex::new(challenge));
        Ok(Credentials::Digest(Arc::new(DigestSession { person, algorithm, state })))
    }
}

/// The credentials of a request.
#[derive(Debug, Clone)]
pub enum Credentials {
    Basic(Arc<str>),
    Digest(Arc<DigestSession>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    Md5,
    Sha256,
}

impl Algorithm {
    fn name(self) -> &'static str {
        match self {
            Self::Md5 => "MD5",
            Self::Sha256 => "SHA-256",
        }
    }

    fn hash(self, text: &str) -> String {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        match self {
            Self::Md5 => hex(&Md5::digest(text)),
            Self::Sha256 => hex(&Sha256::digest(text)),
        }
    }
}

/// A Digest session: requests that share one nonce.
#[derive(Debug)]
pub struct DigestSession {
    person: TestUser,
    algorithm: Algorithm,
    state: Mutex<DigestChallenge>,
}

#[derive(Debug)]
struct DigestChallenge {
    realm: String,
    nonce: String,
    opaque: String,
    issued_at: Instant,
    /// Requests signed with it.
    count: u32,
}

impl DigestChallenge {
    fn fetch(address: SocketAddr) -> Result<Self> {
        let mut client = Client::connect(address)?;
        let answer = client.send(&RequestTemplate::get(CLOSED_PATH).expecting(401))?;
        let (_, digest) = answer.split_once("Digest ").ok_or("the server offers no Digest")?;
        let quoted = |name: &str| -> Result<String> {
            let (_, rest) = digest.split_once(&format!("{name}=\"")).ok_or("no such parameter")?;
            Ok(rest.split('"').next().unwrap_or_default().to_owned())
        };
        Ok(Self {
            realm: quoted("realm")?,
            nonce: quoted("nonce")?,
            opaque: quoted("opaque")?,
            issued_at: Instant::now(),
            count: 0,
        })
    }
}

impl DigestSession {
    /// Fetches another nonce, when this one could expire during the next load.
    pub fn renew(&self, address: SocketAddr) -> Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.issued_at.elapsed() > NONCE_AGE_MAX {
            *state = DigestChallenge::fetch(address)?;
        }
        Ok(())
    }

    /// The parameters after `Digest` in the next request's header.
    pub fn sign(&self, method: &str, path: &str) -> String {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.count += 1;
        let DigestChallenge { realm, nonce, opaque, count, .. } = &*state;
        let TestUser { name, password } = &self.person;
        let algorithm = self.algorithm.name();
        // RFC 7616 §3.4.1.
        let hash = |text: String| self.algorithm.hash(&text);
        let ha1 = hash(format!("{name}:{realm}:{password}"));
        let ha2 = hash(format!("{method}:{path}"));
        let cnonce = "ZjhiMGE5NzE2";
        let response = hash(format!("{ha1}:{nonce}:{count:08x}:{cnonce}:auth:{ha2}"));
        format!(
            "username=\"{name}\", realm=\"{realm}\", nonce=\"{nonce}\", uri=\"{path}\", \
             algorithm={algorithm}, qop=auth, nc={count:08x}, cnonce=\"{cnonce}\", \
             response=\"{response}\", opaque=\"{opaque}\""
        )
    }
}
