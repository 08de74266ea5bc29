//! The end of a connection whose client does not let it end.

use std::io;
use std::task::Context;

use tokio::io::ReadBuf;
use tokio::runtime::Builder;

use super::*;

/// Like a stream of TLS whose client reads nothing: the goodbye does not get away.
struct Stuck;

impl AsyncRead for Stuck {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

impl AsyncWrite for Stuck {
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
fn a_goodbye_that_nobody_reads_is_not_waited_for() {
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let patience = LINGER_MAX * 10;
        assert!(timeout(patience, close(Stuck)).await.is_ok(), "waited {patience:?} in vain");
    });
}
