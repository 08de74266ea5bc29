//! A client for Server-Sent Events over HTTP/1.1, which can resume on any server and cut its connection
//! at any byte.
//!
//! Unlike [`super::Client`] it reports a lost connection instead of failing, since servers are killed
//! while it reads.

use std::fmt::Write as _;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::event_parser::{EventParser, StreamEvent};
use super::http::{header_line, status_line};
use super::{Answer, Secrets, TIMEOUT};

/// Why a stream did not begin.
#[derive(Debug)]
pub enum ConnectError {
    /// Another response than a stream of events, complete.
    Refused(Box<Answer>),
    /// The server is not there, or was lost before its response was complete.
    Lost(io::Error),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Received {
    Event(StreamEvent),
    End(StreamEnd),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamEnd {
    /// The server has ended the body.
    Complete,
    /// The connection was closed or reset inside of the body.
    Truncated,
    /// The client has cut the connection, as requested by `cut_after`.
    Cut,
}

/// A reader of one stream, over any number of connections. It sends the id of the last complete block
/// when it connects again, as browsers do.
#[derive(Debug)]
pub struct EventSource {
    target: String,
    headers: Vec<(String, String)>,
    parser: EventParser,
    connection: Option<Connection>,
    /// Why the last connection ended.
    end: StreamEnd,
}

#[derive(Debug)]
struct Connection {
    socket: TcpStream,
    secrets: Option<Arc<Secrets>>,
    framing: Framing,
    /// Received bytes whose framing is not decoded yet.
    buffer: Vec<u8>,
    /// The decoded body so far.
    body: Vec<u8>,
    /// How many more bytes of the response may be read before the client cuts the connection.
    bytes_left: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    Length(usize),
    ChunkLength,
    /// The bytes that the chunk still has.
    Chunk(usize),
    ChunkEnd {
        is_last: bool,
    },
    UntilClose,
    Done,
}

impl EventSource {
    /// A reader of a path with its query. It starts where the server starts without `Last-Event-ID`.
    pub fn new(target: &str) -> Self {
        Self {
            target: target.to_owned(),
            headers: Vec::new(),
            parser: EventParser::default(),
            connection: None,
            end: StreamEnd::Complete,
        }
    }

    /// One more header of each request.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Starts after this id.
    pub fn resume_after(mut self, id: &str) -> Self {
        self.parser = EventParser::resuming(id);
        self
    }

    /// Connects, again or for the first time, to any server. Returns the head of the response.
    pub fn connect(&mut self, address: SocketAddr) -> Result<Answer, ConnectError> {
        self.connection = None;
        self.parser.restart();
        let mut connection = Connection::open(address).map_err(ConnectError::Lost)?;
        let head = self.request_head(address);
        if let Some(secrets) = &connection.secrets {
            secrets.learn_request(head.as_bytes());
        }
        let answer = connection.exchange_heads(&head).map_err(ConnectError::Lost)?;
        let is_stream = answer.header("Content-Type") == Some("text/event-stream");
        if answer.status == 200 && is_stream {
            self.connection = Some(connection);
            return Ok(answer);
        }
        let body = connection.read_whole_body().map_err(ConnectError::Lost)?;
        Err(ConnectError::Refused(Box::new(Answer { body, ..answer })))
    }

    /// Connects, and fails the test if that is refused.
    pub fn connected(mut self, address: SocketAddr) -> Self {
        self.connect(address).unwrap_or_else(|error| panic!("{}: {error:?}", self.target));
        self
    }

    /// Cuts the current connection after this many more bytes, its framing included.
    pub fn cut_after(&mut self, bytes: usize) {
        self.connection.as_mut().expect("it is connected").bytes_left = Some(bytes);
    }

    /// Closes the connection. Events that were received are still returned, before the end.
    pub fn close(&mut self) {
        self.connection = None;
        self.end = StreamEnd::Cut;
    }

    /// The next event or the end of this connection.
    pub fn receive(&mut self) -> Received {
        self.poll(TIMEOUT).unwrap_or_else(|| panic!("{}: no event in {TIMEOUT:?}", self.target))
    }

    /// The same; `None` if nothing has arrived in time.
    pub fn poll(&mut self, timeout: Duration) -> Option<Received> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(event) = self.parser.pop() {
                return Some(Received::Event(event));
            }
            let Some(connection) = &mut self.connection else {
                return Some(Received::End(self.end));
            };
            match connection.read_body(deadline) {
                Ok(Some(piece)) => self.parser.push(&piece),
                Ok(None) => return None,
                Err(end) => {
                    self.connection = None;
                    self.end = end;
                }
            }
        }
    }

