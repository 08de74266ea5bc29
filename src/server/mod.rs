//! The HTTP server around the pipeline: sockets, threads, timeouts and graceful shutdown.
//!
//! It handles requests and responses as bytes; the pipeline interprets them. One thread accepts for all, and
//! hands each connection to the worker that has the fewest. Sockets do not share the port (no
//! `SO_REUSEPORT`), so that a second server on it fails to start.

mod accept;
mod outgoing_body;
mod bind;
mod closing;
mod connection;
mod deadlines;
mod file_limit;
mod http1;
mod http2;
mod http2_frames;
mod http1_framing;
mod options;
mod refusal;
mod requests;
mod sd_notify;
mod shutdown;
mod watched_stream;
pub mod tls;
mod watchdog;
mod worker;

use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tokio::sync::watch::{self as channel, Sender};
use tokio::task::JoinSet;
use tokio::time::timeout;

use self::accept::Acceptor;
pub use self::bind::{Listener, ListenerKind, bind};
pub use self::file_limit::connections_allowed;
pub use self::options::ServerOptions;
use self::refusal::RefusalContext;
pub use self::sd_notify::ServiceManager;
use self::shutdown::{ShutdownStage, Signals};
use self::worker::{WorkerConfig, WorkerHandle, WorkerReports};
use crate::clock;
use crate::log::{Level, Logger};
use crate::pipeline::App;

/// How long requests in flight may take during a graceful shutdown.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a worker may take to abort: it may be in the middle of a query.
const ABORT_TIMEOUT: Duration = Duration::from_millis(500);

/// A signal that follows the first within this time is the same request: wrappers such as `timeout` and
/// `npm` send one in addition to that of the terminal or the supervisor.
const REPEATED_SIGNAL_MAX: Duration = Duration::from_millis(100);

const SHUTTING_DOWN: &str = "shutting down: finishing requests in flight";

/// The minimum of concurrent HTTP/2 streams of a worker, however few connections are allowed.
const STREAMS_MIN: usize = 1_000;

/// How serving ended.
#[derive(Debug, PartialEq, Eq)]
pub enum ExitOutcome {
    /// A signal ended it, and every request was answered.
    Finished,
    /// A signal ended it, but some connections had to be aborted.
    DrainTimedOut,
    /// Two signals ended it; this was the second.
    Forced(u8),
    /// An essential thread has died.
    Broken(&'static str),
    /// The server could not start.
    Failed(String),
    /// A changed model is to be served: every request was answered or aborted, and the sockets are still bound.
    Reload,
}

impl ExitOutcome {
    pub fn code(&self) -> ExitCode {
        match self {
            Self::Finished | Self::DrainTimedOut | Self::Reload => ExitCode::SUCCESS,
            Self::Forced(number) => ExitCode::from(128_u8.saturating_add(*number)),
            Self::Broken(_) => ExitCode::FAILURE,
            Self::Failed(_) => ExitCode::from(2),
        }
    }
}

/// Decides at SIGHUP whether a changed model is to be served. It may block.
pub type ReloadCheck = Arc<dyn Fn() -> bool + Send + Sync>;

/// The runtime of the accept loops and the signals: they outlive a reload, so that no signal to end is lost.
pub struct Host {
    runtime: LocalRuntime,
    signals: Signals,
    hangup: Signal,
}

impl Host {
    pub fn new() -> io::Result<Self> {
        let runtime =
            Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
        let (signals, hangup) = runtime.block_on(async {
            Ok::<_, io::Error>((Signals::new()?, signal(SignalKind::hangup())?))
        })?;
        Ok(Self { runtime, signals, hangup })
    }

    /// Runs something that may take long on another thread. `Err`: a signal, by its number, came first.
    pub fn run_unless_signalled<T: Send + 'static>(
        &mut self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<Result<T, u8>> {
        let (done, mut result) = oneshot::channel();
        // The receiver is dropped when a signal came first.
        let run = move || drop(done.send(work()));
        std::thread::Builder::new().name("reload".to_owned()).spawn(run)?;
        let signals = &mut self.signals;
        self.runtime.block_on(async {
            tokio::select! {
                result = &mut result => result.map(Ok).map_err(|_| io::Error::other("the reload panicked")),
                number = signals.next() => Ok(Err(number)),
            }
        })
    }

