//! HTTP/2 frame by frame, for behaviour that no client has: streams that are reset, flow-control
//! windows that stay closed.
//!
//! It keeps to the server's flow control when it sends, and opens windows only when told to. Header blocks of
//! the server are not read.

use std::io::{Read, Write};
use std::net::TcpStream;

use super::{Server, TIMEOUT};

/// A connection that has sent the client preface.
#[derive(Debug)]
pub struct Http2 {
    socket: TcpStream,
    authority: String,
    /// The bytes that may be sent on the connection, and on a new stream.
    window: i64,
    stream_window: i64,
}

#[derive(Debug)]
pub struct Frame {
    pub kind: u8,
    pub flags: u8,
    pub stream: u32,
    pub payload: Vec<u8>,
}

impl Frame {
    /// RFC 9113 §6.1: END_STREAM.
    pub fn is_end(&self) -> bool {
        self.flags & 1 == 1
    }

    /// Whether it ends a stream early, or the connection.
    pub fn is_cut(&self) -> bool {
        matches!(self.kind, Http2::RST_STREAM | Http2::GOAWAY)
    }
}

impl Http2 {
    pub const DATA: u8 = 0;
    pub const HEADERS: u8 = 1;
    pub const RST_STREAM: u8 = 3;
    const SETTINGS: u8 = 4;
    const PING: u8 = 6;
    const GOAWAY: u8 = 7;
    const WINDOW_UPDATE: u8 = 8;

    pub fn connect(server: &Server) -> Self {
        let socket = TcpStream::connect(server.address).unwrap();
        socket.set_nodelay(true).unwrap();
        socket.set_read_timeout(Some(TIMEOUT)).unwrap();
        let authority = server.address.to_string();
        let mut client = Self { socket, authority, window: 65_535, stream_window: 65_535 };
        client.socket.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
        client.send(Self::SETTINGS, 0, 0, b"");
        client
    }

    fn send(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let [_, high, middle, low] = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let head = [&[high, middle, low, kind, flags][..], &stream.to_be_bytes()].concat();
        // The server may have closed already: its last frame counts.
        drop(self.socket.write_all(&[&head, payload].concat()));
    }

    /// Sends a complete request.
    pub fn request(
        &mut self,
        stream: u32,
        (method, path): (&str, &str),
        fields: &[(&str, &str)],
        body: &[u8],
    ) {
        let text = |text: &str| {
            let length = text.len();
            // RFC 7541 §5.1: an integer with a prefix of seven bits.
            let mut bytes = match u8::try_from(length) {
                Ok(short) if short < 127 => vec![short],
                _ => vec![
                    127,
                    u8::try_from((length - 127) % 128).unwrap() | 128,
                    u8::try_from((length - 127) / 128).unwrap(),
                ],
            };
            bytes.extend_from_slice(text.as_bytes());
            bytes
        };
        // RFC 7541, appendix A: :method, http, :authority and :path; the rest by their names.
        let mut block = [
            &[0x02][..],
            &text(method),
            &[0x86, 0x01],
            &text(&self.authority),
            &[0x04],
            &text(path),
        ]
        .concat();
        for (name, value) in fields {
            block.extend([&[0][..], &text(name), &text(value)].concat());
        }
        let end = u8::from(body.is_empty());
        self.send(Self::HEADERS, 4 | end, stream, &block);
        self.send_body(stream, body);
    }

    fn send_body(&mut self, stream: u32, body: &[u8]) {
        let (mut sent, mut window) = (0, None);
        while sent < body.len() {
            let mine = *window.get_or_insert(self.stream_window);
            let remaining = usize::try_from(self.window.min(mine).min(16_384)).unwrap_or(0);
            if remaining == 0 {
                let before = self.stream_window;
                let Some(frame) = self.next() else { return };
                match frame.kind {
                    Self::WINDOW_UPDATE if frame.stream == stream => {
                        window = Some(mine + window_increment(&frame));
                    }
                    Self::SETTINGS => window = Some(mine + self.stream_window - before),
                    Self::HEADERS | Self::RST_STREAM if frame.stream == stream => return,
                    _ => {}
                }
                continue;
            }
            let end = body.len().min(sent + remaining);
            let count = i64::try_from(end - sent).unwrap();
            self.send(Self::DATA, u8::from(end == body.len()), stream, &body[sent..end]);
            (self.window, window) = (self.window - count, Some(mine - count));
            sent = end;
        }
    }

    /// Lets the server send so many bytes more, on the connection and on a stream.
    pub fn open_window(&mut self, stream: u32, bytes: u32) {
        for stream in [0, stream] {
            self.send(Self::WINDOW_UPDATE, 0, stream, &bytes.to_be_bytes());
        }
    }

    pub fn reset(&mut self, stream: u32) {
        const CANCEL: u32 = 8;
        self.send(Self::RST_STREAM, 0, stream, &CANCEL.to_be_bytes());
    }

    /// Waits until the server has read everything that was sent.
    pub fn ping(&mut self) {
        self.send(Self::PING, 0, 0, b"are you?");
        assert!(self.read_until(|frame| frame.kind == Self::PING && frame.is_end()));
    }

    /// The next frame; `None` when the connection has ended.
    pub fn next(&mut self) -> Option<Frame> {
        let mut head = [0; 9];
        self.socket.read_exact(&mut head).ok()?;
        let [high, middle, low, kind, flags, a, b, c, d] = head;
        let mut payload = vec![0; u32::from_be_bytes([0, high, middle, low]).try_into().unwrap()];
        self.socket.read_exact(&mut payload).ok()?;
        let frame = Frame { kind, flags, stream: u32::from_be_bytes([a, b, c, d]), payload };
        match kind {
            Self::WINDOW_UPDATE if frame.stream == 0 => self.window += window_increment(&frame),
            Self::SETTINGS if !frame.is_end() => {
                const INITIAL_WINDOW_SIZE: [u8; 2] = [0, 4];
                let setting = frame
                    .payload
                    .chunks(6)
                    .find(|setting| setting.starts_with(&INITIAL_WINDOW_SIZE));
                if let Some(setting) = setting {
                    self.stream_window =
                        u32::from_be_bytes(setting[2..6].try_into().unwrap()).into();
                }
                self.send(Self::SETTINGS, 1, 0, b"");
            }
            // RFC 9113 §6.7. The server may disconnect a client that does not acknowledge its pings.
            Self::PING if !frame.is_end() => self.send(Self::PING, 1, 0, &frame.payload),
            _ => {}
        }
        Some(frame)
    }

    /// Reads up to such a frame; false when the connection, or a stream, ends before.
    pub fn read_until(&mut self, is_it: impl Fn(&Frame) -> bool) -> bool {
        loop {
            match self.next() {
                Some(frame) if is_it(&frame) => return true,
                Some(frame) if frame.kind == Self::RST_STREAM => return false,
                Some(_) => {}
                None => return false,
            }
        }
    }
}

fn window_increment(frame: &Frame) -> i64 {
    u32::from_be_bytes(frame.payload[..4].try_into().unwrap()).into()
}
