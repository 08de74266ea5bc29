//! The feed: one thread that reads the change log in order and hands each change to the views.
//!
//! While nobody follows, it reads nothing. The heartbeat of all streams is one timer here.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::Notify;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::catch_up::{CatchUpQueue, CatchUpRequest, make_page};
use super::evaluate::{Evaluation, EventSource, Subscription, evaluate};
use super::slot::{CatchUpPage, StreamSlot};
use super::view::{EventBatch, View};
use crate::admission::CallerKey;
use crate::intent::LoggedChange;
use crate::log::{Level, Logger};
use crate::metrics::{FeedMetrics, Metrics};
use crate::model::Model;
use crate::permit::change_visibility::NoAncestorStates;
use crate::plan::ChangeBatch;
use crate::store::{ChangeTail, OpenError, Store, StoreError, StoreWorker, TailBatch};
use crate::{clock, fault};

/// The pause after a batch, so that a load of writes wakes the streams 200 times a second at most.
const BATCH_PAUSE: Duration = Duration::from_millis(5);
/// The pause after a failed read of the log.
const RETRY_PAUSE: Duration = Duration::from_millis(500);
/// The pause before a stream asks again for changes that transactions in flight hold back.
const IN_FLIGHT_PAUSE: Duration = Duration::from_millis(20);
/// The time between the comments that find out which clients have gone.
const PROBE_PAUSE: Duration = Duration::from_millis(50);
/// How often old events are removed from the rings.
const TRIM_EVERY: Duration = Duration::from_secs(1);
/// The maximum size of all rings together.
const RINGS_BYTES_MAX: usize = 16 << 20;

/// What the feed needs of the server.
#[derive(Debug)]
pub struct FeedContext {
    pub model: Arc<Model>,
    pub log: Logger,
    pub metrics: Arc<Metrics>,
}

/// The change feed of a process.
#[derive(Debug)]
pub struct Feed {
    model: Arc<Model>,
    source: Arc<EventSource>,
    registry: Mutex<ViewRegistry>,
    catch_ups: CatchUpQueue,
    /// Wakes the thread: the views have changed, or the feed is closed.
    views_changed: Notify,
    catch_up_queued: Notify,
    heartbeats: AtomicU64,
    is_closed: AtomicBool,
    pub(super) metrics: Arc<FeedMetrics>,
    log: Logger,
}

/// A stream in its view.
#[derive(Debug)]
pub struct ViewMembership {
    pub view: Arc<View>,
    pub slot: Arc<StreamSlot>,
    pub number: u64,
}

#[derive(Debug, Default)]
struct ViewRegistry {
    by_key: HashMap<Box<str>, Arc<View>>,
    /// Changes when a view is added or removed.
    generation: u64,
    next_stream: u64,
}

impl Feed {
    /// Starts the thread.
    pub fn start(
        store: &Store,
        context: FeedContext,
    ) -> Result<(Arc<Self>, JoinHandle<()>), OpenError> {
        let FeedContext { model, log, metrics } = context;
        let feed = Arc::new(Self {
            source: Arc::new(EventSource::new(&model)),
            model,
            registry: Mutex::default(),
            catch_ups: CatchUpQueue::default(),
            views_changed: Notify::new(),
            catch_up_queued: Notify::new(),
            heartbeats: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
            metrics: Arc::clone(&metrics.feed),
            log,
        });
        let (tail, worker) = (store.tail()?, store.feed_worker()?);
        let failed = |error| OpenError(format!("cannot start the thread of the feed: {error}"));
        let (running, thread) = (Arc::clone(&feed), thread::Builder::new().name("feed".to_owned()));
        let thread = thread.spawn(move || running.run(tail, &worker)).map_err(failed)?;
        Ok((feed, thread))
    }

    /// How events name this server.
    pub fn source(&self) -> &Arc<EventSource> {
        &self.source
    }

