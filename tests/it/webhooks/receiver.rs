//! A scripted receiver of webhooks: an HTTP/1.1 server that answers well, badly or not at all.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::harness::{CertificatePair, wait_until};

/// One request, as it arrived.
#[derive(Debug, Clone)]
pub struct ReceivedRequest {
    /// The request line and the headers.
    pub head: String,
    pub body: String,
}

impl ReceivedRequest {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (found, value) = line.split_once(": ")?;
            found.eq_ignore_ascii_case(name).then_some(value)
        })
    }
}

/// What the receiver does with a request.
#[derive(Debug, Clone)]
pub enum ReceiverAction {
    /// Sends these bytes and goes on.
    Send(Vec<u8>),
    /// Sends these bytes, and nothing more until the client gives up.
    SendAndStall(Vec<u8>),
    /// Sends these bytes, then one more byte ten times a second until the client gives up.
    SendAndDrip(Vec<u8>),
    /// Sends these bytes and closes the connection.
    SendAndClose(Vec<u8>),
    /// Closes with a TCP reset.
    Reset,
}

impl ReceiverAction {
    /// An answer without a body.
    pub fn status(status: u16) -> Self {
        Self::Send(format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n").into_bytes())
    }
}

type Script = dyn Fn(usize, &ReceivedRequest) -> ReceiverAction + Send + Sync;

/// A listening receiver. Its threads end with the test process.
pub struct Receiver {
    address: SocketAddr,
    state: Arc<ReceiverState>,
}

struct ReceiverState {
    script: Box<Script>,
    tls: Option<Arc<ServerConfig>>,
    connections: Mutex<usize>,
    requests: Mutex<Vec<ReceivedRequest>>,
}

impl Receiver {
    /// `script` gets the number of earlier requests, and the request.
    pub fn start(
        script: impl Fn(usize, &ReceivedRequest) -> ReceiverAction + Send + Sync + 'static,
    ) -> Self {
        Self::start_with("127.0.0.1", Box::new(script), None)
    }

    /// One that answers every request alike.
    pub fn always(action: ReceiverAction) -> Self {
        Self::start(move |_, _| action.clone())
    }

    /// One at this address that speaks TLS with this certificate, and answers 204.
    pub fn with_tls(host: &str, pair: &CertificatePair) -> Self {
        let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![pair.der()], key)
            .unwrap();
        let script = |_: usize, _: &ReceivedRequest| ReceiverAction::status(204);
        Self::start_with(host, Box::new(script), Some(Arc::new(config)))
    }

    fn start_with(host: &str, script: Box<Script>, tls: Option<Arc<ServerConfig>>) -> Self {
        let listener = TcpListener::bind((host, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(ReceiverState {
            script,
            tls,
            connections: Mutex::default(),
            requests: Mutex::default(),
        });
        let accepting = Arc::clone(&state);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                *accepting.connections.lock().unwrap() += 1;
                let state = Arc::clone(&accepting);
                // An error is a client that has gone.
                thread::spawn(move || drop(state.serve(&stream)));
            }
        });
        Self { address, state }
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    pub fn url(&self) -> String {
        format!("http://{}/hook?a=b", self.address)
    }

    pub fn requests(&self) -> Vec<ReceivedRequest> {
        self.state.requests.lock().unwrap().clone()
    }

    pub fn connections(&self) -> usize {
        *self.state.connections.lock().unwrap()
    }

    /// Its only request.
    pub fn only_request(&self) -> ReceivedRequest {
        let requests = wait_until("a request arrives", || {
            Some(self.requests()).filter(|requests| !requests.is_empty())
        });
        assert_eq!(requests.len(), 1, "{requests:?}");
        requests.into_iter().next().unwrap()
    }
}

impl ReceiverState {
    fn serve(&self, socket: &TcpStream) -> io::Result<()> {
        match &self.tls {
            None => self.serve_stream(socket.try_clone()?, socket),
            Some(config) => {
                let session = ServerConnection::new(Arc::clone(config)).unwrap();
                self.serve_stream(StreamOwned::new(session, socket.try_clone()?), socket)
            }
        }
    }

    fn serve_stream(&self, stream: impl Read + Write, socket: &TcpStream) -> io::Result<()> {
        let mut stream = BufReader::new(stream);
        while let Some(request) = read_request(&mut stream)? {
            let number = {
                let mut requests = self.requests.lock().unwrap();
                requests.push(request.clone());
                requests.len() - 1
            };
            match (self.script)(number, &request) {
                ReceiverAction::Send(bytes) => stream.get_mut().write_all(&bytes)?,
                ReceiverAction::SendAndStall(bytes) => {
                    stream.get_mut().write_all(&bytes)?;
                    stream.get_mut().flush()?;
                    // Until the client closes.
                    stream.read_to_end(&mut Vec::new())?;
                    return Ok(());
                }
                ReceiverAction::SendAndDrip(bytes) => {
                    stream.get_mut().write_all(&bytes)?;
                    loop {
                        stream.get_mut().write_all(b"a")?;
                        stream.get_mut().flush()?;
                        thread::sleep(Duration::from_millis(100));
                    }
                }
                ReceiverAction::SendAndClose(bytes) => {
                    return stream.get_mut().write_all(&bytes);
                }
                ReceiverAction::Reset => {
                    let socket = socket2::SockRef::from(socket);
                    return socket.set_linger(Some(Duration::ZERO));
                }
            }
            stream.get_mut().flush()?;
        }
        Ok(())
    }
}

/// `None` at the end of the connection.
fn read_request(stream: &mut impl BufRead) -> io::Result<Option<ReceivedRequest>> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head)? == 0 {
            return Ok(None);
        }
    }
    let mut request = ReceivedRequest { head, body: String::new() };
    let length = request.header("content-length").map_or(0, |text| text.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    request.body = String::from_utf8(body).unwrap();
    Ok(Some(request))
}
