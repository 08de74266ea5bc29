//! Graceful shutdown, and the server's standard output.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::ANN;
use crate::harness::{Backend, CertificatePair, Client, Server, Setup, Stopwatch, wait_until};

/// Serves HTTP/2 with prior knowledge as well.
const MODEL: &str = "title = \"Stop\"\n[server]\nhttp2_prior_knowledge = true\n\
                     [resources.customer.fields]\nname = { type = \"text\" }\nemail = { type = \"email\" }\n";

/// How long a stop waits for heads and handshakes.
const STOP_GRACE: Duration = Duration::from_secs(1);
/// How long a stop, or a reload, waits for the first byte of a connection.
pub(super) const SILENT_GRACE: Duration = Duration::from_millis(250);
/// A stop that waits for what it should not wait for takes ten seconds.
const STOP_MAX: Duration = Duration::from_secs(9);

on_every_backend! {
    /// A request in flight is finished before the server ends.
    fn shutdown_finishes_requests_in_flight(server: Server) {
        let mut client = server.client();
        let head = format!("POST /customers HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\nExpect: 100-continue\r\n\r\n", server.address, ANN.len());
        client.write(head.as_bytes());
        // The server sends 100 Continue: the request is in flight.
        assert_eq!(client.read_answer(false).status, 100);
        server.terminate();
        let address = server.address;
        wait_until("no new connection is taken", || TcpStream::connect(address).is_err().then_some(()));
        client.write(ANN.as_bytes());
        let answer = client.read_answer(false);
        assert_eq!(answer.status, 201, "{answer:?}");
        let backend = server.backend();
        let (status, folder) = server.wait();
        assert_eq!(status.code(), Some(0));
        let server = Setup::new(backend).start_in(folder);
        assert_eq!(server.get(answer.header("Location").unwrap()).status, 200);
    }

    /// An operator who signals twice does not want to wait.
    fn shutdown_second_signal_ends_at_once(server: Server) {
        let path = server.create("/customers", ANN);
        let mut client = server.client();
        client.write(format!("PUT {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\nExpect: 100-continue\r\n\r\n", ANN.len()).as_bytes());
        // The server waits for the body, which never arrives.
        assert_eq!(client.read_answer(false).status, 100);
        server.terminate();
        wait_until("the first signal is heard", || server.log().contains("shutting down: finishing").then_some(()));
        let (begun, backend) = (Stopwatch::start(), server.backend());
        // A signal within 100 ms of the first counts as the same one.
        let process = format!("/proc/{}/stat", server.process_id());
        let has_ended = || std::fs::read_to_string(&process).map_or(true, |stat| stat.contains(") Z "));
        wait_until("a signal ends it", || {
            server.try_signals(&["TERM"]);
            has_ended().then_some(())
        });
        let (status, folder) = server.wait();
        assert_eq!(status.code(), Some(128 + 15));
        assert!(begun.elapsed() < STOP_MAX, "{:?}", begun.elapsed());
        assert!(client.is_closed());
        let server = Setup::new(backend).start_in(folder);
        assert_eq!(server.get(&path).json()["customer"]["version"], 1);
    }

    /// A wrapper forwards a signal that the terminal has sent to the server too.
    fn shutdown_two_signals_within_100_ms_count_as_one(server: Server) {
        let mut client = server.client();
        let head = format!("POST /customers HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\nExpect: 100-continue\r\n\r\n", server.address, ANN.len());
        client.write(head.as_bytes());
        assert_eq!(client.read_answer(false).status, 100);
        // The paused process gets both signals when it resumes, even if the test sends the second one late.
        server.pause();
        assert!(server.try_signals(&["INT", "TERM"]));
        server.resume();
        let address = server.address;
        wait_until("no new connection is taken", || TcpStream::connect(address).is_err().then_some(()));
        client.write(ANN.as_bytes());
        assert_eq!(client.read_answer(false).status, 201);
        let (status, _folder) = server.wait();
        assert_eq!(status.code(), Some(0));
    }

    fn shutdown_does_not_wait_for_idle_connections(server: Server) {
        let mut idle = server.client();
        assert_eq!(idle.request("GET /customers", &[], "").status, 200);
        let begun = Stopwatch::start();
        server.stop();
        assert!(begun.elapsed() < STOP_MAX, "{:?}", begun.elapsed());
        assert!(idle.is_closed());
    }

    /// Regression: one half of a head delayed the shutdown for its whole grace period, without a
    /// request in flight.
    fn shutdown_does_not_wait_for_unfinished_heads(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let begin = |bytes: &[u8]| {
            let mut client = server.client();
            client.write(bytes);
            client
        };
        let hello = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
        // HTTP/2 connections: one answers no ping, one has sent half a head, and one an incomplete
        // first frame.
        let half_block = [&hello[..], b"\0\0\x01\x01\x01\0\0\0\x01\x82"].concat();
        let mut waiting: Vec<Client> = [
            &b""[..],
            b"GET /customers HTTP/1.1\r\nHos",
            b"G",
            b"PRI * HT",
            // Empty lines before a request line, which are no head.
            b"\r\n\r\n",
            b"\n\n",
            hello,
            &half_block,
            &hello[..30],
        ]
        .map(begin)
        .into();
        let mut behind = begin(b"GET /customers HTTP/1.1\r\nHost: localhost\r\n\r\nGET /cust");
        assert_eq!(behind.read_answer(false).status, 200);
        waiting.push(behind);
        // A request with a complete head is awaited.
        let mut under_way = begin(format!("POST /customers HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\nExpect: 100-continue\r\n\r\n", ANN.len()).as_bytes());
        assert_eq!(under_way.read_answer(false).status, 100);
        let begun = Stopwatch::start();
        server.terminate();
        for mut client in waiting {
            client.read_to_close();
        }
        assert!(begun.elapsed() < STOP_MAX, "{:?}", begun.elapsed());
        under_way.write(ANN.as_bytes());
        assert_eq!(under_way.read_answer(false).status, 201);
        let (status, _) = server.wait();
        assert_eq!(status.code(), Some(0));
    }

    fn stop_answers_a_head_completed_within_the_grace_period(backend: Backend) {
        for setup in [Setup::new(backend), Setup::new(backend).model(MODEL)] {
            let is_conclusive = (0..20).any(|_| complete_heads_during_a_stop(setup.clone().start()));
            assert!(is_conclusive, "the machine was too slow, or a response lacked Connection: close, each time");
        }
    }

    /// Where HTTP/2 with prior knowledge is offered, the first bytes are read to tell the protocols apart.
    fn stop_answers_an_unread_first_request_where_http2_is_offered(backend: Backend) {
        let server = Setup::new(backend).model(MODEL).start();
        let mut clients: Vec<Client> = (0..4).map(|_| server.client()).collect();
        let opened = || server.metric::<f64>("nouns_connections_open").filter(|open| *open > 4.0);
        wait_until("the connections are accepted", || opened().map(drop));
        server.pause();
        for client in &mut clients {
            client.write(b"GET /customers HTTP/1.1\r\nHost: localhost\r\n\r\n");
        }
        server.terminate();
        server.resume();
        for mut client in clients {
            assert_eq!(client.read_answer(false).status, 200);
            client.read_to_close();
        }
        let (status, _) = server.wait();
        assert_eq!(status.code(), Some(0));
    }

    fn stdout_has_one_line(server: Server) {
        server.create("/customers", ANN);
        let address = server.address;
        assert_eq!(server.output(), format!("nouns: serving Store at http://{address}\n"));
    }
}