    fn registry(&self) -> MutexGuard<'_, ViewRegistry> {
        self.registry.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a stream to the view of its subscription.
    pub fn subscribe(&self, subscription: Subscription, caller: CallerKey) -> ViewMembership {
        let slot = StreamSlot::new(caller);
        let mut registry = self.registry();
        registry.next_stream += 1;
        let number = registry.next_stream;
        let known = registry.by_key.get(&subscription.key).filter(|view| !view.has_ended());
        let view = match known {
            Some(view) => Arc::clone(view),
            None => {
                let (key, view) = (subscription.key.clone(), View::new(subscription));
                registry.by_key.insert(key, Arc::clone(&view));
                registry.generation += 1;
                self.metrics.views.increment();
                self.views_changed.notify_one();
                view
            }
        };
        view.add_stream(number, &slot);
        drop(registry);
        self.metrics.streams.increment();
        ViewMembership { view, slot, number }
    }

    pub fn unsubscribe(&self, membership: &ViewMembership) {
        let ViewMembership { view, number, .. } = membership;
        self.metrics.streams.decrement();
        let mut registry = self.registry();
        if !view.remove_stream(*number) {
            // Another view may have its key, if it has ended.
            let key = &view.subscription.key;
            if registry.by_key.get(key).is_some_and(|known| Arc::ptr_eq(known, view)) {
                registry.by_key.remove(key);
                registry.generation += 1;
            }
            self.metrics.views.decrement();
        }
    }

    pub(super) fn request_catch_up(&self, request: CatchUpRequest) {
        self.catch_ups.push(request);
        self.catch_up_queued.notify_one();
    }

    pub(super) fn heartbeats(&self) -> u64 {
        self.heartbeats.load(Ordering::Relaxed)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Ends all streams cleanly, and the thread.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.for_each_stream(StreamSlot::wake);
        self.views_changed.notify_one();
        self.catch_up_queued.notify_one();
    }

    /// Makes the streams of a caller send something, so that the server notices clients that have gone: the first
    /// comment draws a reset, the second one fails.
    pub async fn probe(&self, caller: &CallerKey) {
        for _ in 0..2 {
            self.for_each_stream(|slot| {
                if slot.caller == *caller {
                    slot.probe();
                }
            });
            sleep(PROBE_PAUSE).await;
        }
    }

    fn for_each_stream(&self, mut visit: impl FnMut(&StreamSlot)) {
        for view in self.registry().by_key.values() {
            view.for_each_stream(&mut visit);
        }
    }
}

/// The views as the thread uses them, by the labels of the resources whose changes they have to see.
#[derive(Debug, Default)]
struct ViewIndex {
    generation: u64,
    views: Vec<Arc<View>>,
    by_label: HashMap<Box<str>, Vec<usize>>,
    of_all_labels: Vec<usize>,
}

impl ViewIndex {
    fn new(model: &Model, registry: &ViewRegistry) -> Self {
        let mut index = Self { generation: registry.generation, ..Self::default() };
        let views = registry.by_key.values().filter(|view| !view.has_ended());
        for (at, view) in views.enumerate() {
            match view.subscription.labels(model) {
                None => index.of_all_labels.push(at),
                Some(labels) => {
                    for label in labels {
                        index.by_label.entry(label.into()).or_default().push(at);
                    }
                }
            }
            index.views.push(Arc::clone(view));
        }
        index
    }

    fn interested(&self, label: &str) -> impl Iterator<Item = usize> {
        let labelled = self.by_label.get(label).into_iter().flatten();
        labelled.chain(&self.of_all_labels).copied()
    }
}

/// The events of a batch for one view, while they are collected.
#[derive(Debug, Default)]
struct ViewOutput {
    bytes: Vec<u8>,
    events: Vec<(i64, usize)>,
    end: Option<OutputEnd>,
}

/// Why no more changes of a batch are evaluated for a view.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OutputEnd {
    LastEvent,
    Unknown,
    Panicked,
}

/// Logs the first of a series of failed reads.
#[derive(Debug, Default)]
struct ReadFailures {
    is_failing: bool,
}

impl ReadFailures {
    /// Waits a moment after a failure.
    async fn pause_after(&mut self, log: &Logger, error: &StoreError) {
        if !std::mem::replace(&mut self.is_failing, true) {
            let message = "the change feed cannot read the change log, and tries again";
            log.event(Level::Error, message, &[("cause", &error)]);
        }
        sleep(RETRY_PAUSE).await;
    }
}

