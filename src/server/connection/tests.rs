//! Tests of closing a connection: whose client does not cooperate, or at a stop.

use std::io;
use std::task::Context;

use tokio::io::ReadBuf;
use tokio::runtime::Builder;

use super::*;

/// Like a TLS stream whose client reads nothing: `close_notify` cannot be sent.
struct StalledStream;

impl AsyncRead for StalledStream {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

impl AsyncWrite for StalledStream {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Pending
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

#[test]
fn close_times_out_when_the_client_does_not_read() {
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let limit = LINGER_TIMEOUT * 10;
        assert!(
            timeout(limit, lingering_close(StalledStream)).await.is_ok(),
            "waited {limit:?} in vain"
        );
    });
}

/// Bytes that arrived before the stop may be a whole request. The runtime has not polled the socket yet.
#[test]
fn draining_connection_reads_bytes_that_arrived_before_the_stop() {
    let runtime = Builder::new_current_thread().enable_io().build().unwrap();
    let watch = ConnectionWatchdog::new(&Rc::default());
    watch.set_signal(WatchdogSignal::Drain);
    runtime.block_on(async {
        let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        let mut ours = tokio::net::UnixStream::from_std(ours).unwrap();
        io::Write::write_all(&mut theirs, b"x").unwrap();
        assert_eq!(until_ended(&watch, ours.read_u8()).await.unwrap().unwrap(), b'x');
        assert_eq!(until_ended(&watch, std::future::pending::<&str>()).await, None);
        watch.set_signal(WatchdogSignal::Abort);
        assert_eq!(until_ended(&watch, ready("read")).await, None);
    });
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
        assert_eq!(until_aborted(&watch, handshake).await, Some("done"));
        watch.set_signal(WatchdogSignal::Abort);
        assert_eq!(until_aborted(&watch, ready("done")).await, None);
    });
}