/// Nor does it wait for an unfinished handshake.
#[test]
fn shutdown_does_not_wait_for_an_unfinished_handshake() {
    let pair = CertificatePair::new();
    let server = Setup::new(Backend::Sqlite).tls(&pair).start();
    let mut silent = TcpStream::connect(server.address).unwrap();
    // The header of a record, and one byte of 256.
    silent.write_all(&[22, 3, 1, 1, 0, 1]).unwrap();
    let begun = Stopwatch::start();
    server.stop();
    assert!(begun.elapsed() < STOP_MAX, "{:?}", begun.elapsed());
}

/// Completes heads that were begun before the stop, and sends the first one of a new connection. Returns false
/// when that took nearly as long as the server waits for them, so that it may have closed their connections, or
/// when a worker thread answered before it was notified of the stop.
fn complete_heads_during_a_stop(server: Server) -> bool {
    let half = b"GET /customers HTTP/1.1\r\nHos";
    let whole = b"GET /customers HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let mut parked = server.client();
    parked.write(half);
    let mut idle = server.client();
    assert_eq!(idle.request("GET /customers", &[], "").status, 200);
    let begun = Instant::now();
    wait_until("both wait without buffers", || (begun.elapsed() > STOP_GRACE).then_some(()));
    let mut silent = server.client();
    let mut fresh = server.client();
    fresh.write(half);
    let mut kept = server.client();
    kept.write(&[&whole[..], half].concat());
    assert_eq!(kept.read_answer(false).status, 200);
    // A head that has arrived and was not read yet is whole.
    server.pause();
    idle.write(whole);
    server.terminate();
    let stopped = Instant::now();
    server.resume();
    wait_until("the signal is heard", || {
        server.log().contains("shutting down: finishing").then_some(())
    });
    if stopped.elapsed() > STOP_GRACE / 2 {
        return false;
    }
    for client in [&mut parked, &mut fresh, &mut kept] {
        client.write(b"t: localhost\r\n\r\n");
    }
    silent.write(whole);
    if silent.is_closed() {
        // On a slow machine its time may be over; the others have more of it.
        let after = stopped.elapsed();
        assert!(after > SILENT_GRACE / 2, "the silent one was closed {after:?} after the signal");
    } else {
        assert_eq!(silent.read_answer(false).status, 200);
    }
    let clients = [("idle", idle), ("parked", parked), ("fresh", fresh), ("kept", kept)];
    let mut is_conclusive = true;
    for (name, mut client) in clients {
        if client.is_closed() {
            let after = stopped.elapsed();
            assert!(after > STOP_GRACE / 2, "{name} was closed {after:?} after the signal");
            return false;
        }
        let answer = client.read_answer(false);
        assert_eq!(answer.status, 200, "{name}: {answer:?}");
        // The main thread logs the signal before it notifies the worker threads; a response in between has no
        // `Connection: close`. The request of the idle client may be answered before the stop.
        is_conclusive &= name == "idle" || answer.header("Connection") == Some("close");
        client.read_to_close();
    }
    let (status, _) = server.wait();
    assert_eq!(status.code(), Some(0));
    is_conclusive
}

