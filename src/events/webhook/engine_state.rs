//! The state of the delivery engine: what outlives a panic, and what it knows of a webhook between two reads of its
//! queue.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::definition::WebhookDefinition;
use crate::clock;
use crate::events::evaluate::EventSource;
use crate::log::{Level, Logger};
use crate::metrics::WebhookMetrics;
use crate::model::Model;
use crate::plan::{PENDING_COUNTED_MAX, WebhookPosition, WebhookProgress, WebhookQueue};

/// Attempts in flight of one webhook, and of one whose last attempt has failed.
const WEBHOOK_IN_FLIGHT_MAX: usize = 4;
const FAILING_WEBHOOK_IN_FLIGHT_MAX: usize = 1;
/// A webhook with more pending deliveries gets no new ones until it has fewer.
const PENDING_MAX: usize = 10_000;
const _: () = assert!(2 * PENDING_MAX as i64 <= PENDING_COUNTED_MAX);

/// How long the fan-out to a webhook is left to a server that can read the model in force.
const LEAVE_TO_NEWER_FOR: Duration = Duration::from_secs(2);
/// How long a webhook waits for a server that can read the model in force. A server that runs stores the position of
/// the webhook once a minute at least.
const LEFT_MAX: Duration = Duration::from_secs(10 * 60);

/// What outlives a panic of the loop.
#[derive(Debug)]
pub struct EngineState {
    pub model: Arc<Model>,
    pub source: EventSource,
    pub log: Logger,
    pub metrics: Arc<WebhookMetrics>,
    is_closed: AtomicBool,
    closed: Notify,
}

impl EngineState {
    pub fn new(
        (model, source): (Arc<Model>, EventSource),
        log: Logger,
        metrics: Arc<WebhookMetrics>,
    ) -> Self {
        let (is_closed, closed) = (AtomicBool::new(false), Notify::new());
        Self { model, source, log, metrics, is_closed, closed }
    }

    /// Ends the loop.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.closed.notify_one();
    }

    /// Waits until it is closed; for one task.
    pub async fn closed(&self) {
        self.closed.notified().await;
    }

    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }
}

/// A webhook and the state of its queue.
#[derive(Debug)]
pub struct WebhookState {
    pub definition: Rc<WebhookDefinition>,
    /// As it is stored.
    pub stored: WebhookPosition,
    /// Up to here there is nothing else to deliver.
    pub evaluated: WebhookPosition,
    /// An estimate between two refreshes.
    pub pending: usize,
    /// When a delivery may be due.
    pub due_at: Option<Instant>,
    pub in_flight: usize,
    pub is_failing: bool,
    /// Another server fans out to this webhook; this one looks again at this time.
    pub left_until: Option<Instant>,
    /// Since when it waits for a server that can read the model in force.
    pub left_since: Option<Instant>,
}

impl WebhookState {
    /// The state after a refresh: the new definition, stored position and queue, merged with the former state.
    pub fn new(
        definition: Rc<WebhookDefinition>,
        (stored, queue): (WebhookPosition, &WebhookQueue),
        former: Option<Self>,
    ) -> Self {
        let mut state = former.unwrap_or_else(|| Self {
            definition: Rc::clone(&definition),
            stored,
            evaluated: stored,
            pending: 0,
            due_at: None,
            in_flight: 0,
            is_failing: false,
            left_until: None,
            left_since: None,
        });
        (state.definition, state.pending) = (definition, queue.pending);
        state.update(WebhookProgress { position: stored, due_in: queue.due_in });
        state
    }

    /// Takes over where a webhook is stored to be. Another server has moved it, unless it is where this one left it.
    pub fn update(&mut self, WebhookProgress { position, due_in }: WebhookProgress) {
        if self.stored != position {
            (self.stored, self.evaluated) = (position, position);
            self.left_since = None;
        }
        self.due_at = due_in.map(|due_in| clock::now() + due_in);
    }

    pub fn wants_changes(&self) -> bool {
        !self.is_full() && self.left_until.is_none()
    }

    /// Leaves the fan-out to a server that can read the model in force; looks again, because none may be running.
    pub fn leave_to_newer(&mut self, log: &Logger) {
        let now = clock::now();
        self.left_until.get_or_insert(now + LEAVE_TO_NEWER_FOR);
        if self.left_since.is_none() {
            self.left_since = Some(now);
            let message = "a webhook waits for a server of a newer version: this one cannot read the model in force, \
                           which may have resources or fields that the webhook's events are about";
            let (id, position) = (self.definition.id.text(), self.evaluated.position);
            let fields: &[(&str, &dyn std::fmt::Display)] =
                &[("webhook", &id), ("position", &position)];
            log.event(Level::Warning, message, fields);
        }
    }

    /// Whether it has waited so long that no server with the model in force seems to run.
    pub fn is_left_too_long(&self, now: Instant) -> bool {
        self.left_since.is_some_and(|since| now.saturating_duration_since(since) >= LEFT_MAX)
    }

    fn is_full(&self) -> bool {
        self.pending >= PENDING_MAX
    }

    /// How many more attempts may be in flight, as far as this webhook is concerned.
    pub fn room(&self) -> usize {
        let in_flight_max = match (self.definition.is_enabled, self.is_failing) {
            (false, _) => 0,
            (true, true) => FAILING_WEBHOOK_IN_FLIGHT_MAX,
            (true, false) => WEBHOOK_IN_FLIGHT_MAX,
        };
        in_flight_max.saturating_sub(self.in_flight)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model;
    use crate::value::{Id, Item, Moment};

    #[test]
    fn webhook_waits_ten_minutes_for_a_newer_server_that_never_comes() {
        let model = model::read("m.toml", "title = \"A\"\n[resources.a.fields]\n").unwrap();
        let (id, now) = (Id::Integer(1), Moment::parse("2026-11-17T03:20:01Z").unwrap());
        let (created_at, updated_at, parent, version) = (now, now, None, 1);
        let item = Item { id, parent, created_at, updated_at, version, values: Vec::new() };
        let definition = Rc::new(WebhookDefinition::parse(&model, &item).0);
        let at = |position| WebhookPosition { webhook: id, position, is_active: true };
        let (position, due_in, oldest_pending) = (Some(at(7)), None, None);
        let queue = WebhookQueue { webhook: id, position, due_in, pending: 0, oldest_pending };
        let mut state = WebhookState::new(definition, (at(7), &queue), None);
        let began = clock::now();
        assert!(!state.is_left_too_long(began + 2 * LEFT_MAX));
        state.left_since = Some(began);
        state.update(WebhookProgress { position: at(7), due_in });
        assert!(!state.is_left_too_long(began + LEFT_MAX - Duration::from_secs(1)));
        assert!(state.is_left_too_long(began + LEFT_MAX));
        // Another server has moved it.
        state.update(WebhookProgress { position: at(9), due_in });
        assert!(!state.is_left_too_long(began + 2 * LEFT_MAX));
    }
}
