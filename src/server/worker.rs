//! The worker thread, which serves its share of the connections, each from first to last.
//!
//! It does not accept. A request never leaves its thread, so the contents of the thread's `App` need no lock.
//! A panic in a connection ends that connection and is logged; the thread continues, because tokio catches it
//! and every count has a guard.

use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use std::{io, thread};

use rustls::HandshakeKind;
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::bind::ListenerKind;
use super::closing::refuse;
use super::connection::{self, ConnectionInfo, Protocol};
use super::deadlines::{Deadlines, SWEEP_INTERVAL};
use super::options::ServerOptions;
use super::refusal::RefusalContext;
use super::requests::ConnectionContext;
use super::shutdown::ShutdownStage;
use super::tls::{self, HandshakeFailure};
use super::watchdog::{
    AbortCause, ConnectionEvent, ConnectionWatchdog, WatchdogSignal, WorkerConnections,
    until_aborted,
};
use crate::fault::OrBug;
use crate::formats::accept::Accept;
use crate::log::Level;
use crate::pipeline::{self, App};
use crate::problem::{self, Problem};
use crate::wire::PeerConnection;

/// How long aborted connections may take to close at the end of a shutdown.
const ABORT_GRACE: Duration = Duration::from_millis(200);

/// Blocking threads per worker, for large bodies and responses: one, since such work may take many times
/// the memory of its bytes.
const BLOCKING_THREADS_MAX: usize = 1;

/// An accepted connection on its way to a worker.
pub(super) type AcceptedConnection = (TcpStream, SocketAddr, ListenerKind);

/// A handle to a worker thread.
#[derive(Debug)]
pub(super) struct WorkerHandle {
    accepted: mpsc::UnboundedSender<AcceptedConnection>,
    open: Arc<AtomicUsize>,
}

/// The reports of a worker thread.
#[derive(Debug)]
pub(super) struct WorkerReports {
    /// Resolves once the thread can serve; fails if it never will.
    pub(super) ready: oneshot::Receiver<()>,
    /// Resolves, or fails, when the thread is done.
    pub(super) done: oneshot::Receiver<()>,
}

impl WorkerHandle {
    pub(super) fn start(index: usize, seed: WorkerConfig) -> io::Result<(Self, WorkerReports)> {
        let (arrivals, received) = mpsc::unbounded_channel();
        let (say_ready, ready) = oneshot::channel();
        let (say_done, done) = oneshot::channel();
        let open = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&open);
        thread::Builder::new().name(format!("worker-{index}")).spawn(move || {
            match Builder::new_current_thread()
                .enable_all()
                .max_blocking_threads(BLOCKING_THREADS_MAX)
                .build_local(LocalOptions::default())
            {
                Ok(runtime) => runtime.block_on(run_worker(seed, received, count, say_ready)),
                Err(error) => {
                    seed.refusals.log.event(
                        Level::Error,
                        "a worker thread cannot start",
                        &[("cause", &error)],
                    );
                }
            }
            // The receiver is dropped when the shutdown was forced.
            let _ = say_done.send(());
        })?;
        Ok((Self { accepted: arrivals, open }, WorkerReports { ready, done }))
    }

    /// Its open connections, including those queued for it.
    pub(super) fn open_connections(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    pub(super) fn assign(&self, arrival: AcceptedConnection) -> Result<(), AcceptedConnection> {
        self.open.fetch_add(1, Ordering::Relaxed);
        self.accepted.send(arrival).map_err(|refused| {
            self.open.fetch_sub(1, Ordering::Relaxed);
            refused.0
        })
    }
}

/// The configuration of a worker.
pub(super) struct WorkerConfig {
    pub(super) settings: Arc<ServerOptions>,
    pub(super) refusals: RefusalContext,
    pub(super) app: App,
    /// The maximum of its HTTP/2 requests in flight.
    pub(super) streams_max: usize,
    pub(super) stage: watch::Receiver<ShutdownStage>,
}

async fn run_worker(
    mut seed: WorkerConfig,
    mut arrivals: mpsc::UnboundedReceiver<AcceptedConnection>,
    open: Arc<AtomicUsize>,
    say_ready: oneshot::Sender<()>,
) {
    let deadlines = Deadlines::from_limits(&seed.settings.limits);
    let shared = Rc::new(ConnectionContext::new(seed.app, seed.refusals, &seed.settings));
    let _ = say_ready.send(());
    let mut watches = WorkerConnections::new(seed.streams_max);
    let mut memory = shared.app.shared.admission.reserve_connections();
    let ended = Rc::new(Notify::new());
    // Checks beside the sweep whether the callers of streams still have their rights, one check at a time.
    let mut revocation: Option<JoinHandle<()>> = None;
    let mut sweep = interval(SWEEP_INTERVAL);
    sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut leaving = false;
    while !(leaving && open.load(Ordering::Relaxed) == 0) {
        tokio::select! {
            changed = seed.stage.changed() => match (changed, *seed.stage.borrow()) {
                (Ok(()), ShutdownStage::Serving) => {}
                (Ok(()), ShutdownStage::Draining) => {
                    leaving = true;
                    watches.drain();
                }
                (Ok(()), ShutdownStage::Aborting) | (Err(_), _) => {
                    watches.abort_unread();
                    let gone = async { while open.load(Ordering::Relaxed) > 0 { ended.notified().await } };
                    let _ = timeout(ABORT_GRACE, gone).await;
                    return;
                }
            },
            Some((stream, peer, listener_kind)) = arrivals.recv() => {
                crate::fault::point("worker");
                // Without connections the sweep is paused; its first interval must be a whole one.
                if watches.is_empty() {
                    sweep.reset();
                }
                let watch = watches.add();
                if leaving {
                    watch.set_signal(WatchdogSignal::Drain);
                }
                shared.refusals.metrics.server.connections_open.increment();
                let place = ConnectionSlot { watch, open: Arc::clone(&open), ended: Rc::clone(&ended), shared: Rc::clone(&shared), peer };
                tokio::task::spawn_local(place.serve(stream, listener_kind));
            },
            _ = sweep.tick(), if !watches.is_empty() => {
                watches.sweep(&deadlines, |bytes| {
                    memory.set(bytes);
                    shared.app.shared.admission.memory_pressure()
                });
                let streams = watches.stream_rights();
                if !streams.is_empty() && revocation.as_ref().is_none_or(JoinHandle::is_finished) {
                    let app = Rc::clone(&shared.app);
                    let check = async move { pipeline::end_revoked(&app, streams).await };
                    revocation = Some(tokio::task::spawn_local(check));
                }
            },
            () = ended.notified(), if leaving => {}
        }
    }
}