    /// Serves until a signal ends it: one worker thread for each app. Calls `ready` when connections are
    /// accepted, with the address to display of each listener. Drops the listeners unless it ends for a reload.
    pub fn run(
        &mut self,
        listeners: &mut Vec<Listener>,
        (settings, log): (ServerOptions, Logger),
        apps: Vec<App>,
        (ready, reload): (impl FnOnce(&[SocketAddr]), ReloadCheck),
    ) -> ExitOutcome {
        let serve = || -> io::Result<ExitOutcome> {
            let (stage, _) = channel::channel(ShutdownStage::Serving);
            let refusals = RefusalContext {
                log,
                base_path: Arc::clone(&settings.base_path),
                metrics: Arc::clone(&settings.metrics),
                hsts: settings.hsts.clone(),
            };
            let settings = Arc::new(settings);
            // HTTP/1 has at most one request per connection; HTTP/2 connections in total should have no more.
            let streams_max =
                (settings.limits.connections_max / apps.len().max(1)).max(STREAMS_MIN);
            let shared = apps.first().map(|app| Arc::clone(&app.shared));
            let shared = shared.ok_or_else(|| io::Error::other("there is no worker to start"))?;
            let (mut workers, mut reports) = (Vec::new(), Vec::new());
            for (index, app) in apps.into_iter().enumerate() {
                let seed = WorkerConfig {
                    settings: Arc::clone(&settings),
                    refusals: refusals.clone(),
                    app,
                    streams_max,
                    stage: stage.subscribe(),
                };
                let (worker, report) = WorkerHandle::start(index, seed)?;
                workers.push(worker);
                reports.push(report);
            }
            let connections_max =
                file_limit::connections_max(settings.limits.connections_max, &refusals.log);
            let acceptor = Acceptor::new(workers, connections_max, shared, refusals);
            let Self { runtime, signals, hangup } = self;
            runtime.block_on(serve_until_signal(
                listeners,
                (acceptor, &settings),
                (reports, &stage),
                (signals, hangup),
                (ready, reload),
            ))
        };
        serve().unwrap_or_else(|error| ExitOutcome::Failed(error.to_string()))
    }
}

/// Why the server stops serving.
enum StopCause {
    Signal,
    Reload,
    Death(&'static str),
}

async fn serve_until_signal(
    listeners: &mut Vec<Listener>,
    (acceptor, settings): (Acceptor, &ServerOptions),
    (mut reports, stage): (Vec<WorkerReports>, &Sender<ShutdownStage>),
    (signals, hangup): (&mut Signals, &mut Signal),
    (ready, reload): (impl FnOnce(&[SocketAddr]), ReloadCheck),
) -> io::Result<ExitOutcome> {
    for report in &mut reports {
        if (&mut report.ready).await.is_err() {
            return Ok(ExitOutcome::Failed("a worker thread could not start".to_owned()));
        }
    }
    let hangups = signal(SignalKind::hangup())?;
    let acceptor = Rc::new(acceptor);
    let log = &acceptor.refusals.log;
    let (mut accepting, shown) = start_accepting(listeners, &acceptor)?;
    let keeping = (log.clone(), Arc::clone(&acceptor.refusals.metrics));
    let watch = tls::watch_certificate(settings.tls.clone(), hangups, keeping);
    let certificate_watch = tokio::task::spawn_local(watch);
    ready(&shown);
    settings.service_manager.notify(sd_notify::READY, log);
    let mut working = JoinSet::new();
    for report in reports {
        working.spawn_local(report.done);
    }
    let cause = tokio::select! {
        signal = signals.next() => {
            log.event(Level::Info, SHUTTING_DOWN, &[("signal", &signal)]);
            StopCause::Signal
        }
        () = until_reload(hangup, reload) => StopCause::Reload,
        // The connections of the thread are lost, and the others would do its work: a restart is better.
        _ = working.join_next() => StopCause::Death("a worker thread died"),
        _ = accepting.join_next() => StopCause::Death("the accept loop died"),
    };
    if let StopCause::Death(cause) = cause {
        log.event(Level::Error, SHUTTING_DOWN, &[("cause", &cause)]);
    }
    // Dropping the accept loops and the listeners closes the sockets: the kernel refuses new connections. During a
    // reload, connections wait in its backlog.
    if !matches!(cause, StopCause::Reload) {
        settings.service_manager.notify(sd_notify::STOPPING, log);
        listeners.clear();
    }
    accepting.shutdown().await;
    certificate_watch.abort();
    // Event streams end first: they would not end by themselves.
    acceptor.shared.feed.close();
    acceptor.shared.webhooks.close();
    // This fails only when all workers have died.
    let _ = stage.send(ShutdownStage::Draining);
    Ok(drain(cause, (working, stage), (signals, listeners), (settings, log)).await)
}

/// Resolves at a SIGHUP after which a changed model is to be served.
async fn until_reload(hangup: &mut Signal, check: ReloadCheck) {
    while hangup.recv().await.is_some() {
        let check = Arc::clone(&check);
        let (say, result) = oneshot::channel();
        // A thread of its own: a shutdown does not wait for it, and then drops the receiver.
        let run = move || {
            let _ = say.send(check());
        };
        let thread = std::thread::Builder::new().name("reload".to_owned()).spawn(run);
        // A check that panicked has logged it.
        if thread.is_ok() && result.await.unwrap_or(false) {
            return;
        }
    }
    std::future::pending::<()>().await;
}

/// Starts the accept loops; returns them with the addresses to display.
fn start_accepting(
    listeners: &[Listener],
    acceptor: &Rc<Acceptor>,
) -> io::Result<(JoinSet<()>, Vec<SocketAddr>)> {
    let (mut accepting, mut shown) = (JoinSet::new(), Vec::new());
    for listener in listeners {
        match (listener.kind, listener.addresses().first()) {
            (ListenerKind::Plain | ListenerKind::Tls, first) => shown.extend(first),
            (ListenerKind::Redirect, None) => {}
            (ListenerKind::Redirect, Some(first)) => {
                let message = "requests without TLS are redirected to HTTPS";
                acceptor.refusals.log.event(Level::Info, message, &[("address", first)]);
            }
        }
        for socket in &listener.sockets {
            let socket = tokio::net::TcpListener::from_std(socket.try_clone()?)?;
            accepting.spawn_local(accept::accept_loop(socket, listener.kind, Rc::clone(acceptor)));
        }
    }
    Ok((accepting, shown))
}

/// Waits until the workers have ended, and aborts their connections after the timeout or at a second signal.
async fn drain(
    cause: StopCause,
    (mut working, stage): (JoinSet<Result<(), oneshot::error::RecvError>>, &Sender<ShutdownStage>),
    (signals, listeners): (&mut Signals, &mut Vec<Listener>),
    (settings, log): (&ServerOptions, &Logger),
) -> ExitOutcome {
    let mut is_reload = matches!(cause, StopCause::Reload);
    let mut repeated_until =
        matches!(cause, StopCause::Signal).then(|| clock::now() + REPEATED_SIGNAL_MAX);
    let mut all_done = Box::pin(async { while working.join_next().await.is_some() {} });
    let mut timeout_passed = Box::pin(tokio::time::sleep(DRAIN_TIMEOUT));
    let ended = loop {
        tokio::select! {
            () = &mut all_done => break ExitOutcome::Finished,
            () = &mut timeout_passed => break ExitOutcome::DrainTimedOut,
            number = signals.next_distinct(repeated_until) => match is_reload {
                // The first signal: the reload becomes a shutdown.
                true => {
                    log.event(Level::Info, SHUTTING_DOWN, &[("signal", &number)]);
                    settings.service_manager.notify(sd_notify::STOPPING, log);
                    is_reload = false;
                    repeated_until = Some(clock::now() + REPEATED_SIGNAL_MAX);
                    listeners.clear();
                }
                false => break ExitOutcome::Forced(number),
            }
        }
    };
    if ended != ExitOutcome::Finished {
        let _ = stage.send(ShutdownStage::Aborting);
        let _ = timeout(ABORT_TIMEOUT, all_done).await;
    }
    match cause {
        StopCause::Death(cause) => ExitOutcome::Broken(cause),
        StopCause::Reload if is_reload => ExitOutcome::Reload,
        StopCause::Reload | StopCause::Signal => ended,
    }
}
