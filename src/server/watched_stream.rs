//! A byte stream that reports to its watchdog, and suppresses hyper's own error responses.
//!
//! It does not know HTTP beyond that; `http1_framing` tells it where heads and bodies end. When a head cannot
//! be parsed, hyper writes a bare response by itself. This stream swallows such a write and defers the close,
//! because `connection` then writes a full response instead.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::http2_frames::{FrameTracker, GOAWAY_ENHANCE_YOUR_CALM};
use super::watchdog::{ConnectionPhase, ConnectionWatchdog};

/// The transport of a connection.
pub(super) trait ByteStream: AsyncRead + AsyncWrite + Unpin + 'static {
    /// Makes a later close discard unsent data: a client that does not read would otherwise keep it in kernel
    /// memory.
    fn discard_unsent_on_close(&self);
}

impl ByteStream for TcpStream {
    fn discard_unsent_on_close(&self) {
        // Without it the close is merely slower.
        let _ = self.set_zero_linger();
    }
}

#[derive(Debug)]
pub(super) struct WatchedStream<S> {
    stream: S,
    watch: Rc<ConnectionWatchdog>,
    /// Bytes that have arrived and that hyper has not received yet: they are after the end of a message, or
    /// were put back.
    pending: BytesMut,
    /// Whether the other side has shut down.
    has_ended: bool,
    /// HTTP/2 frames that hyper gets, behind the preface, and that it sends.
    received: FrameTracker,
    sent: FrameTracker,
}

impl<S: ByteStream> WatchedStream<S> {
    pub(super) fn new(stream: S, watch: Rc<ConnectionWatchdog>) -> Self {
        let (received, sent) = (FrameTracker::of_client(), FrameTracker::of_server());
        Self { stream, watch, pending: BytesMut::new(), has_ended: false, received, sent }
    }

    /// Puts the beginning of a head back in front of the bytes that are still to be read.
    pub(super) fn unread(&mut self, head: &[u8]) {
        self.watch.message().restart_head();
        let behind = std::mem::replace(&mut self.pending, BytesMut::from(head));
        self.pending.extend_from_slice(&behind);
    }

    /// Prepares to read without hyper. True when a whole head has arrived already.
    pub(super) fn begin_head(&self) -> bool {
        let mut message = self.watch.message();
        message.restart_head();
        message.ends_head(&self.pending)
    }

