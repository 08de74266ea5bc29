//! The loop of the delivery engine: fans out, claims, starts attempts, and sleeps until something is to do.
//!
//! One stalled receiver must not delay the others, so each webhook has a few attempts in flight at most, and those
//! whose receivers fail share half of all.

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::{Id as TaskId, JoinError, JoinSet};
use tokio::time::{sleep, sleep_until, timeout};

use super::attempt::{AttemptContext, AttemptReport, LEASE, Lease, attempt};
use super::definition::WebhookDefinition;
use super::engine_state::{EngineState, WebhookState};
use super::fan_out::{FanOutPart, fan_out};
use super::stored::{self, ModelInForce};
use crate::clock;
use crate::events::store_failures::{RETRY_PAUSE, StoreFailures};
use crate::intent::LoggedChange;
use crate::log::{Level, Logger};
use crate::metrics::WebhookMetrics;
use crate::model::Model;
use crate::plan::{DeliveryClaim, DeliveryOutcome, DeliveryTask, FanOut, WebhookQueue};
use crate::store::{ChangeTail, StoreError, TailBatch};
use crate::value::{Id, Item};
use crate::wire::RequestId;

/// Attempts in flight, of all webhooks, and of those whose last attempt has failed.
const IN_FLIGHT_MAX: usize = 32;
const FAILING_IN_FLIGHT_MAX: usize = 16;

/// How often the webhooks and the queues are read, whatever happens.
const REFRESH_EVERY: Duration = Duration::from_secs(5);
/// The same while there are no webhooks.
const IDLE_REFRESH_EVERY: Duration = Duration::from_secs(2);
/// How often a position is stored that has moved without deliveries.
const HOUSEKEEPING_EVERY: Duration = Duration::from_secs(60);
/// The pause after a batch of changes, so that a load of writes wakes the thread 200 times a second at most.
const BATCH_PAUSE: Duration = Duration::from_millis(5);
/// How long the fan-out to a webhook is left to another server that was faster.
const LEAVE_FOR: Duration = Duration::from_millis(200);
/// The pause before the next claim, after one that has claimed all that could be claimed.
const CLAIM_PAUSE: Duration = Duration::from_millis(50);
/// The line in the log when a step fails.
const QUEUE_FAILED: &str =
    "the delivery queue of the webhooks cannot be read or written; trying again";
/// At a shutdown, how long attempts in flight may take. Those that take longer are sent again when their lease ends.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// The state of the thread.
pub struct Dispatcher<'a> {
    engine: &'a EngineState,
    /// The model that changes are evaluated with: the one of this server, or the one in force if it has more.
    model: Arc<Model>,
    /// Whether the webhooks were parsed with another model.
    is_model_new: bool,
    tail: ChangeTail,
    attempts: Rc<AttemptContext>,
    in_flight: JoinSet<AttemptReport>,
    webhook_of_attempt: HashMap<TaskId, Id>,
    webhooks: Vec<WebhookState>,
    is_refresh_due: bool,
    refresh_at: Instant,
    housekeeping_at: Instant,
    /// The webhook that may claim first: each in turn.
    turn: usize,
    /// Whether the next batch of changes is for the webhooks that are furthest behind.
    is_catching_up: bool,
    failures: StoreFailures,
    /// Whether deliveries that a former process has claimed are due at once, because no other process can send them.
    pub has_former_leases: bool,
}

impl<'a> Dispatcher<'a> {
    pub fn new(engine: &'a EngineState, tail: ChangeTail, attempts: AttemptContext) -> Self {
        Self {
            engine,
            model: Arc::clone(&engine.model),
            is_model_new: false,
            tail,
            attempts: Rc::new(attempts),
            in_flight: JoinSet::new(),
            webhook_of_attempt: HashMap::new(),
            webhooks: Vec::new(),
            is_refresh_due: true,
            refresh_at: clock::now(),
            housekeeping_at: clock::now() + HOUSEKEEPING_EVERY,
            turn: 0,
            is_catching_up: false,
            failures: StoreFailures::new(QUEUE_FAILED),
            has_former_leases: false,
        }
    }
}

