//! One HTTP/2 connection, from its preface to its end.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use hyper_util::rt::TokioIo;

use super::requests::{RequestService, http2_builder};
use super::watchdog::{AbortCause, WatchdogSignal};
use super::watched_stream::{ByteStream, WatchedStream};

/// Serves a stream until it ends.
pub(super) async fn serve<S>(stream: WatchedStream<S>, service: RequestService)
where
    S: ByteStream,
{
    let (shared, watch, peer) =
        (Rc::clone(&service.shared), Rc::clone(&service.watch), service.way.peer);
    let builder = http2_builder(&shared.limits, &watch);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let mut leaving = false;
    let aborted = poll_fn(|cx| {
        match watch.poll_signal(cx) {
            WatchdogSignal::Continue | WatchdogSignal::Park => {}
            WatchdogSignal::Drain if leaving => {}
            WatchdogSignal::Drain => {
                leaving = true;
                connection.as_mut().graceful_shutdown();
            }
            WatchdogSignal::Abort(cause) => {
                if !watch.is_idle() {
                    // hyper owns the stream, which reports the error at its last poll.
                    watch.abandon();
                    let _ = connection.as_mut().poll(cx);
                }
                return Poll::Ready(Some(cause));
            }
        }
        // An error here is the peer's: HTTP/2 has reported it already.
        connection.as_mut().poll(cx).map(|_| None)
    })
    .await;
    // A flood ends the connection by itself; the watchdog may abort it before hyper has noticed.
    let flood = watch.is_frame_budget_exhausted().then_some(AbortCause::FrameFlood);
    if let Some(cause) = flood.or(aborted) {
        shared.log_abort(cause, peer);
    }
}
