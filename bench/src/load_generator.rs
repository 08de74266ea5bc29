//! The load generator: keep-alive connections, each with one request in flight.
//!
//! All connections of a load share one thread, so that it takes at most one core from the server.
//! A response with neither the expected status nor 503 ends the run: a figure for errors is worth
//! nothing.
//! In a paced load the latency of a request counts from when it was due, not from when its connection
//! was free, so that a stall counts for every request that it delayed (coordinated omission).

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};

use crate::Result;
use crate::auth::{Credentials, DigestSession};

/// A placeholder in a body, replaced by a number that differs from request to request.
pub const NUMBER_PLACEHOLDER: &str = "000000000000";

/// One request as bytes.
#[derive(Debug, Clone)]
pub struct RequestTemplate {
    bytes: Vec<u8>,
    number_offset: Option<usize>,
    /// Set for a Digest request, which is signed each time it is sent; the bytes are its head without
    /// the last line end.
    digest: Option<DigestRequest>,
    expected: ExpectedStatus,
}

#[derive(Debug, Clone)]
struct DigestRequest {
    session: Arc<DigestSession>,
    path: String,
}

/// The expected status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExpectedStatus {
    Success,
    Status(u16),
}

pub type RequestTemplates = Arc<[RequestTemplate]>;

impl RequestTemplate {
    pub fn get(path: &str) -> Self {
        let head =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\n\r\n");
        Self {
            bytes: head.into(),
            number_offset: None,
            digest: None,
            expected: ExpectedStatus::Success,
        }
    }

    /// As a page.
    pub fn page(path: &str) -> Self {
        let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: text/html\r\n\r\n");
        Self { bytes: head.into(), ..Self::get(path) }
    }

    /// With more header lines, each with its line end.
    pub fn get_with(path: &str, lines: &str) -> Self {
        let mut shot = Self::get(path);
        shot.bytes.truncate(shot.bytes.len() - 2);
        shot.bytes.extend(format!("{lines}\r\n").bytes());
        shot
    }

    /// With the credentials of a user.
    pub fn get_with_credentials(path: &str, login: &Credentials) -> Self {
        match login {
            Credentials::Basic(credentials) => {
                Self::get_with(path, &format!("Authorization: Basic {credentials}\r\n"))
            }
            Credentials::Digest(session) => {
                let mut shot = Self::get(path);
                shot.bytes.truncate(shot.bytes.len() - 2);
                let session = Arc::clone(session);
                shot.digest = Some(DigestRequest { session, path: path.to_owned() });
                shot
            }
        }
    }

    /// The same request, with another expected status.
    pub fn expecting(self, status: u16) -> Self {
        Self { expected: ExpectedStatus::Status(status), ..self }
    }

    pub fn send(method: &str, path: &str, body: &str) -> Self {
        Self::send_with(method, path, "", body)
    }

    /// With more header lines, each with its line end.
    pub fn send_with(method: &str, path: &str, lines: &str, body: &str) -> Self {
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n{lines}Content-Length: {length}\r\n\r\n"
        );
        let whole = head + body;
        let number_at = whole.find(NUMBER_PLACEHOLDER);
        let bytes = whole.into();
        Self { bytes, number_offset: number_at, digest: None, expected: ExpectedStatus::Success }
    }

    fn write(&self, number: u64, buffer: &mut Vec<u8>) {
        buffer.clear();
        buffer.extend_from_slice(&self.bytes);
        let place =
            self.number_offset.and_then(|at| buffer.get_mut(at..at + NUMBER_PLACEHOLDER.len()));
        if let Some(place) = place {
            place.copy_from_slice(format!("{number:012}").as_bytes());
        }
        if let Some(DigestRequest { session, path }) = &self.digest {
            let credentials = session.sign("GET", path);
            buffer.extend(format!("Authorization: Digest {credentials}\r\n\r\n").bytes());
        }
    }

    /// Renews the nonce where it could expire.
    fn renew_nonce(&self, address: SocketAddr) -> Result<()> {
        let session = self.digest.as_ref().map(|signed| &signed.session);
        session.map_or(Ok(()), |session| session.renew(address))
    }
}

/// When a connection sends its next request.
#[derive(Debug, Clone, Copy)]
pub enum Pacing {
    /// As soon as the response is complete (closed loop).
    ClosedLoop,
    /// At fixed intervals, or at once when the response came later than that (open loop).
    FixedInterval(Duration),
}

