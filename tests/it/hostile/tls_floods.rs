//! HTTP/2 over TLS, where ALPN chooses the protocol: the control-frame budget is that of HTTP/2 without TLS.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

use super::attack_run::besieged;
use crate::harness::{Backend, CertificatePair, Server, Setup, TIMEOUT, wait_until};

type TlsClient = StreamOwned<ClientConnection, TcpStream>;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
const PING: &[u8] = b"\0\0\x08\x06\0\0\0\0\0are you?";
/// Opens the window of the connection by one byte.
const WINDOW_UPDATE: &[u8] = &[0, 0, 4, 8, 0, 0, 0, 0, 0, 0, 0, 0, 1];
/// Of an unknown type (RFC 9113 §4.1).
const UNKNOWN: &[u8] = &[0, 0, 0, 0x42, 0, 0, 0, 0, 0];

fn start() -> (Server, CertificatePair) {
    let pair = CertificatePair::new();
    (Setup::new(Backend::Sqlite).model(&besieged("")).tls(&pair).start(), pair)
}

/// A connection that has chosen HTTP/2 by ALPN, after the client's preface.
fn connect(server: &Server, pair: &CertificatePair) -> TlsClient {
    let mut config = (*pair.trusting_client()).clone();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let name = ServerName::try_from("localhost").unwrap();
    let session = ClientConnection::new(Arc::new(config), name).unwrap();
    let socket = TcpStream::connect(server.address).unwrap();
    socket.set_nodelay(true).unwrap();
    socket.set_read_timeout(Some(TIMEOUT)).unwrap();
    socket.set_write_timeout(Some(TIMEOUT)).unwrap();
    let mut client = StreamOwned::new(session, socket);
    client.write_all(&[PREFACE, SETTINGS].concat()).unwrap();
    client.flush().unwrap();
    assert_eq!(client.conn.alpn_protocol(), Some(&b"h2"[..]));
    client
}

/// Ten times the budget, in few bytes: the budget counts frames.
#[test]
fn http2_control_frame_flood_over_tls_is_disconnected() {
    let (server, pair) = start();
    for (number, frame) in (1..).zip([PING, WINDOW_UPDATE, UNKNOWN]) {
        let mut client = connect(&server, &pair);
        let batch = frame.repeat(100);
        // The server may disconnect while the client still sends.
        let _ = (0..200).try_for_each(|_| client.write_all(&batch));
        wait_until("the flood is counted", || {
            let name = "nouns_connections_aborted_total{reason=\"frames\"}";
            (server.metric(name) == Some(number)).then_some(())
        });
    }
}

/// Requests earn the budget for the control frames of a well-behaved client.
#[test]
fn http2_busy_client_over_tls_is_not_disconnected() {
    let (server, pair) = start();
    let mut client = connect(&server, &pair);
    for number in 0..3_000_u32 {
        // RFC 7541, appendix A: GET, https, :path and :authority.
        let block = b"\x82\x87\x04\x09/-/health\x01\x09localhost";
        let stream = (2 * number + 1).to_be_bytes();
        let length = u8::try_from(block.len()).unwrap();
        let head = [&[0, 0, length, 1, 5][..], &stream, block].concat();
        client.write_all(&[PING, &head].concat()).unwrap();
        while !is_end_of_stream(&mut client) {}
    }
    assert!(!server.log().contains("aborted"), "{}", server.log());
}

/// Reads one frame. True for a DATA frame with END_STREAM.
fn is_end_of_stream(client: &mut TlsClient) -> bool {
    let mut head = [0; 9];
    client.read_exact(&mut head).unwrap();
    let [high, middle, low, kind, flags, ..] = head;
    let length = u32::from_be_bytes([0, high, middle, low]);
    client.read_exact(&mut vec![0; length.try_into().unwrap()]).unwrap();
    assert!(kind != 3 && kind != 7, "the server ended it");
    kind == 0 && flags & 1 == 1
}
