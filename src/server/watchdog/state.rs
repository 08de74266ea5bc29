//! The phase of one connection, its requests in flight, and the signal that it should get now.

use std::cell::{Cell, RefCell, RefMut};
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::Duration;

use super::in_flight::InFlightRequest;
use super::phase::{AbortCause, ConnectionEvent, ConnectionPhase, WatchdogSignal};
use crate::admission::MemoryPressure;
use crate::server::deadlines::{Deadlines, SWEEP_INTERVAL, SweepTime};
use crate::server::http1_framing::MessageFraming;
use crate::server::http2_frames::ControlFrameBudget;

/// After this time without a request a connection releases hyper's buffers.
const PARK_AFTER: Duration = SWEEP_INTERVAL;

/// How often the same message about refused clients may be logged.
const LOG_INTERVAL_SWEEPS: u64 = 20;

/// Concurrent handshakes per worker before the timeout of slow ones is shortened.
pub(super) const HANDSHAKES_SOFT_MAX: usize = 1_000;

/// Streams that every connection may have, even when its worker has too many of them.
pub(super) const STREAMS_FAIR_SHARE: usize = 10;

/// The state that the connections of one worker share.
#[derive(Debug, Default)]
pub struct WorkerState {
    pub(super) now: Cell<SweepTime>,
    /// HTTP/2 requests in flight, without event streams and long polls that wait, and their maximum.
    pub(super) streams: Cell<usize>,
    pub(super) streams_max: usize,
    pub(super) streams_logged_at: Cell<Option<SweepTime>>,
    /// When a handshake was last logged.
    pub(super) handshake_logged_at: Cell<Option<SweepTime>>,
    /// Handshakes in flight.
    pub(super) handshakes: Cell<usize>,
    /// Requests so far.
    pub(super) requests: Cell<u64>,
    /// When the server began to stop.
    pub(super) stopping_since: Cell<Option<SweepTime>>,
}

impl WorkerState {
    /// Whether connections with many streams should finish some.
    fn has_many_streams(&self) -> bool {
        self.streams.get() > self.streams_max / 2
    }
}

#[derive(Debug)]
pub struct ConnectionWatchdog {
    pub(super) worker: Rc<WorkerState>,
    pub(super) phase: Cell<ConnectionPhase>,
    pub(super) since: Cell<SweepTime>,
    /// When bytes of a response were last sent.
    pub(super) progress: Cell<SweepTime>,
    /// The memory of a head that took more than one read.
    pub(super) head_bytes: Cell<usize>,
    /// The memory of the TLS state of the connection.
    pub(super) tls_bytes: Cell<usize>,
    pub(super) has_begun_request: Cell<bool>,
    pub(super) in_flight: RefCell<Vec<Rc<InFlightRequest>>>,
    /// The HTTP/2 request that has begun and has no task yet.
    pub(super) without_task: RefCell<Option<Rc<InFlightRequest>>>,
    pub(super) frame_budget: ControlFrameBudget,
    /// The connection waits without a hyper connection and its buffers.
    pub(super) is_parked: Cell<bool>,
    /// The position in the messages; HTTP/1 only.
    pub(super) message: RefCell<MessageFraming>,
    /// Whether the connection waits for its turn to handshake: for the server, not for its client.
    pub(super) awaits_handshake_turn: Cell<bool>,
    pub(super) signal: Cell<WatchdogSignal>,
    pub(super) waker: RefCell<Option<Waker>>,
    pub(super) is_abandoned: Cell<bool>,
    pub(super) ended: Cell<bool>,
}

impl ConnectionWatchdog {
    pub fn new(common: &Rc<WorkerState>) -> Rc<Self> {
        let now = common.now.get();
        Rc::new(Self {
            worker: Rc::clone(common),
            phase: Cell::new(ConnectionPhase::Fresh),
            since: Cell::new(now),
            progress: Cell::new(now),
            head_bytes: Cell::new(0),
            tls_bytes: Cell::new(0),
            has_begun_request: Cell::new(false),
            in_flight: RefCell::new(Vec::new()),
            without_task: RefCell::new(None),
            frame_budget: ControlFrameBudget::new(now),
            is_parked: Cell::new(false),
            message: RefCell::default(),
            awaits_handshake_turn: Cell::new(false),
            signal: Cell::new(WatchdogSignal::Continue),
            waker: RefCell::new(None),
            is_abandoned: Cell::new(false),
            ended: Cell::new(false),
        })
    }

