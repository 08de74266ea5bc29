//! Tests of the timeouts of each kind of connection, in sweeps.

use std::future::ready;
use std::rc::Rc;

use tokio::runtime::Builder;

use super::state::HANDSHAKES_SOFT_MAX;
use super::*;
use crate::admission;
use crate::admission::MemoryPressure;
use crate::server::deadlines::{Deadlines, SWEEP_INTERVAL, SweepTime};

mod http2;

const DEADLINES: Deadlines = Deadlines {
    handshake: SWEEP_INTERVAL.saturating_mul(3),
    head: SWEEP_INTERVAL.saturating_mul(4),
    idle: SWEEP_INTERVAL.saturating_mul(8),
    sending: SWEEP_INTERVAL.saturating_mul(6),
    under_pressure: SWEEP_INTERVAL.saturating_mul(2),
    shutdown: SWEEP_INTERVAL.saturating_mul(2),
    silent_shutdown: SWEEP_INTERVAL,
};

fn sweep(watches: &mut WorkerConnections, pressure: MemoryPressure) {
    watches.sweep(&DEADLINES, |_| pressure);
}

/// How many sweeps a connection survives in this state.
fn sweeps(prepare: impl FnOnce(&Rc<ConnectionWatchdog>)) -> Option<u64> {
    let mut watches = WorkerConnections::new(100);
    let watch = watches.add();
    prepare(&watch);
    (1..100).find(|_| {
        sweep(&mut watches, MemoryPressure::None);
        watch.is_aborted()
    })
}

#[test]
fn watchdog_each_phase_has_its_timeout_and_never_less() {
    assert_eq!(sweeps(|watch| watch.enter_phase(ConnectionPhase::Handshake)), Some(4), "handshake");
    assert_eq!(sweeps(|_| ()), Some(5), "fresh");
    assert_eq!(sweeps(|watch| watch.record_read(1)), Some(5), "head");
    assert_eq!(sweeps(|watch| std::mem::forget(Exchange::begin(watch))), None, "busy");
    assert_eq!(sweeps(|watch| sent(watch, 0)), Some(7), "sending");
    assert_eq!(
        sweeps(|watch| {
            Exchange::begin(watch).response_ready(0);
            watch.record_flush();
        }),
        Some(9),
        "idle"
    );
    assert_eq!(sweeps(|watch| watch.enter_phase(ConnectionPhase::Closing)), None, "closing");
    assert_eq!(
        sweeps(|watch| {
            watch.enter_phase(ConnectionPhase::Streams);
            std::mem::forget(Exchange::begin(watch));
        }),
        None,
        "streams under way"
    );
    let after_one = |watch: &Rc<ConnectionWatchdog>| {
        watch.enter_phase(ConnectionPhase::Streams);
        drop(Exchange::begin(watch));
    };
    assert_eq!(sweeps(after_one), Some(9 + 7), "first asked to leave");
    let never = sweeps(|watch| watch.enter_phase(ConnectionPhase::Streams));
    assert_eq!(never, sweeps(|_| {}), "without a request it is like a head that does not come");
}

#[test]
fn watchdog_shutdown_aborts_only_connections_without_a_request() {
    let stopped = |prepare: &dyn Fn(&Rc<ConnectionWatchdog>)| {
        let mut watches = WorkerConnections::new(100);
        let watch = watches.add();
        prepare(&watch);
        watches.drain();
        (1..100).find(|_| {
            sweep(&mut watches, MemoryPressure::None);
            watch.is_aborted()
        })
    };
    let soon = Some(2 + 1);
    assert_eq!(stopped(&|_| ()), Some(1 + 1), "a connection without a byte");
    assert_eq!(stopped(&|watch| watch.record_read(1)), soon, "half of a head");
    assert_eq!(stopped(&|watch| watch.enter_phase(ConnectionPhase::Handshake)), soon, "handshake");
    assert_eq!(
        stopped(&|watch| watch.enter_phase(ConnectionPhase::Streams)),
        soon,
        "HTTP/2 without a stream"
    );
    assert_eq!(stopped(&|watch| std::mem::forget(Exchange::begin(watch))), None, "busy");
    assert_eq!(stopped(&|watch| sent(watch, 0)), Some(7), "an answer that is not read");
    let open_stream = |watch: &Rc<ConnectionWatchdog>| {
        watch.enter_phase(ConnectionPhase::Streams);
        std::mem::forget(Exchange::begin(watch));
    };
    assert_eq!(stopped(&open_stream), None, "HTTP/2 with a stream");
}

/// A response that the client does not read.
fn sent(watch: &Rc<ConnectionWatchdog>, bytes: usize) {
    let exchange = Exchange::begin(watch);
    exchange.response_ready(bytes);
    std::mem::forget(exchange);
}

