//! The client of the streams' tests, against a server that sends exactly the bytes of a script.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::harness::{ConnectError, EventSource, Received, StreamEnd, StreamEvent};

const HEAD: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
const FIRST: &str = "id: 41\nevent: created\ndata: {\"a\":1}\n\n";
const SECOND: &str = "id: 42\nevent: updated\ndata: {\"a\":2}\n\n";

fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

/// Answers one connection after another. Returns the heads of the requests.
fn serve(answers: Vec<String>) -> (SocketAddr, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = thread::spawn(move || {
        let answer = |text: &String| {
            let (mut socket, _) = listener.accept().unwrap();
            let head = read_head(&mut socket);
            socket.write_all(text.as_bytes()).unwrap();
            head
        };
        answers.iter().map(answer).collect()
    });
    (address, server)
}

fn read_head(socket: &mut TcpStream) -> String {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        socket.read_exact(&mut byte).unwrap();
        head.extend(byte);
    }
    String::from_utf8(head).unwrap()
}

#[test]
fn event_source_cut_at_any_byte_resumes_without_loss() {
    let bookmark = "retry: 2000\nid: 40\n\n";
    let body = [bookmark, FIRST, ":\n\n", SECOND].map(chunk).concat();
    for cut in 0..=body.len() {
        // What a server sends after each id.
        let rest = |id: &str| match id {
            "" | "40" => [FIRST, SECOND].map(chunk).concat(),
            "41" => chunk(SECOND),
            _ => String::new(),
        };
        let (address, server) = serve(vec![format!("{HEAD}{}", &body[..cut])]);
        let mut source = EventSource::new("/x").connected(address);
        let (mut events, end) = source.read_to_end();
        assert_eq!(end, StreamEnd::Truncated);
        assert!(!server.join().unwrap()[0].contains("Last-Event-ID"));
        let last = source.last_event_id().to_owned();
        let (address, server) = serve(vec![format!("{HEAD}{}0\r\n\r\n", rest(&last))]);
        source.connect(address).unwrap();
        let (more, end) = source.read_to_end();
        assert_eq!(end, StreamEnd::Complete);
        events.extend(more);
        let numbers: Vec<_> = events.iter().map(StreamEvent::sequence).collect();
        assert_eq!(numbers, [41, 42], "cut after {cut} bytes, resumed after {last:?}");
        let head = server.join().unwrap().remove(0);
        let sent = head.lines().find_map(|line| line.strip_prefix("Last-Event-ID: "));
        assert_eq!(sent.unwrap_or_default(), last);
    }
}

#[test]
fn event_source_cut_by_the_client_reads_no_further() {
    let body = [FIRST, SECOND].map(chunk).concat();
    let first = chunk(FIRST).len();
    for (cut, expected) in [(first - 3, 0), (first - 2, 1), (first + 20, 1), (body.len() - 2, 2)] {
        // The body in a piece of its own, so that its bytes are counted from the first.
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut source = EventSource::new("/x").header("X-Test", "1");
        let address = listener.local_addr().unwrap();
        let body = &body;
        thread::scope(|scope| {
            let connect = scope.spawn(|| {
                source.connect(address).unwrap();
                source
            });
            let (mut socket, _) = listener.accept().unwrap();
            assert!(read_head(&mut socket).contains("X-Test: 1\r\n"));
            socket.write_all(HEAD.as_bytes()).unwrap();
            let mut source = connect.join().unwrap();
            assert_eq!(source.poll(Duration::from_millis(1)), None, "nothing has arrived");
            source.cut_after(cut);
            socket.write_all(body.as_bytes()).unwrap();
            let (events, end) = source.read_to_end();
            assert_eq!((events.len(), end), (expected, StreamEnd::Cut), "after {cut} bytes");
            assert!(!source.is_connected());
        });
    }
}

#[test]
fn event_source_reports_refusals_and_lost_servers() {
    let refusal =
        "HTTP/1.1 410 Gone\r\nContent-Length: 4\r\nChanges-Oldest: 9\r\n\r\nswept".to_owned();
    let plain = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{}".to_owned();
    let (address, server) = serve(vec![refusal, plain, "HTTP/1.1 200 O".to_owned()]);
    let mut source = EventSource::new("/x").resume_after("7");
    match source.connect(address) {
        Err(ConnectError::Refused(answer)) => {
            assert_eq!((answer.status, answer.header("Changes-Oldest")), (410, Some("9")));
            assert_eq!(answer.body, b"swep");
        }
        other => panic!("{other:?}"),
    }
    match source.connect(address) {
        Err(ConnectError::Refused(answer)) => assert_eq!(answer.body, b"{}"),
        other => panic!("{other:?}"),
    }
    match source.connect(address) {
        Err(ConnectError::Lost(error)) => assert_eq!(error.kind(), ErrorKind::UnexpectedEof),
        other => panic!("{other:?}"),
    }
    let heads = server.join().unwrap();
    assert!(heads.iter().all(|head| head.contains("Last-Event-ID: 7\r\n")), "{heads:?}");
    // Nobody listens at the same port of another address, because no other process can have it.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = SocketAddr::from(([127, 0, 0, 2], taken.local_addr().unwrap().port()));
    match source.connect(nobody) {
        Err(ConnectError::Lost(error)) => assert_eq!(error.kind(), ErrorKind::ConnectionRefused),
        other => panic!("{other:?}"),
    }
}

#[test]
fn event_source_keeps_received_events_when_it_is_closed() {
    let body = [":hello\n\nretry: 5\n\n", FIRST, SECOND].map(chunk).concat();
    let (address, server) = serve(vec![format!("{HEAD}{body}")]);
    let mut source = EventSource::new("/x").connected(address);
    assert_eq!(source.next_events(1)[0].kind, "created");
    assert_eq!(source.comments(), ["hello"]);
    assert_eq!(source.retry(), Some(Duration::from_millis(5)));
    assert!(source.body().contains(FIRST));
    server.join().unwrap();
    // Whether the second event was read already is open; the id to resume after agrees with it.
    source.close();
    let (more, end) = source.read_to_end();
    assert_eq!(end, StreamEnd::Cut);
    let expected = if more.is_empty() { "41" } else { "42" };
    assert_eq!(source.last_event_id(), expected, "{more:?}");
    assert_eq!(source.receive(), Received::End(StreamEnd::Cut));
}
