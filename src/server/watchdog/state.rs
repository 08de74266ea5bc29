//! The phase of one connection, its requests in flight, and the signal that it should get now.

use std::cell::{Cell, RefCell, RefMut};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use crate::admission::MemoryPressure;
use crate::pipeline::StreamRights;
use crate::server::http1_framing::MessageFraming;
use crate::server::http2_frames::ControlFrameBudget;

/// After this many ticks without a request a connection releases hyper's buffers.
const PARK_TICKS: u64 = 1;

/// How often the sweep runs.
pub const SWEEP_INTERVAL: Duration = Duration::from_millis(250);

/// The minimum rate at which a client must read a response, once the stall timeout has passed: bytes per
/// tick, which is 32 KiB a second.
pub(super) const RESPONSE_BYTES_PER_TICK_MIN: usize = 8 << 10;

/// Concurrent handshakes per worker before the timeout of slow ones is shortened.
pub(super) const HANDSHAKES_SOFT_MAX: usize = 1_000;

/// Streams that every connection may have, even when its worker has too many of them.
pub(super) const STREAMS_FAIR_SHARE: usize = 10;

/// The state that the connections of one worker share.
#[derive(Debug, Default)]
pub struct WorkerState {
    /// The time: the number of sweeps so far.
    pub(super) ticks: Cell<u64>,
    /// HTTP/2 requests in flight, and their maximum.
    pub(super) streams: Cell<usize>,
    pub(super) streams_max: usize,
    pub(super) streams_logged_at: Cell<Option<u64>>,
    /// When a handshake was last logged.
    pub(super) handshake_logged_at: Cell<Option<u64>>,
    /// Handshakes in flight.
    pub(super) handshakes: Cell<usize>,
    /// Requests so far.
    pub(super) requests: Cell<u64>,
    /// When the server began to stop.
    pub(super) stopping_since: Cell<Option<u64>>,
}

impl WorkerState {
    /// Whether connections with many streams should finish some.
    fn has_many_streams(&self) -> bool {
        self.streams.get() > self.streams_max / 2
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionPhase {
    /// Accepted, before or in the TLS handshake.
    Handshake,
    /// No byte of HTTP has arrived yet.
    Fresh,
    /// The first byte of a head has arrived, the last has not.
    Head,
    /// A request is with the pipeline, which has its own timeouts.
    Busy,
    /// A response is being sent. The time is that of the last progress.
    Sending,
    /// All requests are answered.
    Idle,
    /// HTTP/2, with concurrent requests. The time is that of the last request or response.
    Streams,
    /// The last bytes are sent; the connection ends by itself.
    Closing,
}

/// A signal of the watchdog to a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchdogSignal {
    Continue,
    /// Release hyper's buffers until a whole head arrives.
    Park,
    /// Finish the requests in flight, accept no new ones.
    Drain,
    /// End now.
    Abort,
}

/// The timeout of each phase, in ticks.
#[derive(Debug, Clone, Copy)]
pub struct PhaseTimeouts {
    pub handshake: u64,
    pub head: u64,
    pub idle: u64,
    pub sending: u64,
    /// For large heads and responses under memory pressure, and for handshakes over their soft limit.
    pub under_pressure: u64,
    /// For connections without a request in flight, during a shutdown.
    pub shutdown: u64,
}

impl PhaseTimeouts {
    pub fn ticks(limit: Duration) -> u64 {
        let ticks = limit.as_millis().div_ceil(SWEEP_INTERVAL.as_millis());
        u64::try_from(ticks).unwrap_or(u64::MAX)
    }
}

/// A request in flight, up to the last byte of the response.
#[derive(Debug, Clone, Copy)]
pub(super) struct InFlightEntry {
    pub(super) number: u32,
    pub(super) begun: u64,
    /// The memory of its head.
    pub(super) head_bytes: usize,
    /// When hyper got the response, and its size; from then on the client is expected to read it.
    pub(super) response_ready: Option<(u64, usize)>,
    pub(super) kind: InFlightKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InFlightKind {
    Request,
    /// Its response is a stream.
    Stream,
    /// Not the request, but a chunk of its response.
    Chunk,
}

#[derive(Debug)]
pub struct ConnectionWatchdog {
    pub(super) worker: Rc<WorkerState>,
    pub(super) phase: Cell<ConnectionPhase>,
    pub(super) since: Cell<u64>,
    /// When bytes of a response were last sent.
    pub(super) progress: Cell<u64>,
    /// The memory of a head that took more than one read.
    pub(super) head_bytes: Cell<usize>,
    /// The memory of the TLS state of the connection.
    pub(super) tls_bytes: Cell<usize>,
    /// Requests so far.
    pub(super) requests: Cell<u32>,
    pub(super) in_flight: RefCell<Vec<InFlightEntry>>,
    /// Streaming responses that end when their callers lose their rights.
    pub(super) streams: RefCell<Vec<GuardedStream>>,
    /// The HTTP/2 request that has begun and has no task yet.
    pub(super) without_task: Cell<Option<u32>>,
    pub(super) frame_budget: ControlFrameBudget,
    /// The connection waits without a hyper connection and its buffers.
    pub(super) is_parked: Cell<bool>,
    /// The position in the messages; HTTP/1 only.
    pub(super) message: RefCell<MessageFraming>,
    /// Whether the connection waits for the server, not for its client.
    pub(super) is_waiting_on_server: Cell<bool>,
    pub(super) signal: Cell<WatchdogSignal>,
    pub(super) waker: RefCell<Option<Waker>>,
    pub(super) is_abandoned: Cell<bool>,
    pub(super) ended: Cell<bool>,
}

impl ConnectionWatchdog {
    pub fn new(common: &Rc<WorkerState>) -> Rc<Self> {
        let now = common.ticks.get();
        Rc::new(Self {
            worker: Rc::clone(common),
            phase: Cell::new(ConnectionPhase::Fresh),
            since: Cell::new(now),
            progress: Cell::new(now),
            head_bytes: Cell::new(0),
            tls_bytes: Cell::new(0),
            requests: Cell::new(0),
            in_flight: RefCell::new(Vec::new()),
            streams: RefCell::new(Vec::new()),
            without_task: Cell::new(None),
            frame_budget: ControlFrameBudget::new(now),
            is_parked: Cell::new(false),
            message: RefCell::default(),
            is_waiting_on_server: Cell::new(false),
            signal: Cell::new(WatchdogSignal::Continue),
            waker: RefCell::new(None),
            is_abandoned: Cell::new(false),
            ended: Cell::new(false),
        })
    }

