//! The delivery engine: one thread that fans the change log out to the webhooks, claims due deliveries, and sends them.
//!
//! ```text
//!  change log ─► fan-out ─► queue (a row for each event and webhook) ─► claim (lease) ─► attempt ─► result
//!                position                                                └── backoff, dead letter ◄──┘
//! ```
//!
//! Several servers on one database do the same at the same time; the store decides who is first (`store::deliveries`).
//! The thread sleeps until the change log grows, a delivery is due, or an attempt ends; now and then it looks for what
//! others have left. While there are no webhooks, it looks for one every few seconds, and reads no changes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::runtime::{Builder, LocalOptions};

use super::attempt::AttemptContext;
use super::client::WebhookClient;
use super::dispatcher::Dispatcher;
use super::engine_state::EngineState;
use crate::auth::WebhookSecretOpener;
use crate::clock;
use crate::events::evaluate::EventSource;
use crate::log::{Level, Logger};
use crate::metrics::WebhookMetrics;
use crate::model::Model;
use crate::model::types::AddressPolicy;
use crate::store::{OpenError, Store};

/// The pause after a panic or a failed start; it doubles while they follow one another.
const RESTART_PAUSE_MIN: Duration = Duration::from_secs(1);
const RESTART_PAUSE_MAX: Duration = Duration::from_secs(30);
/// How soon the pause ends at a shutdown.
const CLOSE_POLL: Duration = Duration::from_millis(50);

/// What the engine needs of the server.
#[derive(Debug)]
pub struct WebhookContext {
    pub model: Arc<Model>,
    pub secrets: WebhookSecretOpener,
    pub log: Logger,
    pub metrics: Arc<WebhookMetrics>,
}

/// The delivery engine of a process.
#[derive(Debug)]
pub struct WebhookEngine {
    state: EngineState,
    secrets: WebhookSecretOpener,
}

impl WebhookEngine {
    /// Starts the thread.
    pub fn start(
        store: &Store,
        context: WebhookContext,
    ) -> Result<(Arc<Self>, JoinHandle<()>), OpenError> {
        let WebhookContext { model, secrets, log, metrics } = context;
        let source = EventSource::new(&model);
        let engine =
            Arc::new(Self { state: EngineState::new((model, source), log, metrics), secrets });
        let failed =
            |error| OpenError::new(format!("cannot start the thread of the webhooks: {error}"));
        let (running, store) = (Arc::clone(&engine), store.clone());
        let thread = thread::Builder::new().name("webhooks".to_owned());
        let thread = thread.spawn(move || running.run(&store)).map_err(failed)?;
        Ok((engine, thread))
    }

    /// Ends the thread, after the attempts in flight.
    pub fn close(&self) {
        self.state.close();
    }

    fn run(&self, store: &Store) {
        let mut pause = RESTART_PAUSE_MIN;
        while !self.state.is_closed() {
            let began = clock::now();
            match catch_unwind(AssertUnwindSafe(|| self.run_until_closed(store))) {
                Ok(Ok(())) => return,
                Ok(Err(error)) => {
                    let message = "webhooks cannot be sent; trying again";
                    self.state.log.event(Level::Error, message, &[("cause", &error)]);
                }
                // The panic is logged.
                Err(_) => self.state.metrics.panics.add(1),
            }
            self.state.metrics.in_flight.set(0);
            let ended = clock::now();
            while clock::now() < ended + pause && !self.state.is_closed() {
                thread::sleep(CLOSE_POLL);
            }
            let is_rare = ended.saturating_duration_since(began) > RESTART_PAUSE_MAX;
            pause = if is_rare { RESTART_PAUSE_MIN } else { (pause * 2).min(RESTART_PAUSE_MAX) };
        }
    }

    /// The runtime, the connections and the state are new after a panic.
    fn run_until_closed(&self, store: &Store) -> Result<(), OpenError> {
        let runtime =
            Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
        let runtime = runtime.map_err(|error| OpenError::new(error.to_string()))?;
        let model = &self.state.model;
        let policy = AddressPolicy::new(model.server.allows_private_webhooks());
        let attempts = AttemptContext {
            model: Arc::clone(model),
            store: store.delivery_worker(),
            client: WebhookClient::new(policy),
            secrets: self.secrets.clone(),
            metrics: Arc::clone(&self.state.metrics),
            log: self.state.log.clone(),
        };
        let mut dispatcher = Dispatcher::new(&self.state, store.tail(), attempts);
        dispatcher.has_former_leases = store.is_sole_server();
        runtime.block_on(dispatcher.run());
        // A resolution that still runs is not waited for.
        runtime.shutdown_background();
        Ok(())
    }
}