/// Completes a handshake that was begun before the stop, and sends a request with its end. Returns false when
/// that took nearly as long as the server waits for it.
fn complete_a_handshake_during_a_stop() -> bool {
    let pair = CertificatePair::new();
    let server = Setup::new(Backend::Sqlite).tls(&pair).start();
    let name = rustls::pki_types::ServerName::try_from("localhost").unwrap();
    let mut session = rustls::ClientConnection::new(pair.trusting_client(), name).unwrap();
    let mut socket = TcpStream::connect(server.address).unwrap();
    session.write_tls(&mut socket).unwrap();
    while session.is_handshaking() {
        assert!(session.read_tls(&mut socket).unwrap() > 0);
        session.process_new_packets().unwrap();
    }
    let request = b"GET /customers HTTP/1.1\r\nHost: localhost\r\n\r\n";
    session.writer().write_all(request).unwrap();
    let stopped = Instant::now();
    server.terminate();
    wait_until("the signal is heard", || {
        server.log().contains("shutting down: finishing").then_some(())
    });
    while session.wants_write() {
        // The connection may be closed already.
        if session.write_tls(&mut socket).is_err() {
            break;
        }
    }
    let mut answer = Vec::new();
    // The server may close the connection without an alert.
    let _ = rustls::StreamOwned::new(session, socket).read_to_end(&mut answer);
    let is_answered = answer.starts_with(b"HTTP/1.1 200 OK\r\n");
    assert!(is_answered || stopped.elapsed() > STOP_GRACE / 2, "{answer:?}");
    assert_eq!(server.wait().0.code(), Some(0));
    is_answered
}

#[test]
fn stop_answers_a_request_whose_handshake_ends_within_the_grace_period() {
    assert!((0..20).any(|_| complete_a_handshake_during_a_stop()));
}
