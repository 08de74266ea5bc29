//! Response bodies as hyper sends them, with guards that live as long as their bytes.
//!
//! The pipeline decides on their content. When the last byte of a chunk is sent, hyper drops the chunk, so a
//! guard that must live until then is part of the chunk.

use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http::{HeaderValue, Response, header};
use http_body::{Body, Frame, SizeHint};

use super::watchdog::{Exchange, InFlightChunk};
use crate::admission;
use crate::pipeline::{App, ResponseBody, StreamAborted, StreamingResponse};
use crate::problem;
use crate::wire::add_cross_origin_isolation;

/// The guards that must live as long as the bytes of a response.
struct ChunkGuard {
    _guard: ExchangeGuard,
    large: Option<(Rc<App>, usize)>,
}

#[expect(dead_code, reason = "they are kept to be dropped")]
enum ExchangeGuard {
    /// The response has no more chunks.
    Whole(Exchange),
    Chunk(InFlightChunk),
}

impl ChunkGuard {
    fn new(lasts: ExchangeGuard, app: &Rc<App>, bytes: usize) -> Self {
        let large = (bytes > admission::SMALL_BYTES_MAX).then(|| {
            app.shared.admission.reserve(bytes);
            (Rc::clone(app), bytes)
        });
        Self { _guard: lasts, large }
    }
}

impl Drop for ChunkGuard {
    fn drop(&mut self) {
        if let Some((app, bytes)) = &self.large {
            app.shared.admission.release(*bytes);
        }
    }
}

/// A response body.
pub(super) enum OutgoingBody {
    /// No body: only the head is sent.
    Empty {
        _exchange: Option<Exchange>,
    },
    /// The chunk that hyper has not received yet.
    Whole(Option<OutgoingChunk>),
    Stream(Box<OutgoingStream>),
}

/// A streaming response.
pub(super) struct OutgoingStream {
    stream: StreamingResponse,
    exchange: Exchange,
    app: Rc<App>,
}

impl OutgoingBody {
    pub(super) fn new(exchange: Exchange, app: &Rc<App>, content: ResponseBody) -> Self {
        match content {
            ResponseBody::Whole(bytes) => {
                exchange.response_ready(bytes.len());
                if bytes.is_empty() {
                    return Self::Empty { _exchange: Some(exchange) };
                }
                let kept = ChunkGuard::new(ExchangeGuard::Whole(exchange), app, bytes.len());
                Self::Whole(Some(OutgoingChunk { bytes, _guard: kept }))
            }
            ResponseBody::Stream(stream) => {
                exchange.mark_streaming(stream.rights().cloned(), stream.is_event_stream());
                let (stream, app) = (*stream, Rc::clone(app));
                Self::Stream(Box::new(OutgoingStream { stream, exchange, app }))
            }
        }
    }

    /// The refusal has no body: a client with a closed flow-control window could keep one in memory.
    pub(super) fn too_many_streams() -> Response<Self> {
        let mut response = Response::new(Self::Empty { _exchange: None });
        *response.status_mut() = problem::BUSY.status;
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        add_cross_origin_isolation(response.headers_mut());
        response
    }
}

impl OutgoingStream {
    fn poll_chunk(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<OutgoingChunk, StreamAborted>>> {
        let polled = self.stream.poll_chunk(context);
        if let Poll::Ready(None | Some(Err(_))) = &polled {
            self.exchange.end_stream();
        }
        polled.map_ok(|bytes| {
            let part = ExchangeGuard::Chunk(self.exchange.begin_chunk(bytes.len()));
            let kept = ChunkGuard::new(part, &self.app, bytes.len());
            OutgoingChunk { bytes, _guard: kept }
        })
    }
}

impl Drop for OutgoingStream {
    fn drop(&mut self) {
        if let Some(reason) = self.exchange.abort_reason() {
            self.stream.abort(reason);
        }
    }
}

impl Body for OutgoingBody {
    type Data = OutgoingChunk;
    type Error = StreamAborted;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let polled = match self.get_mut() {
            Self::Empty { .. } => Poll::Ready(None),
            // There is one chunk, and it owns the exchange: hyper keeps it until the last byte is sent.
            Self::Whole(piece) => Poll::Ready(piece.take().map(Ok)),
            Self::Stream(flowing) => flowing.poll_chunk(context),
        };
        polled.map_ok(Frame::data)
    }

    fn is_end_stream(&self) -> bool {
        matches!(self, Self::Empty { .. } | Self::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty { .. } => SizeHint::with_exact(0),
            Self::Whole(piece) => {
                let bytes = piece.as_ref().map_or(0, |piece| piece.bytes.len());
                SizeHint::with_exact(bytes as u64)
            }
            Self::Stream(_) => SizeHint::default(),
        }
    }
}

/// Bytes of a response, dropped when they are sent.
pub(super) struct OutgoingChunk {
    bytes: Bytes,
    _guard: ChunkGuard,
}

impl Buf for OutgoingChunk {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
    }
}