    pub(super) fn now(&self) -> u64 {
        self.worker.ticks.get()
    }

    pub fn phase(&self) -> ConnectionPhase {
        self.phase.get()
    }

    pub fn enter_phase(&self, phase: ConnectionPhase) {
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

    /// Whether a response of ours can be in flight. If not, the bytes that hyper writes are its own.
    pub fn is_response_expected(&self) -> bool {
        match self.phase.get() {
            ConnectionPhase::Busy
            | ConnectionPhase::Sending
            | ConnectionPhase::Streams
            | ConnectionPhase::Closing => true,
            ConnectionPhase::Handshake
            | ConnectionPhase::Fresh
            | ConnectionPhase::Head
            | ConnectionPhase::Idle => false,
        }
    }

    pub fn record_read(&self, bytes: usize) {
        match self.phase.get() {
            ConnectionPhase::Fresh | ConnectionPhase::Idle => {
                self.enter_phase(ConnectionPhase::Head);
            }
            ConnectionPhase::Head => {
                // hyper has a copy, and `message` another.
                self.head_bytes.set(self.head_bytes.get() + 2 * bytes);
            }
            ConnectionPhase::Handshake
            | ConnectionPhase::Busy
            | ConnectionPhase::Sending
            | ConnectionPhase::Streams
            | ConnectionPhase::Closing => {}
        }
    }

    pub fn message(&self) -> RefMut<'_, MessageFraming> {
        self.message.borrow_mut()
    }

