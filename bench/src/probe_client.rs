//! A well-behaved client that measures the effect of others: a few keep-alive connections at a modest,
//! steady rate.
//!
//! A request that is sent late because the one before it took long is timed from when it was due, so
//! that a stall counts for every request that it delayed (coordinated omission).

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::Result;

/// Connections that read, and their interval; one more creates.
const READERS: usize = 3;
const READ_EVERY: Duration = Duration::from_millis(5);
const CREATE_EVERY: Duration = Duration::from_millis(10);

/// The measurements of the client.
#[derive(Debug, Default, Clone)]
pub struct ProbeResult {
    pub gets: Vec<Duration>,
    pub creates: Vec<Duration>,
    /// Failed requests, and connections that broke.
    pub failures: usize,
}

impl ProbeResult {
    pub fn add(&mut self, other: &Self) {
        self.gets.extend(&other.gets);
        self.creates.extend(&other.creates);
        self.failures += other.failures;
    }
}

/// The value of this percentile.
pub fn percentile(times: &[Duration], share: f64) -> Duration {
    let mut times = times.to_vec();
    times.sort_unstable();
    let at = (times.len() as f64 * share) as usize;
    times.get(at.min(times.len().saturating_sub(1))).copied().unwrap_or_default()
}

/// Runs until `stop` is set.
pub fn probe(address: SocketAddr, items: &[String], stop: &AtomicBool) -> ProbeResult {
    let get = |number: usize| {
        let path = items.get(number * 7_919 % items.len().max(1)).map_or("/", String::as_str);
        format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n")
    };
    let create = |_: usize| {
        let body = r#"{"customer":{"name":"Victor","email":"victor@example.com"}}"#;
        let length = body.len();
        format!(
            "POST /customers HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{body}"
        )
    };
    let mut noticed = ProbeResult::default();
    thread::scope(|scope| {
        let readers: Vec<_> = (0..READERS)
            .map(|_| scope.spawn(|| run_connection(address, READ_EVERY, &get, stop)))
            .collect();
        let creator = scope.spawn(|| run_connection(address, CREATE_EVERY, &create, stop));
        for reader in readers {
            let (times, failures) = reader.join().unwrap_or_default();
            noticed.gets.extend(times);
            noticed.failures += failures;
        }
        let (times, failures) = creator.join().unwrap_or_default();
        noticed.creates = times;
        noticed.failures += failures;
    });
    noticed
}

fn run_connection(
    address: SocketAddr,
    every: Duration,
    request: &dyn Fn(usize) -> String,
    stop: &AtomicBool,
) -> (Vec<Duration>, usize) {
    let (mut times, mut failures) = (Vec::new(), 0);
    let mut stream = None;
    let mut due = Instant::now();
    for number in 0.. {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        due += every;
        let now = Instant::now();
        let since = if due > now {
            thread::sleep(due - now);
            Instant::now()
        } else {
            due
        };
        match exchange(address, &mut stream, &request(number)) {
            Ok(()) => times.push(since.elapsed()),
            Err(_) => {
                failures += 1;
                stream = None;
            }
        }
    }
    (times, failures)
}

/// Sends one request and reads its response, which must be a success.
fn exchange(address: SocketAddr, stream: &mut Option<TcpStream>, request: &str) -> Result<()> {
    if stream.is_none() {
        let new = TcpStream::connect(address)?;
        new.set_nodelay(true)?;
        new.set_read_timeout(Some(Duration::from_secs(10)))?;
        *stream = Some(new);
    }
    let stream = stream.as_mut().ok_or("not connected")?;
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    loop {
        let mut bytes = [0; 4096];
        let count = stream.read(&mut bytes)?;
        if count == 0 {
            return Err("closed".into());
        }
        answer.extend_from_slice(bytes.get(..count).unwrap_or_default());
        if !answer.starts_with(b"HTTP/1.1 20") {
            return Err("no success".into());
        }
        let Some(end) = answer.windows(4).position(|four| four == b"\r\n\r\n") else { continue };
        let head = str::from_utf8(answer.get(..end).unwrap_or_default())?;
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        if answer.len() >= end + 4 + length.unwrap_or("0").parse::<usize>()? {
            return Ok(());
        }
    }
}
