//! TLS handshakes that stall, are slow, or are malformed.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use super::{setup, start_with, wait_for_metric};
use crate::harness::{CertificatePair, Client, Server, wait_until};

/// The first bytes of a ClientHello: a record that announces more than follows.
const PARTIAL_CLIENT_HELLO: &[u8] = &[22, 3, 1, 63, 255, 1, 0, 63, 251, 3, 3];

/// A limit that a test waits for; handshakes that are not stalled end within it on a busy machine too.
const LIMIT: Duration = Duration::from_secs(3);

/// How many log lines contain these words; there must be some.
fn lines_with(server: &Server, words: &str) -> usize {
    wait_until("it is logged", || {
        let log = server.log();
        Some(log.lines().filter(|line| line.contains(words)).count()).filter(|count| *count > 0)
    })
}

#[test]
fn handshake_timeout_closes_the_connection() {
    let (server, _) = start_with("limits = { handshake_seconds_max = 3 }");
    let address = server.address;
    thread::scope(|scope| {
        for said in [&b""[..], PARTIAL_CLIENT_HELLO] {
            scope.spawn(move || {
                let began = Instant::now();
                let mut client = Client::connect(address);
                client.write(said);
                assert_eq!(client.read_to_close(), b"", "{said:?}");
                assert!(began.elapsed() >= LIMIT, "{said:?}");
            });
        }
        // Single bytes do not extend the timeout.
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_nonblocking(true).unwrap();
        stream.write_all(PARTIAL_CLIENT_HELLO).unwrap();
        let began = Instant::now();
        wait_until("the drip is cut", || {
            let _ = stream.write(&[0]);
            match stream.read(&mut [0; 64]) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => None,
                _ => Some(()),
            }
        });
        assert!(began.elapsed() >= LIMIT / 2);
    });
    wait_for_metric(&server, "nouns_connections_aborted_total{reason=\"handshake\"}", 3);
    // The log has one line for several failures at the same time (sampled).
    let lines = lines_with(&server, "TLS handshake took too long");
    assert!(lines <= 3, "{lines}");
}

/// The handshake has a timeout of its own: the head has its full time afterwards.
#[test]
fn handshake_timeout_does_not_apply_to_served_connections() {
    let (server, _) = start_with("limits = { handshake_seconds_max = 3, header_seconds_max = 30 }");
    let mut client = server.client();
    assert_eq!(client.request("GET /", &[], "").status, 200);
    let mut fresh = server.client();
    fresh.write(b"GET / HTTP/1.1\r\nHost: local");
    // Idle for longer than a handshake may last.
    let mut stalled = Client::connect(server.address);
    stalled.write(PARTIAL_CLIENT_HELLO);
    assert_eq!(stalled.read_to_close(), b"");
    assert_eq!(client.request("GET /", &[], "").status, 200);
    assert_eq!(fresh.send(b"host\r\n\r\n").status, 200);
}

#[test]
fn plain_http_on_a_tls_port_is_explained() {
    let (server, _) = start_with("hsts = \"1d\"");
    let requests = [
        "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(),
        "POST /customers HTTP/1.1\r\nHost: localhost\r\nContent-Length: 600000\r\n\r\n".to_owned()
            + &"a".repeat(600_000),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
        "\r\n\r\nGET / HTTP/1.1\r\n\r\n".to_owned(),
        "g".to_owned(),
    ];
    for (number, request) in (1..).zip(&requests) {
        let mut client = Client::connect(server.address);
        client.write(request.as_bytes());
        client.finish_writing();
        let answer = client.read_answer(false);
        assert_eq!((answer.status, answer.problem().as_str()), (400, "bad-request"));
        assert_eq!(
            answer.json()["detail"],
            "this port speaks HTTPS: expected TLS, got HTTP without it"
        );
        assert_eq!(answer.header("Strict-Transport-Security"), None, "it would not be believed");
        assert!(client.is_closed());
        wait_for_metric(&server, "nouns_tls_handshakes_total{result=\"plain\"}", number);
    }
}

/// Any bytes cost one connection at most, and do not flood the log.
#[test]
fn handshake_garbage_closes_one_connection() {
    let (server, _) = start_with("limits = { handshake_seconds_max = 5 }");
    let long = [&[22, 3, 1, 255, 255][..], &[0; 70_000]].concat();
    let mut alert = PARTIAL_CLIENT_HELLO.to_vec();
    alert.extend([0; 600]);
    let garbage: [&[u8]; 6] = [
        &[0],
        &[255; 40],
        &[0x80, 0x2e, 1, 0, 2, 0, 21, 0, 0, 0, 16],
        &[21, 3, 1, 0, 2, 1, 0],
        &long,
        &alert,
    ];
    let rounds = 20;
    for _ in 0..rounds {
        for bytes in garbage {
            let mut client = Client::connect(server.address);
            client.write(bytes);
            client.finish_writing();
            let said = client.read_to_close();
            assert!(said.is_empty() || said[0] == 21, "nothing but an alert: {said:?}");
        }
    }
    let failed = rounds * garbage.len() as u64;
    wait_for_metric(&server, "nouns_tls_handshakes_total{result=\"failed\"}", failed);
    let lines = lines_with(&server, "TLS handshake failed");
    assert!(lines < 20, "{lines} lines for {failed} failures");
    let log = server.log();
    assert!(!log.contains("\"level\":\"error\"") && !log.contains("panic"), "{log}");
    assert_eq!(server.get("/customers").status, 200);
}

/// A connected client is served while hundreds of handshakes are stalled.
#[test]
fn handshakes_stalled_do_not_delay_other_clients() {
    let (server, _) = start_with("limits = { handshake_seconds_max = 20 }");
    let mut client = server.client();
    assert_eq!(client.request("GET /customers", &[], "").status, 200);
    let stalled: Vec<TcpStream> = (0..400)
        .map(|_| {
            let mut stream = TcpStream::connect(server.address).unwrap();
            stream.write_all(PARTIAL_CLIENT_HELLO).unwrap();
            stream
        })
        .collect();
    for _ in 0..100 {
        assert_eq!(client.request("GET /customers", &[], "").status, 200);
    }
    assert_eq!(server.get("/customers").status, 200, "and so is one who comes anew");
    drop(stalled);
}

/// A panic ends its own connection, and the next handshake gets its turn.
#[test]
fn panic_in_a_handshake_ends_one_connection() {
    let pair = CertificatePair::new();
    let server = setup("").tls(&pair).fault("handshake:3").start();
    assert_eq!(server.get("/customers").status, 200, "a handshake has two steps");
    let mut client = Client::connect(server.address);
    client.write(PARTIAL_CLIENT_HELLO);
    assert_eq!(client.read_to_close(), b"");
    wait_until("it is logged", || server.log().contains("panic in a connection").then_some(()));
    for _ in 0..4 {
        assert_eq!(server.get("/customers").status, 200);
    }
}
