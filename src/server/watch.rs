//! What each connection is doing and since when, so that one sweep can end those that take too long.
//!
//! Time is counted in ticks of the sweep, not read from a clock: a request sets no timer and asks for
//! no time. A limit may therefore run over by a tick, and never under.
//! The one surprising thing: only the socket sees the first byte of a head, and only the service knows
//! that a request is under way, so both write here, and `Exchange` is how the service does.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::Duration;

/// How often the sweep runs.
pub(super) const TICK: Duration = Duration::from_millis(250);

/// The time of one worker: how many sweeps there have been.
pub(super) type Clock = Rc<Cell<u64>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Accepted; nothing has come yet.
    Fresh,
    /// The first byte of a head has come, the last has not.
    Head,
    /// A request is with the pipeline, which has limits of its own.
    Busy,
    /// An answer is being sent. The time is that of the last progress.
    Sending,
    /// All is answered.
    Idle,
    /// HTTP/2, where requests run side by side. The time is that of the last sign of life.
    Streams,
    /// The last bytes are sent; the connection ends by itself.
    Closing,
}

/// What a connection is asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ask {
    Nothing,
    /// Finish what is under way, take nothing new.
    Leave,
    /// End now.
    Cut,
}

/// How long each phase may last, in ticks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    pub(super) head: u64,
    pub(super) idle: u64,
    pub(super) sending: u64,
}

impl Patience {
    pub(super) fn ticks(limit: Duration) -> u64 {
        let ticks = limit.as_millis().div_ceil(TICK.as_millis());
        u64::try_from(ticks).unwrap_or(u64::MAX)
    }
}

#[derive(Debug)]
pub(super) struct Watch {
    clock: Clock,
    phase: Cell<Phase>,
    since: Cell<u64>,
    /// Requests of HTTP/2 under way, or in HTTP/1 the one whose answer hyper has not taken in whole.
    exchanges: Cell<u32>,
    has_served: Cell<bool>,
    ask: Cell<Ask>,
    waker: RefCell<Option<Waker>>,
    ended: Cell<bool>,
}

impl Watch {
    pub(super) fn new(clock: &Clock) -> Rc<Self> {
        Rc::new(Self {
            clock: Rc::clone(clock),
            phase: Cell::new(Phase::Fresh),
            since: Cell::new(clock.get()),
            exchanges: Cell::new(0),
            has_served: Cell::new(false),
            ask: Cell::new(Ask::Nothing),
            waker: RefCell::new(None),
            ended: Cell::new(false),
        })
    }

    pub(super) fn phase(&self) -> Phase {
        self.phase.get()
    }

    pub(super) fn enter(&self, phase: Phase) {
        self.phase.set(phase);
        self.since.set(self.clock.get());
    }

    /// Whether an answer of ours can be on its way. When none can, what hyper writes is its own.
    pub(super) fn answers(&self) -> bool {
        match self.phase.get() {
            Phase::Busy | Phase::Sending | Phase::Streams | Phase::Closing => true,
            Phase::Fresh | Phase::Head | Phase::Idle => false,
        }
    }

    pub(super) fn has_read(&self) {
        match self.phase.get() {
            Phase::Fresh | Phase::Idle => self.enter(Phase::Head),
            Phase::Head | Phase::Busy | Phase::Sending | Phase::Streams | Phase::Closing => {}
        }
    }

    pub(super) fn has_written(&self, bytes: usize) {
        // A peer can make HTTP/2 write pings and acknowledgements of at most 17 bytes for ever; they
        // are no progress.
        const FRAME_BYTES_SMALL: usize = 64;
        match self.phase.get() {
            Phase::Sending => self.since.set(self.clock.get()),
            Phase::Streams if bytes > FRAME_BYTES_SMALL => self.since.set(self.clock.get()),
            Phase::Streams
            | Phase::Fresh
            | Phase::Head
            | Phase::Busy
            | Phase::Idle
            | Phase::Closing => {}
        }
    }

    /// hyper flushes when it has written all it has; if it also has all of the answer, that was it.
    pub(super) fn has_flushed(&self) {
        if self.phase.get() == Phase::Sending && self.exchanges.get() == 0 {
            self.enter(Phase::Idle);
        }
    }

    /// What is asked, and whom to wake when more is asked.
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
                self.since.set(self.clock.get());
            }
            if let Some(waker) = self.waker.borrow_mut().take() {
                waker.wake();
            }
        }
    }

    pub(super) fn end(&self) {
        self.ended.set(true);
        self.waker.borrow_mut().take();
    }

    /// What this connection should be asked now.
    fn verdict(&self, patience: &Patience) -> Ask {
        // A phase that began in the middle of a tick has lasted less than the difference.
        let age = self.clock.get().saturating_sub(self.since.get()).saturating_sub(1);
        let over = |limit| if age >= limit { Ask::Cut } else { self.ask.get() };
        match self.phase.get() {
            Phase::Fresh | Phase::Head => over(patience.head),
            Phase::Idle => over(patience.idle),
            Phase::Sending => over(patience.sending),
            Phase::Busy | Phase::Closing => self.ask.get(),
            Phase::Streams if self.exchanges.get() > 0 => self.ask.get(),
            Phase::Streams if !self.has_served.get() => over(patience.head),
            Phase::Streams => match self.ask.get() {
                Ask::Nothing if age >= patience.idle => Ask::Leave,
                // An answer may still wait in hyper for a client that does not read.
                Ask::Leave => over(patience.sending),
                ask @ (Ask::Nothing | Ask::Cut) => ask,
            },
        }
    }
}

