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

use tokio::runtime::{Builder, LocalOptions};
use tokio::signal::unix::{SignalKind, signal};
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
}

impl ExitOutcome {
    pub fn code(&self) -> ExitCode {
        match self {
            Self::Finished | Self::DrainTimedOut => ExitCode::SUCCESS,
            Self::Forced(number) => ExitCode::from(128_u8.saturating_add(*number)),
            Self::Broken(_) => ExitCode::FAILURE,
            Self::Failed(_) => ExitCode::from(2),
        }
    }
}

/// Serves until a signal ends it: one worker thread for each app. Calls `ready` when connections are
/// accepted, with the address to display of each listener.
pub fn run(
    listeners: Vec<Listener>,
    settings: ServerOptions,
    log: Logger,
    apps: Vec<App>,
    ready: impl FnOnce(&[SocketAddr]),
) -> ExitOutcome {
    let serve = || -> io::Result<ExitOutcome> {
        let runtime =
            Builder::new_current_thread().enable_all().build_local(LocalOptions::default())?;
        let (stage, _) = channel::channel(ShutdownStage::Serving);
        let refusals = RefusalContext {
            log,
            base_path: Arc::clone(&settings.base_path),
            metrics: Arc::clone(&settings.metrics),
            hsts: settings.hsts.clone(),
        };
        let settings = Arc::new(settings);
        // HTTP/1 has at most one request per connection; HTTP/2 connections in total should have no more.
        let streams_max = (settings.limits.connections_max / apps.len().max(1)).max(STREAMS_MIN);
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
        let serving = (acceptor, &*settings);
        runtime.block_on(serve_until_signal(listeners, serving, reports, &stage, ready))
    };
    serve().unwrap_or_else(|error| ExitOutcome::Failed(error.to_string()))
}

async fn serve_until_signal(
    listeners: Vec<Listener>,
    (acceptor, settings): (Acceptor, &ServerOptions),
    mut reports: Vec<WorkerReports>,
    stage: &Sender<ShutdownStage>,
    ready: impl FnOnce(&[SocketAddr]),
) -> io::Result<ExitOutcome> {
    for report in &mut reports {
        if (&mut report.ready).await.is_err() {
            return Ok(ExitOutcome::Failed("a worker thread could not start".to_owned()));
        }
    }
    let mut signals = Signals::new()?;
    let hangups = signal(SignalKind::hangup())?;
    let acceptor = Rc::new(acceptor);
    let log = &acceptor.refusals.log;
    let mut accepting = JoinSet::new();
    let mut shown = Vec::new();
    for listener in listeners {
        match (listener.kind, listener.addresses().first()) {
            (ListenerKind::Plain | ListenerKind::Tls, first) => shown.extend(first),
            (ListenerKind::Redirect, None) => {}
            (ListenerKind::Redirect, Some(first)) => {
                let message = "requests without TLS are redirected to HTTPS";
                log.event(Level::Info, message, &[("address", first)]);
            }
        }
        for socket in listener.sockets {
            let socket = tokio::net::TcpListener::from_std(socket)?;
            accepting.spawn_local(accept::accept_loop(socket, listener.kind, Rc::clone(&acceptor)));
        }
    }
    let keeping = (log.clone(), Arc::clone(&acceptor.refusals.metrics));
    let watch = tls::watch_certificate(settings.tls.clone(), hangups, keeping);
    let certificate_watch = tokio::task::spawn_local(watch);
    ready(&shown);
    settings.service_manager.notify(sd_notify::READY, log);
    let mut working = JoinSet::new();
    for report in reports {
        working.spawn_local(report.done);
    }
    let message = "shutting down: finishing requests in flight";
    let died = tokio::select! {
        signal = signals.next() => {
            log.event(Level::Info, message, &[("signal", &signal)]);
            None
        }
        // The connections of the thread are lost, and the others would do its work: a restart is better.
        _ = working.join_next() => Some("a worker thread died"),
        _ = accepting.join_next() => Some("the accept loop died"),
    };
    if let Some(cause) = died {
        log.event(Level::Error, message, &[("cause", &cause)]);
    }
    settings.service_manager.notify(sd_notify::STOPPING, log);
    // Dropping the accept loops closes the sockets: the kernel refuses new connections.
    accepting.shutdown().await;
    certificate_watch.abort();
    // Event streams end first: they would not end by themselves.
    acceptor.shared.feed.close();
    acceptor.shared.webhooks.close();
    // This fails only when all workers have died.
    let _ = stage.send(ShutdownStage::Draining);
    let repeated_until = died.is_none().then(|| clock::now() + REPEATED_SIGNAL_MAX);
    let mut all_done = Box::pin(async { while working.join_next().await.is_some() {} });
    let outcome = tokio::select! {
        () = &mut all_done => return Ok(died.map_or(ExitOutcome::Finished, ExitOutcome::Broken)),
        () = tokio::time::sleep(DRAIN_TIMEOUT) => ExitOutcome::DrainTimedOut,
        second = signals.next_distinct(repeated_until) => ExitOutcome::Forced(second),
    };
    let _ = stage.send(ShutdownStage::Aborting);
    let _ = timeout(ABORT_TIMEOUT, all_done).await;
    Ok(died.map_or(outcome, ExitOutcome::Broken))
}
