//! Oversized requests: each gets its status, and the server continues.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;

use bench::attack::CASES;

use super::attack_run::start;

/// The status of the response, also when the server responds before it has read the whole request.
fn status(address: std::net::SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let mut sender = stream.try_clone().unwrap();
    thread::scope(|scope| {
        // The connection may be closed in the middle.
        scope.spawn(move || drop(sender.write_all(request)));
        let mut answer = Vec::new();
        drop(stream.read_to_end(&mut answer));
        String::from_utf8_lossy(answer.get(9..12).unwrap_or_default()).into_owned()
    })
}

#[test]
fn oversized_requests_get_the_status_of_their_limit() {
    let server = start("");
    let mut faults = Vec::new();
    for case in CASES {
        let got = status(server.address, &(case.request)());
        if got != case.status.to_string() {
            faults.push(format!("{}: expected {}, got {got:?}", case.name, case.status));
        }
    }
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
    assert_eq!(server.get("/-/health").status, 200);
    assert!(!server.log().contains("\"status\":500"), "{}", server.log());
}