impl Dispatcher<'_> {
    fn log(&self) -> &Logger {
        &self.engine.log
    }

    fn metrics(&self) -> &WebhookMetrics {
        &self.engine.metrics
    }

    pub async fn run(&mut self) {
        while !self.engine.is_closed() {
            match self.step().await {
                Ok(true) => tokio::task::yield_now().await,
                Ok(false) => self.wait().await,
                Err(error) => {
                    self.pause_after(&error).await;
                    // What was stored is in doubt.
                    self.is_refresh_due = true;
                    continue;
                }
            }
            self.failures.record_success();
        }
        let drain = async {
            while let Some(done) = self.in_flight.join_next_with_id().await {
                drop(done);
            }
        };
        // An attempt that takes longer is dropped: its lease ends by itself.
        let _ = timeout(DRAIN_TIMEOUT, drain).await;
    }

    async fn pause_after(&mut self, error: &StoreError) {
        self.failures.record(&self.engine.log, error);
        tokio::select! {
            () = sleep(RETRY_PAUSE) => {}
            () = self.engine.closed() => {}
        }
    }

    /// One round. Returns whether there is more to do at once.
    async fn step(&mut self) -> Result<bool, StoreError> {
        crate::fault::point("webhooks");
        self.finish_attempts();
        let now = clock::now();
        for at in 0..self.webhooks.len() {
            let Some(state) = self.webhooks.get_mut(at) else { break };
            if state.left_until.take_if(|until| now >= *until).is_some() {
                self.refresh_progress(at).await?;
            }
        }
        if self.is_refresh_due || now >= self.refresh_at {
            self.refresh().await?;
        }
        if self.webhooks.is_empty() {
            return Ok(false);
        }
        if self.has_former_leases {
            self.attempts.store.deliver(DeliveryTask::EndLeases).await?;
            self.has_former_leases = false;
            self.refresh().await?;
        }
        let has_more = self.fan_out_batch().await?;
        self.keep_house().await?;
        self.claim_due().await?;
        Ok(has_more)
    }

    /// Sleeps until something may be to do.
    async fn wait(&mut self) {
        let due = self.webhooks.iter().filter(|webhook| self.room(webhook) > 0);
        let due = due.filter_map(|webhook| webhook.due_at);
        let left = self.webhooks.iter().filter_map(|webhook| webhook.left_until);
        let wake = due.chain(left).min();
        let wake = wake.map_or(self.refresh_at, |wake| wake.min(self.refresh_at));
        let hint = self.tail.hint();
        let wants_changes = self.webhooks.iter().any(WebhookState::wants_changes);
        tokio::select! {
            Some(done) = self.in_flight.join_next_with_id() => self.finish_attempt(done),
            () = self.tail.wait(), if wants_changes => {}
            () = hint.webhook_written() => self.is_refresh_due = true,
            () = sleep_until(wake.into()) => {}
            () = self.engine.closed() => {}
        }
        self.finish_attempts();
    }

    fn finish_attempts(&mut self) {
        while let Some(done) = self.in_flight.try_join_next_with_id() {
            self.finish_attempt(done);
        }
    }

    fn finish_attempt(&mut self, done: Result<(TaskId, AttemptReport), JoinError>) {
        let (task, report) = match done {
            Ok((task, report)) => (task, Some(report)),
            // The panic is logged. The delivery is sent again when its lease ends.
            Err(error) => {
                self.metrics().panics.add(1);
                (error.id(), None)
            }
        };
        self.metrics().in_flight.set(self.in_flight.len());
        let id = self.webhook_of_attempt.remove(&task);
        let state = self.webhooks.iter_mut().find(|state| Some(state.definition.id) == id);
        let Some(state) = state else { return };
        state.in_flight = state.in_flight.saturating_sub(1);
        let Some(report) = report else {
            state.is_failing = true;
            return;
        };
        state.is_failing = report.has_failed;
        // The next delivery of the same item is due.
        state.due_at = Some(clock::now());
        state.pending = state.pending.saturating_sub(usize::from(report.is_final));
        self.is_refresh_due |= report.is_disabled;
    }
}