/// What to send, and for how long.
#[derive(Debug, Clone)]
pub struct Load {
    pub connections: usize,
    pub pacing: Pacing,
    pub time: Duration,
    pub requests: RequestTemplates,
    /// The index of the first connection's first request.
    pub first_request: usize,
}

/// The result of a load.
#[derive(Debug, Default, Clone)]
pub struct LoadResult {
    pub seconds: f64,
    /// Of the successes, in the order of their responses.
    pub latencies: Vec<Duration>,
    /// How many were answered with 503.
    pub refused: usize,
}

impl LoadResult {
    /// The latency of this percentile.
    pub fn percentile(&self, share: f64) -> Duration {
        let mut latencies = self.latencies.clone();
        latencies.sort_unstable();
        let at = (latencies.len() as f64 * share) as usize;
        let last = latencies.len().saturating_sub(1);
        latencies.get(at.min(last)).copied().unwrap_or_default()
    }

    pub fn rate(&self) -> f64 {
        self.latencies.len() as f64 / self.seconds
    }
}

/// State that the connections of one load share.
struct LoadState {
    requests: RequestTemplates,
    until: Instant,
    latencies: RefCell<Vec<Duration>>,
    refused: Cell<usize>,
    number: Cell<u64>,
}

impl Load {
    pub fn run(&self, address: SocketAddr) -> Result<LoadResult> {
        self.requests.first().map_or(Ok(()), |shot| shot.renew_nonce(address))?;
        let runtime = runtime()?;
        let began = Instant::now();
        let shared = Rc::new(LoadState {
            requests: Arc::clone(&self.requests),
            until: began + self.time,
            latencies: RefCell::new(Vec::with_capacity(1 << 20)),
            refused: Cell::new(0),
            number: Cell::new(first_number()),
        });
        runtime.block_on(async {
            let mut tasks = Vec::new();
            for number in 0..self.connections {
                let place = ConnectionStart {
                    first_request: self.first_request + number * 104_729,
                    due: match self.pacing {
                        Pacing::ClosedLoop => None,
                        // The connections start spread evenly over the interval.
                        Pacing::FixedInterval(every) => {
                            Some((began + every * number as u32 / self.connections as u32, every))
                        }
                    },
                };
                let shared = Rc::clone(&shared);
                tasks.push(tokio::task::spawn_local(async move {
                    run_connection(address, &shared, place).await.map_err(|error| error.to_string())
                }));
            }
            for task in tasks {
                task.await??;
            }
            Ok::<(), Box<dyn std::error::Error>>(())
        })?;
        let seconds = began.elapsed().as_secs_f64();
        let latencies = std::mem::take(&mut *shared.latencies.borrow_mut());
        Ok(LoadResult { seconds, latencies, refused: shared.refused.get() })
    }
}

pub fn runtime() -> Result<LocalRuntime> {
    Ok(Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?)
}

/// A number above those of every earlier load.
fn first_number() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |now| now.as_micros() as u64) % 1_000_000_000_000
}

/// The first request of a connection, and when each of its requests is due.
struct ConnectionStart {
    first_request: usize,
    due: Option<(Instant, Duration)>,
}

async fn run_connection(
    address: SocketAddr,
    shared: &LoadState,
    place: ConnectionStart,
) -> Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let (mut request, mut reply) = (Vec::new(), Vec::with_capacity(64 << 10));
    let mut due = place.due;
    let shots = &shared.requests;
    for shot in (place.first_request..).filter_map(|number| shots.get(number % shots.len())) {
        let began = match &mut due {
            None => Instant::now(),
            Some((due, every)) => {
                let mut began = *due;
                if began > Instant::now() {
                    tokio::time::sleep_until(began.into()).await;
                    // The timer's own lateness does not count as the server's.
                    began = Instant::now();
                }
                *due += *every;
                began
            }
        };
        if began >= shared.until {
            break;
        }
        let number = shared.number.get();
        shared.number.set((number + 1) % 1_000_000_000_000);
        shot.write(number, &mut request);
        stream.write_all(&request).await?;
        match read_response(&mut stream, &mut reply).await? {
            status if shot.expected.matches(status) => {
                shared.latencies.borrow_mut().push(began.elapsed());
            }
            503 => shared.refused.set(shared.refused.get() + 1),
            _ => return Err(unexpected_response(&reply)),
        }
    }
    Ok(())
}

