//! Password guessing: wrong passwords for one user or for many, as fast as the server answers.
//!
//! Nothing is hashed here. A wrong Digest response is a fixed text, so that an attack costs the
//! attacker as little as possible.

use std::io;
use std::rc::Rc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{AttackConnection, ConnectionEnd};

const PATH: &str = "/customers?limit=1";
/// Names of users that do not exist, but for the first user of every database.
const NAMES: u64 = 10_000;

pub(super) async fn basic_one_name(front: Rc<AttackConnection>) -> io::Result<ConnectionEnd> {
    repeat_guesses(&front, |_, number| wrong_basic("admin", number)).await
}

pub(super) async fn basic_many_names(front: Rc<AttackConnection>) -> io::Result<ConnectionEnd> {
    repeat_guesses(&front, |_, number| wrong_basic(&user_name(number), number)).await
}

pub(super) async fn digest_one_name(front: Rc<AttackConnection>) -> io::Result<ConnectionEnd> {
    repeat_guesses(&front, |challenge, number| challenge.wrong_digest("admin", number)).await
}

pub(super) async fn digest_many_names(front: Rc<AttackConnection>) -> io::Result<ConnectionEnd> {
    repeat_guesses(&front, |challenge, number| challenge.wrong_digest(&user_name(number), number))
        .await
}

/// A harmless control: the same rate of requests that cost the server next to nothing.
pub(super) async fn health_checks(front: Rc<AttackConnection>) -> io::Result<ConnectionEnd> {
    let mut stream = front.connect().await?;
    let mut reply = Vec::new();
    loop {
        front.wait_for_actions(1).await;
        stream.write_all(b"GET /-/health HTTP/1.1\r\nHost: localhost\r\n\r\n").await?;
        let status = read_response(&mut stream, &mut reply).await?;
        front.count_answer(status);
    }
}

fn user_name(number: u64) -> String {
    format!("name{:04}", number % NAMES)
}

/// The Basic credentials of a wrong password.
fn wrong_basic(name: &str, number: u64) -> String {
    format!("Basic {}", STANDARD.encode(format!("{name}:guess{number}")))
}

/// The fields of a challenge that the client needs.
struct AttackChallenge {
    realm: String,
    nonce: String,
    opaque: String,
}

impl AttackChallenge {
    fn read(reply: &[u8]) -> Option<Self> {
        let reply = str::from_utf8(reply).ok()?;
        let (_, digest) = reply.split_once("Digest ")?;
        let quoted = |name: &str| {
            let (_, rest) = digest.split_once(&format!("{name}=\""))?;
            Some(rest.split('"').next()?.to_owned())
        };
        Some(Self { realm: quoted("realm")?, nonce: quoted("nonce")?, opaque: quoted("opaque")? })
    }

    fn wrong_digest(&self, name: &str, number: u64) -> String {
        let Self { realm, nonce, opaque } = self;
        format!(
            "Digest username=\"{name}\", realm=\"{realm}\", nonce=\"{nonce}\", uri=\"{PATH}\", \
             algorithm=MD5, qop=auth, nc=00000001, cnonce=\"x\", response=\"{number:032x}\", \
             opaque=\"{opaque}\""
        )
    }
}

/// Sends one request without credentials, then wrong credentials until the time is over.
async fn repeat_guesses(
    front: &AttackConnection,
    guess: impl Fn(&AttackChallenge, u64) -> String,
) -> io::Result<ConnectionEnd> {
    let mut stream = front.connect().await?;
    let mut reply = Vec::new();
    stream.write_all(request("").as_bytes()).await?;
    read_response(&mut stream, &mut reply).await?;
    let challenge = AttackChallenge::read(&reply).ok_or(io::ErrorKind::InvalidData)?;
    loop {
        front.wait_for_actions(1).await;
        let line = format!("Authorization: {}\r\n", guess(&challenge, front.next_number()));
        stream.write_all(request(&line).as_bytes()).await?;
        let status = read_response(&mut stream, &mut reply).await?;
        front.count_answer(status);
    }
}

fn request(lines: &str) -> String {
    format!("GET {PATH} HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n")
}

/// Reads one complete response and returns its status.
async fn read_response(stream: &mut TcpStream, reply: &mut Vec<u8>) -> io::Result<u16> {
    reply.clear();
    loop {
        if stream.read_buf(reply).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let Some(end) = reply.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let head = str::from_utf8(reply.get(..end).unwrap_or_default()).unwrap_or_default();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length = length.and_then(|length| length.parse().ok()).unwrap_or(0);
        if reply.len() >= end + 4 + length {
            let status = head.get(9..12).and_then(|digits| digits.parse().ok());
            return status.ok_or_else(|| io::ErrorKind::InvalidData.into());
        }
    }
}
