//! `nouns serve`: from flags to a running server, or to one message that says why not.

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;

use super::{
    Refusal, Serve, colours, database, fault_of_ours, find_model, read_model, refusal, say,
};
use crate::gate::Gate;
use crate::log::{Level, Log, Style};
use crate::metrics::Metrics;
use crate::model::Model;
use crate::model::settings;
use crate::pipeline::{App, Shared};
use crate::reply::Replies;
use crate::server::{self, ExitOutcome, Listener};
use crate::store::{self, Store};

const LISTEN: &str = "127.0.0.1:8080";

pub(super) fn run(flags: Serve) -> Result<ExitCode, Refusal> {
    #[cfg(debug_assertions)]
    flags.fault.as_deref().map_or(Ok(()), crate::fault::plant).map_err(refusal)?;
    let source = find_model(flags.model.as_deref())?;
    let model = Arc::new(read_model(&source)?);
    let settings = &model.server;
    let database = database(flags.database.as_deref(), &model)?;
    let listen =
        [flags.listen, settings.listen.clone().unwrap_or_default(), vec![LISTEN.to_owned()]];
    let listen = listen.into_iter().find(|addresses| !addresses.is_empty()).unwrap_or_default();
    if !flags.open.or(settings.open).unwrap_or(false) {
        return Err(refusal(
            "there is no authentication yet, so a server has to be open: add --open to let everyone \
             on this machine do everything",
        ));
    }
    let is_patient = flags.wait.or(settings.wait).unwrap_or(false);
    // The port first: it costs nothing to give back.
    let listeners = server::bind(&listen).map_err(refusal)?;
    refuse_strangers(&listen, &listeners)?;
    let log = Log::start(style(flags.log, &model)).map_err(refusal)?;
    catch_panics(&log);
    let metrics = Metrics::new(&model);
    let store = store::open(&database, &model, (&log, &metrics), is_patient).map_err(refusal)?;
    let outcome = serve(&model, (listeners, listen), (&log, &metrics), &store);
    // Whoever asks twice does not want to wait: what is answered is on disk, and a kill loses no more.
    if !matches!(outcome, Ok(ExitOutcome::Forced(_))) {
        store.close();
    }
    log.flush();
    match outcome? {
        ExitOutcome::Failed(cause) => Err(refusal(cause)),
        ExitOutcome::Broken(cause) => {
            say(&mut std::io::stderr(), fault_of_ours(cause));
            Ok(ExitOutcome::Broken(cause).code())
        }
        outcome => Ok(outcome.code()),
    }
}

fn serve(
    model: &Arc<Model>,
    (listeners, listen): (Vec<Listener>, Vec<String>),
    (log, metrics): (&Log, &Arc<Metrics>),
    store: &Store,
) -> Result<ExitOutcome, Refusal> {
    let limits = &model.server.limits;
    let settings = server::Settings {
        limits: *limits,
        http2_prior_knowledge: model.server.http2_prior_knowledge.unwrap_or(false),
        base_path: model.server.base_path.as_deref().unwrap_or("").into(),
        metrics: Arc::clone(metrics),
    };
    let shared = Arc::new(Shared {
        model: Arc::clone(model),
        replies: Replies::new(model),
        gate: Gate::new(limits.requests_max),
        log: log.clone(),
        metrics: Arc::clone(metrics),
        listen,
    });
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let app = |_| {
        let store = store.worker(cores).map_err(refusal)?;
        Ok(App { shared: Arc::clone(&shared), store, metrics: metrics.local() })
    };
    let apps = (0..cores).map(app).collect::<Result<Vec<_>, Refusal>>()?;
    Ok(server::run(listeners, settings, log.clone(), apps, |addresses| {
        announce(&model.title, addresses);
    }))
}

/// The one line on standard output, for each address.
fn announce(title: &str, addresses: &[SocketAddr]) {
    for address in addresses {
        say(&mut std::io::stdout(), format_args!("nouns: serving {title} at http://{address}"));
    }
}

fn refuse_strangers(listen: &[String], listeners: &[Listener]) -> Result<(), Refusal> {
    let is_strange = |listener: &Listener| {
        listener.addresses().iter().any(|address| !address.ip().is_loopback())
    };
    match listen.iter().zip(listeners).find(|(_, listener)| is_strange(listener)) {
        None => Ok(()),
        Some((address, _)) => Err(refusal(format!(
            "--open lets everyone do everything, so it listens on this machine alone: \
             {address} is no loopback address; use --listen {LISTEN}"
        ))),
    }
}

fn style(flag: Option<settings::Log>, model: &Model) -> Style {
    let stderr = std::io::stderr();
    let by_default = if stderr.is_terminal() { settings::Log::Pretty } else { settings::Log::Json };
    match flag.or(model.server.log).unwrap_or(by_default) {
        settings::Log::Pretty => Style::Pretty { colour: colours(&stderr) },
        settings::Log::Json => Style::Json,
    }
}

/// A panic is a line in the log like everything else; who caught it answers for it.
fn catch_panics(log: &Log) {
    let log = log.clone();
    std::panic::set_hook(Box::new(move |panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let words = panic.payload_as_str().unwrap_or("");
        let thread = std::thread::current();
        let thread = thread.name().unwrap_or("");
        log.event(
            Level::Error,
            "panic",
            &[("cause", &words), ("place", &place), ("thread", &thread)],
        );
    }));
}
