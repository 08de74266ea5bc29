//! A closed loop over keep-alive connections: each sends its next request when its answer is whole.
//!
//! One thread, so that it takes at most one core from the server. An answer that is not a success
//! ends the run: a figure for errors is worth nothing.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, LocalOptions};

use crate::Result;
use crate::process::Server;

/// One request as bytes.
#[derive(Debug, Clone)]
pub struct Shot(Vec<u8>);

impl Shot {
    pub fn get(path: &str) -> Self {
        Self(
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\n\r\n")
                .into(),
        )
    }

    pub fn send(method: &str, path: &str, body: &str) -> Self {
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        );
        Self(format!("{head}Content-Length: {length}\r\n\r\n{body}").into())
    }
}

/// What to send, and for how long.
#[derive(Debug)]
pub struct Load<'a> {
    pub connections: usize,
    pub time: Duration,
    pub shots: &'a [Shot],
    pub first: usize,
}

/// What came of it.
#[derive(Debug, Default, Clone)]
pub struct Done {
    pub seconds: f64,
    pub latencies: Vec<Duration>,
}

impl Load<'_> {
    pub fn run(&self, address: SocketAddr) -> Result<Done> {
        let runtime =
            Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
        let latencies = Rc::new(RefCell::new(Vec::with_capacity(1 << 20)));
        let began = Instant::now();
        let until = began + self.time;
        runtime.block_on(async {
            let mut tasks = Vec::new();
            for number in 0..self.connections {
                let shots: Vec<Shot> = self.shots.to_vec();
                let (latencies, first) = (Rc::clone(&latencies), self.first + number * 104_729);
                tasks.push(tokio::task::spawn_local(async move {
                    connection(address, &shots, first, until, &latencies)
                        .await
                        .map_err(|error| error.to_string())
                }));
            }
            for task in tasks {
                task.await??;
            }
            Ok::<(), Box<dyn std::error::Error>>(())
        })?;
        let seconds = began.elapsed().as_secs_f64();
        let latencies = std::mem::take(&mut *latencies.borrow_mut());
        Ok(Done { seconds, latencies })
    }
}

async fn connection(
    address: SocketAddr,
    shots: &[Shot],
    first: usize,
    until: Instant,
    latencies: &RefCell<Vec<Duration>>,
) -> Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let mut buffer = Vec::with_capacity(64 << 10);
    for shot in (first..).filter_map(|number| shots.get(number % shots.len())) {
        let sent = Instant::now();
        if sent >= until {
            break;
        }
        stream.write_all(&shot.0).await?;
        answer(&mut stream, &mut buffer).await?;
        latencies.borrow_mut().push(sent.elapsed());
    }
    Ok(())
}

/// Reads one answer; the buffer holds it whole.
async fn answer(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Result<()> {
    buffer.clear();
    let mut whole = None;
    while whole.is_none_or(|whole| buffer.len() < whole) {
        if stream.read_buf(buffer).await? == 0 {
            return Err("the server closed the connection".into());
        }
        if whole.is_none() {
            whole = length(buffer)?;
        }
    }
    Ok(())
}

/// The length of the answer once its head is there.
fn length(buffer: &[u8]) -> Result<Option<usize>> {
    let Some(end) = buffer.windows(4).position(|bytes| bytes == b"\r\n\r\n") else {
        return Ok(None);
    };
    let head = std::str::from_utf8(buffer.get(..end).unwrap_or_default())?;
    if !head.starts_with("HTTP/1.1 20") {
        return Err(format!("not a success: {}", String::from_utf8_lossy(buffer)).into());
    }
    let body = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap_or("0");
    Ok(Some(end + 4 + body.parse::<usize>()?))
}

/// One answer as text.
pub fn one(server: &Server, shot: &Shot) -> Result<String> {
    let runtime = Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
    runtime.block_on(async {
        let mut stream = TcpStream::connect(server.address).await?;
        let mut buffer = Vec::new();
        stream.write_all(&shot.0).await?;
        answer(&mut stream, &mut buffer).await?;
        Ok(String::from_utf8(buffer)?)
    })
}
