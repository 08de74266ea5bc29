//! The end of a connection: a refusal, and the lingering close.
//!
//! Closing takes three steps (send, shut down our side, drain what still arrives), because a socket closed
//! over unread bytes may lose the response: RFC 9112 §9.6.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

use super::refusal::RefusalContext;
use crate::clock;
use crate::formats::accept::Accept;
use crate::log::{RequestLine, StageTimes};
use crate::problem::Problem;
use crate::wire::{PeerConnection, RequestId};

/// How long, and how much, a closed connection is still drained.
const LINGER_TIMEOUT: Duration = Duration::from_secs(2);
const LINGER_BYTES_MAX: usize = 16 << 20;

/// Sends the response to a connection without a request, logs it, and closes.
pub(super) async fn refuse<S>(
    mut stream: S,
    (problem, accept): (&Problem, &Accept<'_>),
    way: PeerConnection,
    refusals: &RefusalContext,
) where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut stages = StageTimes::start(clock::now());
    let id = RequestId::new();
    let answer = refusals.render(problem, accept, &id, way);
    refusals.metrics.count_refusal(problem.kind().status.as_u16());
    let sent = timeout(LINGER_TIMEOUT, stream.write_all(&answer)).await;
    stages.mark("refuse");
    refusals.log.request(&RequestLine {
        time: clock::moment(),
        request_id: id.as_str(),
        peer: way.peer,
        // Nothing was read that could name another client.
        client: way.peer.ip().to_canonical(),
        method: "-",
        path: "-",
        status: problem.kind().status.as_u16(),
        caller: "-",
        bytes: answer.len(),
        duration: stages.total(),
        problem: Some(problem.kind().slug),
        cause: problem.parts().cause.as_deref().or(problem.parts().detail.as_deref()),
        is_cut: false,
        stages: &stages,
    });
    if let Ok(Ok(())) = sent {
        lingering_close(stream).await;
    }
}

/// Shuts down our side, then reads and discards the bytes that the other side is still sending.
pub(super) async fn lingering_close<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S) {
    let drain = async {
        // Over TLS even the close is data to be sent, which a client that does not read blocks.
        if stream.shutdown().await.is_err() {
            return;
        }
        let mut scrap = [0; 4096];
        let mut bytes = 0;
        while let Ok(count @ 1..) = stream.read(&mut scrap).await {
            bytes += count;
            if bytes > LINGER_BYTES_MAX {
                break;
            }
        }
    };
    // A timeout makes no difference.
    let _ = timeout(LINGER_TIMEOUT, drain).await;
}

#[cfg(test)]
mod tests;
