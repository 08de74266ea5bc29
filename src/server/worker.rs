//! The worker thread, which serves its share of the connections, each from first to last.
//!
//! It does not accept. A request never leaves its thread, so what the thread's `App` holds needs no lock.
//! The one surprising thing: a panic in a connection ends that connection and is logged; the thread goes
//! on, because tokio catches it and every count has a guard.

use std::cell::Cell;
use std::net::{SocketAddr, TcpStream};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use std::{io, thread};

use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::connection::{self, Guest, Protocol, Shared};
use super::refusal::Refusals;
use super::watch::{Ask, Patience, TICK, Watch, Watches};
use super::{Door, Settings, Stage, tls};
use crate::log::Level;
use crate::pipeline::{self, App, StreamRights};
use crate::wire::Way;

/// The timeout of large heads and responses under memory pressure.
const HURRY: Duration = Duration::from_secs(2);

/// How long a head, once begun, may still arrive during a shutdown.
const STOP_GRACE: Duration = Duration::from_secs(1);

/// How long aborted connections may take to close at the end of a shutdown.
const CUT_MAX: Duration = Duration::from_millis(200);

/// Blocking threads per worker, for large bodies and responses: one, since such work may take many times
/// the memory of its bytes.
const ASIDE_MAX: usize = 1;

/// An accepted connection on its way to a worker.
pub(super) type Arrival = (TcpStream, SocketAddr, Door);

/// A handle to a worker thread.
#[derive(Debug)]
pub(super) struct Worker {
    arrivals: mpsc::UnboundedSender<Arrival>,
    open: Arc<AtomicUsize>,
}

/// What a worker thread reports.
#[derive(Debug)]
pub(super) struct Reports {
    /// Resolves once the thread can serve; fails if it never will.
    pub(super) ready: oneshot::Receiver<()>,
    /// Resolves, or fails, when the thread is done.
    pub(super) done: oneshot::Receiver<()>,
}

impl Worker {
    pub(super) fn start(index: usize, seed: Seed) -> io::Result<(Self, Reports)> {
        let (arrivals, received) = mpsc::unbounded_channel();
        let (say_ready, ready) = oneshot::channel();
        let (say_done, done) = oneshot::channel();
        let open = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&open);
        thread::Builder::new().name(format!("worker-{index}")).spawn(move || {
            match Builder::new_current_thread()
                .enable_all()
                .max_blocking_threads(ASIDE_MAX)
                .build_local(LocalOptions::default())
            {
                Ok(runtime) => runtime.block_on(run(seed, received, count, say_ready)),
                Err(error) => {
                    seed.refusals.log.event(
                        Level::Error,
                        "a worker cannot start",
                        &[("cause", &error)],
                    );
                }
            }
            // Nobody listens any more when the shutdown was forced.
            let _ = say_done.send(());
        })?;
        Ok((Self { arrivals, open }, Reports { ready, done }))
    }

    /// Its open connections, including those on their way.
    pub(super) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    pub(super) fn hand(&self, arrival: Arrival) -> Result<(), Arrival> {
        self.open.fetch_add(1, Ordering::Relaxed);
        self.arrivals.send(arrival).map_err(|refused| {
            self.open.fetch_sub(1, Ordering::Relaxed);
            refused.0
        })
    }
}

/// What a worker starts with.
pub(super) struct Seed {
    pub(super) settings: Arc<Settings>,
    pub(super) refusals: Refusals,
    pub(super) app: App,
    /// The maximum of its HTTP/2 requests in flight.
    pub(super) streams_max: usize,
    pub(super) stage: watch::Receiver<Stage>,
}

