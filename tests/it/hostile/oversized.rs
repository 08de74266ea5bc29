//! Everything that is too large gets its status, and the server goes on.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;

use bench::attack::CASES;

use super::siege::start;

/// The status of what comes back, also when the server answers before it has all of the request.
fn status(address: std::net::SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let mut sender = stream.try_clone().unwrap();
    thread::scope(|scope| {
        // It may be cut off in the middle.
        scope.spawn(move || drop(sender.write_all(request)));
        let mut answer = Vec::new();
        drop(stream.read_to_end(&mut answer));
        String::from_utf8_lossy(answer.get(9..12).unwrap_or_default()).into_owned()
    })
}

#[test]
fn each_way_to_be_too_large_has_its_status() {
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
