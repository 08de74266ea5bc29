//! A load balancer that sends each request to the next server, whatever connection it arrives on.
//!
//! A client's connection stays open; each request gets a new connection to a server.
//! It reads complete messages and rewrites the responses with a length in place of chunks, since no
//! client can tell the difference.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use crate::harness::{Answer, Client};

#[derive(Debug)]
pub struct Balancer {
    pub address: SocketAddr,
    shared: Arc<BalancerState>,
    accepting: Option<thread::JoinHandle<()>>,
}

#[derive(Debug)]
struct BalancerState {
    servers: Vec<SocketAddr>,
    turn: AtomicUsize,
    is_over: AtomicBool,
}

impl Balancer {
    pub fn start(servers: Vec<SocketAddr>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(BalancerState {
            servers,
            turn: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
        });
        let accepting = Arc::clone(&shared);
        let accepting = thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                if accepting.is_over.load(Ordering::Relaxed) {
                    break;
                }
                let shared = Arc::clone(&accepting);
                // The thread ends when the client disconnects.
                thread::spawn(move || serve(&shared, &stream));
            }
        });
        Self { address, shared, accepting: Some(accepting) }
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        // Wakes the accept loop, so that it sees the end.
        drop(TcpStream::connect(self.address));
        if let Some(accepting) = self.accepting.take() {
            drop(accepting.join());
        }
    }
}

impl BalancerState {
    fn next_server(&self) -> SocketAddr {
        self.servers[self.turn.fetch_add(1, Ordering::Relaxed) % self.servers.len()]
    }
}

/// Serves one client connection until the client disconnects.
fn serve(shared: &BalancerState, stream: &TcpStream) {
    stream.set_nodelay(true).unwrap();
    let mut reader = BufReader::new(stream);
    while let Some(request) = read_request(&mut reader) {
        let answer = Client::connect(shared.next_server()).send(&request);
        let mut writer = stream;
        if writer.write_all(&response_bytes(&answer)).is_err() {
            return;
        }
    }
}

/// The bytes of one complete request; `None` when the client has disconnected.
fn read_request(reader: &mut impl BufRead) -> Option<Vec<u8>> {
    let mut request = Vec::new();
    let mut length = 0;
    loop {
        let start = request.len();
        if reader.read_until(b'\n', &mut request).ok()? == 0 {
            return None;
        }
        let line = String::from_utf8_lossy(&request[start..]).to_ascii_lowercase();
        if line == "\r\n" {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        assert!(!line.starts_with("transfer-encoding:"), "no client here sends chunks: {line}");
        assert!(!line.starts_with("expect:"), "no client here waits before its body: {line}");
    }
    let start = request.len();
    request.resize(start + length, 0);
    reader.read_exact(&mut request[start..]).ok()?;
    Some(request)
}

fn response_bytes(answer: &Answer) -> Vec<u8> {
    let mut text = format!("HTTP/1.1 {} {}\r\n", answer.status, answer.reason);
    for (name, value) in &answer.headers {
        if name.eq_ignore_ascii_case("Transfer-Encoding") {
            text.push_str(&format!("Content-Length: {}\r\n", answer.body.len()));
        } else {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
    }
    [text.as_bytes(), b"\r\n", &answer.body].concat()
}