async fn run(
    mut seed: Seed,
    mut arrivals: mpsc::UnboundedReceiver<Arrival>,
    open: Arc<AtomicUsize>,
    say_ready: oneshot::Sender<()>,
) {
    let limits = &seed.settings.limits;
    let patience = Patience {
        handshake: Patience::ticks(Duration::from_secs(limits.handshake_seconds_max.into())),
        head: Patience::ticks(Duration::from_secs(limits.header_seconds_max.into())),
        idle: Patience::ticks(Duration::from_secs(limits.idle_seconds_max.into())),
        sending: Patience::ticks(Duration::from_secs(limits.sending_seconds_max.into())),
        hurry: Patience::ticks(HURRY),
        stop: Patience::ticks(STOP_GRACE),
    };
    let shared = Rc::new(Shared::new(seed.app, seed.refusals, &seed.settings));
    let _ = say_ready.send(());
    let mut watches = Watches::new(seed.streams_max);
    let mut memory = shared.app.shared.gate.reserve_connections();
    let ended = Rc::new(Notify::new());
    let revocations = Revocations::default();
    let mut sweep = interval(TICK);
    sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut leaving = false;
    while !(leaving && open.load(Ordering::Relaxed) == 0) {
        tokio::select! {
            changed = seed.stage.changed() => match (changed, *seed.stage.borrow()) {
                (Ok(()), Stage::Serving) => {}
                (Ok(()), Stage::Leaving) => {
                    leaving = true;
                    watches.stop();
                }
                (Ok(()), Stage::Ended) | (Err(_), _) => {
                    watches.cut_unread();
                    let gone = async { while open.load(Ordering::Relaxed) > 0 { ended.notified().await } };
                    let _ = timeout(CUT_MAX, gone).await;
                    return;
                }
            },
            Some((stream, peer, door)) = arrivals.recv() => {
                crate::fault::point("worker");
                // Without connections the sweep is paused; its first tick must be a whole one.
                if watches.is_empty() {
                    sweep.reset();
                }
                let watch = watches.add();
                if leaving {
                    watch.ask(Ask::Leave);
                }
                shared.refusals.metrics.server.open.raise();
                let place = Place { watch, open: Arc::clone(&open), ended: Rc::clone(&ended), shared: Rc::clone(&shared), peer };
                tokio::task::spawn_local(place.serve(stream, door));
            },
            _ = sweep.tick(), if !watches.is_empty() => {
                watches.sweep(&patience, |bytes| {
                    memory.set(bytes);
                    shared.app.shared.gate.memory_pressure()
                });
                revocations.look(&shared.app, watches.streams());
            },
            () = ended.notified(), if leaving => {}
        }
    }
}

/// Checks beside the sweep whether the callers of streams still have their rights, one check at a time.
#[derive(Default)]
struct Revocations {
    is_looking: Rc<Cell<bool>>,
}

impl Revocations {
    fn look(&self, app: &Rc<App>, streams: Vec<Arc<StreamRights>>) {
        if streams.is_empty() || self.is_looking.replace(true) {
            return;
        }
        let (app, looking) = (Rc::clone(app), Looking(Rc::clone(&self.is_looking)));
        tokio::task::spawn_local(async move {
            let _looking = looking;
            pipeline::end_revoked(&app, streams).await;
        });
    }
}

/// A check in flight, however it ends.
struct Looking(Rc<Cell<bool>>);

impl Drop for Looking {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

/// A connection's slot in its worker, released however the connection ends.
struct Place {
    watch: Rc<Watch>,
    open: Arc<AtomicUsize>,
    ended: Rc<Notify>,
    shared: Rc<Shared>,
    peer: SocketAddr,
}

impl Place {
    async fn serve(self, stream: TcpStream, door: Door) {
        crate::fault::point("connection");
        match tokio::net::TcpStream::from_std(stream) {
            Ok(stream) => {
                let (shared, watch) = (Rc::clone(&self.shared), Rc::clone(&self.watch));
                let way = Way { peer: self.peer, is_tls: false };
                let guest = |protocol| Guest { way, door, protocol };
                match door {
                    Door::Plain => {
                        connection::serve(stream, guest(Protocol::Untold), shared, watch).await;
                    }
                    Door::Redirect => {
                        connection::serve(stream, guest(Protocol::Http1), shared, watch).await;
                    }
                    // Boxed, so that other connections do not take up its memory.
                    Door::Tls => Box::pin(tls::serve(stream, self.peer, shared, watch)).await,
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

impl Drop for Place {
    fn drop(&mut self) {
        if thread::panicking() {
            self.shared.refusals.log.event(
                Level::Error,
                "a connection ended by a panic",
                &[("peer", &self.peer)],
            );
        }
        self.watch.end();
        self.open.fetch_sub(1, Ordering::Relaxed);
        self.shared.refusals.metrics.server.open.lower();
        self.ended.notify_one();
    }
}
