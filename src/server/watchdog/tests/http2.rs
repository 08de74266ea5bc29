//! Tests of HTTP/2 connections: their streams, and the share of the worker's streams that each may have.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::super::state::STREAMS_FAIR_SHARE;
use super::*;
use crate::pipeline::ExchangeObserver;

/// A client with prior knowledge may wait before its preface, so that it is told to park.
#[test]
fn watchdog_http2_connection_that_was_told_to_park_has_its_idle_timeout() {
    let mut watches = WorkerConnections::new(100);
    let watch = watches.add();
    while watch.signal.get() != WatchdogSignal::Park {
        sweep(&mut watches, MemoryPressure::None);
    }
    watch.record_read(24);
    watch.on(ConnectionEvent::Http2);
    drop(Exchange::begin(&watch));
    let drained_at = (1..100).find(|_| {
        sweep(&mut watches, MemoryPressure::None);
        watch.signal.get() == WatchdogSignal::Drain
    });
    assert_eq!(drained_at, Some(9));
}

#[test]
fn watchdog_aborts_connections_over_their_fair_share_of_streams() {
    let mut watches = WorkerConnections::new(100);
    let connections: Vec<_> = [40, 30, STREAMS_FAIR_SHARE]
        .iter()
        .map(|count| {
            let watch = watches.add();
            watch.enter_phase(ConnectionPhase::Streams);
            let streams: Vec<_> = (0..*count).map(|_| Exchange::begin(&watch)).collect();
            (watch, streams)
        })
        .collect();
    for _ in 0..2 {
        sweep(&mut watches, MemoryPressure::None);
        assert!(
            connections.iter().all(|(watch, _)| watch.signal.get() == WatchdogSignal::Continue)
        );
    }
    sweep(&mut watches, MemoryPressure::None);
    let asks: Vec<_> = connections.iter().map(|(watch, _)| watch.signal.get()).collect();
    let aborted = WatchdogSignal::Abort(AbortCause::OpenStreams);
    assert_eq!(asks, [aborted, aborted, WatchdogSignal::Continue]);
    assert!(connections[0].0.can_accept_request());
    let more: Vec<_> = (0..20).map(|_| Exchange::begin(&connections[0].0)).collect();
    assert!(!connections[0].0.can_accept_request());
    drop((connections, more));
    assert_eq!(watches.worker.streams.get(), 0);
}

/// A second panic that leaves `drop` would abort the process.
#[test]
fn exchange_with_a_wrong_stream_count_is_dropped_during_a_panic() {
    let watches = &mut WorkerConnections::new(100);
    let watch = watches.add();
    watch.on(ConnectionEvent::Http2);
    let exchange = Exchange::begin(&watch);
    watches.worker.streams.set(0);
    let panic = catch_unwind(AssertUnwindSafe(move || {
        let _exchange = exchange;
        panic!("planted");
    }));
    assert_eq!(panic.unwrap_err().downcast_ref(), Some(&"planted"));
    assert_eq!((watches.worker.streams.get(), watch.is_idle()), (0, true));
}

/// The end of a long response is not old when it has just been handed over.
#[test]
fn watchdog_fair_share_counts_the_age_of_unread_chunks_not_of_their_ended_request() {
    let mut watches = WorkerConnections::new(100);
    let watch = watches.add();
    watch.on(ConnectionEvent::Http2);
    let long = Exchange::begin(&watch);
    long.mark_streaming(None, false);
    (0..5).for_each(|_| sweep(&mut watches, MemoryPressure::None));
    let _last = long.begin_chunk(10);
    drop(long);
    let _others: Vec<_> = (0..60).map(|_| Exchange::begin(&watch)).collect();
    let aborted_at = (1..100).find(|_| {
        sweep(&mut watches, MemoryPressure::None);
        watch.is_aborted()
    });
    assert_eq!(aborted_at, Some(3));
}

/// A long poll is open for a minute; when it has waited, it is a request that has just begun.
#[test]
fn watchdog_fair_share_does_not_count_the_waits_of_long_polls() {
    let mut watches = WorkerConnections::new(100);
    let watch = watches.add();
    watch.on(ConnectionEvent::Http2);
    let polls: Vec<_> = (0..120).map(|_| Exchange::begin(&watch)).collect();
    assert!(!watch.can_accept_request());
    polls.iter().for_each(|poll| poll.set_waiting(true));
    assert_eq!(watches.worker.streams.get(), 0);
    for _ in 0..20 {
        sweep(&mut watches, MemoryPressure::None);
        assert!(!watch.is_aborted() && !watch.has_many_streams());
    }
    polls.iter().for_each(|poll| poll.set_waiting(false));
    assert!(watch.has_many_streams() && !watch.can_accept_request());
    let aborted_at = (1..100).find(|_| {
        sweep(&mut watches, MemoryPressure::None);
        watch.is_aborted()
    });
    assert_eq!(aborted_at, Some(3));
    polls.first().unwrap().set_waiting(true);
    drop(polls);
    assert_eq!(watches.worker.streams.get(), 0);
}

/// An event stream is open for hours. Its client may read it slowly: it has the time of every reader.
#[test]
fn watchdog_fair_share_does_not_count_event_streams() {
    let mut watches = WorkerConnections::new(100);
    let watch = watches.add();
    watch.on(ConnectionEvent::Http2);
    let streams: Vec<_> = (0..60).map(|_| Exchange::begin(&watch)).collect();
    streams.iter().for_each(|stream| stream.mark_streaming(None, true));
    assert_eq!(watches.worker.streams.get(), 0);
    for _ in 0..20 {
        sweep(&mut watches, MemoryPressure::None);
        assert!(!watch.is_aborted() && !watch.has_many_streams());
    }
    let other = watches.add();
    other.on(ConnectionEvent::Http2);
    let _requests: Vec<_> = (0..60).map(|_| Exchange::begin(&other)).collect();
    let chunks: Vec<_> = streams.iter().map(|stream| stream.begin_chunk(10)).collect();
    assert!(!watch.has_many_streams());
    let aborted_at = (1..100).find(|_| {
        sweep(&mut watches, MemoryPressure::None);
        watch.is_aborted()
    });
    assert_eq!((aborted_at, other.is_aborted()), (Some(7), true));
    drop((streams, chunks));
    assert_eq!(watches.worker.streams.get(), 60);
}
