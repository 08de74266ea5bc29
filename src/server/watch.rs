//! The connection watchdog: the phase of each connection and its age, so that one sweep can end those that
//! time out (slowloris, stalled readers).
//!
//! Time is counted in ticks of the sweep, not read from a clock: a request sets no timer and reads no
//! clock. A timeout may therefore be late by a tick, and never early. The one surprising thing: only the
//! socket sees the first byte of a head, and only the service knows that a request is in flight, so both
//! report here; the service does it through `Exchange`.

mod exchange;
mod memory;
mod revocation;
mod watches;

use std::cell::{Cell, RefCell, RefMut};
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::Duration;

pub(super) use self::exchange::{Exchange, Part};
use self::revocation::GuardedStream;
pub(super) use self::watches::Watches;
use super::frames::Allowance;
use super::message::MessageFraming;
use crate::gate::MemoryPressure;

/// After this many ticks without a request a connection releases hyper's buffers.
const PARK_TICKS: u64 = 1;

/// How often the sweep runs.
pub(super) const TICK: Duration = Duration::from_millis(250);

/// After the time that sending may stand still, this much must have been read of an answer with every
/// tick: 32 KiB a second.
const ANSWER_BYTES_PER_TICK: usize = 8 << 10;

/// Concurrent handshakes per worker before the timeout of slow ones is shortened.
const HANDSHAKES_MANY: usize = 1_000;

/// Streams that a connection may have also when there are too many of them.
const STREAMS_FAIR: usize = 10;

/// The state that the connections of one worker share.
#[derive(Debug, Default)]
pub(super) struct Common {
    /// The time: the number of sweeps so far.
    ticks: Cell<u64>,
    /// Requests of HTTP/2 under way, and how many there may be.
    streams: Cell<usize>,
    streams_max: usize,
    complained: Cell<Option<u64>>,
    /// When a handshake was last logged.
    told: Cell<Option<u64>>,
    /// Handshakes in flight.
    handshakes: Cell<usize>,
    /// Requests so far.
    requests: Cell<u64>,
    /// When the server began to stop.
    stopping_since: Cell<Option<u64>>,
}

impl Common {
    /// Whether connections with many streams should finish some.
    fn is_busy(&self) -> bool {
        self.streams.get() > self.streams_max / 2
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Accepted, before or in the TLS handshake.
    Handshake,
    /// No byte of HTTP has come yet.
    Fresh,
    /// The first byte of a head has come, the last has not.
    Head,
    /// A request is with the pipeline, which has timeouts of its own.
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

/// What the watchdog tells a connection to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ask {
    Nothing,
    /// Release hyper's buffers until a whole head arrives.
    Park,
    /// Finish what is in flight, accept nothing new.
    Leave,
    /// End now.
    Cut,
}

/// The timeout of each phase, in ticks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    pub(super) handshake: u64,
    pub(super) head: u64,
    pub(super) idle: u64,
    pub(super) sending: u64,
    /// For large heads and responses under memory pressure, and for handshakes that are too many.
    pub(super) hurry: u64,
    /// For connections without a request in flight, at shutdown.
    pub(super) stop: u64,
}

impl Patience {
    pub(super) fn ticks(limit: Duration) -> u64 {
        let ticks = limit.as_millis().div_ceil(TICK.as_millis());
        u64::try_from(ticks).unwrap_or(u64::MAX)
    }
}

/// A request in flight, up to the last byte of the response.
#[derive(Debug, Clone, Copy)]
struct UnderWay {
    number: u32,
    begun: u64,
    /// Of its head.
    head_bytes: usize,
    /// When hyper had the answer, and its size; from then on the client is to read it.
    answered: Option<(u64, usize)>,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Request,
    /// Its response is a stream.
    Flow,
    /// Not the request, but a chunk of its response.
    Part,
}

#[derive(Debug)]
pub(super) struct Watch {
    common: Rc<Common>,
    phase: Cell<Phase>,
    since: Cell<u64>,
    /// When bytes of a response were last sent.
    progress: Cell<u64>,
    /// Of a head that took more than one read.
    head_bytes: Cell<usize>,
    /// What the connection has beside HTTP.
    tls_bytes: Cell<usize>,
    /// Requests so far.
    requests: Cell<u32>,
    under_way: RefCell<Vec<UnderWay>>,
    /// Answers that go on and depend on somebody's rights.
    streams: RefCell<Vec<GuardedStream>>,
    /// The request of HTTP/2 that has begun and has no task yet.
    without_task: Cell<Option<u32>>,
    allowance: Allowance,
    /// hyper has no part in it now.
    is_parked: Cell<bool>,
    /// HTTP/1 only.
    message: RefCell<MessageFraming>,
    /// It waits for the server, not for its client.
    is_held_up: Cell<bool>,
    ask: Cell<Ask>,
    waker: RefCell<Option<Waker>>,
    is_abandoned: Cell<bool>,
    ended: Cell<bool>,
}

