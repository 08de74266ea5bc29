//! A small, strict HTTP/1.1 client.
//!
//! It uses one connection, encrypted or not, and follows no redirects.
//! It checks the bytes of each response while it reads (CR LF at the end of every line, three digits
//! and a reason, no space before a colon), so that every test tests the framing as well.

use std::fmt::Write as _;
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::CertificateDer;
use serde_json::Value;
use socket2::{Domain, Socket, Type};

use super::tls::ClientStream;
use super::{Masks, Secrets, TIMEOUT};

/// One response, as received.
#[derive(Clone, PartialEq, Eq)]
pub struct Answer {
    pub status: u16,
    pub reason: String,
    /// In the order and the case in which they were sent.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl Answer {
    /// The value of a header that may occur once.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name));
        let first = found.next().map(|(_, value)| value.as_str());
        assert!(found.next().is_none(), "{name} is there more than once: {self:?}");
        first
    }

    /// All values of a header, in their order.
    pub fn all(&self, name: &str) -> Vec<&str> {
        let found = self.headers.iter().filter(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str()).collect()
    }

    pub fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    /// The slug of the problem in the body; fails unless the body is a complete problem.
    pub fn problem(&self) -> String {
        let body = self.json();
        assert_eq!(body["status"], self.status, "{self:?}");
        assert_eq!(body["request_id"], self.header("X-Request-Id").unwrap(), "{self:?}");
        body["type"].as_str().unwrap().strip_prefix("/-/problems/").unwrap().to_owned()
    }

    /// The errors of the problem in the body, each as `pointer | code | detail`.
    pub fn faults(&self) -> Vec<String> {
        let errors = self.json()["errors"].as_array().cloned().unwrap_or_default();
        let line = |error: &Value| {
            let text = |name: &str| error[name].as_str().unwrap_or_default();
            [text("pointer"), text("code"), text("detail")].join(" | ")
        };
        errors.iter().map(line).collect()
    }

    /// The whole response as text, with everything that differs from run to run masked.
    pub fn masked(&self) -> String {
        Masks::default().answer(self)
    }
}

/// The response as received, except for the line ends.
impl std::fmt::Display for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "HTTP/1.1 {} {}", self.status, self.reason)?;
        for (name, value) in &self.headers {
            writeln!(f, "{name}: {value}")?;
        }
        writeln!(f)?;
        f.write_str(&String::from_utf8_lossy(&self.body))
    }
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

