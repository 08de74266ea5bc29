//! A TLS stream that sends `close_notify` however it ends.
//!
//! RFC 8446 §6.1: without `close_notify` a close looks like a truncation, and clients complain.
//! Most connections end by being dropped: when they were idle for too long, or at shutdown.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use crate::server::watched_stream::ByteStream;

#[derive(Debug)]
pub struct TlsByteStream(pub TlsStream<TcpStream>);

impl ByteStream for TlsByteStream {
    fn discard_unsent_on_close(&self) {
        self.0.get_ref().0.discard_unsent_on_close();
    }
}

impl Drop for TlsByteStream {
    fn drop(&mut self) {
        let (socket, session) = self.0.get_mut();
        session.send_close_notify();
        let mut last = Vec::new();
        while session.wants_write() && session.write_tls(&mut last).is_ok_and(|count| count > 0) {}
        // Does not wait for a client that does not read it.
        let _ = socket.try_write(&last);
    }
}

impl AsyncRead for TlsByteStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl AsyncWrite for TlsByteStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.0.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
