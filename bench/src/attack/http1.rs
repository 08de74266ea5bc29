//! Slow HTTP/1.1 clients (slowloris, slow POST, slow read).
//!
//! A client that does not read cannot notice the end of its connection by reading, so these ask the
//! kernel whether the connection is closed.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt, Interest};
use tokio::net::TcpStream;
use tokio::time::sleep;

use super::{AttackConnection, ConnectionEnd, send_or_wait};

/// A list page of the largest possible items.
pub(super) const LARGE_LIST: &str = "/customers?limit=500";
/// How often a client that does not read polls whether the server has closed its connection.
const CLOSED_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Reads until the server closes the connection; returns the status of the last response.
pub(super) async fn last_status(read: &mut (impl AsyncRead + Unpin)) -> ConnectionEnd {
    let mut last = None;
    let mut tail = Vec::new();
    loop {
        let mut bytes = [0; 16 << 10];
        let count = match read.read(&mut bytes).await {
            Ok(0) => return last.map_or(ConnectionEnd::Closed, ConnectionEnd::Status),
            Ok(count) => count,
            Err(_) => return last.map_or(ConnectionEnd::Reset, ConnectionEnd::Status),
        };
        tail.extend_from_slice(bytes.get(..count).unwrap_or_default());
        for (at, _) in
            tail.windows(12).enumerate().filter(|(_, text)| text.starts_with(b"HTTP/1.1 "))
        {
            let digits = tail.get(at + 9..at + 12).and_then(|digits| str::from_utf8(digits).ok());
            last = digits.and_then(|digits| digits.parse().ok()).or(last);
        }
        let keep = tail.len().saturating_sub(11);
        tail.drain(..keep);
    }
}

/// Waits, without reading, until the server closes the connection.
pub(super) async fn wait_until_closed(stream: &TcpStream) -> ConnectionEnd {
    loop {
        match stream.ready(Interest::READABLE).await {
            Ok(ready) if !ready.is_read_closed() => sleep(CLOSED_POLL_INTERVAL).await,
            _ => return ConnectionEnd::Reset,
        }
    }
}

/// Sends an opening, then one byte at a time, and reads the response.
async fn send_byte_by_byte(
    front: &AttackConnection,
    opening: &[u8],
    byte: &[u8],
) -> io::Result<ConnectionEnd> {
    let mut stream = front.connect().await?;
    stream.write_all(opening).await?;
    let (mut read, mut write) = stream.split();
    let dripping = async {
        loop {
            front.wait_for_actions(1).await;
            send_or_wait(&mut write, byte).await;
        }
    };
    tokio::select! {
        end = last_status(&mut read) => Ok(end),
        () = dripping => Ok(ConnectionEnd::Disconnected),
    }
}

pub(super) async fn slow_heads(front: Rc<AttackConnection>) -> io::Result<ConnectionEnd> {
    send_byte_by_byte(&front, b"GET /customers HTTP/1.1\r\nHost: localhost\r\nX: ", b"x").await
}

/// Sends the largest head that the limits allow, without its end.
pub(super) async fn large_heads(front: Rc<AttackConnection>) -> io::Result<ConnectionEnd> {
    front.wait_for_actions(1).await;
    let mut stream = front.connect().await?;
    let opening = format!("GET / HTTP/1.1\r\nHost: localhost\r\nX: {}", "x".repeat(31 << 10));
    stream.write_all(opening.as_bytes()).await?;
    Ok(last_status(&mut stream).await)
}

pub(super) async fn slow_bodies(front: Rc<AttackConnection>) -> io::Result<ConnectionEnd> {
    let opening = b"POST /customers HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n{";
    send_byte_by_byte(&front, opening, b" ").await
}

/// The largest head there may be, whole, and a body that comes byte by byte.
pub(super) async fn slow_bodies_behind_large_heads(
    front: Rc<AttackConnection>,
) -> io::Result<ConnectionEnd> {
    front.wait_for_actions(20).await;
    let opening = format!(
        "POST /customers HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nX: {}\r\nContent-Length: 100000\r\n\r\n{{",
        "x".repeat(30 << 10)
    );
    send_byte_by_byte(&front, opening.as_bytes(), b" ").await
}

/// All of a body but its last byte.
pub(super) async fn stalled_bodies(front: Rc<AttackConnection>) -> io::Result<ConnectionEnd> {
    front.wait_for_actions(1).await;
    let mut stream = front.connect().await?;
    let length = 1 << 20;
    let head = format!(
        "POST /customers HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    );
    let (mut read, mut write) = stream.split();
    let sending = async {
        send_or_wait(&mut write, head.as_bytes()).await;
        send_or_wait(&mut write, " ".repeat(length - 1).as_bytes()).await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        end = last_status(&mut read) => Ok(end),
        () = sending => Ok(ConnectionEnd::Disconnected),
    }
}

async fn request_large_list(front: &AttackConnection) -> io::Result<TcpStream> {
    front.wait_for_actions(1).await;
    let mut stream = front.connect_with(Some(4096)).await?;
    let request = format!("GET {LARGE_LIST} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    Ok(stream)
}

pub(super) async fn never_reading(front: Rc<AttackConnection>) -> io::Result<ConnectionEnd> {
    let stream = request_large_list(&front).await?;
    Ok(wait_until_closed(&stream).await)
}

/// Reads a little all the time, but never to the end.
pub(super) async fn slow_readers(front: Rc<AttackConnection>) -> io::Result<ConnectionEnd> {
    let mut stream = request_large_list(&front).await?;
    loop {
        let mut bytes = [0; 512];
        if let Ok(0) | Err(_) = stream.read(&mut bytes).await {
            return Ok(ConnectionEnd::Reset);
        }
        sleep(Duration::from_millis(200)).await;
    }
}

/// Sends many requests in one write and never reads the responses.
pub(super) async fn pipelining(front: Rc<AttackConnection>) -> io::Result<ConnectionEnd> {
    const REQUESTS: u32 = 10_000;
    front.wait_for_actions(REQUESTS).await;
    let mut stream = front.connect_with(Some(4096)).await?;
    let requests = "GET /customers?limit=20 HTTP/1.1\r\nHost: localhost\r\n\r\n"
        .repeat(usize::try_from(REQUESTS).unwrap_or_default());
    let sent = stream.write_all(requests.as_bytes());
    // The server stops reading when its responses cannot be written (backpressure).
    let _ = tokio::time::timeout(Duration::from_secs(5), sent).await;
    Ok(wait_until_closed(&stream).await)
}