    /// The next event; fails the test if the connection ends before.
    pub fn next_event(&mut self) -> StreamEvent {
        match self.receive() {
            Received::Event(event) => event,
            Received::End(end) => panic!("{}: {end:?} instead of an event", self.target),
        }
    }

    /// The next events.
    pub fn next_events(&mut self, count: usize) -> Vec<StreamEvent> {
        (0..count).map(|_| self.next_event()).collect()
    }

    /// Waits for the end of the connection. Returns it, and the events before it.
    pub fn read_to_end(&mut self) -> (Vec<StreamEvent>, StreamEnd) {
        let mut events = Vec::new();
        loop {
            match self.receive() {
                Received::Event(event) => events.push(event),
                Received::End(end) => return (events, end),
            }
        }
    }

    pub fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    /// The decoded body of the current connection so far.
    pub fn body(&self) -> &str {
        let body = self.connection.as_ref().map_or(&[][..], |connection| &connection.body);
        std::str::from_utf8(body).unwrap()
    }

    pub fn last_event_id(&self) -> &str {
        self.parser.last_event_id()
    }

    /// The reconnection time of the current connection.
    pub fn retry(&self) -> Option<Duration> {
        self.parser.retry()
    }

    /// The comments of the current connection.
    pub fn comments(&self) -> &[String] {
        self.parser.comments()
    }

    fn request_head(&self, address: SocketAddr) -> String {
        let target = &self.target;
        let mut head = format!(
            "GET {target} HTTP/1.1\r\nHost: {address}\r\nAccept: text/event-stream\r\nCache-Control: no-store\r\n"
        );
        for (name, value) in &self.headers {
            write!(head, "{name}: {value}\r\n").unwrap();
        }
        if !self.last_event_id().is_empty() {
            write!(head, "Last-Event-ID: {}\r\n", self.last_event_id()).unwrap();
        }
        head + "\r\n"
    }
}

impl Connection {
    fn open(address: SocketAddr) -> io::Result<Self> {
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        socket.set_write_timeout(Some(TIMEOUT))?;
        Ok(Self {
            socket,
            secrets: Secrets::of_server(address),
            framing: Framing::Done,
            buffer: Vec::new(),
            body: Vec::new(),
            bytes_left: None,
        })
    }

