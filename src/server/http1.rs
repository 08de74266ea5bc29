//! One HTTP/1 connection, from hyper's first read to the closing of its socket.
//!
//! `connection` begins it; `http1_framing` finds where messages end. A connection
//! may have several hyper connections, one after the other. While it waits for a request it has none (it is
//! parked), since each takes some 20 KiB; and a head with HTTP/1.2 to HTTP/1.9, which hyper refuses, is
//! parsed again by a new one with HTTP/1.1 in its request line.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use bytes::Bytes;
use hyper_util::rt::TokioIo;

use super::closing::{lingering_close, refuse};
use super::refusal;
use super::requests::RequestService;
use super::watchdog::{
    AbortCause, ConnectionEvent, ConnectionPhase, ConnectionWatchdog, WatchdogSignal, poll_sockets,
};
use super::watched_stream::{ByteStream, WatchedStream};
use crate::problem::{self, Problem};

/// Serves a stream until it ends.
pub(super) async fn serve<S>(mut stream: WatchedStream<S>, mut service: RequestService)
where
    S: ByteStream,
{
    let (shared, watch) = (Rc::clone(&service.shared), Rc::clone(&service.watch));
    // Some bytes were read to find out that it is HTTP/1: if they cannot be parsed, they are refused
    // immediately.
    let mut has_begun = stream.has_pending();
    let end = loop {
        if !std::mem::take(&mut has_begun)
            && let Some(cause) = wait_for_head(&mut stream, &watch, shared.head_bytes_max).await
        {
            break ConnectionEnd::waiting(stream, service, cause);
        }
        // Boxed: a parked connection does not take up its memory.
        let end = Box::pin(run_hyper(stream, service)).await;
        let Some(head) = end.unfinished_head() else { break end };
        (stream, service) = (end.stream, end.service);
        stream.unread(&head);
    };
    watch.on(ConnectionEvent::Close);
    Box::pin(finish(end)).await;
}

/// Waits without hyper and its buffers until there is something to parse; returns why it stopped waiting.
async fn wait_for_head<S>(
    stream: &mut WatchedStream<S>,
    watch: &ConnectionWatchdog,
    head_bytes_max: usize,
) -> Option<EndCause>
where
    S: ByteStream,
{
    if !stream.begin_head() {
        watch.set_parked(true);
        let mut wait = poll_fn(|cx| {
            let ask = watch.poll_signal(cx);
            if let WatchdogSignal::Abort(cause) = ask {
                return Poll::Ready(Some(EndCause::Aborted(cause)));
            }
            // Before the connection is drained: bytes that have arrived are a request, or the start of one.
            match stream.poll_head(cx, head_bytes_max) {
                Poll::Ready(read) => Poll::Ready(read.err().map(|_| EndCause::Disconnected)),
                // The first request of a new connection may still arrive, and the rest of a head; the sweep decides
                // how long to wait.
                Poll::Pending
                    if ask == WatchdogSignal::Drain
                        && watch.phase() != ConnectionPhase::Fresh
                        && !stream.has_pending() =>
                {
                    Poll::Ready(Some(EndCause::Drained))
                }
                Poll::Pending => Poll::Pending,
            }
        });
        let mut waited = (&mut wait).await;
        if matches!(waited, Some(EndCause::Drained)) {
            poll_sockets().await;
            waited = wait.await;
        }
        if waited.is_some() {
            return waited;
        }
        watch.message().restart_head();
    }
    watch.set_parked(false);
    None
}

/// Why hyper's part of a connection, or the time without it, has ended.
enum EndCause {
    Hyper(hyper::Result<()>),
    /// The watchdog aborted it.
    Aborted(AbortCause),
    /// Nothing was in flight: the connection is parked, without hyper.
    Parked,
    /// It was drained before a request arrived.
    Drained,
    /// The client has disconnected.
    Disconnected,
}

struct ConnectionEnd<S> {
    stream: WatchedStream<S>,
    service: RequestService,
    cause: EndCause,
    /// The phase in which it ended.
    phase: ConnectionPhase,
    /// The bytes that hyper has read and not consumed.
    unparsed: Bytes,
    /// Whether every response had arrived long before the connection was told to drain: a client with a
    /// connection pool may not notice the close for hours.
    was_idle: bool,
}

impl<S> ConnectionEnd<S> {
    /// The end of a connection without hyper.
    fn waiting(stream: WatchedStream<S>, service: RequestService, cause: EndCause) -> Self {
        let (phase, unparsed) = (service.watch.phase(), Bytes::new());
        Self { stream, service, cause, phase, unparsed, was_idle: true }
    }

    /// The start of the next head, with which serving resumes.
    fn unfinished_head(&self) -> Option<Bytes> {
        match &self.cause {
            EndCause::Parked => Some(skip_empty_lines(&self.unparsed)),
            EndCause::Hyper(Err(error)) if error.is_parse() && self.phase.is_before_request() => {
                refusal::as_http_1_1(&self.unparsed).map(Bytes::from)
            }
            EndCause::Hyper(_)
            | EndCause::Aborted(_)
            | EndCause::Drained
            | EndCause::Disconnected => None,
        }
    }
}

