//! The client side: keep-alive and short-lived connections, with TLS and without.
//!
//! All of it runs on one thread, so that it takes at most one core from the server.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::client::Resumption;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::Result;
use crate::load_generator::{read_response, runtime};

/// Plain TCP or TLS.
#[derive(Clone)]
pub enum Transport {
    Plain,
    Tls(TlsConnector),
}

impl Transport {
    /// Trusts the certificate; `resumes` says whether the client resumes earlier sessions.
    pub fn tls(certificate: &Path, resumes: bool) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(certificate)?)?;
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        if !resumes {
            config.resumption = Resumption::disabled();
        }
        Ok(Self::Tls(TlsConnector::from(Arc::new(config))))
    }
}

trait ClientStream: AsyncRead + AsyncWrite + Unpin {}
impl<S: AsyncRead + AsyncWrite + Unpin> ClientStream for S {}

async fn connect(address: SocketAddr, way: &Transport) -> Result<Box<dyn ClientStream>> {
    let socket = TcpStream::connect(address).await?;
    socket.set_nodelay(true)?;
    Ok(match way {
        Transport::Plain => Box::new(socket),
        Transport::Tls(connector) => {
            Box::new(connector.connect(ServerName::try_from("localhost")?, socket).await?)
        }
    })
}

/// Sends a GET and reads its response, which must be 200.
async fn get(stream: &mut dyn ClientStream, path: &str, reply: &mut Vec<u8>) -> Result<()> {
    let request =
        format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: application/json\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    stream.flush().await?;
    match read_response(&mut { stream }, reply).await? {
        200 => Ok(()),
        status => Err(format!("{status}: {}", String::from_utf8_lossy(reply)).into()),
    }
}

/// The load of a client.
pub struct TlsLoad<'a> {
    pub address: SocketAddr,
    pub transport: &'a Transport,
    pub paths: &'a [String],
    /// Concurrent connections.
    pub clients: usize,
    pub time: Duration,
    /// Whether each request opens a new connection.
    pub reconnects: bool,
}

/// The result: every request was answered with 200.
#[derive(Debug, Default, Clone)]
pub struct TlsLoadResult {
    pub count: usize,
    pub seconds: f64,
    pub latencies: Vec<Duration>,
}

impl TlsLoadResult {
    pub fn rate(&self) -> f64 {
        self.count as f64 / self.seconds
    }

    pub fn percentile(&self, share: f64) -> Duration {
        crate::probe_client::percentile(&self.latencies, share)
    }
}

impl TlsLoad<'_> {
    pub fn run(&self) -> Result<TlsLoadResult> {
        let latencies = Rc::new(RefCell::new(Vec::with_capacity(1 << 18)));
        let next = Rc::new(Cell::new(0_usize));
        let paths: Rc<[String]> = self.paths.into();
        let began = Instant::now();
        let (address, until, comes_anew) = (self.address, began + self.time, self.reconnects);
        runtime()?.block_on(async {
            let mut tasks = Vec::new();
            for _ in 0..self.clients {
                let (way, paths) = (self.transport.clone(), Rc::clone(&paths));
                let (latencies, next) = (Rc::clone(&latencies), Rc::clone(&next));
                tasks.push(tokio::task::spawn_local(async move {
                    let (mut held, mut reply) = (None, Vec::new());
                    while Instant::now() < until {
                        let at = next.replace(next.get() + 1);
                        let path = paths.get(at * 7_919 % paths.len()).map_or("/", String::as_str);
                        let began = Instant::now();
                        let mut stream = match held.take() {
                            Some(stream) => stream,
                            None => connect(address, &way).await.map_err(|e| e.to_string())?,
                        };
                        get(&mut *stream, path, &mut reply).await.map_err(|e| e.to_string())?;
                        latencies.borrow_mut().push(began.elapsed());
                        if comes_anew {
                            let _ = stream.shutdown().await;
                        } else {
                            held = Some(stream);
                        }
                    }
                    Ok::<(), String>(())
                }));
            }
            for task in tasks {
                task.await??;
            }
            Ok::<(), Box<dyn std::error::Error>>(())
        })?;
        let latencies = latencies.take();
        Ok(TlsLoadResult {
            count: latencies.len(),
            seconds: began.elapsed().as_secs_f64(),
            latencies,
        })
    }
}

/// A flood of handshakes without requests; returns how many succeeded.
pub fn flood_handshakes(
    address: SocketAddr,
    way: &Transport,
    clients: usize,
    time: Duration,
) -> Result<usize> {
    let count = Rc::new(Cell::new(0));
    let until = Instant::now() + time;
    runtime()?.block_on(async {
        let mut tasks = Vec::new();
        for _ in 0..clients {
            let (way, count) = (way.clone(), Rc::clone(&count));
            tasks.push(tokio::task::spawn_local(async move {
                while Instant::now() < until {
                    // A flooding client ignores errors.
                    if connect(address, &way).await.is_ok() {
                        count.set(count.get() + 1);
                    }
                }
            }));
        }
        for task in tasks {
            task.await?;
        }
        Ok::<(), Box<dyn std::error::Error>>(())
    })?;
    Ok(count.get())
}

/// Holds idle connections that have had one response while `look` runs.
pub fn hold_idle_connections<T>(
    address: SocketAddr,
    way: &Transport,
    count: usize,
    look: impl FnOnce() -> Result<T>,
) -> Result<T> {
    runtime()?.block_on(async {
        let (mut held, mut reply) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let mut stream = connect(address, way).await?;
            get(&mut *stream, "/-/health", &mut reply).await?;
            held.push(stream);
        }
        look()
    })
}