/// A connection's slot in its worker, released however the connection ends.
struct ConnectionSlot {
    watch: Rc<ConnectionWatchdog>,
    open: Arc<AtomicUsize>,
    ended: Rc<Notify>,
    shared: Rc<ConnectionContext>,
    peer: SocketAddr,
}

impl ConnectionSlot {
    async fn serve(self, stream: TcpStream, listener_kind: ListenerKind) {
        crate::fault::point("connection");
        match tokio::net::TcpStream::from_std(stream) {
            Ok(stream) => {
                let (shared, watch) = (Rc::clone(&self.shared), Rc::clone(&self.watch));
                let way = PeerConnection { peer: self.peer, is_tls: false };
                let info = |protocol| ConnectionInfo { way, listener_kind, protocol };
                match listener_kind {
                    ListenerKind::Plain => {
                        connection::serve(stream, info(Protocol::Undetermined), shared, watch)
                            .await;
                    }
                    ListenerKind::Redirect => {
                        connection::serve(stream, info(Protocol::Http1), shared, watch).await;
                    }
                    // Boxed, so that other connections do not take up its memory.
                    ListenerKind::Tls => {
                        Box::pin(serve_tls(stream, self.peer, shared, watch)).await;
                    }
                }
            }
            Err(error) => self.shared.refusals.log.event(
                Level::Error,
                "an accepted connection cannot be used",
                &[("peer", &self.peer), ("cause", &error)],
            ),
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        if thread::panicking() {
            self.shared.refusals.log.event(
                Level::Error,
                "panic in a connection",
                &[("peer", &self.peer)],
            );
        }
        self.watch.end();
        self.open.fetch_sub(1, Ordering::Relaxed);
        self.shared.refusals.metrics.server.connections_open.decrement();
        self.ended.notify_one();
    }
}

/// Serves a connection that begins with a handshake.
async fn serve_tls(
    stream: tokio::net::TcpStream,
    peer: SocketAddr,
    shared: Rc<ConnectionContext>,
    watch: Rc<ConnectionWatchdog>,
) {
    let config = shared.tls.clone().or_bug("a TLS listener is bound only with a certificate");
    watch.on(ConnectionEvent::HandshakeBegun);
    watch.begin_tls();
    let (done, server) = {
        // Boxed, so that its memory is released before the first request.
        let handshake = Box::pin(tls::handshake(stream, &config, &shared.handshakes, &watch));
        (until_aborted(&watch, handshake).await, &shared.refusals.metrics.server)
    };
    let stream = match done {
        Ok(Ok(stream)) => stream,
        Ok(Err(HandshakeFailure::Disconnected)) => return,
        Ok(Err(HandshakeFailure::PlainHttp(stream))) => {
            server.handshakes_plain_http.add(1);
            watch.on(ConnectionEvent::Close);
            let refused = Problem::new(&problem::BAD_REQUEST)
                .detail("this port speaks HTTPS: expected TLS, got HTTP without it");
            let way = PeerConnection { peer, is_tls: false };
            let refusal = (&refused, &Accept::ANYTHING);
            return refuse(stream, refusal, way, &shared.refusals).await;
        }
        Ok(Err(HandshakeFailure::Broken(error))) => {
            server.handshakes_failed.add(1);
            if watch.should_log_handshake() {
                let message = "TLS handshake failed (sampled)";
                let pairs: [(&str, &dyn std::fmt::Display); 2] =
                    [("peer", &peer), ("cause", &error)];
                shared.refusals.log.event(Level::Info, message, &pairs);
            }
            return;
        }
        Err(AbortCause::SlowHandshake) => {
            server.aborted_slow_handshake.add(1);
            if watch.should_log_handshake() {
                let message = "connection aborted: TLS handshake took too long (sampled)";
                shared.refusals.log.event(Level::Info, message, &[("peer", &peer)]);
            }
            return;
        }
        Err(_) => return,
    };
    let (_, session) = stream.0.get_ref();
    match session.handshake_kind() {
        Some(HandshakeKind::Resumed) => server.handshakes_resumed.add(1),
        Some(HandshakeKind::Full | HandshakeKind::FullWithHelloRetryRequest) | None => {
            server.handshakes_full.add(1);
        }
    }
    let protocol = match session.alpn_protocol() {
        Some(b"h2") => Protocol::Http2,
        // RFC 9113 §3.2: HTTP/2 over TLS is negotiated by ALPN, or not at all.
        Some(_) | None => Protocol::Http1,
    };
    watch.on(ConnectionEvent::HandshakeDone);
    let info = ConnectionInfo {
        way: PeerConnection { peer, is_tls: true },
        listener_kind: ListenerKind::Tls,
        protocol,
    };
    connection::serve(stream, info, shared, watch).await;
}