impl Watch {
    pub(super) fn new(common: &Rc<Common>) -> Rc<Self> {
        let now = common.ticks.get();
        Rc::new(Self {
            common: Rc::clone(common),
            phase: Cell::new(Phase::Fresh),
            since: Cell::new(now),
            progress: Cell::new(now),
            head_bytes: Cell::new(0),
            tls_bytes: Cell::new(0),
            requests: Cell::new(0),
            under_way: RefCell::new(Vec::new()),
            streams: RefCell::new(Vec::new()),
            without_task: Cell::new(None),
            allowance: Allowance::new(now),
            is_parked: Cell::new(false),
            message: RefCell::default(),
            is_held_up: Cell::new(false),
            ask: Cell::new(Ask::Nothing),
            waker: RefCell::new(None),
            is_abandoned: Cell::new(false),
            ended: Cell::new(false),
        })
    }

    fn now(&self) -> u64 {
        self.common.ticks.get()
    }

    pub(super) fn phase(&self) -> Phase {
        self.phase.get()
    }

    pub(super) fn enter(&self, phase: Phase) {
        self.head_bytes.set(0);
        self.count_handshake(phase == Phase::Handshake);
        self.phase.set(phase);
        self.since.set(self.now());
    }

    fn count_handshake(&self, begins: bool) {
        let count = &self.common.handshakes;
        let ends = self.phase.get() == Phase::Handshake && !self.ended.get();
        count.set(count.get() + usize::from(begins) - usize::from(ends));
    }

    /// Whether an answer of ours can be on its way. When none can, what hyper writes is its own.
    pub(super) fn answers(&self) -> bool {
        match self.phase.get() {
            Phase::Busy | Phase::Sending | Phase::Streams | Phase::Closing => true,
            Phase::Handshake | Phase::Fresh | Phase::Head | Phase::Idle => false,
        }
    }

    pub(super) fn has_read(&self, bytes: usize) {
        match self.phase.get() {
            Phase::Fresh | Phase::Idle => self.enter(Phase::Head),
            Phase::Head => {
                // hyper has a copy, and `message` another.
                self.head_bytes.set(self.head_bytes.get() + 2 * bytes);
            }
            Phase::Handshake | Phase::Busy | Phase::Sending | Phase::Streams | Phase::Closing => {}
        }
    }

