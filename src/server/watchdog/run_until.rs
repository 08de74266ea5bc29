//! Futures that end when the watchdog ends their connection.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use super::phase::{AbortCause, WatchdogSignal};
use super::state::ConnectionWatchdog;

/// Lets the runtime poll the sockets once more. The watchdog may drain a connection before the runtime has
/// noticed bytes that the kernel has already received.
pub async fn poll_sockets() {
    tokio::task::yield_now().await;
}

/// Runs a future until it is done, or the watchdog aborts the connection: the error is the cause. A drain gives
/// it the time that a stop waits for first requests, heads and handshakes.
pub async fn until_aborted<F: Future>(
    watch: &ConnectionWatchdog,
    future: F,
) -> Result<F::Output, AbortCause> {
    let mut future = pin!(future);
    poll_fn(|cx| match watch.poll_signal(cx) {
        WatchdogSignal::Abort(cause) => Poll::Ready(Err(cause)),
        WatchdogSignal::Continue | WatchdogSignal::Park | WatchdogSignal::Drain => {
            future.as_mut().poll(cx).map(Ok)
        }
    })
    .await
}
