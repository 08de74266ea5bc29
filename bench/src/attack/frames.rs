//! A minimal HTTP/2 client for attacks: hand-made frames, and detection of the end of a connection.
//!
//! It validates nothing that the server sends.
//! It answers the server's pings while it reads, so that an attacker looks alive whatever else it
//! leaves undone.

use std::cell::Cell;
use std::io;

use tokio::net::TcpStream;

use super::{AttackConnection, ConnectionEnd};

pub(super) const DATA: u8 = 0;
pub(super) const HEADERS: u8 = 1;
pub(super) const PRIORITY: u8 = 2;
pub(super) const RST_STREAM: u8 = 3;
pub(super) const SETTINGS: u8 = 4;
pub(super) const PING: u8 = 6;
pub(super) const GOAWAY: u8 = 7;
pub(super) const WINDOW_UPDATE: u8 = 8;
pub(super) const CONTINUATION: u8 = 9;

pub(super) const ACK: u8 = 1;
pub(super) const END_STREAM: u8 = 1;
pub(super) const END_HEADERS: u8 = 4;

/// RFC 9113 §6.5.2.
pub(super) const INITIAL_WINDOW_SIZE: u16 = 4;

/// RFC 9113 §4.1.
pub(super) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap_or_default().to_be_bytes();
    let mut bytes = length.get(1..).unwrap_or_default().to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// RFC 7541 §5.2, without Huffman coding.
pub(super) fn hpack_string(value: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    if value.len() < 127 {
        bytes.push(u8::try_from(value.len()).unwrap_or_default());
    } else {
        bytes.push(127);
        let mut rest = value.len() - 127;
        while rest >= 128 {
            bytes.push(u8::try_from(rest % 128).unwrap_or_default() | 128);
            rest /= 128;
        }
        bytes.push(u8::try_from(rest).unwrap_or_default());
    }
    bytes.extend(value.as_bytes());
    bytes
}

/// The HPACK block of a request's head; 2 and 3 of RFC 7541, appendix A, are GET and POST.
fn header_block(method: u8, path: &str) -> Vec<u8> {
    [&[0x80 | method, 0x86, 0x01][..], &hpack_string("localhost"), &[0x04], &hpack_string(path)]
        .concat()
}

pub(super) fn get(path: &str) -> Vec<u8> {
    header_block(2, path)
}

pub(super) fn post(path: &str) -> Vec<u8> {
    header_block(3, path)
}

/// A connection that has sent the client preface.
pub(super) struct RawHttp2Connection {
    stream: TcpStream,
    /// The error code of the server's GOAWAY, if it sent one.
    goaway: Cell<Option<u32>>,
    is_writing: Cell<bool>,
}

impl RawHttp2Connection {
    pub(super) async fn open(
        front: &AttackConnection,
        settings: &[(u16, u32)],
    ) -> io::Result<Self> {
        let stream = front.connect().await?;
        let link = Self { stream, goaway: Cell::new(None), is_writing: Cell::new(false) };
        let payload: Vec<u8> = settings
            .iter()
            .flat_map(|(key, value)| [&key.to_be_bytes()[..], &value.to_be_bytes()].concat())
            .collect();
        let hello =
            [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(SETTINGS, 0, 0, &payload)].concat();
        link.send(&hello).await;
        Ok(link)
    }

    /// Sends all bytes, or never returns: `wait_for_close` notices the end of the connection.
    pub(super) async fn send(&self, bytes: &[u8]) {
        self.is_writing.set(true);
        let mut rest = bytes;
        while !rest.is_empty() {
            let sent = match self.stream.writable().await {
                Ok(()) => self.stream.try_write(rest),
                Err(error) => Err(error),
            };
            match sent {
                Ok(count) => rest = rest.get(count..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => std::future::pending::<()>().await,
            }
        }
        self.is_writing.set(false);
    }

    /// Reads until the server ends the connection.
    pub(super) async fn wait_for_close(&self) -> ConnectionEnd {
        let mut buffer = Vec::new();
        let plain = loop {
            let mut bytes = [0; 16 << 10];
            let read = match self.stream.readable().await {
                Ok(()) => self.stream.try_read(&mut bytes),
                Err(error) => Err(error),
            };
            match read {
                Ok(0) => break ConnectionEnd::Closed,
                Ok(count) => buffer.extend_from_slice(bytes.get(..count).unwrap_or_default()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => break ConnectionEnd::Reset,
            }
            self.consume_frames(&mut buffer);
        };
        self.goaway.get().map_or(plain, ConnectionEnd::GoAway)
    }

    /// Consumes the complete frames at the front of the buffer.
    fn consume_frames(&self, buffer: &mut Vec<u8>) {
        while let Some(&[high, middle, low, kind, flags, ..]) = buffer.first_chunk::<9>() {
            let length = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
            if buffer.len() < 9 + length {
                return;
            }
            let whole: Vec<u8> = buffer.drain(..9 + length).collect();
            let payload = whole.get(9..).unwrap_or_default();
            match kind {
                GOAWAY => {
                    let code = payload.get(4..8).and_then(|code| code.try_into().ok());
                    self.goaway.set(code.map(u32::from_be_bytes));
                }
                // The acknowledgement must not be written between two halves of a frame.
                PING if flags & ACK == 0 && !self.is_writing.get() => {
                    let _ = self.stream.try_write(&frame(PING, ACK, 0, payload));
                }
                _ => {}
            }
        }
    }
}
