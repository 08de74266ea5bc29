//! Connection floods: idle connections, more connections than the limit, and clients that disconnect
//! early.

use std::io;
use std::net::Shutdown;
use std::rc::Rc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::sleep;

use super::http1::{LARGE_LIST, last_status};
use super::{AttackConnection, ConnectionEnd};

const GET: &[u8] = b"GET /customers?limit=1 HTTP/1.1\r\nHost: localhost\r\n\r\n";

pub(super) async fn silent(front: Rc<AttackConnection>) -> io::Result<ConnectionEnd> {
    front.wait_for_actions(1).await;
    let mut stream = front.connect().await?;
    Ok(last_status(&mut stream).await)
}

/// Sends half a request, then half-closes the connection.
pub(super) async fn half_closed(front: Rc<AttackConnection>) -> io::Result<ConnectionEnd> {
    front.wait_for_actions(1).await;
    let mut stream = front.connect().await?;
    stream.write_all(b"GET / HTTP/1.1\r\nHo").await?;
    stream.shutdown().await?;
    Ok(last_status(&mut stream).await)
}

/// Sends a valid request, then keeps the connection open.
pub(super) async fn crowd(front: Rc<AttackConnection>) -> io::Result<ConnectionEnd> {
    front.wait_for_actions(1).await;
    let mut stream = front.connect().await?;
    stream.write_all(GET).await?;
    Ok(last_status(&mut stream).await)
}

pub(super) async fn churn(front: Rc<AttackConnection>) -> io::Result<ConnectionEnd> {
    front.wait_for_actions(1).await;
    let stream = front.connect().await?;
    reset_connection(stream)
}

/// Resets the connection (RST).
fn reset_connection(stream: TcpStream) -> io::Result<ConnectionEnd> {
    stream.set_zero_linger()?;
    drop(stream);
    Ok(ConnectionEnd::Disconnected)
}

/// Each connection closes at another point: in the head, in the body, before the response, in the
/// response; by a reset or an orderly close.
pub(super) async fn early_disconnects(front: Rc<AttackConnection>) -> io::Result<ConnectionEnd> {
    front.wait_for_actions(1).await;
    let number = front.next_number();
    let mut stream = front.connect().await?;
    let list = format!("GET {LARGE_LIST} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let body =
        b"POST /customers HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60\r\n\r\n{\"customer\":";
    let create = b"POST /customers HTTP/1.1\r\nHost: localhost\r\nContent-Length: 27\r\n\r\n{\"customer\":{\"name\":\"Eve\"}}";
    match number % 8 {
        0 => stream.write_all(b"GET /custo").await?,
        1 | 2 => stream.write_all(body).await?,
        3 | 4 => stream.write_all(create).await?,
        5 | 6 => stream.write_all(GET).await?,
        // A page of many megabytes; rarely, since each costs as much as hundreds of the others.
        _ if number % 64 == 7 => {
            stream.write_all(list.as_bytes()).await?;
            let mut some = [0; 1000];
            stream.read_exact(&mut some).await?;
        }
        _ => {}
    }
    if number.is_multiple_of(3) {
        sleep(Duration::from_millis(1)).await;
    }
    if number.is_multiple_of(2) {
        return reset_connection(stream);
    }
    let stream = stream.into_std()?;
    stream.shutdown(Shutdown::Both)?;
    Ok(ConnectionEnd::Disconnected)
}