/// How many sweeps a response survives while its client reads a little all the time.
fn sweeps_of_a_slow_reader(
    phase: ConnectionPhase,
    bytes: usize,
    pressure: MemoryPressure,
) -> Option<u64> {
    let mut watches = WorkerConnections::new(100);
    let watch = watches.add();
    watch.enter_phase(phase);
    sent(&watch, bytes);
    (1..10_000).find(|_| {
        watch.record_written(100);
        sweep(&mut watches, pressure);
        watch.is_aborted()
    })
}

#[test]
fn watchdog_response_must_be_read_at_a_minimum_rate() {
    for phase in [ConnectionPhase::Fresh, ConnectionPhase::Streams] {
        let large = admission::SMALL_BYTES_MAX * 8;
        // 32 KiB a second.
        let sweeps = u64::try_from(large / (8 << 10)).unwrap();
        assert_eq!(sweeps_of_a_slow_reader(phase, large, MemoryPressure::None), Some(7 + sweeps));
        assert_eq!(
            sweeps_of_a_slow_reader(phase, large, MemoryPressure::Elevated),
            Some(3),
            "under pressure"
        );
        assert_eq!(
            sweeps_of_a_slow_reader(phase, 10, MemoryPressure::Elevated),
            Some(7),
            "small ones stay"
        );
    }
    let stuck = sweeps(|watch| {
        watch.enter_phase(ConnectionPhase::Streams);
        sent(watch, admission::SMALL_BYTES_MAX * 8);
    });
    assert_eq!(stuck, Some(7), "a stream of which nothing is read");
}

#[test]
fn watchdog_large_heads_time_out_sooner_when_there_are_many() {
    let mut watches = WorkerConnections::new(100);
    let (small, large) = (watches.add(), watches.add());
    small.record_read(100);
    large.record_read(100);
    large.record_read(admission::SMALL_BYTES_MAX + 1);
    let cut_at = |watch: &ConnectionWatchdog, watches: &mut WorkerConnections| {
        (1..100).find(|_| {
            sweep(watches, MemoryPressure::Elevated);
            watch.is_aborted()
        })
    };
    assert_eq!(cut_at(&large, &mut watches), Some(3));
    large.end();
    assert_eq!(cut_at(&small, &mut watches), Some(2), "with the timeout of every head");
}

/// How many sweeps a connection survives in this state when all memory is in use.
fn sweeps_under_high_pressure(prepare: impl FnOnce(&Rc<ConnectionWatchdog>)) -> Option<u64> {
    let mut watches = WorkerConnections::new(100);
    let watch = watches.add();
    prepare(&watch);
    (1..100).find(|_| {
        sweep(&mut watches, MemoryPressure::High);
        matches!(watch.signal.get(), WatchdogSignal::Drain | WatchdogSignal::Abort(_))
    })
}

#[test]
fn memory_pressure_high_ends_whatever_is_slow_or_has_tls() {
    let soon = Some(2 + 1);
    assert_eq!(sweeps_under_high_pressure(|watch| watch.record_read(1)), soon, "head");
    assert_eq!(sweeps_under_high_pressure(|watch| sent(watch, 10)), soon, "small answer");
    let enter = |phase| sweeps_under_high_pressure(|watch| watch.enter_phase(phase));
    assert_eq!(enter(ConnectionPhase::Handshake), soon, "handshake");
    assert_eq!(enter(ConnectionPhase::Streams), soon, "HTTP/2 without a request");
    let idle_stream = |watch: &Rc<ConnectionWatchdog>| {
        watch.enter_phase(ConnectionPhase::Streams);
        drop(Exchange::begin(watch));
    };
    assert_eq!(sweeps_under_high_pressure(idle_stream), soon, "HTTP/2 idle");
    assert_eq!(enter(ConnectionPhase::Idle), Some(8 + 1), "HTTP/1 idle");
    let idle_tls = |watch: &Rc<ConnectionWatchdog>| {
        watch.begin_tls();
        watch.enter_phase(ConnectionPhase::Idle);
    };
    assert_eq!(sweeps_under_high_pressure(idle_tls), soon, "TLS idle");
    let busy = |watch: &Rc<ConnectionWatchdog>| std::mem::forget(Exchange::begin(watch));
    assert_eq!(sweeps_under_high_pressure(busy), None, "a request has limits of its own");
}

