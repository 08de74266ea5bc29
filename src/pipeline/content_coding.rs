//! Content coding (compression) of the response: the last change to its bytes, so that
//! `Authentication-Info`, the metrics and the log cover the bytes that are sent.
//!
//! A streaming response is encoded chunk by chunk, and the client can decode each chunk as it arrives. The
//! memory of the encoder is reserved like that of buffered responses; if none is left, the response is sent
//! uncompressed.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;

use super::context::SharedState;
use crate::formats::coding::{CodingChoice, ENCODER_BYTES, Encoder};
use crate::reply::{self, BodyChunks, BodyStream, Reply, ResponseBody, StreamAborted};
use crate::{admission, fault};

/// Compression takes several times as long as serialization; from this size on a blocking thread does it.
const BLOCKING_CODING_BYTES_MIN: usize = 64 << 10;

pub(super) async fn encode_reply(
    shared: &Arc<SharedState>,
    reply: &mut Reply,
    choice: CodingChoice,
) {
    fault::point("coding");
    let content = std::mem::replace(&mut reply.body, ResponseBody::Whole(Bytes::new()));
    let coded = match content {
        ResponseBody::Whole(bytes) => {
            reply.body = ResponseBody::Whole(bytes.clone());
            encode_whole(shared, bytes, choice).await.map(ResponseBody::from)
        }
        ResponseBody::Stream(flow) => match EncodedStream::new(flow, shared, choice) {
            Ok(coded) => Some(ResponseBody::Stream(BodyStream::new(coded))),
            Err(flow) => {
                reply.body = ResponseBody::Stream(flow);
                None
            }
        },
    };
    reply::apply_coding(reply, choice, coded);
}

async fn encode_whole(shared: &SharedState, bytes: Bytes, choice: CodingChoice) -> Option<Vec<u8>> {
    if !choice.applies_to(bytes.len()) {
        return None;
    }
    if bytes.len() < BLOCKING_CODING_BYTES_MIN {
        return choice.encode(&bytes);
    }
    // Both forms are in memory while the body waits for a thread; if they do not fit, the response stays
    // uncompressed.
    let reservation = shared.admission.reserve_memory();
    if !reservation.grow(2 * bytes.len()) {
        return None;
    }
    let memory = reservation.share();
    let work = move || {
        let _held = memory;
        choice.encode(&bytes)
    };
    // This fails only when the server is shutting down; the response then stays uncompressed.
    admission::spawn_blocking(work).await.ok().flatten()
}

/// A stream whose chunks are compressed one by one.
struct EncodedStream {
    /// `None` after the end.
    flow: Option<BodyStream>,
    encoder: Option<Encoder>,
    shared: Arc<SharedState>,
}

impl EncodedStream {
    /// Returns the stream unchanged, where there is no memory for an encoder.
    fn new(
        flow: BodyStream,
        shared: &Arc<SharedState>,
        choice: CodingChoice,
    ) -> Result<Self, BodyStream> {
        if !shared.admission.has_memory_for(ENCODER_BYTES) {
            return Err(flow);
        }
        let Some(encoder) = choice.encoder() else { return Err(flow) };
        shared.admission.reserve(ENCODER_BYTES);
        Ok(Self { flow: Some(flow), encoder: Some(encoder), shared: Arc::clone(shared) })
    }

    /// Releases the source, and returns the encoder's last bytes.
    fn finish(&mut self) -> Option<Result<Bytes, StreamAborted>> {
        self.flow = None;
        let last = self.encoder.take()?.finish().map(Bytes::from);
        Some(last.ok_or_else(no_memory))
    }
}

fn no_memory() -> StreamAborted {
    StreamAborted("no memory for the content encoder".to_owned())
}

impl BodyChunks for EncodedStream {
    fn poll_chunk(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, StreamAborted>>> {
        loop {
            let Some(flow) = &mut self.flow else { return Poll::Ready(None) };
            let piece = match flow.poll_chunk(context) {
                Poll::Pending => return Poll::Pending,
                // The encoder's trailer marks the content as complete.
                Poll::Ready(None) => return Poll::Ready(self.finish()),
                Poll::Ready(Some(Err(cut))) => return Poll::Ready(Some(Err(cut))),
                Poll::Ready(Some(Ok(piece))) => piece,
            };
            match self.encoder.as_mut().and_then(|encoder| encoder.push(&piece)) {
                None => return Poll::Ready(Some(Err(no_memory()))),
                // A chunk must not be empty.
                Some(coded) if coded.is_empty() => {}
                Some(coded) => return Poll::Ready(Some(Ok(coded.into()))),
            }
        }
    }
}

impl Drop for EncodedStream {
    fn drop(&mut self) {
        self.shared.admission.release(ENCODER_BYTES);
    }
}