    pub(super) fn now(&self) -> SweepTime {
        self.worker.now.get()
    }

    pub fn phase(&self) -> ConnectionPhase {
        self.phase.get()
    }

    /// Records an event, which may begin another phase.
    pub fn on(&self, event: ConnectionEvent) {
        if event == ConnectionEvent::Http2 {
            // Only HTTP/1 can park. The client may have been silent before its preface.
            self.set_parked(false);
        }
        if let Some(next) = self.phase.get().after(event) {
            self.begin_phase(next);
        }
    }

    /// Begins any phase, without the events that lead to it.
    #[cfg(test)]
    pub fn enter_phase(&self, phase: ConnectionPhase) {
        self.begin_phase(phase);
    }

    fn begin_phase(&self, phase: ConnectionPhase) {
        self.head_bytes.set(0);
        self.count_handshake(phase == ConnectionPhase::Handshake);
        self.phase.set(phase);
        self.since.set(self.now());
    }

    fn count_handshake(&self, begins: bool) {
        let count = &self.worker.handshakes;
        let ends = self.phase.get() == ConnectionPhase::Handshake && !self.ended.get();
        count.set(count.get() + usize::from(begins) - usize::from(ends));
    }

    pub fn record_read(&self, bytes: usize) {
        if self.phase.get() == ConnectionPhase::Head {
            // hyper has a copy, and `message` another.
            self.head_bytes.set(self.head_bytes.get() + 2 * bytes);
        }
        self.on(ConnectionEvent::BytesRead);
    }