/// One request, from its head to the moment hyper has all of its answer.
#[derive(Debug)]
pub(super) struct Exchange(Rc<Watch>);

impl Exchange {
    pub(super) fn begin(watch: &Rc<Watch>) -> Self {
        watch.exchanges.set(watch.exchanges.get() + 1);
        watch.has_served.set(true);
        watch.enter(if watch.phase() == Phase::Streams { Phase::Streams } else { Phase::Busy });
        Self(Rc::clone(watch))
    }

    pub(super) fn answered(&self) {
        if self.0.phase() == Phase::Busy {
            self.0.enter(Phase::Sending);
        }
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.0.exchanges.set(self.0.exchanges.get().saturating_sub(1));
        if self.0.phase() == Phase::Streams {
            self.0.enter(Phase::Streams);
        }
    }
}

/// All connections of one worker.
#[derive(Debug, Default)]
pub(super) struct Watches {
    clock: Clock,
    list: Vec<Rc<Watch>>,
}

impl Watches {
    pub(super) fn add(&mut self) -> Rc<Watch> {
        let watch = Watch::new(&self.clock);
        self.list.push(Rc::clone(&watch));
        watch
    }

    /// Nothing to sweep: also the connections that ended since the last sweep are gone.
    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(super) fn sweep(&mut self, patience: &Patience) {
        self.clock.set(self.clock.get() + 1);
        self.list.retain(|watch| !watch.ended.get());
        for watch in &self.list {
            watch.ask(watch.verdict(patience));
        }
    }

    pub(super) fn ask_all(&self, ask: Ask) {
        for watch in &self.list {
            watch.ask(ask);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Patience = Patience { head: 4, idle: 8, sending: 6 };

    /// How many sweeps a connection survives in this state.
    fn sweeps(prepare: impl FnOnce(&Rc<Watch>)) -> Option<u64> {
        let mut watches = Watches::default();
        let watch = watches.add();
        prepare(&watch);
        (1..100).find(|_| {
            watches.sweep(&PATIENCE);
            watch.ask.get() == Ask::Cut
        })
    }

    #[test]
    fn each_phase_has_its_own_patience_and_never_less() {
        assert_eq!(sweeps(|_| ()), Some(5), "fresh");
        assert_eq!(sweeps(|watch| watch.has_read()), Some(5), "head");
        assert_eq!(sweeps(|watch| std::mem::forget(Exchange::begin(watch))), None, "busy");
        assert_eq!(sweeps(|watch| Exchange::begin(watch).answered()), Some(7), "sending");
        assert_eq!(
            sweeps(|watch| {
                Exchange::begin(watch).answered();
                watch.has_flushed();
            }),
            Some(9),
            "idle"
        );
        assert_eq!(sweeps(|watch| watch.enter(Phase::Closing)), None, "closing");
        assert_eq!(
            sweeps(|watch| {
                watch.enter(Phase::Streams);
                std::mem::forget(Exchange::begin(watch));
            }),
            None,
            "streams under way"
        );
        let after_one = |watch: &Rc<Watch>| {
            watch.enter(Phase::Streams);
            drop(Exchange::begin(watch));
        };
        assert_eq!(sweeps(after_one), Some(9 + 7), "first asked to leave");
        let never = sweeps(|watch| watch.enter(Phase::Streams));
        assert_eq!(never, sweeps(|_| {}), "without a request it is like a head that does not come");
    }

    #[test]
    fn a_head_is_timed_from_its_first_byte_and_sending_from_its_last_progress() {
        let mut watches = Watches::default();
        let watch = watches.add();
        watch.has_read();
        for _ in 0..3 {
            watches.sweep(&PATIENCE);
            watch.has_read();
        }
        assert_eq!((watch.phase(), watch.since.get()), (Phase::Head, 0));
        Exchange::begin(&watch).answered();
        watches.sweep(&PATIENCE);
        watch.has_written(1);
        assert_eq!((watch.phase(), watch.since.get()), (Phase::Sending, 4));
    }

    #[test]
    fn an_answer_ends_with_a_flush_once_hyper_has_all_of_it() {
        let watch = Watch::new(&Clock::default());
        let exchange = Exchange::begin(&watch);
        watch.has_flushed();
        assert_eq!(watch.phase(), Phase::Busy);
        exchange.answered();
        watch.has_flushed();
        assert_eq!(watch.phase(), Phase::Sending, "more of it is to come");
        drop(exchange);
        watch.has_flushed();
        assert_eq!(watch.phase(), Phase::Idle);
    }

    #[test]
    fn ended_connections_are_forgotten() {
        let mut watches = Watches::default();
        watches.add().end();
        assert!(!watches.is_empty());
        watches.sweep(&PATIENCE);
        assert!(watches.is_empty());
    }

    #[test]
    fn limits_are_rounded_up_to_ticks() {
        assert_eq!(Patience::ticks(Duration::from_secs(1)), 4);
        assert_eq!(Patience::ticks(Duration::from_millis(251)), 2);
        assert_eq!(Patience::ticks(Duration::ZERO), 0);
    }
}
