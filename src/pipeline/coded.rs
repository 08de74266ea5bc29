//! The answer in the coding that the client asked for: the last thing that is done to its bytes, so that
//! what is proved of them and what is counted is what is sent.

use crate::formats::coding::Choice;
use crate::reply::{self, Reply};
use crate::{fault, gate};

/// Coding takes several times as long as writing the same bytes does; from here on it is noticed by others.
const ASIDE_CODING_BYTES: usize = 64 << 10;

pub(super) async fn code(reply: &mut Reply, choice: Choice) {
    fault::point("coding");
    let bytes = reply.body.len();
    let body = if !choice.covers(bytes) {
        None
    } else if bytes < ASIDE_CODING_BYTES {
        choice.encode(&reply.body)
    } else {
        let plain = reply.body.clone();
        // Only a server that is ending in a hurry does not do it.
        gate::aside(move || choice.encode(&plain)).await.ok().flatten()
    };
    reply::coded(reply, choice, body);
}