    pub fn message(&self) -> RefMut<'_, MessageFraming> {
        self.message.borrow_mut()
    }

    pub fn record_written(&self, bytes: usize) {
        // A peer can make HTTP/2 write pings and acknowledgements of at most 17 bytes for ever; they do not
        // count as progress.
        const FRAME_BYTES_SMALL: usize = 64;
        if self.phase.get() == ConnectionPhase::Streams && bytes > FRAME_BYTES_SMALL {
            self.progress.set(self.now());
        }
        self.on(ConnectionEvent::BytesWritten);
    }

    /// Raises the frame budget by the credit for frames that were sent.
    pub fn credit_frames(&self, credit: i64) {
        self.frame_budget.credit_sent(credit);
    }

    /// Spends the frame budget; false when it is exhausted.
    pub fn spend_frame_budget(&self, cost: i64) -> bool {
        self.frame_budget.spend(cost, self.now());
        !self.is_frame_budget_exhausted()
    }

    pub fn is_frame_budget_exhausted(&self) -> bool {
        self.frame_budget.is_exhausted()
    }

    /// Whether the client has not read everything that it was sent.
    pub fn has_unfinished_response(&self) -> bool {
        self.in_flight.borrow().iter().any(|request| request.is_response_unfinished())
    }

    pub fn is_idle(&self) -> bool {
        self.in_flight.borrow().is_empty()
    }

    /// Whether to log that there are too many streams; rate-limited.
    pub fn should_log_streams(&self) -> bool {
        self.is_log_due(&self.worker.streams_logged_at)
    }

    /// Whether to log a failed handshake; rate-limited, because any client can make them fail.
    pub fn should_log_handshake(&self) -> bool {
        self.is_log_due(&self.worker.handshake_logged_at)
    }

    fn is_log_due(&self, last: &Cell<Option<SweepTime>>) -> bool {
        let is_over = |last| self.now().sweeps_since(last) >= LOG_INTERVAL_SWEEPS;
        let may = last.get().is_none_or(is_over);
        if may {
            last.set(Some(self.now()));
        }
        may
    }

    /// Aborts the socket immediately, and discards all unsent data.
    pub fn abandon(&self) {
        self.is_abandoned.set(true);
    }

    pub fn is_abandoned(&self) -> bool {
        self.is_abandoned.get()
    }

    /// hyper flushes when it has written all it has; if it also has the whole response, the response is
    /// sent.
    pub fn record_flush(&self) {
        if self.is_idle() {
            self.on(ConnectionEvent::AllSent);
        }
    }

    /// The current signal; registers the task to be woken by the next one.
    pub fn poll_signal(&self, context: &Context<'_>) -> WatchdogSignal {
        let mut waker = self.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            *waker = Some(context.waker().clone());
        }
        self.signal.get()
    }

    pub fn set_signal(&self, ask: WatchdogSignal) {
        if self.signal.replace(ask) != ask {
            if self.phase.get() == ConnectionPhase::Streams {
                self.since.set(self.now());
            }
            if let Some(waker) = self.waker.borrow_mut().take() {
                waker.wake();
            }
        }
    }

    pub fn is_stopping(&self) -> bool {
        self.worker.stopping_since.get().is_some()
    }

    /// Whether it was aborted, not drained.
    pub fn is_aborted(&self) -> bool {
        matches!(self.signal.get(), WatchdogSignal::Abort(_))
    }

    /// Sets whether the connection waits for its turn to handshake.
    pub fn set_awaits_handshake_turn(&self, awaits_turn: bool) {
        self.awaits_handshake_turn.set(awaits_turn);
    }

    /// Requests that have begun at this worker, of all its connections.
    pub fn worker_requests(&self) -> u64 {
        self.worker.requests.get()
    }

    pub fn end(&self) {
        self.count_handshake(false);
        self.ended.set(true);
        self.waker.borrow_mut().take();
    }

    /// Forgets requests that have ended, with all that was sent of them.
    pub(super) fn forget_done_requests(&self) {
        self.in_flight.borrow_mut().retain(|request| request.is_in_flight());
    }

    /// Whether the client has read what hyper has of the responses in flight, and they go on.
    pub(super) fn waits_for_server(&self) -> bool {
        let in_flight = self.in_flight.borrow();
        !in_flight.is_empty() && in_flight.iter().all(|request| !request.has_buffered_bytes())
    }

    /// The HTTP/2 request whose task is spawned now. The executor gets no stream id from hyper, which spawns
    /// the task of a request right after it has called the service, so the task belongs to the request that
    /// has begun and has no task yet.
    pub fn take_request_without_task(&self) -> Option<Rc<InFlightRequest>> {
        self.without_task.take()
    }

    /// The signal that this connection should get now.
    pub(super) fn next_signal(
        &self,
        deadlines: &Deadlines,
        pressure: MemoryPressure,
    ) -> WatchdogSignal {
        let signal = self.signal.get();
        if self.is_aborted() {
            return signal;
        }
        if self.phase.get() == ConnectionPhase::Streams {
            self.in_flight.borrow().iter().for_each(|request| request.wake_if_revoked());
        }
        if let Some(cause) = self.abort_cause(deadlines, pressure) {
            return WatchdogSignal::Abort(cause);
        }
        let age = self.now().age(self.since.get());
        match signal {
            WatchdogSignal::Continue if self.is_idle_http2() => {
                let is_short = pressure >= MemoryPressure::High;
                let is_over = age >= deadlines.hurried(deadlines.idle, is_short);
                if is_over { WatchdogSignal::Drain } else { signal }
            }
            WatchdogSignal::Continue if self.can_park() && age >= PARK_AFTER => {
                WatchdogSignal::Park
            }
            _ => signal,
        }
    }

    /// Why the connection is to be aborted now, if it is.
    fn abort_cause(&self, deadlines: &Deadlines, pressure: MemoryPressure) -> Option<AbortCause> {
        if self.has_revoked_stream() || self.is_unread_too_long(deadlines, pressure) {
            return Some(self.unread_cause());
        }
        if self.exceeds_fair_share(deadlines) {
            let is_unread = self.has_unfinished_response();
            return Some(if is_unread { AbortCause::Unread } else { AbortCause::OpenStreams });
        }
        if self.delays_shutdown(deadlines) {
            return Some(AbortCause::Shutdown);
        }
        let (deadline, cause) = self.phase_deadline(deadlines, pressure)?;
        (self.now().age(self.since.get()) >= deadline).then_some(cause)
    }

    /// How long the phase may last, and the cause of the abort after that. `None` where something else ends
    /// it: the pipeline, the deadline of each response, or the lingering close.
    fn phase_deadline(
        &self,
        deadlines: &Deadlines,
        pressure: MemoryPressure,
    ) -> Option<(Duration, AbortCause)> {
        let is_short = pressure >= MemoryPressure::High;
        let Deadlines { handshake, head, idle, sending, .. } = *deadlines;
        let hurried = |limit, is_hurried| deadlines.hurried(limit, is_hurried);
        let unless_stopping = |cause| if self.is_stopping() { AbortCause::Shutdown } else { cause };
        match self.phase.get() {
            ConnectionPhase::Handshake => {
                let limit = hurried(handshake, is_short || self.is_excess_handshake());
                Some((limit, unless_stopping(AbortCause::SlowHandshake)))
            }
            ConnectionPhase::Fresh => {
                Some((hurried(head, is_short && self.uses_tls()), AbortCause::NoRequest))
            }
            ConnectionPhase::Head => {
                let limit = hurried(head, pressure.hurries(self.head_bytes.get()));
                Some((limit, unless_stopping(AbortCause::SlowHead)))
            }
            ConnectionPhase::Idle => {
                Some((hurried(idle, is_short && self.uses_tls()), AbortCause::Idle))
            }
            ConnectionPhase::Sending if self.has_unfinished_response() => {
                Some((sending, AbortCause::Unread))
            }
            ConnectionPhase::Sending => Some((sending, AbortCause::Unflushed)),
            ConnectionPhase::Streams if !self.is_idle() => None,
            ConnectionPhase::Streams if !self.has_begun_request.get() => {
                Some((hurried(head, is_short), AbortCause::NoRequest))
            }
            // Bytes of hyper itself may still wait for a client that does not read.
            ConnectionPhase::Streams if self.signal.get() == WatchdogSignal::Drain => {
                Some((sending, AbortCause::Idle))
            }
            ConnectionPhase::Streams | ConnectionPhase::Busy | ConnectionPhase::Closing => None,
        }
    }

    /// Whether it is an HTTP/2 connection that has had requests, and has none.
    fn is_idle_http2(&self) -> bool {
        self.phase.get() == ConnectionPhase::Streams
            && self.has_begun_request.get()
            && self.is_idle()
    }

    /// Whether a revoked response has not ended yet, because its client does not read and so nothing polls it.
    /// Of an HTTP/2 connection only that stream ends, not the connection.
    fn has_revoked_stream(&self) -> bool {
        self.phase.get() != ConnectionPhase::Streams
            && self.in_flight.borrow().iter().any(|request| request.is_revoked())
    }

    /// Why a connection is aborted whose client has not read everything.
    pub(super) fn unread_cause(&self) -> AbortCause {
        if self.has_revoked_stream() { AbortCause::Revoked } else { AbortCause::Unread }
    }

    fn is_excess_handshake(&self) -> bool {
        self.worker.handshakes.get() > HANDSHAKES_SOFT_MAX && !self.awaits_handshake_turn.get()
    }

    fn is_unread_too_long(&self, deadlines: &Deadlines, pressure: MemoryPressure) -> bool {
        let now = self.now();
        let is_stalled = self.phase.get() == ConnectionPhase::Streams
            && now.age(self.progress.get()) >= deadlines.sending;
        let in_flight = self.in_flight.borrow();
        let is_over = |request: &Rc<InFlightRequest>| {
            request.is_unread_too_long(now, deadlines, (pressure, is_stalled))
        };
        in_flight.iter().any(is_over)
    }

    /// Whether the connection has more streams than its share, and has not finished them for long.
    fn exceeds_fair_share(&self, deadlines: &Deadlines) -> bool {
        let is_old = |request: &Rc<InFlightRequest>| {
            let since = request.unfinished_since();
            since.is_some_and(|since| self.now().age(since) >= deadlines.under_pressure)
        };
        self.worker.has_many_streams()
            && self.has_many_streams()
            && self.in_flight.borrow().iter().any(is_old)
    }

    /// Whether the connection has more streams in flight than every connection may have. Event streams and long
    /// polls that wait do not count: they have limits of their own.
    pub fn has_many_streams(&self) -> bool {
        let in_flight = self.in_flight.borrow();
        let counts =
            |request: &&Rc<InFlightRequest>| request.is_open() && !request.follows_changes();
        self.phase.get() == ConnectionPhase::Streams
            && in_flight.iter().filter(counts).count() > STREAMS_FAIR_SHARE
    }

    /// Whether one more request is within the limit; HTTP/1 has one per connection.
    pub fn can_accept_request(&self) -> bool {
        self.phase.get() != ConnectionPhase::Streams
            || self.worker.streams.get() < self.worker.streams_max
    }
}
