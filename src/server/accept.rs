//! The accept loop, and the distribution of connections over the worker threads.
//!
//! Nothing is read here. The one surprising thing: a connection over the limit is still accepted, to get a
//! 503: a client that is left in the kernel's queue cannot know why.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

use super::Door;
use super::connection;
use super::refusal::Refusals;
use super::worker::Worker;
use crate::clock;
use crate::formats::accept::Accept;
use crate::gate::MemoryPressure;
use crate::log::Level;
use crate::pipeline;
use crate::problem::{self, Problem};
use crate::wire::Way;

/// The maximum number of concurrent refusals.
const REFUSALS_MAX: usize = 64;
/// RFC 8446 §6: a fatal alert, `internal_error`: what can be sent in place of a handshake.
const ALERT: [u8; 7] = [21, 3, 3, 0, 2, 2, 80];
/// The minimum time between two equal warnings.
const REPEAT: Duration = Duration::from_secs(5);
/// How long to wait when the system has no resources for one more connection.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct Acceptor {
    workers: Vec<Worker>,
    connections_max: usize,
    /// Of the pipeline: its gate says whether there is memory for one more.
    shared: Arc<pipeline::Shared>,
    pub(super) refusals: Refusals,
    /// Refusals in flight.
    refusing: Cell<usize>,
    complained: Cell<Option<Instant>>,
}

impl Acceptor {
    pub(super) fn new(
        workers: Vec<Worker>,
        connections_max: usize,
        shared: Arc<pipeline::Shared>,
        refusals: Refusals,
    ) -> Self {
        Self {
            workers,
            connections_max,
            shared,
            refusals,
            refusing: Cell::new(0),
            complained: Cell::new(None),
        }
    }

    fn take(self: &Rc<Self>, stream: TcpStream, peer: SocketAddr, door: Door) -> io::Result<()> {
        crate::fault::point("accept");
        // Responses are written whole; waiting to fill a packet (Nagle) would only delay them.
        stream.set_nodelay(true)?;
        self.refusals.metrics.server.accepted.add(1);
        if self.workers.iter().map(Worker::open).sum::<usize>() >= self.connections_max {
            let cause = format!("at most {} are served at a time", self.connections_max);
            self.complain("too many connections", &cause);
            self.refuse(stream, peer, door);
            return Ok(());
        }
        if self.shared.gate.memory_pressure() == MemoryPressure::Exhausted {
            let cause = "what clients send and are sent takes up more than memory_bytes_max";
            self.complain("connections refused: memory is exhausted", cause);
            self.refuse(stream, peer, door);
            return Ok(());
        }
        let mut arrival = (stream.into_std()?, peer, door);
        let mut by_load: Vec<&Worker> = self.workers.iter().collect();
        by_load.sort_by_key(|worker| worker.open());
        for worker in by_load {
            match worker.hand(arrival) {
                Ok(()) => return Ok(()),
                Err(back) => arrival = back,
            }
        }
        Err(io::Error::other("no worker thread is left"))
    }

    fn refuse(self: &Rc<Self>, mut stream: TcpStream, peer: SocketAddr, door: Door) {
        self.refusals.metrics.server.refused.add(1);
        if self.refusing.get() >= REFUSALS_MAX {
            return;
        }
        self.refusing.set(self.refusing.get() + 1);
        let acceptor = Rc::clone(self);
        tokio::task::spawn_local(async move {
            match door {
                Door::Plain | Door::Redirect => {
                    let busy = Problem::new(&problem::BUSY).detail("too many connections");
                    let way = Way { peer, is_tls: false };
                    let said = (&busy, &Accept::Anything);
                    connection::refuse(stream, said, way, &acceptor.refusals).await;
                }
                // A handshake would be too expensive.
                Door::Tls => {
                    if stream.write_all(&ALERT).await.is_ok() {
                        connection::close(stream).await;
                    }
                }
            }
            acceptor.refusing.set(acceptor.refusing.get() - 1);
        });
    }

    fn complain(&self, message: &str, cause: &str) {
        let now = clock::now();
        if self.complained.get().is_none_or(|last| now.duration_since(last) >= REPEAT) {
            self.complained.set(Some(now));
            self.refusals.log.event(Level::Warning, message, &[("cause", &cause)]);
        }
    }
}

/// Accepts on one socket until it is dropped.
pub(super) async fn run(socket: TcpListener, door: Door, acceptor: Rc<Acceptor>) {
    loop {
        let taken = match socket.accept().await {
            // A panic costs one connection, never the socket.
            Ok((stream, peer)) => {
                let take = || acceptor.take(stream, peer, door);
                catch_unwind(AssertUnwindSafe(take)).unwrap_or(Ok(()))
            }
            Err(error) => Err(error),
        };
        if let Err(error) = taken {
            // These errors concern one client that is gone already.
            let harmless = matches!(
                error.kind(),
                io::ErrorKind::ConnectionAborted
                    | io::ErrorKind::ConnectionReset
                    | io::ErrorKind::InvalidInput
            );
            if !harmless {
                acceptor.complain("a connection cannot be accepted", &error.to_string());
                sleep(PAUSE).await;
            }
        }
    }
}