    pub fn record_written(&self, bytes: usize) {
        // A peer can make HTTP/2 write pings and acknowledgements of at most 17 bytes for ever; they do not
        // count as progress.
        const FRAME_BYTES_SMALL: usize = 64;
        match self.phase.get() {
            ConnectionPhase::Sending => self.since.set(self.now()),
            ConnectionPhase::Streams => {
                if bytes > FRAME_BYTES_SMALL {
                    self.progress.set(self.now());
                }
                self.frame_budget.credit_sent(bytes);
            }
            ConnectionPhase::Handshake
            | ConnectionPhase::Fresh
            | ConnectionPhase::Head
            | ConnectionPhase::Busy
            | ConnectionPhase::Idle
            | ConnectionPhase::Closing => {}
        }
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
    pub fn has_unread(&self) -> bool {
        let is_unread = |request: &InFlightEntry| {
            request.response_ready.is_some() || request.kind == InFlightKind::Stream
        };
        self.in_flight.borrow().iter().any(is_unread)
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

    fn is_log_due(&self, last: &Cell<Option<u64>>) -> bool {
        const REPEAT: u64 = 20;
        let may = last.get().is_none_or(|last| self.now() >= last + REPEAT);
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
        if self.phase.get() == ConnectionPhase::Sending && self.is_idle() {
            self.enter_phase(ConnectionPhase::Idle);
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
        self.signal.get() == WatchdogSignal::Abort
    }

    /// Sets whether the connection waits for the server (its turn to handshake).
    pub fn set_waiting_on_server(&self, is_held_up: bool) {
        self.is_waiting_on_server.set(is_held_up);
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

    /// The age in whole ticks: a phase that began in mid-tick has lasted less than the difference.
    pub(super) fn age(&self, since: u64) -> u64 {
        self.now().saturating_sub(since).saturating_sub(1)
    }

    /// The signal that this connection should get now.
    pub(super) fn next_signal(
        &self,
        timeouts: &PhaseTimeouts,
        pressure: MemoryPressure,
    ) -> WatchdogSignal {
        if self.is_unread_too_long(timeouts, pressure) || self.exceeds_fair_share(timeouts) {
            return WatchdogSignal::Abort;
        }
        if self.phase.get() == ConnectionPhase::Streams {
            self.wake_revoked_streams();
        } else if self.has_revoked_stream() {
            return WatchdogSignal::Abort;
        }
        if self.delays_shutdown(timeouts) {
            return WatchdogSignal::Abort;
        }
        let age = self.age(self.since.get());
        let over = |limit| match self.signal.get() {
            _ if age >= limit => WatchdogSignal::Abort,
            WatchdogSignal::Continue if self.can_park() && age >= PARK_TICKS => {
                WatchdogSignal::Park
            }
            ask => ask,
        };
        let hurry = |limit: u64, is_hurried| {
            if is_hurried { limit.min(timeouts.under_pressure) } else { limit }
        };
        let is_short = pressure >= MemoryPressure::High;
        match self.phase.get() {
            ConnectionPhase::Head => {
                over(hurry(timeouts.head, pressure.hurries(self.head_bytes.get())))
            }
            ConnectionPhase::Handshake => {
                over(hurry(timeouts.handshake, is_short || self.is_excess_handshake()))
            }
            ConnectionPhase::Fresh => over(hurry(timeouts.head, is_short && self.holds_buffers())),
            ConnectionPhase::Idle => over(hurry(timeouts.idle, is_short && self.holds_buffers())),
            ConnectionPhase::Sending => over(timeouts.sending),
            ConnectionPhase::Busy | ConnectionPhase::Closing => self.signal.get(),
            ConnectionPhase::Streams if !self.is_idle() => self.signal.get(),
            ConnectionPhase::Streams if self.requests.get() == 0 => {
                over(hurry(timeouts.head, is_short))
            }
            ConnectionPhase::Streams => match self.signal.get() {
                WatchdogSignal::Continue if age >= hurry(timeouts.idle, is_short) => {
                    WatchdogSignal::Drain
                }
                // Bytes of hyper itself may still wait for a client that does not read.
                WatchdogSignal::Drain => over(timeouts.sending),
                ask @ (WatchdogSignal::Continue | WatchdogSignal::Park | WatchdogSignal::Abort) => {
                    ask
                }
            },
        }
    }

    fn is_excess_handshake(&self) -> bool {
        self.worker.handshakes.get() > HANDSHAKES_SOFT_MAX && !self.is_waiting_on_server.get()
    }

    fn is_unread_too_long(&self, timeouts: &PhaseTimeouts, pressure: MemoryPressure) -> bool {
        let stands_still = self.phase.get() == ConnectionPhase::Streams
            && self.age(self.progress.get()) >= timeouts.sending;
        let under_way = self.in_flight.borrow();
        under_way.iter().filter_map(|request| request.response_ready).any(|(since, bytes)| {
            let age = self.age(since);
            let ticks = u64::try_from(bytes / RESPONSE_BYTES_PER_TICK_MIN).unwrap_or(u64::MAX);
            age >= timeouts.sending.saturating_add(ticks)
                || (age >= timeouts.sending && stands_still)
                || (age >= timeouts.under_pressure && pressure.hurries(bytes))
        })
    }

    /// Whether the connection has more streams than its share, and has not finished them for long.
    fn exceeds_fair_share(&self, timeouts: &PhaseTimeouts) -> bool {
        self.worker.has_many_streams()
            && self.has_many_streams()
            && self
                .in_flight
                .borrow()
                .iter()
                .any(|it| self.age(it.begun) >= timeouts.under_pressure)
    }

    /// Whether the connection has more streams in flight than every connection may have.
    pub fn has_many_streams(&self) -> bool {
        let is_request = |request: &&InFlightEntry| request.kind != InFlightKind::Chunk;
        self.phase.get() == ConnectionPhase::Streams
            && self.in_flight.borrow().iter().filter(is_request).count() > STREAMS_FAIR_SHARE
    }

    /// Whether one more request is within the limit; HTTP/1 has one per connection.
    pub fn can_accept_request(&self) -> bool {
        self.phase.get() != ConnectionPhase::Streams
            || self.worker.streams.get() < self.worker.streams_max
    }
}

/// A streaming response that ends with the rights of its caller.
#[derive(Debug)]
pub(super) struct GuardedStream {
    /// The number of the request.
    pub(super) number: u32,
    pub(super) rights: Arc<StreamRights>,
    /// The waker of the task that runs the stream; HTTP/2 only.
    pub(super) task: Option<Waker>,
}
