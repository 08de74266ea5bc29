//! A foreign web server, whose pages a person visits while logged in at ours.
//!
//! It serves one empty page, into which the tests inject their scripts.
//! It answers to every host name, so that one port is many sites.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::thread;

/// Serves until the tests end.
pub fn serve() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            thread::spawn(move || {
                let mut lines = BufReader::new(&stream).lines().map_while(Result::ok);
                // A browser may open a connection that it does not use.
                if lines.by_ref().find(String::is_empty).is_none() {
                    return;
                }
                let page = "<!doctype html><title>elsewhere</title><body>elsewhere</body>";
                let head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n";
                drop(write!(&stream, "{head}Content-Length: {}\r\n\r\n{page}", page.len()));
            });
        }
    });
    address
}

/// The URL of its page at the site of this name.
pub fn page(server: SocketAddr, name: &str) -> String {
    format!("http://{name}:{}/", server.port())
}
