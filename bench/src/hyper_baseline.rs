//! The baseline: hyper alone, one thread per core, answering every request with the same bytes.

use std::convert::Infallible;
use std::net::TcpListener;
use std::path::PathBuf;

use bytes::Bytes;
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Response};
use hyper_util::rt::TokioIo;
use tokio::runtime::{Builder, LocalOptions};

use crate::Result;

/// Serves the response that a file holds: headers, an empty line, the body.
pub fn serve(reply: PathBuf) -> Result<()> {
    let text = std::fs::read_to_string(reply)?;
    let (head, body) = text.split_once("\r\n\r\n").ok_or("no empty line in the reply")?;
    let mut headers = HeaderMap::new();
    for (name, value) in head.lines().skip(1).filter_map(|line| line.split_once(": ")) {
        // hyper writes these itself.
        if !["content-length", "date"].contains(&name) {
            headers.insert(hyper::header::HeaderName::try_from(name)?, value.parse()?);
        }
    }
    let body = Bytes::copy_from_slice(body.as_bytes());
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("bare: serving at http://{}", listener.local_addr()?);
    let cores = std::thread::available_parallelism()?.get();
    let workers: Vec<_> = (0..cores).map(|_| start_worker(headers.clone(), body.clone())).collect();
    for (number, stream) in listener.incoming().enumerate() {
        if let Some(worker) = workers.get(number % cores) {
            worker.send(stream?)?;
        }
    }
    Ok(())
}

type StreamSender = tokio::sync::mpsc::UnboundedSender<std::net::TcpStream>;

fn start_worker(headers: HeaderMap, body: Bytes) -> StreamSender {
    let (sender, mut streams) = tokio::sync::mpsc::unbounded_channel::<std::net::TcpStream>();
    std::thread::spawn(move || -> std::io::Result<()> {
        let runtime =
            Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
        runtime.block_on(async {
            while let Some(stream) = streams.recv().await {
                stream.set_nonblocking(true)?;
                stream.set_nodelay(true)?;
                let stream = tokio::net::TcpStream::from_std(stream)?;
                let (headers, body) = (headers.clone(), body.clone());
                let answer = service_fn(move |_| {
                    let mut response = Response::new(Full::new(body.clone()));
                    *response.headers_mut() = headers.clone();
                    async move { Ok::<_, Infallible>(response) }
                });
                tokio::task::spawn_local(async move {
                    // The client ends the connection.
                    let _ =
                        http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await;
                });
            }
            Ok(())
        })
    });
    sender
}