/// The thread.
impl Feed {
    fn run(&self, mut tail: ChangeTail, worker: &StoreWorker) {
        while !self.is_closed() {
            let work = AssertUnwindSafe(|| self.run_until_closed(&mut tail, worker));
            if catch_unwind(work).is_err() {
                // The panic is logged. What the views have is in doubt, so the clients resume from the log.
                let views: Vec<_> = self.registry().by_key.values().cloned().collect();
                views.iter().for_each(|view| view.fail());
                thread::sleep(RETRY_PAUSE);
            }
        }
    }

    fn run_until_closed(&self, tail: &mut ChangeTail, worker: &StoreWorker) {
        let runtime =
            Builder::new_current_thread().enable_all().build_local(LocalOptions::default());
        let runtime = match runtime {
            Ok(runtime) => runtime,
            Err(error) => {
                let message = "the change feed cannot start";
                self.log.event(Level::Error, message, &[("cause", &error)]);
                return thread::sleep(RETRY_PAUSE);
            }
        };
        runtime.block_on(async {
            tokio::select! {
                () = self.follow(tail) => {}
                () = self.serve_catch_ups(worker) => {}
                () = self.tick() => {}
            }
        });
    }

    /// Reads the log in order, and hands each change to the views.
    async fn follow(&self, tail: &mut ChangeTail) {
        let (mut index, mut failures) = (ViewIndex::default(), ReadFailures::default());
        let mut position = None;
        while !self.is_closed() {
            {
                let registry = self.registry();
                if registry.generation != index.generation {
                    index = ViewIndex::new(&self.model, &registry);
                }
            }
            if index.views.is_empty() {
                // What happens from now on is nothing that a view has to see.
                position = None;
                self.views_changed.notified().await;
                continue;
            }
            let read = match position {
                None => tail.mark().await.map(|mark| (mark, None)),
                Some(known) => {
                    index.views.iter().for_each(|view| view.adopt(known));
                    tail.read_after(known).await.map(|batch| (batch.end, Some(batch)))
                }
            };
            let (end, batch) = match read {
                Ok(read) => read,
                Err(error) => {
                    failures.pause_after(&self.log, &error).await;
                    continue;
                }
            };
            failures.is_failing = false;
            let is_moved = position.replace(end) != Some(end);
            self.metrics.position.set(usize::try_from(end).unwrap_or(0));
            let Some(batch) = batch else { continue };
            self.metrics.tail_reads.add(1);
            let (has_more, has_changes) = (batch.has_more, !batch.changes.is_empty());
            if is_moved {
                self.publish(&index, batch);
            }
            match (has_more, has_changes) {
                (true, _) => tokio::task::yield_now().await,
                (false, true) => sleep(BATCH_PAUSE).await,
                (false, false) => {}
            }
            if !has_more {
                tokio::select! {
                    () = tail.wait() => {}
                    () = self.views_changed.notified() => {}
                }
            }
        }
    }

    /// Hands a batch of the log to the views.
    fn publish(&self, index: &ViewIndex, batch: TailBatch) {
        let mut outputs: Vec<Option<ViewOutput>> = Vec::new();
        outputs.resize_with(index.views.len(), || None);
        let now = clock::moment().micros();
        for change in batch.changes {
            let delay = u64::try_from(now.saturating_sub(change.time.micros())).unwrap_or(0);
            self.metrics.delay.observe_time(Duration::from_micros(delay));
            let logged = LoggedChange::new(&self.model, change);
            for at in index.interested(&logged.change.resource) {
                if let (Some(view), Some(output)) = (index.views.get(at), outputs.get_mut(at)) {
                    self.evaluate(view, output.get_or_insert_default(), &logged);
                }
            }
        }
        let (read_at, mut rings_bytes, mut has_ended) = (clock::now(), 0, false);
        for (view, output) in index.views.iter().zip(outputs) {
            let ViewOutput { bytes, events, end } = output.unwrap_or_default();
            has_ended |= end.is_some_and(|end| end != OutputEnd::Unknown);
            match end {
                Some(OutputEnd::Panicked) => view.fail(),
                Some(OutputEnd::Unknown) => view.skip_to(batch.end),
                Some(OutputEnd::LastEvent) | None => {
                    let is_last = end.is_some();
                    let events = (!events.is_empty()).then(|| {
                        let bytes = bytes.into();
                        EventBatch { bytes, events, is_last, read_at }
                    });
                    rings_bytes += view.publish(events, batch.end);
                }
            }
        }
        if rings_bytes > RINGS_BYTES_MAX {
            index.views.iter().for_each(|view| view.forget_all());
        }
        if has_ended {
            self.registry().generation += 1;
        }
    }

