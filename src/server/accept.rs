//! The accept loop, and the distribution of connections over the worker threads.
//!
//! It reads no bytes. A connection over the limit is still accepted, to get a 503: a client that is left in
//! the kernel's queue cannot know why.

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

use super::bind::ListenerKind;
use super::closing::{lingering_close, refuse};
use super::refusal::RefusalContext;
use super::worker::WorkerHandle;
use crate::admission::MemoryPressure;
use crate::clock;
use crate::formats::accept::Accept;
use crate::log::Level;
use crate::pipeline;
use crate::problem::{self, Problem};
use crate::wire::PeerConnection;

/// The maximum number of concurrent refusals.
const REFUSALS_MAX: usize = 64;
/// RFC 8446 §6: a fatal alert, `internal_error`: which can be sent instead of a handshake.
const INTERNAL_ERROR_ALERT: [u8; 7] = [21, 3, 3, 0, 2, 2, 80];
/// The minimum time between two equal warnings.
const WARNING_INTERVAL: Duration = Duration::from_secs(5);
/// How long to wait when the system has no resources for one more connection.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct Acceptor {
    workers: Vec<WorkerHandle>,
    connections_max: usize,
    /// The state of the pipeline: its admission control knows whether there is memory for a connection.
    pub(super) shared: Arc<pipeline::SharedState>,
    pub(super) refusals: RefusalContext,
    /// Refusals in flight.
    refusals_in_flight: Cell<usize>,
    last_warning: Cell<Option<Instant>>,
}

impl Acceptor {
    pub(super) fn new(
        workers: Vec<WorkerHandle>,
        connections_max: usize,
        shared: Arc<pipeline::SharedState>,
        refusals: RefusalContext,
    ) -> Self {
        Self {
            workers,
            connections_max,
            shared,
            refusals,
            refusals_in_flight: Cell::new(0),
            last_warning: Cell::new(None),
        }
    }

    fn assign_worker(
        self: &Rc<Self>,
        stream: TcpStream,
        peer: SocketAddr,
        listener_kind: ListenerKind,
    ) -> io::Result<()> {
        crate::fault::point("accept");
        // Responses are written whole; waiting to fill a packet (Nagle) would only delay them.
        stream.set_nodelay(true)?;
        self.refusals.metrics.server.connections_accepted.add(1);
        if self.workers.iter().map(WorkerHandle::open_connections).sum::<usize>()
            >= self.connections_max
        {
            let cause = format!("at most {} are served at a time", self.connections_max);
            self.warn_rate_limited("too many connections", &cause);
            self.refuse(stream, peer, listener_kind);
            return Ok(());
        }
        if self.shared.admission.memory_pressure() == MemoryPressure::Exhausted {
            let cause = "what clients send and are sent takes up more than memory_bytes_max";
            self.warn_rate_limited("connections refused: memory is exhausted", cause);
            self.refuse(stream, peer, listener_kind);
            return Ok(());
        }
        let mut arrival = (stream.into_std()?, peer, listener_kind);
        let mut by_load: Vec<&WorkerHandle> = self.workers.iter().collect();
        by_load.sort_by_key(|worker| worker.open_connections());
        for worker in by_load {
            match worker.assign(arrival) {
                Ok(()) => return Ok(()),
                Err(back) => arrival = back,
            }
        }
        Err(io::Error::other("no worker thread is left"))
    }

    fn refuse(
        self: &Rc<Self>,
        mut stream: TcpStream,
        peer: SocketAddr,
        listener_kind: ListenerKind,
    ) {
        self.refusals.metrics.server.connections_refused.add(1);
        if self.refusals_in_flight.get() >= REFUSALS_MAX {
            return;
        }
        self.refusals_in_flight.set(self.refusals_in_flight.get() + 1);
        let acceptor = Rc::clone(self);
        tokio::task::spawn_local(async move {
            match listener_kind {
                ListenerKind::Plain | ListenerKind::Redirect => {
                    let busy = Problem::new(&problem::BUSY).detail("too many connections");
                    let way = PeerConnection { peer, is_tls: false };
                    let refusal = (&busy, &Accept::ANYTHING);
                    refuse(stream, refusal, way, &acceptor.refusals).await;
                }
                // A handshake would be too expensive.
                ListenerKind::Tls => {
                    if stream.write_all(&INTERNAL_ERROR_ALERT).await.is_ok() {
                        lingering_close(stream).await;
                    }
                }
            }
            acceptor.refusals_in_flight.set(acceptor.refusals_in_flight.get() - 1);
        });
    }

    fn warn_rate_limited(&self, message: &str, cause: &str) {
        let now = clock::now();
        if self.last_warning.get().is_none_or(|last| now.duration_since(last) >= WARNING_INTERVAL) {
            self.last_warning.set(Some(now));
            self.refusals.log.event(Level::Warning, message, &[("cause", &cause)]);
        }
    }
}

/// Accepts on one socket until it is dropped.
pub(super) async fn accept_loop(
    socket: TcpListener,
    listener_kind: ListenerKind,
    acceptor: Rc<Acceptor>,
) {
    loop {
        let taken = match socket.accept().await {
            // A panic costs one connection, never the socket.
            Ok((stream, peer)) => {
                let take = || acceptor.assign_worker(stream, peer, listener_kind);
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
                acceptor.warn_rate_limited("cannot accept a connection", &error.to_string());
                sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }
}