/// One connection.
#[derive(Debug)]
pub struct Client {
    stream: ClientStream,
    address: SocketAddr,
    /// Secrets that may be in no response, where the server is one of ours.
    secrets: Option<Arc<Secrets>>,
    /// Received bytes that are not consumed yet.
    buffer: Vec<u8>,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address);
        Self::with_stream(stream.unwrap_or_else(|error| panic!("{address}: {error}")), address)
    }

    /// From one of several addresses of this machine.
    pub fn connect_from(source: IpAddr, address: SocketAddr) -> Self {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).unwrap();
        socket.bind(&SocketAddr::new(source, 0).into()).unwrap();
        socket.connect(&address.into()).unwrap_or_else(|error| panic!("{address}: {error}"));
        Self::with_stream(socket.into(), address)
    }

    fn with_stream(stream: TcpStream, address: SocketAddr) -> Self {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.set_write_timeout(Some(TIMEOUT)).unwrap();
        let secrets = Secrets::of_server(address);
        Self { stream: ClientStream::Plain(stream), address, secrets, buffer: Vec::new() }
    }

    /// Over TLS, trusting the certificates of the configuration.
    pub fn connect_tls(address: SocketAddr, config: Arc<ClientConfig>) -> Self {
        let mut client = Self::connect(address);
        if let ClientStream::Plain(socket) = client.stream {
            client.stream = ClientStream::encrypted(socket, config);
        }
        client
    }

    /// The server's certificate; available after the first response.
    pub fn certificate(&self) -> Option<CertificateDer<'static>> {
        self.stream.certificate()
    }

    /// Sends a request and reads its response. `Host` and `Content-Length` are added unless given.
    pub fn request(
        &mut self,
        line: &str,
        headers: &[(&str, &str)],
        body: impl AsRef<[u8]>,
    ) -> Answer {
        let body = body.as_ref();
        let given = |name: &str| headers.iter().any(|(known, _)| known.eq_ignore_ascii_case(name));
        let mut head = format!("{line} HTTP/1.1\r\n");
        if !given("Host") {
            write!(head, "Host: {}\r\n", self.address).unwrap();
        }
        for (name, value) in headers {
            write!(head, "{name}: {value}\r\n").unwrap();
        }
        if !given("Content-Length") && !given("Transfer-Encoding") && !body.is_empty() {
            write!(head, "Content-Length: {}\r\n", body.len()).unwrap();
        }
        head.push_str("\r\n");
        self.send(&[head.as_bytes(), body].concat())
    }

    /// Sends bytes that hold one request and reads its response.
    pub fn send(&mut self, bytes: &[u8]) -> Answer {
        self.write(bytes);
        self.read_answer(bytes.starts_with(b"HEAD "))
    }

    pub fn write(&mut self, bytes: &[u8]) {
        if let Some(secrets) = &self.secrets {
            secrets.learn_request(bytes);
        }
        // A server may respond and close before it has read everything: what counts is the response.
        drop(self.stream.write_all(bytes).and_then(|()| self.stream.flush()));
    }

    /// Half-closes the connection.
    pub fn finish_writing(&mut self) {
        self.stream.finish_writing();
    }

    /// Reads one response; `to_head` says that the request was a HEAD, whose response has no body.
    pub fn read_answer(&mut self, to_head: bool) -> Answer {
        let (status, reason) = status_line(&self.read_line());
        let mut headers = Vec::new();
        loop {
            let line = self.read_line();
            if line.is_empty() {
                break;
            }
            headers.push(header_line(&line));
        }
        let mut answer = Answer { status, reason, headers, body: Vec::new() };
        // RFC 9112 §6.3: these never have a body, whatever their headers say.
        if !to_head && !matches!(status, 100..=199 | 204 | 304) {
            answer.body = self.read_body(&answer);
        }
        if let Some(secrets) = &self.secrets {
            secrets.check_answer(&answer);
        }
        answer
    }

    /// Waits until the text has arrived, and leaves it unread.
    pub fn wait_for(&mut self, text: &str) {
        while !String::from_utf8_lossy(&self.buffer).contains(text) {
            assert!(self.read_more(), "closed without {text:?}");
        }
    }

    /// Everything until the server closes the connection.
    pub fn read_to_close(&mut self) -> Vec<u8> {
        while self.read_more() {}
        std::mem::take(&mut self.buffer)
    }

    /// Whether the server has closed the connection and left nothing unread. Waits for either.
    pub fn is_closed(&mut self) -> bool {
        self.buffer.is_empty() && !self.read_more()
    }

    fn read_body(&mut self, answer: &Answer) -> Vec<u8> {
        match (answer.header("Content-Length"), answer.header("Transfer-Encoding")) {
            (Some(length), None) => {
                let length = length.parse().unwrap();
                self.take_bytes(length)
            }
            (None, Some("chunked")) => self.read_chunks(),
            (None, None) => self.read_to_close(),
            framing => panic!("expected one framing of the body, got {framing:?}"),
        }
    }

    fn read_chunks(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            let length = usize::from_str_radix(&self.read_line(), 16).unwrap();
            body.extend(self.take_bytes(length));
            assert_eq!(self.take_bytes(2), b"\r\n", "a chunk ends with CR LF");
            if length == 0 {
                return body;
            }
        }
    }

    /// One line without its CR LF; a CR or LF anywhere else is a fault of the server.
    fn read_line(&mut self) -> String {
        loop {
            if let Some(end) = self.buffer.iter().position(|&byte| byte == b'\n') {
                let line = self.take_bytes(end + 1);
                let text = String::from_utf8(line).unwrap();
                let text =
                    text.strip_suffix("\r\n").unwrap_or_else(|| panic!("no CR LF after {text:?}"));
                assert!(!text.contains('\r'), "a CR inside of {text:?}");
                return text.to_owned();
            }
            assert!(
                self.read_more(),
                "closed in the middle of {:?}",
                String::from_utf8_lossy(&self.buffer)
            );
        }
    }

    fn take_bytes(&mut self, length: usize) -> Vec<u8> {
        while self.buffer.len() < length {
            assert!(self.read_more(), "closed {} bytes early", length - self.buffer.len());
        }
        self.buffer.drain(..length).collect()
    }

    /// Reads once more; false at the end of the connection.
    fn read_more(&mut self) -> bool {
        let mut bytes = [0; 16 * 1024];
        match self.stream.read(&mut bytes) {
            Ok(0) => false,
            Ok(length) => {
                self.buffer.extend_from_slice(&bytes[..length]);
                true
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => false,
            // The kernel does not resume a read with a timeout after a signal.
            Err(error) if error.kind() == ErrorKind::Interrupted => self.read_more(),
            Err(error) => panic!("{error} after {:?}", String::from_utf8_lossy(&self.buffer)),
        }
    }
}

/// RFC 9112 §4: version, SP, three digits, SP, reason phrase.
pub(super) fn status_line(line: &str) -> (u16, String) {
    let rest = line.strip_prefix("HTTP/1.1 ").unwrap_or_else(|| panic!("no status line: {line:?}"));
    let (digits, reason) =
        rest.split_once(' ').unwrap_or_else(|| panic!("no reason phrase: {line:?}"));
    assert!(digits.len() == 3 && digits.bytes().all(|byte| byte.is_ascii_digit()), "{line:?}");
    (digits.parse().unwrap(), reason.to_owned())
}

/// RFC 9112 §5: a token, a colon without a space before it, the value with its white space trimmed.
pub(super) fn header_line(line: &str) -> (String, String) {
    let (name, value) = line.split_once(':').unwrap_or_else(|| panic!("no header line: {line:?}"));
    assert!(
        name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') && !name.is_empty(),
        "{line:?}"
    );
    (name.to_owned(), value.trim_matches([' ', '\t']).to_owned())
}
