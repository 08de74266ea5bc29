//! Content coding (compression) of the response: the last change to its bytes, so that
//! `Authentication-Info`, the metrics and the log cover what is sent.
//!
//! A streaming response is encoded chunk by chunk, and the client can decode each chunk as it arrives. The
//! memory of the encoder is reserved like that of buffered responses; where there is none left, the
//! response goes out uncompressed.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;

use super::Shared;
use crate::formats::coding::{Choice, ENCODER_BYTES, Encoder};
use crate::reply::{self, Content, Cut, Flow, Pieces, Reply};
use crate::{fault, gate};

/// Compression takes several times as long as serialization; from this size on a blocking thread does it.
const ASIDE_CODING_BYTES: usize = 64 << 10;

pub(super) async fn code(shared: &Arc<Shared>, reply: &mut Reply, choice: Choice) {
    fault::point("coding");
    let content = std::mem::replace(&mut reply.body, Content::Whole(Bytes::new()));
    let coded = match content {
        Content::Whole(bytes) => {
            reply.body = Content::Whole(bytes.clone());
            whole(shared, bytes, choice).await.map(Content::from)
        }
        Content::Flow(flow) => match Coded::of(flow, shared, choice) {
            Ok(coded) => Some(Content::Flow(Flow::new(coded))),
            Err(flow) => {
                reply.body = Content::Flow(flow);
                None
            }
        },
    };
    reply::coded(reply, choice, coded);
}

async fn whole(shared: &Shared, bytes: Bytes, choice: Choice) -> Option<Vec<u8>> {
    if !choice.covers(bytes.len()) {
        return None;
    }
    if bytes.len() < ASIDE_CODING_BYTES {
        return choice.encode(&bytes);
    }
    // Both forms are in memory while it waits for a thread; if they do not fit, the response stays
    // uncompressed.
    let room = shared.gate.room();
    if !room.take(2 * bytes.len()) {
        return None;
    }
    let memory = room.share();
    let work = move || {
        let _held = memory;
        choice.encode(&bytes)
    };
    // This fails only when the server is shutting down; the response then stays uncompressed.
    gate::aside(work).await.ok().flatten()
}

/// A stream whose chunks are compressed one by one.
struct Coded {
    /// `None` after the end.
    flow: Option<Flow>,
    encoder: Option<Encoder>,
    shared: Arc<Shared>,
}

impl Coded {
    /// Returns the stream unchanged, where there is no memory for an encoder.
    fn of(flow: Flow, shared: &Arc<Shared>, choice: Choice) -> Result<Self, Flow> {
        if !shared.gate.has_room(ENCODER_BYTES) {
            return Err(flow);
        }
        let Some(encoder) = choice.encoder() else { return Err(flow) };
        shared.gate.hold(ENCODER_BYTES);
        Ok(Self { flow: Some(flow), encoder: Some(encoder), shared: Arc::clone(shared) })
    }

    /// Releases the source, and returns the encoder's last bytes.
    fn end(&mut self) -> Option<Result<Bytes, Cut>> {
        self.flow = None;
        let last = self.encoder.take()?.finish().map(Bytes::from);
        Some(last.ok_or_else(no_memory))
    }
}

fn no_memory() -> Cut {
    Cut("no memory to code the answer".to_owned())
}

impl Pieces for Coded {
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Cut>>> {
        loop {
            let Some(flow) = &mut self.flow else { return Poll::Ready(None) };
            let piece = match flow.poll_piece(context) {
                Poll::Pending => return Poll::Pending,
                // The encoder's trailer marks the content as complete.
                Poll::Ready(None) => return Poll::Ready(self.end()),
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

impl Drop for Coded {
    fn drop(&mut self) {
        self.shared.gate.release(ENCODER_BYTES);
    }
}
