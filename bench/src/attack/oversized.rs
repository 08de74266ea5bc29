//! Requests that exceed one limit each, with the status each should get.

use std::cell::Cell;
use std::io;
use std::rc::Rc;

use tokio::io::AsyncWriteExt;

use super::http1::last_status;
use super::{AttackConnection, ConnectionEnd, send_or_wait};

/// The limit that is exceeded, the request, and the expected status.
#[derive(Debug, Clone, Copy)]
pub struct OversizedRequest {
    pub name: &'static str,
    pub status: u16,
    pub request: fn() -> Vec<u8>,
}

fn get(target: &str, headers: &str) -> Vec<u8> {
    format!("GET {target} HTTP/1.1\r\nHost: localhost\r\n{headers}Connection: close\r\n\r\n").into()
}

fn post(framing: &str, body: &str) -> Vec<u8> {
    let head = "POST /customers HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";
    format!("{head}Connection: close\r\n{framing}\r\n\r\n{body}").into()
}

fn with_content_length(body: &str) -> Vec<u8> {
    post(&format!("Content-Length: {}", body.len()), body)
}

fn chunked(body: &str) -> Vec<u8> {
    post("Transfer-Encoding: chunked", body)
}

/// A request for every limit.
pub static CASES: &[OversizedRequest] = &[
    OversizedRequest {
        name: "target",
        status: 414,
        request: || get(&format!("/{}", "a".repeat(100_000)), ""),
    },
    OversizedRequest {
        name: "one header",
        status: 431,
        request: || get("/", &format!("X: {}\r\n", "a".repeat(100_000))),
    },
    OversizedRequest {
        name: "many headers",
        status: 431,
        request: || get("/", &"X: y\r\n".repeat(2_000)),
    },
    // The server discards these bytes, so it cannot tell which part of a head was too large.
    OversizedRequest {
        name: "empty lines before the request",
        status: 413,
        request: || [&b"\r\n".repeat(100_000)[..], &get("/", "")].concat(),
    },
    OversizedRequest {
        name: "body by its length",
        status: 413,
        request: || post("Content-Length: 9000000", "{"),
    },
    OversizedRequest {
        name: "body of one item",
        status: 413,
        request: || {
            with_content_length(&format!(
                "{{\"customer\":{{\"name\":\"{}\"}}}}",
                "a".repeat(1_100_000)
            ))
        },
    },
    OversizedRequest {
        name: "body in chunks",
        status: 413,
        request: || chunked(&format!("10000\r\n{}\r\n", "a".repeat(0x1_0000)).repeat(140)),
    },
    OversizedRequest {
        name: "body in chunks of one byte",
        status: 400,
        request: || chunked(&("1\r\n[\r\n".repeat(50_000) + "0\r\n\r\n")),
    },
    OversizedRequest {
        name: "chunk extensions",
        status: 400,
        request: || chunked(&format!("1;{}\r\n{{\r\n0\r\n\r\n", "a".repeat(100_000))),
    },
    OversizedRequest {
        name: "many chunk extensions",
        status: 400,
        request: || {
            chunked(&(format!("1;{}\r\n{{\r\n", "a".repeat(100)).repeat(1_000) + "0\r\n\r\n"))
        },
    },
    OversizedRequest {
        name: "trailers",
        status: 400,
        request: || {
            chunked(&format!(
                "1\r\n{{\r\n0\r\n{}\r\n",
                format!("X: {}\r\n", "a".repeat(1_000)).repeat(1_000)
            ))
        },
    },
    OversizedRequest {
        name: "levels of JSON",
        status: 400,
        request: || with_content_length(&"[".repeat(500_000)),
    },
    OversizedRequest {
        name: "values of JSON",
        status: 413,
        request: || {
            with_content_length(&format!("{{\"customers\":[{}0]}}", "[],".repeat(2_500_000)))
        },
    },
    OversizedRequest {
        name: "values of JSON in lists",
        status: 413,
        request: || {
            with_content_length(&format!("{{\"customers\":[{}0]}}", "[0],".repeat(2_000_000)))
        },
    },
    OversizedRequest {
        name: "members of JSON",
        status: 400,
        request: || {
            with_content_length(&format!(
                "{{{}\"z\":0}}",
                (0..60_000).map(|n| format!("\"m{n}\":0,")).collect::<String>()
            ))
        },
    },
    OversizedRequest {
        name: "a number of JSON",
        status: 422,
        request: || {
            with_content_length(&format!("{{\"customer\":{{\"name\":{}}}}}", "9".repeat(900_000)))
        },
    },
    OversizedRequest {
        name: "items in one request",
        status: 413,
        request: || {
            with_content_length(&format!("{{\"customers\":[{}{{}}]}}", "{},".repeat(1_000)))
        },
    },
    OversizedRequest {
        name: "faults",
        status: 422,
        request: || {
            with_content_length(&format!("{{\"customers\":[{}{{}}]}}", "{\"nome\":1},".repeat(999)))
        },
    },
    OversizedRequest {
        name: "query parameters",
        status: 400,
        request: || get(&format!("/customers?{}", "a=b&".repeat(2_000)), ""),
    },
    OversizedRequest {
        name: "a page",
        status: 400,
        request: || get("/customers?limit=100000", ""),
    },
    OversizedRequest {
        name: "Accept",
        status: 406,
        request: || get("/customers", &format!("Accept: {}\r\n", "a/b;q=0.1,".repeat(3_000))),
    },
];

/// Sends the cases in turn.
pub(super) async fn requests(front: Rc<AttackConnection>) -> io::Result<ConnectionEnd> {
    thread_local! {
        static REQUEST_BYTES: Cell<Option<&'static [Vec<u8>]>> = const { Cell::new(None) };
    }
    let made = REQUEST_BYTES.get().unwrap_or_else(|| {
        let made: &'static [Vec<u8>] =
            Vec::leak(CASES.iter().map(|case| (case.request)()).collect());
        REQUEST_BYTES.set(Some(made));
        made
    });
    front.wait_for_actions(1).await;
    let number = usize::try_from(front.next_number()).unwrap_or_default() % made.len();
    let Some(request) = made.get(number) else { return Ok(ConnectionEnd::Disconnected) };
    let mut stream = front.connect().await?;
    let (mut read, mut write) = stream.split();
    let sending = async {
        send_or_wait(&mut write, request).await;
        let _ = write.flush().await;
        std::future::pending::<()>().await;
    };
    tokio::select! {
        end = last_status(&mut read) => Ok(end),
        () = sending => Ok(ConnectionEnd::Disconnected),
    }
}
