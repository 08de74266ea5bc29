//! The body of an answer, and what lasts as long as its bytes do.
//!
//! What is in it is the pipeline's business.
//! The one surprising thing: hyper drops a piece of a body when its last byte is sent, so what has to
//! be known until then goes with the piece.

use std::convert::Infallible;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http::{HeaderValue, Response, header};
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;

use super::watch::Exchange;
use crate::gate;
use crate::pipeline::App;
use crate::problem;

/// What lasts as long as the bytes of an answer do.
struct Kept {
    _exchange: Exchange,
    large: Option<(Rc<App>, usize)>,
}

impl Kept {
    fn new(exchange: Exchange, app: &Rc<App>, body: &Full<Bytes>) -> Self {
        let bytes = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
        exchange.answered(bytes);
        let large = (bytes > gate::SMALL_BYTES).then(|| {
            app.shared.gate.hold(bytes);
            (Rc::clone(app), bytes)
        });
        Self { _exchange: exchange, large }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some((app, bytes)) = &self.large {
            app.shared.gate.release(*bytes);
        }
    }
}

/// The body of an answer.
pub(super) struct Answer {
    body: Full<Bytes>,
    kept: Option<Kept>,
}

impl Answer {
    pub(super) fn new(exchange: Exchange, app: &Rc<App>, body: Full<Bytes>) -> Self {
        let kept = Kept::new(exchange, app, &body);
        Self { body, kept: Some(kept) }
    }

    /// Without a body: a client that lets nothing through could keep one here.
    pub(super) fn too_many_streams() -> Response<Self> {
        let mut response = Response::new(Self { body: Full::default(), kept: None });
        *response.status_mut() = problem::BUSY.status;
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        response
    }
}

impl Body for Answer {
    type Data = Piece;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.body).poll_frame(cx);
        // There is one piece, and the exchange goes with it: hyper keeps it until the last byte is sent.
        polled.map_ok(|frame| frame.map_data(|bytes| Piece { bytes, _kept: this.kept.take() }))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Bytes of an answer, dropped when they are sent.
pub(super) struct Piece {
    bytes: Bytes,
    _kept: Option<Kept>,
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
