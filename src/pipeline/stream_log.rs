//! The log line of a streaming response, written when the stream ends, is truncated or is abandoned.
//!
//! The metrics count the request when the response begins: the time that a client takes to read is not time
//! that it has waited for the server.

use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Method;

use super::context::{RequestContext, RequestFacts, SharedState};
use super::streaming::{REVOKED_CAUSE, StreamRights};
use crate::clock;
use crate::log::{RequestLine, StageTimes};
use crate::reply::{BodyChunks, BodyStream, Reply, ResponseBody, StreamAborted};
use crate::wire::{PeerConnection, RequestId};

/// The fields of the log line.
struct StreamLogFields {
    shared: Arc<SharedState>,
    request_id: RequestId,
    way: PeerConnection,
    client: IpAddr,
    method: Method,
    path: Box<str>,
    status: u16,
    caller: Box<str>,
    stages: StageTimes,
    rights: Option<Arc<StreamRights>>,
}

/// A stream that is logged when it is dropped.
struct LoggedStream {
    flow: BodyStream,
    fields: StreamLogFields,
    bytes: usize,
    end: Option<Result<(), StreamAborted>>,
}

/// Defers the log line of a streaming response to its end; false if the response is not a stream.
pub(super) fn defer_to_stream_end(
    request: &RequestContext<'_>,
    facts: &RequestFacts,
    reply: &mut Reply,
    stages: &StageTimes,
) -> bool {
    // The response to HEAD has no body to wait for.
    if request.parts.method == Method::HEAD {
        return false;
    }
    let content = std::mem::replace(&mut reply.body, ResponseBody::Whole(Bytes::new()));
    let ResponseBody::Stream(flow) = content else {
        reply.body = content;
        return false;
    };
    let tail = StreamLogFields {
        shared: Arc::clone(&request.app.shared),
        request_id: request.id,
        way: request.way,
        client: request.sender.address,
        method: request.parts.method.clone(),
        path: request.parts.uri.path().into(),
        status: reply.status.as_u16(),
        caller: facts.caller_name().into(),
        stages: stages.clone(),
        rights: facts.stream_rights.clone(),
    };
    reply.body = ResponseBody::Stream(BodyStream::new(LoggedStream {
        flow,
        fields: tail,
        bytes: 0,
        end: None,
    }));
    true
}

impl BodyChunks for LoggedStream {
    fn poll_chunk(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, StreamAborted>>> {
        let polled = self.flow.poll_chunk(context);
        match &polled {
            Poll::Ready(Some(Ok(piece))) => self.bytes += piece.len(),
            Poll::Ready(Some(Err(cut))) => self.end = Some(Err(cut.clone())),
            Poll::Ready(None) => self.end = Some(Ok(())),
            Poll::Pending => {}
        }
        polled
    }
}

impl Drop for LoggedStream {
    fn drop(&mut self) {
        let server = &self.fields.shared.metrics.server;
        let is_revoked = self.fields.rights.as_ref().is_some_and(|rights| rights.is_revoked());
        let (ended, cause) = match self.end.take() {
            Some(Ok(())) => (&server.streams_completed, None),
            Some(Err(StreamAborted(cause))) => (&server.streams_aborted, Some(cause)),
            None if is_revoked => (&server.streams_aborted, Some(REVOKED_CAUSE.to_owned())),
            None => (&server.streams_abandoned, Some("the client disconnected".to_owned())),
        };
        ended.add(1);
        let tail = &mut self.fields;
        tail.stages.mark("stream");
        tail.shared.log.request(&RequestLine {
            time: clock::moment(),
            request_id: tail.request_id.as_str(),
            peer: tail.way.peer,
            client: tail.client,
            method: tail.method.as_str(),
            path: &tail.path,
            status: tail.status,
            caller: &tail.caller,
            bytes: self.bytes,
            duration: tail.stages.total(),
            problem: None,
            cause: cause.as_deref(),
            is_cut: cause.is_some(),
            stages: &tail.stages,
        });
    }
}