impl ExpectedStatus {
    fn matches(self, status: u16) -> bool {
        match self {
            Self::Success => (200..300).contains(&status),
            Self::Status(wanted) => wanted == status,
        }
    }
}

fn unexpected_response(reply: &[u8]) -> Box<dyn std::error::Error> {
    format!("not the answer that was wanted: {}", String::from_utf8_lossy(reply)).into()
}

/// How the end of a response is found (its framing).
#[derive(Debug, Clone, Copy)]
enum BodyFraming {
    Offset(usize),
    LastChunk,
}

/// Reads one complete response into the buffer, and returns its status.
pub async fn read_response(
    stream: &mut (impl AsyncRead + Unpin),
    buffer: &mut Vec<u8>,
) -> Result<u16> {
    buffer.clear();
    let mut head = None;
    loop {
        match head {
            Some((status, BodyFraming::Offset(whole))) if buffer.len() >= whole => {
                return Ok(status);
            }
            // Without pipelining this is the last chunk, unless a body contains these bytes; the bodies
            // here do not.
            Some((status, BodyFraming::LastChunk)) if buffer.ends_with(b"\r\n0\r\n\r\n") => {
                return Ok(status);
            }
            _ => {}
        }
        if stream.read_buf(buffer).await? == 0 {
            return Err("the server closed the connection".into());
        }
        if head.is_none() {
            head = read_head(buffer)?;
        }
    }
}

/// The status and the framing of the response, once its head is complete.
fn read_head(buffer: &[u8]) -> Result<Option<(u16, BodyFraming)>> {
    let Some(end) = buffer.windows(4).position(|bytes| bytes == b"\r\n\r\n") else {
        return Ok(None);
    };
    let head = std::str::from_utf8(buffer.get(..end).unwrap_or_default())?;
    let status = head.strip_prefix("HTTP/1.1 ").and_then(|rest| rest.get(..3)?.parse().ok());
    let status = status.ok_or_else(|| unexpected_response(buffer))?;
    let header = |wanted: &str| {
        let mut lines = head.lines().filter_map(|line| line.split_once(": "));
        lines.find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value)
    };
    Ok(Some((
        status,
        match header("transfer-encoding") {
            Some(_) => BodyFraming::LastChunk,
            None => BodyFraming::Offset(
                end + 4 + header("content-length").unwrap_or("0").parse::<usize>()?,
            ),
        },
    )))
}

/// The response without its chunk headers, which may be anywhere in its body.
fn without_chunks(reply: &[u8]) -> Result<Vec<u8>> {
    let (head, mut rest) = std::str::from_utf8(reply)?.split_once("\r\n\r\n").ok_or("no head")?;
    let mut whole = format!("{head}\r\n\r\n");
    loop {
        let (length, chunks) = rest.split_once("\r\n").ok_or("no length of a chunk")?;
        let length = usize::from_str_radix(length, 16)?;
        if length == 0 {
            return Ok(whole.into());
        }
        whole += chunks.get(..length).ok_or("a chunk is cut off")?;
        rest = chunks.get(length + 2..).ok_or("no end of a chunk")?;
    }
}

/// One connection that sends one request after the other.
#[derive(Debug)]
pub struct Client {
    runtime: LocalRuntime,
    stream: TcpStream,
    reply: Vec<u8>,
}

impl Client {
    pub fn connect(address: SocketAddr) -> Result<Self> {
        let runtime = runtime()?;
        let stream = runtime.block_on(TcpStream::connect(address))?;
        Ok(Self { runtime, stream, reply: Vec::new() })
    }

    /// Sends a request and returns the response as text; an unexpected status is an error.
    pub fn send(&mut self, shot: &RequestTemplate) -> Result<&str> {
        let mut request = Vec::new();
        shot.write(0, &mut request);
        let status = self.runtime.block_on(async {
            self.stream.write_all(&request).await?;
            read_response(&mut self.stream, &mut self.reply).await
        })?;
        if !shot.expected.matches(status) {
            return Err(unexpected_response(&self.reply));
        }
        if let Some((_, BodyFraming::LastChunk)) = read_head(&self.reply)? {
            self.reply = without_chunks(&self.reply)?;
        }
        Ok(std::str::from_utf8(&self.reply)?)
    }
}
