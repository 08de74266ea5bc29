//! A connection to a server that may be killed at any moment.
//!
//! It does not check the framing: `harness::Client` does, and panics where this one gives up.
//! An incomplete response counts as none.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use crate::harness::{Answer, TIMEOUT};

#[derive(Debug)]
pub struct FallibleConnection {
    stream: TcpStream,
    address: SocketAddr,
}

impl FallibleConnection {
    pub fn connect(address: SocketAddr) -> Option<Self> {
        let stream = TcpStream::connect(address).ok()?;
        stream.set_nodelay(true).ok()?;
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.set_write_timeout(Some(TIMEOUT)).unwrap();
        Some(Self { stream, address })
    }

    /// The complete response, or `None` when the server was gone before its last byte.
    pub fn request(&mut self, request: &str, body: &str) -> Option<Answer> {
        self.request_with(request, "Content-Type: application/json\r\n", body)
    }

    /// With these header lines.
    pub fn request_with(&mut self, request: &str, headers: &str, body: &str) -> Option<Answer> {
        let (address, length) = (self.address, body.len());
        let head = format!(
            "{request} HTTP/1.1\r\nHost: {address}\r\n{headers}Content-Length: {length}\r\n\r\n"
        );
        self.stream.write_all(&[head.as_bytes(), body.as_bytes()].concat()).ok()?;
        let mut bytes = Vec::new();
        loop {
            if let Some(answer) = parse_complete(&bytes) {
                return Some(answer);
            }
            let mut more = [0; 16 * 1024];
            match self.stream.read(&mut more) {
                Ok(0) => return None,
                Ok(count) => bytes.extend_from_slice(&more[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    panic!("{request}: no answer after {TIMEOUT:?}, and the connection is open")
                }
                Err(_) => return None,
            }
        }
    }
}

/// The response in `bytes`, once it is complete.
fn parse_complete(bytes: &[u8]) -> Option<Answer> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&bytes[..end]).unwrap();
    let mut lines = head.split("\r\n");
    let mut status = lines.next()?.splitn(3, ' ').skip(1);
    let code: u16 = status.next().unwrap().parse().unwrap();
    let reason = status.next().unwrap_or_default().to_owned();
    let split = |line: &str| line.split_once(": ").map(|(name, value)| (name.into(), value.into()));
    let headers: Vec<(String, String)> = lines.filter_map(split).collect();
    let mut answer = Answer { status: code, reason, headers, body: Vec::new() };
    let length = match answer.header("Content-Length") {
        Some(length) if code != 204 => length.parse().unwrap(),
        _ => 0,
    };
    let body = &bytes[end + 4..];
    assert!(body.len() <= length, "more than one answer: {}", String::from_utf8_lossy(bytes));
    answer.body = body.to_vec();
    (body.len() == length).then_some(answer)
}