#[test]
fn connection_memory_counts_heads_requests_and_small_answers() {
    let watches = &mut WorkerConnections::new(100);
    let watch = watches.add();
    let fresh = watch.held_bytes();
    watch.set_parked(true);
    assert!(watch.held_bytes() < fresh, "without the buffers of hyper");
    watch.set_parked(false);
    watch.record_read(10);
    watch.record_read(10_000);
    assert_eq!(watch.held_bytes(), fresh + 20_000, "both copies of a head");
    let exchange = Exchange::begin(&watch);
    let begun = watch.held_bytes();
    assert!(begun > fresh);
    exchange.has_head(10_000);
    exchange.response_ready(300);
    assert_eq!(watch.held_bytes(), begun + 10_300);
    exchange.response_ready(admission::SMALL_BYTES_MAX + 1);
    assert_eq!(watch.held_bytes(), begun + 10_000, "the gate counts large answers");
    let part = exchange.begin_chunk(500);
    assert_eq!(watch.held_bytes(), begun + 10_500, "a part is no request");
    drop((part, exchange));
    let mut all = 0;
    watches.sweep(&DEADLINES, |bytes| {
        all = bytes;
        MemoryPressure::None
    });
    assert_eq!(all, fresh, "the sum of all connections");
}

#[test]
fn watchdog_head_is_timed_from_its_first_byte_and_sending_from_progress() {
    let mut watches = WorkerConnections::new(100);
    let watch = watches.add();
    watch.record_read(1);
    for _ in 0..3 {
        sweep(&mut watches, MemoryPressure::None);
        watch.record_read(1);
    }
    let began = SweepTime::default();
    assert_eq!((watch.phase(), watch.since.get()), (ConnectionPhase::Head, began));
    Exchange::begin(&watch).response_ready(0);
    sweep(&mut watches, MemoryPressure::None);
    watch.record_written(1);
    assert_eq!((watch.phase(), watch.now().sweeps_since(began)), (ConnectionPhase::Sending, 4));
    assert_eq!(watch.since.get(), watch.now());
}

#[test]
fn watchdog_response_ends_with_a_flush_once_hyper_has_all_of_it() {
    let watch = ConnectionWatchdog::new(&Rc::default());
    let exchange = Exchange::begin(&watch);
    watch.record_flush();
    assert_eq!(watch.phase(), ConnectionPhase::Busy);
    exchange.response_ready(0);
    watch.record_flush();
    assert_eq!(watch.phase(), ConnectionPhase::Sending, "more of it is to come");
    drop(exchange);
    watch.record_flush();
    assert_eq!(watch.phase(), ConnectionPhase::Idle);
}

#[test]
fn watchdog_forgets_ended_connections() {
    let mut watches = WorkerConnections::new(100);
    watches.add().end();
    assert!(!watches.is_empty());
    sweep(&mut watches, MemoryPressure::None);
    assert!(watches.is_empty());
}

/// The cause of the abort of a connection in this state.
fn cause(prepare: impl FnOnce(&Rc<ConnectionWatchdog>)) -> Option<AbortCause> {
    let mut watches = WorkerConnections::new(100);
    let watch = watches.add();
    prepare(&watch);
    for _ in 0..100 {
        sweep(&mut watches, MemoryPressure::None);
    }
    match watch.signal.get() {
        WatchdogSignal::Abort(cause) => Some(cause),
        _ => None,
    }
}

#[test]
fn watchdog_abort_has_the_cause_of_its_phase() {
    let enter = |phase| cause(|watch| watch.enter_phase(phase));
    assert_eq!(enter(ConnectionPhase::Handshake), Some(AbortCause::SlowHandshake));
    assert_eq!(cause(|_| ()), Some(AbortCause::NoRequest));
    assert_eq!(enter(ConnectionPhase::Streams), Some(AbortCause::NoRequest));
    assert_eq!(cause(|watch| watch.record_read(1)), Some(AbortCause::SlowHead));
    assert_eq!(enter(ConnectionPhase::Idle), Some(AbortCause::Idle));
    assert_eq!(cause(|watch| sent(watch, 1)), Some(AbortCause::Unread));
    assert_eq!(enter(ConnectionPhase::Sending), Some(AbortCause::Unflushed));
    let idle_http2 = |watch: &Rc<ConnectionWatchdog>| {
        watch.on(ConnectionEvent::Http2);
        drop(Exchange::begin(watch));
    };
    assert_eq!(cause(idle_http2), Some(AbortCause::Idle));
    let stopped = |phase| {
        let mut watches = WorkerConnections::new(100);
        let watch = watches.add();
        watch.enter_phase(phase);
        watches.drain();
        (0..100).for_each(|_| sweep(&mut watches, MemoryPressure::None));
        watch.signal.get()
    };
    for phase in [
        ConnectionPhase::Handshake,
        ConnectionPhase::Fresh,
        ConnectionPhase::Head,
        ConnectionPhase::Idle,
    ] {
        let expected = WatchdogSignal::Abort(AbortCause::Shutdown);
        assert_eq!(stopped(phase), expected, "{phase:?} at a stop");
    }
}