/// RFC 9112 §2.2: empty lines before a request line are ignored. If they were put back, they would look like
/// a whole head, and the connection would pass to hyper and back for ever.
fn skip_empty_lines(unparsed: &Bytes) -> Bytes {
    let mut rest = &unparsed[..];
    while let Some(after) = rest.strip_prefix(b"\r\n").or_else(|| rest.strip_prefix(b"\n")) {
        rest = after;
    }
    unparsed.slice_ref(rest)
}

async fn run_hyper<S>(stream: WatchedStream<S>, service: RequestService) -> ConnectionEnd<S>
where
    S: ByteStream,
{
    let (shared, watch) = (Rc::clone(&service.shared), Rc::clone(&service.watch));
    let mut connection = shared.http1.serve_connection(TokioIo::new(stream), service);
    let mut leaving = false;
    let mut was_idle = false;
    let cause = poll_fn(|cx| {
        let ask = watch.poll_signal(cx);
        match ask {
            WatchdogSignal::Continue | WatchdogSignal::Park => {}
            WatchdogSignal::Drain if leaving => {}
            WatchdogSignal::Drain => {
                // hyper would close without reading what has arrived, even after half a head.
                if let Poll::Ready(result) = Pin::new(&mut connection).poll(cx) {
                    return Poll::Ready(EndCause::Hyper(result));
                }
                if watch.can_park() {
                    return Poll::Ready(EndCause::Parked);
                }
                leaving = true;
                was_idle = matches!(watch.phase(), ConnectionPhase::Fresh | ConnectionPhase::Idle);
                Pin::new(&mut connection).graceful_shutdown();
            }
            WatchdogSignal::Abort(cause) => return Poll::Ready(EndCause::Aborted(cause)),
        }
        let polled = Pin::new(&mut connection).poll(cx);
        match (polled, ask) {
            (Poll::Ready(result), _) => Poll::Ready(EndCause::Hyper(result)),
            (Poll::Pending, WatchdogSignal::Park) if watch.can_park() => {
                Poll::Ready(EndCause::Parked)
            }
            (Poll::Pending, WatchdogSignal::Park) => {
                // A request has arrived meanwhile.
                watch.set_parked(false);
                Poll::Pending
            }
            (
                Poll::Pending,
                WatchdogSignal::Continue | WatchdogSignal::Drain | WatchdogSignal::Abort(_),
            ) => Poll::Pending,
        }
    })
    .await;
    // Read before the response is dropped with the connection.
    let phase = watch.phase();
    let parts = connection.into_parts();
    let (stream, service, unparsed) = (parts.io.into_inner(), parts.service, parts.read_buf);
    ConnectionEnd { stream, service, cause, phase, unparsed, was_idle }
}

/// Sends a refusal if there is one, and closes.
async fn finish<S: ByteStream>(end: ConnectionEnd<S>) {
    let ConnectionEnd { mut stream, service, cause, phase, unparsed, was_idle } = end;
    let RequestService { shared, way, .. } = service;
    let head = stream.take_head();
    let (stream, has_ended) = stream.into_inner();
    let refusal = match cause {
        EndCause::Hyper(Ok(())) | EndCause::Drained | EndCause::Parked => None,
        EndCause::Hyper(Err(error)) if error.is_parse() && phase.is_before_request() => {
            Some(refusal::from_parser_error(&error, &unparsed, &shared.limits))
        }
        // The response is truncated: an HTTP/1.0 client can see that only by a reset of the connection.
        EndCause::Hyper(Err(error)) if error.is_user() => {
            stream.discard_unsent_on_close();
            return shared.close_when_permitted(stream).await;
        }
        // The client has disconnected.
        EndCause::Hyper(Err(_)) | EndCause::Disconnected => {
            return shared.close_when_permitted(stream).await;
        }
        EndCause::Aborted(cause @ (AbortCause::Unread | AbortCause::Revoked)) => {
            stream.discard_unsent_on_close();
            return shared.log_abort(cause, way.peer);
        }
        EndCause::Aborted(AbortCause::SlowHead) => Some(Problem::new(&problem::TOO_SLOW).detail(
            format!("expected the whole head within {} seconds", shared.limits.header_seconds_max),
        )),
        // RFC 9110 §15.5.9 would allow a 408, but a client that reuses the connection at this very moment
        // would mistake it for the response to its request.
        EndCause::Aborted(_) => return,
    };
    match refusal {
        Some(problem) => {
            let accept = refusal::find_accept(&head);
            refuse(stream, (&problem, &accept), way, &shared.refusals).await;
        }
        None if has_ended || was_idle => shared.close_when_permitted(stream).await,
        None => lingering_close(stream).await,
    }
}
