//! The feed: one thread that reads the change log in order and hands each change to the views.
//!
//! While nobody follows, it reads nothing. The heartbeat of all streams is one timer here.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::Notify;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout, timeout_at};

use super::catch_up::{
    BATCH_BYTES_MAX, CatchUpQueue, CatchUpRequest, LogSection, PostponedRequests, SectionCache,
    make_page,
};
use super::evaluate::{EventSource, Subscription};
use super::fact_lookup::{EvaluationFailure, Evaluator, FactLookup};
use super::publish::{ViewIndex, publish};
use super::slot::{CatchUpPage, StreamSlot};
use super::store_failures::{RETRY_PAUSE, StoreFailures};
use super::view::{NOT_EVALUATED, View, ViewRegistry};
use crate::admission::{AdmissionControl, CallerKey};
use crate::clock;
use crate::log::{Level, Logger};
use crate::metrics::{FeedMetrics, Metrics};
use crate::model::Model;
use crate::store::{ChangeTail, OpenError, Store, StoreError, StoreWorker};

/// The pause after a batch, so that a load of writes wakes the streams 200 times a second at most.
const BATCH_PAUSE: Duration = Duration::from_millis(5);
/// The time between the comments that find out which clients have gone.
const PROBE_PAUSE: Duration = Duration::from_millis(50);
/// How often old events are removed from the rings.
const TRIM_EVERY: Duration = Duration::from_secs(1);
/// How long the sections of the log are kept that streams were behind in.
const SECTION_KEEP: Duration = Duration::from_secs(2);
/// Why streams are cut whose log is another one.
const LOG_WENT_BACK: &str = "the change log has lost entries that were sent";
/// The line in the log when a read fails.
const READ_FAILED: &str = "the change feed cannot read the change log, and tries again";

/// What the feed needs of the server.
#[derive(Debug)]
pub struct FeedContext {
    pub model: Arc<Model>,
    pub log: Logger,
    pub metrics: Arc<Metrics>,
    /// Counts the memory of events.
    pub admission: Arc<AdmissionControl>,
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
    /// The number up to which the thread has read the log.
    position: AtomicI64,
    position_changed: Notify,
    heartbeats: AtomicU64,
    /// The largest number that was deleted from the log.
    swept: AtomicI64,
    /// How often the log has lost its end.
    logs_lost: AtomicU64,
    is_closed: AtomicBool,
    pub(super) metrics: Arc<FeedMetrics>,
    admission: Arc<AdmissionControl>,
    log: Logger,
}

/// A stream in its view.
#[derive(Debug)]
pub struct ViewMembership {
    pub view: Arc<View>,
    pub slot: Arc<StreamSlot>,
    pub number: u64,
}

impl Feed {
    /// Starts the thread.
    pub fn start(
        store: &Store,
        context: FeedContext,
    ) -> Result<(Arc<Self>, JoinHandle<()>), OpenError> {
        let FeedContext { model, log, metrics, admission } = context;
        let feed = Arc::new(Self {
            source: Arc::new(EventSource::new(&model)),
            model,
            registry: Mutex::default(),
            catch_ups: CatchUpQueue::default(),
            views_changed: Notify::new(),
            catch_up_queued: Notify::new(),
            position: AtomicI64::new(0),
            position_changed: Notify::new(),
            heartbeats: AtomicU64::new(0),
            swept: AtomicI64::new(0),
            logs_lost: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
            metrics: Arc::clone(&metrics.feed),
            admission,
            log,
        });
        let (tail, worker) = (store.tail(), store.feed_worker());
        let failed =
            |error| OpenError::new(format!("cannot start the thread of the feed: {error}"));
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
                let ended = registry.by_key.insert(key, Arc::clone(&view));
                registry.ended.extend(ended);
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
            let key = &view.subscription.key;
            if registry.by_key.get(key).is_some_and(|known| Arc::ptr_eq(known, view)) {
                registry.by_key.remove(key);
                registry.generation += 1;
            } else {
                registry.ended.retain(|ended| !Arc::ptr_eq(ended, view));
            }
            self.metrics.views.decrement();
        }
    }

    fn has_views(&self) -> bool {
        self.registry().views().next().is_some()
    }

    pub(super) fn request_catch_up(&self, request: CatchUpRequest) {
        self.catch_ups.push(request);
        self.catch_up_queued.notify_one();
    }

    pub(super) fn heartbeats(&self) -> u64 {
        self.heartbeats.load(Ordering::Relaxed)
    }

    /// A client that resumes below this number is refused.
    pub(super) fn swept(&self) -> i64 {
        self.swept.load(Ordering::Relaxed)
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
        for view in self.registry().views() {
            view.for_each_stream(&mut visit);
        }
    }
}

