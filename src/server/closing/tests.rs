//! Tests of closing a connection whose client does not cooperate.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

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