    /// Reads without hyper until hyper has something to do: the first bytes of a head, or the rest of a
    /// head whose beginning was put back. Also the end of the stream, and a head that is too large.
    pub(super) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        head_bytes_max: usize,
    ) -> Poll<io::Result<()>> {
        loop {
            self.check_abandoned()?;
            // On the stack, not in the future: thousands of connections wait here.
            let mut bytes = [0; 4 << 10];
            let mut buf = ReadBuf::new(&mut bytes);
            ready!(Pin::new(&mut self.stream).poll_read(cx, &mut buf))?;
            let read = buf.filled();
            let is_first = self.pending.is_empty();
            if read.is_empty() {
                self.has_ended = true;
            } else {
                self.watch.record_read(read.len());
            }
            self.pending.extend_from_slice(read);
            let is_whole = self.watch.message().ends_head(read);
            if is_first || is_whole || self.has_ended || self.pending.len() > head_bytes_max {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Whether part of a head has arrived that hyper has not received.
    pub(super) fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// The current head as far as it has arrived; the connection is ending.
    pub(super) fn take_head(&mut self) -> Vec<u8> {
        let head = self.watch.message().take_head();
        if head.is_empty() { self.pending.to_vec() } else { head }
    }

    /// The stream itself, and whether the other side has shut down.
    pub(super) fn into_inner(self) -> (S, bool) {
        (self.stream, self.has_ended)
    }

    fn check_abandoned(&self) -> io::Result<()> {
        if self.watch.is_abandoned() {
            self.stream.discard_unsent_on_close();
            return Err(io::ErrorKind::ConnectionAborted.into());
        }
        Ok(())
    }

    /// Counts the frames among the bytes that hyper gets, pending ones too: the preface is always the first.
    /// An error when they exceed the budget.
    fn count_frames(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> io::Result<()> {
        if self.watch.phase() != ConnectionPhase::Streams
            || self.watch.spend_frame_budget(self.received.follow(bytes))
        {
            return Ok(());
        }
        if self.sent.is_at_frame_boundary() {
            // It does not matter whether the frame is sent.
            let _ = Pin::new(&mut self.stream).poll_write(cx, &GOAWAY_ENHANCE_YOUR_CALM);
        }
        Err(io::Error::other("HTTP/2 control-frame flood"))
    }

    /// How many of these bytes hyper may get now.
    fn framed_length(&self, bytes: &[u8]) -> io::Result<usize> {
        if self.watch.phase() == ConnectionPhase::Streams {
            return Ok(bytes.len());
        }
        let passed = self.watch.message().follow(bytes)?;
        self.watch.record_read(passed);
        Ok(passed)
    }

    /// Hands over bytes that have arrived before.
    fn read_pending(&mut self, buf: &mut ReadBuf<'_>) -> io::Result<()> {
        let bytes = self.pending.get(..buf.remaining()).unwrap_or(&self.pending);
        let passed = self.framed_length(bytes)?;
        buf.put_slice(bytes.split_at(passed).0);
        self.pending.advance(passed);
        if self.pending.is_empty() {
            self.pending = BytesMut::new();
        }
        Ok(())
    }

    fn record_written(
        &mut self,
        slices: &[IoSlice<'_>],
        written: usize,
    ) -> Poll<io::Result<usize>> {
        self.watch.record_written(written);
        if self.watch.phase() == ConnectionPhase::Streams {
            let mut rest = written;
            for slice in slices {
                let passed = rest.min(slice.len());
                self.watch.credit_frames(self.sent.follow(slice.split_at(passed).0));
                rest -= passed;
            }
        }
        Poll::Ready(Ok(written))
    }
}

impl<S: ByteStream> AsyncRead for WatchedStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.check_abandoned()?;
        let has_capacity = buf.remaining() > 0;
        let before = buf.filled().len();
        if !this.pending.is_empty() && has_capacity {
            this.read_pending(buf)?;
            return Poll::Ready(this.count_frames(cx, buf.filled().split_at(before).1));
        }
        ready!(Pin::new(&mut this.stream).poll_read(cx, buf))?;
        let read = buf.filled().split_at(before).1;
        if read.is_empty() {
            this.has_ended |= has_capacity;
            return Poll::Ready(Ok(()));
        }
        this.count_frames(cx, read)?;
        let passed = this.framed_length(read)?;
        this.pending.extend_from_slice(read.split_at(passed).1);
        buf.set_filled(before + passed);
        Poll::Ready(Ok(()))
    }
}

impl<S: ByteStream> AsyncWrite for WatchedStream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if !this.watch.phase().is_response_expected() {
            return Poll::Ready(Ok(bytes.len()));
        }
        this.check_abandoned()?;
        let written = ready!(Pin::new(&mut this.stream).poll_write(cx, bytes))?;
        this.record_written(&[IoSlice::new(bytes)], written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if !this.watch.phase().is_response_expected() {
            return Poll::Ready(Ok(slices.iter().map(|slice| slice.len()).sum()));
        }
        this.check_abandoned()?;
        let written = ready!(Pin::new(&mut this.stream).poll_write_vectored(cx, slices))?;
        this.record_written(slices, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(Pin::new(&mut this.stream).poll_flush(cx))?;
        this.watch.record_flush();
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match this.watch.phase() {
            // hyper does not give an HTTP/2 stream back, so it has to close it itself.
            ConnectionPhase::Streams => Pin::new(&mut this.stream).poll_shutdown(cx),
            ConnectionPhase::Handshake
            | ConnectionPhase::Fresh
            | ConnectionPhase::Head
            | ConnectionPhase::Busy
            | ConnectionPhase::Sending
            | ConnectionPhase::Idle
            | ConnectionPhase::Closing => Poll::Ready(Ok(())),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::runtime::Builder;

    use super::*;
    use crate::server::http1_framing::BodyLength;
    use crate::server::http2_frames::PREFACE;
    use crate::server::watchdog::{ConnectionEvent, Exchange};

    impl ByteStream for DuplexStream {
        fn discard_unsent_on_close(&self) {}
    }

    #[test]
    fn watched_stream_suppresses_writes_before_a_request() {
        Builder::new_current_thread().build().unwrap().block_on(async {
            let (ours, mut theirs) = duplex(1024);
            let watch = ConnectionWatchdog::new(&Rc::default());
            let mut stream = WatchedStream::new(ours, Rc::clone(&watch));
            for phase in [
                ConnectionPhase::Handshake,
                ConnectionPhase::Fresh,
                ConnectionPhase::Head,
                ConnectionPhase::Idle,
            ] {
                watch.enter_phase(phase);
                assert_eq!(stream.write(b"hyper's own").await.unwrap(), 11);
                let slices = [IoSlice::new(b"hyper's"), IoSlice::new(b" own")];
                assert_eq!(stream.write_vectored(&slices).await.unwrap(), 11);
            }
            let exchange = Exchange::begin(&watch);
            stream.write_all(b"100 ").await.unwrap();
            exchange.response_ready(6);
            stream.write_all(b"200 ").await.unwrap();
            assert_eq!(stream.write_vectored(&[IoSlice::new(b"OK")]).await.unwrap(), 2);
            drop(exchange);
            stream.flush().await.unwrap();
            assert_eq!(watch.phase(), ConnectionPhase::Idle);
            stream.shutdown().await.unwrap();
            let (inner, has_ended) = stream.into_inner();
            assert!(!has_ended);
            drop(inner);
            let mut received = String::new();
            theirs.read_to_string(&mut received).await.unwrap();
            assert_eq!(received, "100 200 OK");
        });
    }

    #[test]
    fn watched_stream_reads_what_was_put_back_first() {
        Builder::new_current_thread().build().unwrap().block_on(async {
            let (ours, mut theirs) = duplex(1024);
            let watch = ConnectionWatchdog::new(&Rc::default());
            let mut stream = WatchedStream::new(ours, Rc::clone(&watch));
            stream.unread(b"PRI *");
            theirs.write_all(b" HTTP").await.unwrap();
            drop(theirs);
            let mut first = [0; 3];
            stream.read_exact(&mut first).await.unwrap();
            assert_eq!(watch.phase(), ConnectionPhase::Head);
            let mut rest = String::new();
            stream.read_to_string(&mut rest).await.unwrap();
            assert_eq!((&first[..], rest.as_str()), (&b"PRI"[..], " * HTTP"));
            assert!(stream.into_inner().1, "the other side has ended");
        });
    }

    /// ALPN decides before the preface arrives; without TLS the preface is read, and put back, to decide.
    #[test]
    fn watched_stream_counts_frames_whether_or_not_the_preface_was_put_back() {
        let pings = [0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8].repeat(2_001);
        for is_put_back in [false, true] {
            Builder::new_current_thread().build().unwrap().block_on(async {
                let (ours, mut theirs) = duplex(1 << 20);
                let watch = ConnectionWatchdog::new(&Rc::default());
                let mut stream = WatchedStream::new(ours, Rc::clone(&watch));
                if is_put_back {
                    stream.unread(PREFACE);
                } else {
                    theirs.write_all(PREFACE).await.unwrap();
                }
                watch.on(ConnectionEvent::Http2);
                theirs.write_all(&pings).await.unwrap();
                let mut bytes = vec![0; PREFACE.len() + pings.len()];
                let refused = stream.read_exact(&mut bytes).await.unwrap_err();
                assert_eq!(refused.to_string(), "HTTP/2 control-frame flood", "{is_put_back}");
            });
        }
    }

    #[test]
    fn watched_stream_read_ends_with_the_head_and_keeps_the_rest() {
        Builder::new_current_thread().build().unwrap().block_on(async {
            const HEAD: &[u8] = b"GET / HTTP/1.1\r\n\r\n";
            let (ours, mut theirs) = duplex(1024);
            let watch = ConnectionWatchdog::new(&Rc::default());
            let mut stream = WatchedStream::new(ours, Rc::clone(&watch));
            theirs.write_all(&[HEAD, b"body", HEAD].concat()).await.unwrap();
            let mut bytes = [0; 100];
            assert_eq!(stream.read(&mut bytes).await.unwrap(), HEAD.len());
            watch.message().begin_body(BodyLength::Known(4));
            assert_eq!(stream.read(&mut bytes).await.unwrap(), 4);
            assert_eq!(stream.read(&mut bytes).await.unwrap(), HEAD.len());
            watch.message().begin_body(BodyLength::Chunked);
            theirs.write_all(b"0\r\nA: b\n\n").await.unwrap();
            let refused = stream.read(&mut bytes).await.unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
        });
    }
}