    /// Evaluates one change for one view. A panic ends the streams of this view alone.
    fn evaluate(&self, view: &View, output: &mut ViewOutput, logged: &LoggedChange) {
        if output.end.is_some() {
            return;
        }
        let begin = output.bytes.len();
        let work = AssertUnwindSafe(|| {
            let (out, context) = (&mut output.bytes, (&*self.model, &*self.source));
            evaluate(out, context, &view.subscription, logged, &NoAncestorStates)
        });
        let evaluation = match catch_unwind(work) {
            Ok(evaluation) => evaluation,
            Err(_) => {
                output.end = Some(OutputEnd::Panicked);
                return;
            }
        };
        output.end = match evaluation {
            Evaluation::Nothing | Evaluation::Event => None,
            Evaluation::LastEvent => Some(OutputEnd::LastEvent),
            Evaluation::Unknown => Some(OutputEnd::Unknown),
        };
        if matches!(evaluation, Evaluation::Event | Evaluation::LastEvent) {
            output.events.push((logged.change.sequence, begin));
        }
    }

    /// Reads pages of the log for the streams that are behind.
    async fn serve_catch_ups(&self, worker: &StoreWorker) {
        let mut failures = ReadFailures::default();
        let mut early = Vec::new();
        while !self.is_closed() {
            let Some(request) = self.catch_ups.pop() else {
                match early.is_empty() {
                    true => self.catch_up_queued.notified().await,
                    false => sleep(IN_FLIGHT_PAUSE).await,
                }
                early.drain(..).for_each(|request| self.catch_ups.push(request));
                continue;
            };
            // The stream may have ended meanwhile.
            let Some(slot) = request.slot.upgrade() else { continue };
            match worker.read_log_batch(request.position).await {
                Ok(batch) if request.is_early(&batch) => early.push(request),
                Ok(batch) => {
                    failures.is_failing = false;
                    self.metrics.catch_up_reads.add(1);
                    slot.deliver(self.make_page(&request, batch));
                }
                // The stream goes on waiting: a browser would not try again after an error.
                Err(error) => {
                    self.catch_ups.push(request);
                    failures.pause_after(&self.log, &error).await;
                }
            }
            // The live events come first.
            tokio::task::yield_now().await;
        }
    }

    fn make_page(
        &self,
        request: &CatchUpRequest,
        batch: ChangeBatch,
    ) -> Result<CatchUpPage, String> {
        if batch.marks.swept > request.position {
            return Err("the log no longer has the position of the stream".to_owned());
        }
        let work = AssertUnwindSafe(|| {
            let (context, bridge) = ((&*self.model, &*self.source), request.bridge.as_deref());
            make_page(context, &request.view.subscription, batch, bridge)
        });
        match catch_unwind(work) {
            Ok(Some(page)) => Ok(page),
            Ok(None) => Err("the ancestors of an item are not known".to_owned()),
            Err(panic) => Err(fault::panic_message(&*panic)),
        }
    }

    /// The timers of all streams: heartbeats, and the removal of old events.
    async fn tick(&self) {
        let seconds = self.model.server.limits.heartbeat_seconds.into();
        let mut heartbeat = interval(Duration::from_secs(seconds));
        let mut trim = interval(TRIM_EVERY);
        for timer in [&mut heartbeat, &mut trim] {
            timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
        }
        loop {
            tokio::select! {
                _ = heartbeat.tick() => {
                    self.heartbeats.fetch_add(1, Ordering::Relaxed);
                    self.for_each_stream(StreamSlot::wake);
                }
                _ = trim.tick() => {
                    let now = clock::now();
                    for view in self.registry().by_key.values() {
                        view.trim(now);
                    }
                }
            }
        }
    }
}