/// Reading the webhooks and their queues.
impl Dispatcher<'_> {
    async fn refresh(&mut self) -> Result<(), StoreError> {
        self.is_refresh_due = false;
        let items = stored::read_webhooks(&self.attempts).await?;
        let every = if items.is_empty() { IDLE_REFRESH_EVERY } else { REFRESH_EVERY };
        self.refresh_at = clock::now() + every;
        if items.is_empty() && self.webhooks.is_empty() {
            return Ok(());
        }
        let queues = match items.is_empty() {
            true => Vec::new(),
            false => stored::read_queues(&self.attempts).await?,
        };
        self.metrics().pending.set(queues.iter().map(|queue| queue.pending).sum());
        let oldest = queues.iter().filter_map(|queue| queue.oldest_pending).max();
        let seconds = oldest.unwrap_or_default().as_secs();
        self.metrics().lag.set(usize::try_from(seconds).unwrap_or(usize::MAX));
        let mut known: HashMap<Id, WebhookState> = HashMap::new();
        for state in self.webhooks.drain(..) {
            known.insert(state.definition.id, state);
        }
        for item in &items {
            let queue = queues.iter().find(|queue| queue.webhook == item.id);
            // A webhook that was created between the two reads is found the next time.
            let Some(queue) = queue else { continue };
            let former = known.remove(&item.id);
            match self.merge(item, queue, former).await? {
                Some(state) => self.webhooks.push(state),
                None => self.is_refresh_due = true,
            }
        }
        self.is_model_new = false;
        Ok(())
    }

    /// Reads how far another server has brought a webhook.
    async fn refresh_progress(&mut self, at: usize) -> Result<(), StoreError> {
        let Some(state) = self.webhooks.get_mut(at) else { return Ok(()) };
        match stored::read_progress(&self.attempts, state.definition.id).await? {
            Some(progress) => state.update(progress),
            // It has been deleted.
            None => self.is_refresh_due = true,
        }
        Ok(())
    }

    /// The state of a webhook after a refresh. `None`: where it begins is not known yet.
    async fn merge(
        &self,
        item: &Item,
        queue: &WebhookQueue,
        former: Option<WebhookState>,
    ) -> Result<Option<WebhookState>, StoreError> {
        let definition = match &former {
            Some(state) if state.definition.is_current(item) && !self.is_model_new => {
                Rc::clone(&state.definition)
            }
            _ => self.parse(item),
        };
        let stored = match queue.position {
            Some(position) => position,
            None => match stored::begin(&self.attempts, item.id).await? {
                Some(position) => position,
                None => return Ok(None),
            },
        };
        Ok(Some(WebhookState::new(definition, (stored, queue), former)))
    }

    fn parse(&self, item: &Item) -> Rc<WebhookDefinition> {
        let (definition, fault) = WebhookDefinition::parse(&self.model, item);
        if let Some(fault) = fault {
            let message = "some events of a webhook do not fit the model";
            let id = definition.id.text();
            self.log().event(Level::Warning, message, &[("webhook", &id), ("cause", &fault)]);
        }
        Rc::new(definition)
    }
}