    pub(super) fn message(&self) -> RefMut<'_, MessageFraming> {
        self.message.borrow_mut()
    }

    pub(super) fn has_written(&self, bytes: usize) {
        // A peer can make HTTP/2 write pings and acknowledgements of at most 17 bytes for ever; they do not
        // count as progress.
        const FRAME_BYTES_SMALL: usize = 64;
        match self.phase.get() {
            Phase::Sending => self.since.set(self.now()),
            Phase::Streams => {
                if bytes > FRAME_BYTES_SMALL {
                    self.progress.set(self.now());
                }
                self.allowance.has_sent(bytes);
            }
            Phase::Handshake
            | Phase::Fresh
            | Phase::Head
            | Phase::Busy
            | Phase::Idle
            | Phase::Closing => {}
        }
    }

    /// Spends the frame budget; false when it is exhausted.
    pub(super) fn spend(&self, cost: i64) -> bool {
        self.allowance.spend(cost, self.now());
        !self.is_overspent()
    }

    pub(super) fn is_overspent(&self) -> bool {
        self.allowance.is_overspent()
    }

    /// Whether the client has not read everything that it was sent.
    pub(super) fn has_unread(&self) -> bool {
        let is_unread =
            |request: &UnderWay| request.answered.is_some() || request.kind == Kind::Flow;
        self.under_way.borrow().iter().any(is_unread)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.under_way.borrow().is_empty()
    }

    /// Whether to log that there are too many streams; rate-limited.
    pub(super) fn may_complain(&self) -> bool {
        self.is_time_for(&self.common.complained)
    }

    /// Whether to log a failed handshake; rate-limited, because any client can make them fail.
    pub(super) fn may_tell_of_handshake(&self) -> bool {
        self.is_time_for(&self.common.told)
    }

    fn is_time_for(&self, last: &Cell<Option<u64>>) -> bool {
        const REPEAT: u64 = 20;
        let may = last.get().is_none_or(|last| self.now() >= last + REPEAT);
        if may {
            last.set(Some(self.now()));
        }
        may
    }

    /// Gives up the stream at once, with all unsent data.
    pub(super) fn abandon(&self) {
        self.is_abandoned.set(true);
    }

    pub(super) fn is_abandoned(&self) -> bool {
        self.is_abandoned.get()
    }

    /// hyper flushes when it has written all it has; if it also has the whole response, the response is
    /// sent.
    pub(super) fn has_flushed(&self) {
        if self.phase.get() == Phase::Sending && self.is_idle() {
            self.enter(Phase::Idle);
        }
    }

    /// The current signal; registers the task to be woken by the next one.
    pub(super) fn asked(&self, context: &Context<'_>) -> Ask {
        let mut waker = self.waker.borrow_mut();
        if !waker.as_ref().is_some_and(|waker| waker.will_wake(context.waker())) {
            *waker = Some(context.waker().clone());
        }
        self.ask.get()
    }

    pub(super) fn ask(&self, ask: Ask) {
        if self.ask.replace(ask) != ask {
            if self.phase.get() == Phase::Streams {
                self.since.set(self.now());
            }
            if let Some(waker) = self.waker.borrow_mut().take() {
                waker.wake();
            }
        }
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.common.stopping_since.get().is_some()
    }

    /// Whether it was aborted, not drained.
    pub(super) fn is_cut(&self) -> bool {
        self.ask.get() == Ask::Cut
    }

    /// Sets whether the connection waits for the server (its turn to handshake).
    pub(super) fn hold_up(&self, is_held_up: bool) {
        self.is_held_up.set(is_held_up);
    }

    /// Requests that have begun at this worker, of all its connections.
    pub(super) fn requests_of_all(&self) -> u64 {
        self.common.requests.get()
    }

    pub(super) fn end(&self) {
        self.count_handshake(false);
        self.ended.set(true);
        self.waker.borrow_mut().take();
    }

    /// A phase that began in the middle of a tick has lasted less than the difference.
    fn age(&self, since: u64) -> u64 {
        self.now().saturating_sub(since).saturating_sub(1)
    }

    /// What this connection should be asked now.
    fn verdict(&self, patience: &Patience, pressure: MemoryPressure) -> Ask {
        if self.is_unread_too_long(patience, pressure) || self.is_greedy(patience) {
            return Ask::Cut;
        }
        if self.phase.get() == Phase::Streams {
            self.wake_revoked_streams();
        } else if self.has_revoked_stream() {
            return Ask::Cut;
        }
        if self.holds_up_the_stop(patience) {
            return Ask::Cut;
        }
        let age = self.age(self.since.get());
        let over = |limit| match self.ask.get() {
            _ if age >= limit => Ask::Cut,
            Ask::Nothing if self.can_park() && age >= PARK_TICKS => Ask::Park,
            ask => ask,
        };
        let hurry =
            |limit: u64, is_hurried| if is_hurried { limit.min(patience.hurry) } else { limit };
        let is_short = pressure >= MemoryPressure::High;
        match self.phase.get() {
            Phase::Head => over(hurry(patience.head, pressure.hurries(self.head_bytes.get()))),
            Phase::Handshake => {
                over(hurry(patience.handshake, is_short || self.is_one_of_many_that_wait()))
            }
            Phase::Fresh => over(hurry(patience.head, is_short && self.holds_buffers())),
            Phase::Idle => over(hurry(patience.idle, is_short && self.holds_buffers())),
            Phase::Sending => over(patience.sending),
            Phase::Busy | Phase::Closing => self.ask.get(),
            Phase::Streams if !self.is_idle() => self.ask.get(),
            Phase::Streams if self.requests.get() == 0 => over(hurry(patience.head, is_short)),
            Phase::Streams => match self.ask.get() {
                Ask::Nothing if age >= hurry(patience.idle, is_short) => Ask::Leave,
                // Something of hyper's own may still wait for a client that does not read.
                Ask::Leave => over(patience.sending),
                ask @ (Ask::Nothing | Ask::Park | Ask::Cut) => ask,
            },
        }
    }

    fn is_one_of_many_that_wait(&self) -> bool {
        self.common.handshakes.get() > HANDSHAKES_MANY && !self.is_held_up.get()
    }

    fn is_unread_too_long(&self, patience: &Patience, pressure: MemoryPressure) -> bool {
        let stands_still =
            self.phase.get() == Phase::Streams && self.age(self.progress.get()) >= patience.sending;
        let under_way = self.under_way.borrow();
        under_way.iter().filter_map(|request| request.answered).any(|(since, bytes)| {
            let age = self.age(since);
            let ticks = u64::try_from(bytes / ANSWER_BYTES_PER_TICK).unwrap_or(u64::MAX);
            age >= patience.sending.saturating_add(ticks)
                || (age >= patience.sending && stands_still)
                || (age >= patience.hurry && pressure.hurries(bytes))
        })
    }

    /// It has more streams than its share, and has not finished them for long.
    fn is_greedy(&self, patience: &Patience) -> bool {
        self.common.is_busy()
            && self.has_many_streams()
            && self.under_way.borrow().iter().any(|it| self.age(it.begun) >= patience.hurry)
    }

    /// More streams are under way on it than every connection may have.
    pub(super) fn has_many_streams(&self) -> bool {
        let is_request = |request: &&UnderWay| request.kind != Kind::Part;
        self.phase.get() == Phase::Streams
            && self.under_way.borrow().iter().filter(is_request).count() > STREAMS_FAIR
    }

    /// Whether one more request is within the limit; HTTP/1 has one per connection.
    pub(super) fn has_room(&self) -> bool {
        self.phase.get() != Phase::Streams || self.common.streams.get() < self.common.streams_max
    }
}

#[cfg(test)]
mod tests;
