//! The end of a server, and what it leaves on standard output.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::ANN;
use crate::harness::{Server, Setup, wait_until};

on_every_backend! {
    /// A request under way is finished, and only then does the server end.
    fn a_signal_lets_requests_finish(server: Server) {
        let mut client = server.client();
        let head = format!("POST /customers HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\nExpect: 100-continue\r\n\r\n", server.address, ANN.len());
        client.write(head.as_bytes());
        // The server asks for the body: the request is under way.
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

    /// Whoever asks twice does not want to wait.
    fn a_second_signal_ends_it_at_once(server: Server) {
        let path = server.create("/customers", ANN);
        let mut client = server.client();
        client.write(format!("PUT {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\nExpect: 100-continue\r\n\r\n", ANN.len()).as_bytes());
        // The server waits for the body, which never comes.
        assert_eq!(client.read_answer(false).status, 100);
        server.terminate();
        wait_until("the first signal is heard", || server.log().contains("ending: finishing").then_some(()));
        let (begun, backend) = (Instant::now(), server.backend());
        server.terminate();
        let (status, folder) = server.wait();
        assert_eq!(status.code(), Some(128 + 15));
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        assert!(client.is_closed());
        let server = Setup::new(backend).start_in(folder);
        assert_eq!(server.get(&path).json()["customer"]["version"], 1);
    }

    fn idle_connections_do_not_hold_up_the_end(server: Server) {
        let mut idle = server.client();
        assert_eq!(idle.request("GET /customers", &[], "").status, 200);
        let begun = Instant::now();
        server.stop();
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        assert!(idle.is_closed());
    }

    fn stdout_has_one_line(server: Server) {
        server.create("/customers", ANN);
        let address = server.address;
        assert_eq!(server.output(), format!("nouns: serving Store at http://{address}\n"));
    }
}