/// The thread.
impl Feed {
    fn run(&self, mut tail: ChangeTail, worker: &StoreWorker) {
        while !self.is_closed() {
            let work = AssertUnwindSafe(|| self.run_until_closed(&mut tail, worker));
            if catch_unwind(work).is_err() {
                // The panic is logged. What the views have is in doubt, so the clients resume from the log.
                let views: Vec<_> = self.registry().views().cloned().collect();
                views.iter().for_each(|view| view.fail(NOT_EVALUATED));
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
                () = self.follow(tail, worker) => {}
                () = self.serve_catch_ups(worker) => {}
                () = self.tick() => {}
            }
        });
    }

    fn evaluator<'a>(&'a self, worker: &'a StoreWorker) -> Evaluator<'a> {
        Evaluator {
            model: &self.model,
            source: &self.source,
            worker,
            metrics: &self.metrics,
            admission: &self.admission,
        }
    }

    /// Reads the log in order, and hands each change to the views.
    async fn follow(&self, tail: &mut ChangeTail, worker: &StoreWorker) {
        let (mut index, mut failures) = (ViewIndex::default(), StoreFailures::new(READ_FAILED));
        let (mut position, mut lookup) = (None, FactLookup::new());
        while !self.is_closed() {
            {
                let registry = self.registry();
                if registry.generation != index.generation {
                    let views = registry.by_key.values();
                    index = ViewIndex::new(&self.model, registry.generation, views);
                }
            }
            if !self.has_views() {
                // What happens from now on is nothing that a view has to see.
                position = None;
                tail.rest();
                self.views_changed.notified().await;
                continue;
            }
            let read = match position {
                None => tail.read_mark().await,
                Some(known) => {
                    index.views.iter().for_each(|view| view.adopt(known));
                    tail.read_after(known).await
                }
            };
            self.metrics.tail_reads.add(1);
            let batch = match read {
                Ok(batch) => batch,
                Err(error) => {
                    self.metrics.failed_reads.add(1);
                    failures.record(&self.log, &error);
                    sleep(RETRY_PAUSE).await;
                    continue;
                }
            };
            failures.record_success();
            if let Some(known) = position.filter(|_| batch.is_other_log) {
                self.end_streams_of_lost_log(known, (tail.reached(), batch.swept));
                position = None;
                continue;
            }
            self.metrics.position.set(usize::try_from(batch.end).unwrap_or(0));
            if self.position.swap(batch.end, Ordering::Relaxed) != batch.end {
                self.position_changed.notify_one();
            }
            self.swept.fetch_max(batch.swept, Ordering::Relaxed);
            let Some(known) = position.replace(batch.end) else {
                lookup.facts.clear();
                continue;
            };
            let has_more = batch.has_more;
            if batch.swept > known {
                // Entries are missing. The streams find that out when they read the log.
                lookup.facts.clear();
                index.views.iter().for_each(|view| view.skip_to(batch.end));
            } else if batch.end != known
                && publish(&self.evaluator(worker), &index, batch, &mut lookup).await
            {
                self.registry().generation += 1;
            }
            if has_more {
                tokio::task::yield_now().await;
            } else {
                // Also after a read that finds nothing: a transaction may hold back what others have written.
                sleep(BATCH_PAUSE).await;
                tokio::select! {
                    () = tail.wait() => {}
                    () = self.views_changed.notified() => {}
                }
            }
        }
    }

    /// Cuts all streams: the database has lost entries which they have sent, by a failover to a standby that was
    /// behind or by a restored backup, and will use their numbers again. A client that resumes is refused, or gets a
    /// new snapshot.
    fn end_streams_of_lost_log(&self, position: i64, (reached, swept): (i64, i64)) {
        let message = "the change log has lost its end, and the event streams are cut";
        let fields: [(&str, &dyn std::fmt::Display); 2] =
            [("position", &position), ("reached", &reached)];
        self.log.event(Level::Error, message, &fields);
        self.swept.store(swept, Ordering::Relaxed);
        self.logs_lost.fetch_add(1, Ordering::Relaxed);
        let mut registry = self.registry();
        registry.views().for_each(|view| view.fail(LOG_WENT_BACK));
        registry.generation += 1;
    }

    fn send_heartbeats(&self) {
        self.heartbeats.fetch_add(1, Ordering::Relaxed);
        self.for_each_stream(StreamSlot::wake);
    }

    /// Reads pages of the log for the streams that are behind.
    async fn serve_catch_ups(&self, worker: &StoreWorker) {
        let (mut sections, mut failures) =
            (SectionCache::default(), StoreFailures::new(READ_FAILED));
        let (mut postponed, mut lookup) = (PostponedRequests::default(), FactLookup::new());
        let mut logs_lost = self.logs_lost.load(Ordering::Relaxed);
        while !self.is_closed() {
            let lost_now = self.logs_lost.load(Ordering::Relaxed);
            if std::mem::replace(&mut logs_lost, lost_now) != lost_now {
                sections.clear();
                lookup.facts.clear();
            }
            let position = self.position.load(Ordering::Relaxed);
            postponed.push_due(&self.catch_ups, position);
            let Some(request) = self.catch_ups.pop() else {
                let due = async {
                    tokio::select! {
                        () = self.catch_up_queued.notified() => {}
                        () = self.position_changed.notified(),
                            if !postponed.held_back.is_empty() => {}
                    }
                };
                match postponed.due_at {
                    Some(due_at) => drop(timeout_at(due_at.into(), due).await),
                    None if sections.is_empty() => due.await,
                    None => {
                        if timeout(SECTION_KEEP, due).await.is_err() {
                            sections.clear();
                            lookup.facts.clear();
                        }
                    }
                }
                continue;
            };
            // The stream may have ended meanwhile.
            let Some(slot) = request.slot.upgrade() else { continue };
            match self.make_page(worker, &request, &mut sections, &mut lookup).await {
                Ok(Some(page)) => {
                    failures.record_success();
                    slot.deliver(page);
                }
                Ok(None) if request.position >= position => postponed.held_back.push(request),
                // This connection does not see the entries yet that the tail has read.
                Ok(None) => postponed.add_failed(request),
                // The stream goes on waiting: a browser would not try again after an error.
                Err(error) => {
                    self.metrics.failed_reads.add(1);
                    failures.record(&self.log, &error);
                    postponed.add_failed(request);
                }
            }
            // The live events come first.
            tokio::task::yield_now().await;
        }
    }

    /// The page that a stream waits for; `None` if there is none yet, because transactions are in flight.
    async fn make_page(
        &self,
        worker: &StoreWorker,
        request: &CatchUpRequest,
        sections: &mut SectionCache,
        lookup: &mut FactLookup,
    ) -> Result<Option<Result<CatchUpPage, String>>, StoreError> {
        let after = request.position;
        let gone = || Ok(Some(Err("the log no longer has the position of the stream".to_owned())));
        let section = match sections.find(after) {
            Some(section) => section,
            None => {
                let batch = worker.read_log_batch(after, BATCH_BYTES_MAX).await?;
                self.metrics.catch_up_reads.add(1);
                if batch.marks.swept > after {
                    return gone();
                }
                if batch.marks.reached < after {
                    return Ok(Some(Err(LOG_WENT_BACK.to_owned())));
                }
                let Some(section) = LogSection::new(&self.model, after, batch) else {
                    return Ok(None);
                };
                sections.insert(&section);
                // A state that had not ended when it was looked up may end in entries that were read later.
                lookup.facts.clear();
                section
            }
        };
        let (view, bridge) = (&request.view, request.bridge.as_deref());
        if bridge.is_none()
            && let Some(page) = section.page(view, after)
        {
            return Ok(Some(Ok(page)));
        }
        lookup.begin_page();
        let (evaluator, subscription) = (self.evaluator(worker), &view.subscription);
        let page = make_page(&evaluator, subscription, (&section, after), bridge, lookup).await;
        // Entries may have been deleted during a lookup, which then found current states in place of past ones. Other
        // streams share these states.
        if lookup.has_read() && self.swept() > after {
            lookup.facts.clear();
            return gone();
        }
        match page {
            Ok(page) => {
                if bridge.is_none() {
                    section.keep_page(view, after, &page);
                }
                Ok(Some(Ok(page)))
            }
            Err(EvaluationFailure::Store(error)) => Err(error),
            Err(EvaluationFailure::Panicked(cause)) => Ok(Some(Err(cause))),
            Err(EvaluationFailure::TooManyLookups) => {
                Ok(Some(Err("an item has too many ancestors".to_owned())))
            }
        }
    }

    /// The timers of all streams: heartbeats, and the removal of old events.
    async fn tick(&self) {
        let seconds = self.model.server.limits.heartbeat_seconds.into();
        let mut heartbeat = interval(Duration::from_secs(seconds));
        let (mut trim, mut swept) = (interval(TRIM_EVERY), self.swept());
        for timer in [&mut heartbeat, &mut trim] {
            timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
        }
        loop {
            tokio::select! {
                _ = heartbeat.tick() => self.send_heartbeats(),
                _ = trim.tick() => {
                    let now = clock::now();
                    for view in self.registry().views() {
                        view.trim(now);
                    }
                    // A client could not resume below it, so all streams send a larger position.
                    if std::mem::replace(&mut swept, self.swept()) < self.swept() {
                        self.send_heartbeats();
                    }
                }
            }
        }
    }
}