/// Fan-out.
impl Dispatcher<'_> {
    /// Reads a batch of the change log for the webhooks at one position. Returns whether there is more.
    async fn fan_out_batch(&mut self) -> Result<bool, StoreError> {
        let open = self.webhooks.iter().filter(|state| state.wants_changes());
        let open = open.map(|state| state.evaluated.position);
        // In turn the webhooks that are behind and the others, which must not wait for them.
        self.is_catching_up = !self.is_catching_up;
        let from = if self.is_catching_up { open.min() } else { open.max() };
        let Some(from) = from else { return Ok(false) };
        let batch = self.tail.read_after(from).await?;
        let TailBatch { changes, end, has_more, swept, is_other_log } = batch;
        if is_other_log {
            self.return_to_stored_positions(from);
            return Ok(false);
        }
        let model = Arc::clone(&self.model);
        let is_about_webhooks = |label: &str| {
            [model.webhooks, model.deliveries]
                .iter()
                .any(|own| *model.resource(*own).label == *label)
        };
        // The definitions are read after the changes, so they are at least as new.
        if changes.iter().any(|change| is_about_webhooks(&change.resource)) {
            self.refresh().await?;
        }
        let has_changes = !changes.is_empty();
        let changes: Vec<_> =
            changes.into_iter().map(|change| LoggedChange::new(&model, change)).collect();
        // Read after the changes: a server stores its model before it writes changes that only this model has.
        let in_force = match self.is_unsure(from, &changes) {
            true => stored::find_model_in_force(&self.attempts, &self.model).await?,
            false => ModelInForce::Current,
        };
        if let ModelInForce::Other(model) = in_force {
            self.adopt(model).await?;
            return Ok(true);
        }
        let is_readable = !matches!(in_force, ModelInForce::Unreadable);
        for at in 0..self.webhooks.len() {
            let Some(state) = self.webhooks.get_mut(at) else { break };
            if state.evaluated.position != from || !state.wants_changes() {
                continue;
            }
            if swept > from {
                let (webhook, metrics) = (state.definition.id.text(), &self.engine.metrics);
                metrics.gaps.add(1);
                let message = "changes were removed from the change log before a webhook got them";
                let log = &self.engine.log;
                log.event(Level::Error, message, &[("webhook", &webhook), ("position", &from)]);
            }
            let context = (&*model, &self.engine.source);
            let (webhook, from) = (&state.definition, state.evaluated);
            let is_sure = is_readable || state.is_left_too_long(clock::now());
            let done = fan_out(context, webhook, from, (&changes, end), is_sure);
            let mut are_all_stored = true;
            for part in done.parts {
                are_all_stored = self.store_part(at, part).await?;
                if !are_all_stored {
                    break;
                }
            }
            if done.is_left && are_all_stored {
                let Some(state) = self.webhooks.get_mut(at) else { break };
                state.leave_to_newer(&self.engine.log);
            }
        }
        if has_changes && !has_more {
            sleep(BATCH_PAUSE).await;
        }
        let open = self.webhooks.iter().filter(|state| state.wants_changes());
        Ok(has_more || open.map(|state| state.evaluated.position).any(|position| position < end))
    }

    /// After the loss of the end of the log, in a failover: the positions in the database belong to the log that is
    /// left, and those in memory do not.
    fn return_to_stored_positions(&mut self, position: i64) {
        let reached = self.tail.reached();
        let message =
            "the change log has lost its end; the webhooks continue from their stored positions";
        let fields: &[(&str, &dyn std::fmt::Display)] =
            &[("position", &position), ("end", &reached)];
        self.log().event(Level::Error, message, fields);
        for state in &mut self.webhooks {
            state.evaluated = state.stored;
        }
        self.is_refresh_due = true;
    }

    /// Whether the model in force matters for the webhooks at a position.
    fn is_unsure(&self, from: i64, changes: &[LoggedChange]) -> bool {
        let mut reading = self.webhooks.iter().filter(|state| state.evaluated.position == from);
        reading.any(|state| changes.iter().any(|logged| state.definition.is_unsure_of(logged)))
    }

    /// Evaluates changes with another model from now on.
    async fn adopt(&mut self, model: Arc<Model>) -> Result<(), StoreError> {
        let message = "the webhooks send events of the model in force, which is another one than that of this server";
        self.log().event(Level::Info, message, &[]);
        (self.model, self.is_model_new) = (model, true);
        self.refresh().await
    }

    /// Stores the deliveries of a part; a part without any is stored later. Returns whether to go on.
    async fn store_part(&mut self, at: usize, part: FanOutPart) -> Result<bool, StoreError> {
        let Some(state) = self.webhooks.get_mut(at) else { return Ok(false) };
        let FanOutPart { to, deliveries } = part;
        if deliveries.is_empty() {
            state.evaluated = to;
            return Ok(true);
        }
        let (from, count) = (state.stored.position, deliveries.len());
        let task = DeliveryTask::FanOut(FanOut { from, to, deliveries });
        match self.attempts.store.deliver(task).await? {
            DeliveryOutcome::Superseded => {
                state.left_until = Some(clock::now() + LEAVE_FOR);
                Ok(false)
            }
            _ => {
                (state.stored, state.evaluated) = (to, to);
                state.pending += count;
                state.due_at = Some(clock::now());
                self.metrics().created.add(u64::try_from(count).unwrap_or(0));
                Ok(self.webhooks.get(at).is_some_and(WebhookState::wants_changes))
            }
        }
    }

    /// Stores positions that have moved without deliveries.
    async fn keep_house(&mut self) -> Result<(), StoreError> {
        if clock::now() < self.housekeeping_at {
            return Ok(());
        }
        self.housekeeping_at = clock::now() + HOUSEKEEPING_EVERY;
        for at in 0..self.webhooks.len() {
            let Some(state) = self.webhooks.get_mut(at) else { break };
            if state.evaluated.position <= state.stored.position {
                continue;
            }
            let (from, to) = (state.stored.position, state.evaluated);
            let task = DeliveryTask::FanOut(FanOut { from, to, deliveries: Vec::new() });
            match self.attempts.store.deliver(task).await? {
                DeliveryOutcome::Superseded => self.refresh_progress(at).await?,
                _ => state.stored = to,
            }
        }
        Ok(())
    }
}

