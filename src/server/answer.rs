//! Response bodies as hyper sends them, with guards that live as long as their bytes.
//!
//! The pipeline decides on their content. The one surprising thing: hyper drops a chunk of a body when its
//! last byte is sent, so a guard that must live until then is part of the chunk.

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http::{HeaderValue, Response, header};
use http_body::{Body, Frame, SizeHint};

use super::watch::{Exchange, Part};
use crate::gate;
use crate::pipeline::{App, StreamRights};
use crate::problem;
use crate::reply::{Content, Cut, Flow, Pieces};

/// What must live as long as the bytes of a response.
struct Kept {
    _lasts: Lasts,
    large: Option<(Rc<App>, usize)>,
}

#[expect(dead_code, reason = "they are kept to be dropped")]
enum Lasts {
    /// The response has no more chunks.
    Whole(Exchange),
    Part(Part),
}

impl Kept {
    fn new(lasts: Lasts, app: &Rc<App>, bytes: usize) -> Self {
        let large = (bytes > gate::SMALL_BYTES).then(|| {
            app.shared.gate.hold(bytes);
            (Rc::clone(app), bytes)
        });
        Self { _lasts: lasts, large }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some((app, bytes)) = &self.large {
            app.shared.gate.release(*bytes);
        }
    }
}

/// A response body.
pub(super) enum Answer {
    /// There is none, but the head is to be sent.
    Empty {
        _exchange: Option<Exchange>,
    },
    /// The chunk that hyper has not taken yet.
    Whole(Option<Piece>),
    Flow(Box<Flowing>),
}

/// A streaming response.
pub(super) struct Flowing {
    flow: Flow,
    exchange: Exchange,
    app: Rc<App>,
}

impl Answer {
    /// `rights`: those that a streaming response depends on.
    pub(super) fn new(
        exchange: Exchange,
        app: &Rc<App>,
        content: Content,
        rights: Option<Arc<StreamRights>>,
    ) -> Self {
        match content {
            Content::Whole(bytes) => {
                exchange.answered(bytes.len());
                if bytes.is_empty() {
                    return Self::Empty { _exchange: Some(exchange) };
                }
                let kept = Kept::new(Lasts::Whole(exchange), app, bytes.len());
                Self::Whole(Some(Piece { bytes, _kept: kept }))
            }
            Content::Flow(flow) => {
                exchange.flows(rights);
                Self::Flow(Box::new(Flowing { flow, exchange, app: Rc::clone(app) }))
            }
        }
    }

    /// Without a body: a client with a closed flow-control window could keep one in memory.
    pub(super) fn too_many_streams() -> Response<Self> {
        let mut response = Response::new(Self::Empty { _exchange: None });
        *response.status_mut() = problem::BUSY.status;
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        response
    }
}

impl Flowing {
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Piece, Cut>>> {
        let polled = self.flow.poll_piece(context);
        if let Poll::Ready(None | Some(Err(_))) = &polled {
            self.exchange.ends();
        }
        polled.map_ok(|bytes| {
            let part = Lasts::Part(self.exchange.part(bytes.len()));
            let kept = Kept::new(part, &self.app, bytes.len());
            Piece { bytes, _kept: kept }
        })
    }
}

impl Body for Answer {
    type Data = Piece;
    type Error = Cut;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let polled = match self.get_mut() {
            Self::Empty { .. } => Poll::Ready(None),
            // There is one chunk, and it owns the exchange: hyper keeps it until the last byte is sent.
            Self::Whole(piece) => Poll::Ready(piece.take().map(Ok)),
            Self::Flow(flowing) => flowing.poll_piece(context),
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
                SizeHint::with_exact(u64::try_from(bytes).unwrap_or(u64::MAX))
            }
            Self::Flow(_) => SizeHint::default(),
        }
    }
}

/// Bytes of a response, dropped when they are sent.
pub(super) struct Piece {
    bytes: Bytes,
    _kept: Kept,
}

impl Buf for Piece {
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
