//! Limits that all clients share, and well-behaved clients that must not exceed them.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::harness::{Backend, Client, Server, Setup, TIMEOUT, wait_until};

use super::attack_run::{fill_first_page, start};

fn get(client: &mut Client) -> u16 {
    client.request("GET /-/health", &[], "").status
}

/// Regression: with few file descriptors the server accepts few connections and refuses the rest;
/// formerly accepting failed, they waited without a response, and the database had no file descriptors
/// left either.
#[test]
fn file_descriptor_limit_below_connection_limit_refuses_the_rest() {
    // The last of the clients sends its request after the responses to all others.
    let model = "title = \"Store\"\n[server.limits]\nheader_seconds_max = 120\nidle_seconds_max = 600\n\
        [resources.customer.fields]\nname = { type = \"text\" }\nemail = { type = \"email\" }\n";
    let few = ["sh", "-c", r#"ulimit -n 300; exec "$0" "$@""#];
    let server = Setup::new(Backend::Sqlite).model(model).run_under(&few).start();
    let log =
        wait_until("it is said", || Some(server.log()).filter(|log| log.contains("open files")));
    assert!(
        log.contains(r#""connections_max":"10000""#) && log.contains(r#""files":"300""#),
        "{log}"
    );
    let mut clients: Vec<Client> = (0..200).map(|_| server.client()).collect();
    let mut served = 0;
    let mut refused = 0;
    for client in &mut clients {
        client.write(b"GET /-/health HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let bytes = if served < 150 { vec![] } else { client.read_to_close() };
        if bytes.is_empty() && served < 150 {
            assert_eq!(client.read_answer(false).status, 200, "after {served}");
            served += 1;
        } else {
            // The server answers at most 64 excess connections at a time, and closes the others.
            assert!(bytes.is_empty() || bytes.starts_with(b"HTTP/1.1 503 "), "{bytes:?}");
            refused += 1;
        }
    }
    assert_eq!((served, refused), (150, 50));
    drop(clients.drain(..50));
    wait_until("there is room again", || {
        let metrics = clients[0].request("GET /-/metrics", &[], "");
        metrics.text().contains("\nnouns_connections_open 100\n").then_some(())
    });
    let path =
        server.create("/customers", r#"{"customer":{"name":"Ann","email":"ann@example.com"}}"#);
    assert_eq!(server.get(&path).status, 200);
    assert_eq!(get(&mut clients[0]), 200);
}

/// A well-behaved but simple HTTP/2 client: it opens its flow-control windows after every frame, and
/// sends a ping with every request.
struct WellBehavedClient {
    stream: TcpStream,
    next: u32,
}

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).unwrap();
    [&[0, 0, length, kind, flags][..], &stream.to_be_bytes(), payload].concat()
}

impl WellBehavedClient {
    fn connect(server: &Server) -> Self {
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap();
        stream.write_all(&frame(4, 0, 0, b"")).unwrap();
        Self { stream, next: 1 }
    }

    /// The number of bytes in the response's body.
    fn get(&mut self, path: &str) -> usize {
        let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
        // RFC 7541, appendix A: GET, http, :authority and :path.
        let block = [&[0x82, 0x86, 0x01][..], &text("localhost"), &[0x04], &text(path)].concat();
        let number = self.next;
        self.next += 2;
        let ping = frame(6, 0, 0, b"are you?");
        self.stream.write_all(&[ping, frame(1, 5, number, &block)].concat()).unwrap();
        let mut bytes = 0;
        loop {
            let mut head = [0; 9];
            self.stream.read_exact(&mut head).unwrap();
            let [high, middle, low, kind, flags, ..] = head;
            let length = u32::from_be_bytes([0, high, middle, low]);
            let mut payload = vec![0; length.try_into().unwrap()];
            self.stream.read_exact(&mut payload).unwrap();
            assert!(kind != 7 && kind != 3, "the server ended it");
            if kind == 0 {
                bytes += payload.len();
                let more = length.max(1).to_be_bytes();
                let windows = [frame(8, 0, 0, &more), frame(8, 0, number, &more)].concat();
                self.stream.write_all(&windows).unwrap();
            }
            // The end of the stream, in DATA or in HEADERS without any.
            if kind <= 1 && flags & 1 == 1 {
                return bytes;
            }
        }
    }
}

/// Requests and reads earn the budget for the control frames that a well-behaved client sends.
#[test]
fn http2_busy_client_is_not_disconnected() {
    let server = start("");
    fill_first_page(&server, 2_000_000);
    let mut client = WellBehavedClient::connect(&server);
    for _ in 0..3_000 {
        assert_eq!(client.get("/-/health"), r#"{"status":"ok"}"#.len());
    }
    for _ in 0..10 {
        assert!(client.get("/customers?limit=500") > 2_000_000);
    }
    assert!(!server.log().contains("aborted"), "{}", server.log());
}