/// Claims.
impl Dispatcher<'_> {
    /// Claims due deliveries, each webhook in turn, and starts their attempts.
    async fn claim_due(&mut self) -> Result<(), StoreError> {
        let count = self.webhooks.len();
        for offset in 0..count {
            let at = (self.turn + offset) % count.max(1);
            let Some(state) = self.webhooks.get(at) else { continue };
            let room = self.room(state);
            let is_due = state.due_at.is_some_and(|due| clock::now() >= due);
            if is_due && room > 0 {
                self.claim(at, room).await?;
            }
        }
        self.turn = self.turn.wrapping_add(1);
        Ok(())
    }

    /// How many more attempts a webhook may have in flight.
    fn room(&self, state: &WebhookState) -> usize {
        let room = state.room().min(IN_FLIGHT_MAX.saturating_sub(self.in_flight.len()));
        let failing = self.webhooks.iter().filter(|state| state.is_failing);
        let failing: usize = failing.map(|state| state.in_flight).sum();
        match state.is_failing {
            true => room.min(FAILING_IN_FLIGHT_MAX.saturating_sub(failing)),
            false => room,
        }
    }

    async fn claim(&mut self, at: usize, count: usize) -> Result<(), StoreError> {
        let Some(state) = self.webhooks.get_mut(at) else { return Ok(()) };
        let lease = Lease::new(RequestId::new().as_str().into());
        let (webhook, token) = (state.definition.id, lease.token.clone());
        let task = DeliveryTask::Claim(DeliveryClaim { webhook, count, lease: LEASE, token });
        let DeliveryOutcome::Claimed { deliveries, due_in } =
            self.attempts.store.deliver(task).await?
        else {
            return Err(stored::unexpected_outcome());
        };
        // Those that are due and were not claimed are locked by another server at this moment.
        let pause = if deliveries.len() < count { CLAIM_PAUSE } else { Duration::ZERO };
        state.due_at = due_in.map(|due_in| clock::now() + due_in.max(pause));
        for delivery in deliveries {
            let (context, definition) = (Rc::clone(&self.attempts), Rc::clone(&state.definition));
            let lease = lease.clone();
            let task = self.in_flight.spawn_local(attempt(context, definition, delivery, lease));
            self.webhook_of_attempt.insert(task.id(), webhook);
            state.in_flight += 1;
        }
        self.metrics().in_flight.set(self.in_flight.len());
        Ok(())
    }
}