    /// Sends the head of the request and reads that of the response.
    fn exchange_heads(&mut self, head: &str) -> io::Result<Answer> {
        self.socket.write_all(head.as_bytes())?;
        let deadline = Instant::now() + TIMEOUT;
        let end = loop {
            if let Some(at) = self.buffer.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                break at;
            }
            self.read_more(deadline)?;
        };
        let head: Vec<u8> = self.buffer.drain(..end + 4).collect();
        let text = String::from_utf8(head).unwrap();
        let mut lines = text.trim_end().split("\r\n");
        let (status, reason) = status_line(lines.next().unwrap());
        let headers = lines.map(header_line).collect();
        let answer = Answer { status, reason, headers, body: Vec::new() };
        self.framing = match (answer.header("Content-Length"), answer.header("Transfer-Encoding")) {
            (Some(length), None) => Framing::Length(length.parse().unwrap()),
            (None, Some("chunked")) => Framing::ChunkLength,
            (None, None) => Framing::UntilClose,
            framing => panic!("expected one framing of the body, got {framing:?}"),
        };
        Ok(answer)
    }

    fn read_whole_body(&mut self) -> io::Result<Vec<u8>> {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            match self.read_body(deadline) {
                Ok(Some(_)) => {}
                Ok(None) => return Err(ErrorKind::TimedOut.into()),
                Err(StreamEnd::Complete) => return Ok(std::mem::take(&mut self.body)),
                Err(_) => return Err(ErrorKind::UnexpectedEof.into()),
            }
        }
    }

    /// Some more bytes of the body; `None` if none has arrived in time.
    fn read_body(&mut self, deadline: Instant) -> Result<Option<Vec<u8>>, StreamEnd> {
        loop {
            let piece = self.decode_piece();
            if !piece.is_empty() {
                if let Some(secrets) = &self.secrets {
                    secrets.check("an event stream", &piece);
                }
                self.body.extend_from_slice(&piece);
                return Ok(Some(piece));
            }
            match self.framing {
                Framing::Done => return Err(StreamEnd::Complete),
                _ if self.bytes_left == Some(0) => return Err(StreamEnd::Cut),
                _ => {}
            }
            match self.read_more(deadline) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::TimedOut => return Ok(None),
                Err(_) if self.framing == Framing::UntilClose => return Err(StreamEnd::Complete),
                Err(_) => return Err(StreamEnd::Truncated),
            }
        }
    }

    /// The bytes of the body that the buffer has, up to the end of a chunk.
    fn decode_piece(&mut self) -> Vec<u8> {
        loop {
            match self.framing {
                Framing::Done => return Vec::new(),
                Framing::UntilClose => return std::mem::take(&mut self.buffer),
                Framing::Length(0) => self.framing = Framing::Done,
                Framing::Length(left) => {
                    let piece = self.take_bytes(left);
                    self.framing = Framing::Length(left - piece.len());
                    return piece;
                }
                Framing::ChunkLength => match self.take_chunk_length() {
                    None => return Vec::new(),
                    Some(0) => self.framing = Framing::ChunkEnd { is_last: true },
                    Some(length) => self.framing = Framing::Chunk(length),
                },
                Framing::Chunk(0) => self.framing = Framing::ChunkEnd { is_last: false },
                Framing::Chunk(left) => {
                    let piece = self.take_bytes(left);
                    self.framing = Framing::Chunk(left - piece.len());
                    return piece;
                }
                Framing::ChunkEnd { .. } if self.buffer.len() < 2 => return Vec::new(),
                Framing::ChunkEnd { is_last } => {
                    assert_eq!(self.take_bytes(2), b"\r\n", "a chunk ends with CR LF");
                    self.framing = if is_last { Framing::Done } else { Framing::ChunkLength };
                }
            }
        }
    }

    fn take_bytes(&mut self, length: usize) -> Vec<u8> {
        let length = length.min(self.buffer.len());
        self.buffer.drain(..length).collect()
    }

    fn take_chunk_length(&mut self) -> Option<usize> {
        let end = self.buffer.windows(2).position(|bytes| bytes == b"\r\n")?;
        let line: Vec<u8> = self.buffer.drain(..end + 2).collect();
        let digits = std::str::from_utf8(&line[..end]).unwrap();
        Some(usize::from_str_radix(digits, 16).unwrap_or_else(|_| panic!("{digits:?}")))
    }

    /// Reads once more, no more than may be read before the cut.
    fn read_more(&mut self, deadline: Instant) -> io::Result<()> {
        let mut bytes = [0; 16 * 1024];
        let most = self.bytes_left.map_or(bytes.len(), |left| left.min(bytes.len()));
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            // The system refuses a timeout of zero.
            self.socket.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
            match self.socket.read(&mut bytes[..most]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(length) => {
                    self.buffer.extend_from_slice(&bytes[..length]);
                    self.bytes_left = self.bytes_left.map(|left| left - length);
                    return Ok(());
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Err(ErrorKind::TimedOut.into());
                }
                Err(error) => return Err(error),
            }
        }
    }
}