#[test]
fn watchdog_handshakes_time_out_sooner_when_there_are_many() {
    let mut watches = WorkerConnections::new(100);
    let begin = |watches: &mut WorkerConnections| {
        let watch = watches.add();
        watch.enter_phase(ConnectionPhase::Handshake);
        watch
    };
    let (first, held_up) = (begin(&mut watches), begin(&mut watches));
    held_up.set_awaits_handshake_turn(true);
    let others: Vec<_> = (0..HANDSHAKES_SOFT_MAX).map(|_| begin(&mut watches)).collect();
    for _ in 0..2 {
        sweep(&mut watches, MemoryPressure::None);
        assert_eq!(first.signal.get(), WatchdogSignal::Continue);
    }
    sweep(&mut watches, MemoryPressure::None);
    assert_eq!(
        (first.signal.get(), held_up.signal.get()),
        (WatchdogSignal::Abort(AbortCause::SlowHandshake), WatchdogSignal::Continue)
    );
    sweep(&mut watches, MemoryPressure::None);
    assert!(held_up.is_aborted(), "with the timeout of every handshake");
    for (number, watch) in others.iter().enumerate() {
        // However a handshake ends, it is counted once.
        if number % 2 == 0 {
            watch.enter_phase(ConnectionPhase::Fresh);
        }
        watch.end();
        watch.end();
    }
    assert_eq!(watches.worker.handshakes.get(), 2);
}

#[test]
fn watchdog_dripping_bytes_does_not_extend_a_handshake() {
    let mut watches = WorkerConnections::new(100);
    let watch = watches.add();
    watch.enter_phase(ConnectionPhase::Handshake);
    let cut = (1..100).find(|_| {
        watch.record_read(1);
        sweep(&mut watches, MemoryPressure::None);
        watch.is_aborted()
    });
    assert_eq!(cut, Some(4));
}

#[test]
fn watchdog_stream_times_out_while_unread_but_not_while_produced() {
    assert_eq!(sweeps(|watch| flowing(watch, |_| ())), None, "nothing was made yet");
    let made = |exchange: &Exchange| std::mem::forget(exchange.begin_chunk(10));
    assert_eq!(sweeps(|watch| flowing(watch, made)), Some(7), "a part that is not read");
    let read = |exchange: &Exchange| drop(exchange.begin_chunk(10));
    assert_eq!(sweeps(|watch| flowing(watch, read)), None, "all that was made is read");
    let ended = |exchange: &Exchange| {
        drop(exchange.begin_chunk(10));
        exchange.end_stream();
    };
    assert_eq!(sweeps(|watch| flowing(watch, ended)), Some(7), "the end is not read");
}

/// A streaming response, after something was done with it.
fn flowing(watch: &Rc<ConnectionWatchdog>, with: impl FnOnce(&Exchange)) {
    let exchange = Exchange::begin(watch);
    exchange.mark_streaming(None, false);
    with(&exchange);
    assert!(watch.has_unfinished_response());
    std::mem::forget(exchange);
}

#[test]
fn chunks_do_not_count_as_requests_and_may_outlive_their_request() {
    let mut watches = WorkerConnections::new(100);
    let watch = watches.add();
    let exchange = Exchange::begin(&watch);
    exchange.mark_streaming(None, false);
    let (first, last) = (exchange.begin_chunk(10), exchange.begin_chunk(10));
    assert_eq!((watch.phase(), watch.in_flight.borrow().len()), (ConnectionPhase::Sending, 1));
    drop(first);
    assert_eq!(watch.phase(), ConnectionPhase::Sending);
    exchange.end_stream();
    drop(exchange);
    watch.record_flush();
    assert_eq!(watch.phase(), ConnectionPhase::Sending, "the last part is not sent");
    drop(last);
    watch.record_flush();
    assert_eq!(watch.phase(), ConnectionPhase::Idle);
    sweep(&mut watches, MemoryPressure::None);
}

/// A client may have sent the rest of its handshake.
#[test]
fn draining_connection_completes_its_handshake_until_it_is_aborted() {
    let runtime = Builder::new_current_thread().build().unwrap();
    let watch = ConnectionWatchdog::new(&Rc::default());
    watch.set_signal(WatchdogSignal::Drain);
    runtime.block_on(async {
        let handshake = async {
            tokio::task::yield_now().await;
            "done"
        };
        assert_eq!(until_aborted(&watch, handshake).await, Ok("done"));
        watch.set_signal(WatchdogSignal::Abort(AbortCause::Shutdown));
        assert_eq!(until_aborted(&watch, ready("done")).await, Err(AbortCause::Shutdown));
    });
}
