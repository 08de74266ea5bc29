//! Content coding (compression) of the response: the last change to its bytes, so that
//! `Authentication-Info`, the metrics and the log cover the bytes that are sent.
//!
//! A streaming response is encoded chunk by chunk (`streaming`). The memory of the encoder is reserved like
//! that of buffered responses; if none is left, the response is sent uncompressed.

use bytes::Bytes;

use super::context::SharedState;
use super::streaming::ResponseBody;
use crate::formats::coding::CodingChoice;
use crate::reply::{self, CodingResult, Reply};
use crate::{admission, fault};

/// Compression takes several times as long as serialization; from this size on a blocking thread does it.
const BLOCKING_CODING_BYTES_MIN: usize = 64 << 10;

pub(super) async fn encode_reply(
    shared: &SharedState,
    reply: &mut Reply<ResponseBody>,
    choice: CodingChoice,
) {
    fault::point("coding");
    let result = match &mut reply.body {
        ResponseBody::Whole(bytes) if !choice.applies_to(bytes.len()) => CodingResult::TooSmall,
        ResponseBody::Whole(bytes) => match encode_whole(shared, bytes.clone(), choice).await {
            Some(encoded) => {
                *bytes = encoded.into();
                CodingResult::Encoded
            }
            None => CodingResult::NoMemory,
        },
        ResponseBody::Stream(stream) if stream.is_event_stream() => return,
        ResponseBody::Stream(stream) => match stream.encode(&shared.admission, choice) {
            true => CodingResult::Encoded,
            false => CodingResult::NoMemory,
        },
    };
    reply::apply_coding(&mut reply.headers, choice, result);
}

async fn encode_whole(shared: &SharedState, bytes: Bytes, choice: CodingChoice) -> Option<Vec<u8>> {
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
