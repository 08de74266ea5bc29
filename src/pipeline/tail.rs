//! The log line of a streaming response, written when the stream ends, is truncated or is abandoned.
//!
//! The metrics count the request when the response begins: how long a client takes to read is not how long
//! it waited.

use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::Method;

use super::{Asked, Shared, StreamRights, revocation};
use crate::clock;
use crate::log::{RequestLine, Stages};
use crate::reply::{Content, Cut, Flow, Pieces, Reply};
use crate::wire::{RequestId, Way};

/// The fields of the log line.
struct Tail {
    shared: Arc<Shared>,
    request_id: RequestId,
    way: Way,
    client: IpAddr,
    method: Method,
    path: Box<str>,
    status: u16,
    caller: Box<str>,
    stages: Stages,
    rights: Option<Arc<StreamRights>>,
}

/// A stream that is logged when it is dropped.
struct Logged {
    flow: Flow,
    tail: Tail,
    bytes: usize,
    end: Option<Result<(), Cut>>,
}

/// Defers the log line of a streaming response to its end; false if the response is not a stream.
pub(super) fn put_off(
    shared: &Arc<Shared>,
    asked: &Asked<'_>,
    reply: &mut Reply,
    stages: &Stages,
) -> bool {
    // The response to HEAD has no body to wait for.
    if asked.parts.method == Method::HEAD {
        return false;
    }
    let content = std::mem::replace(&mut reply.body, Content::Whole(Bytes::new()));
    let Content::Flow(flow) = content else {
        reply.body = content;
        return false;
    };
    let tail = Tail {
        shared: Arc::clone(shared),
        request_id: asked.id,
        way: asked.way,
        client: asked.sender.address,
        method: asked.parts.method.clone(),
        path: asked.parts.uri.path().into(),
        status: reply.status.as_u16(),
        caller: asked.known.get().map_or("-", |known| known.caller.name()).into(),
        stages: stages.clone(),
        rights: asked.stream.get().cloned(),
    };
    reply.body = Content::Flow(Flow::new(Logged { flow, tail, bytes: 0, end: None }));
    true
}

impl Pieces for Logged {
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Cut>>> {
        let polled = self.flow.poll_piece(context);
        match &polled {
            Poll::Ready(Some(Ok(piece))) => self.bytes += piece.len(),
            Poll::Ready(Some(Err(cut))) => self.end = Some(Err(cut.clone())),
            Poll::Ready(None) => self.end = Some(Ok(())),
            Poll::Pending => {}
        }
        polled
    }
}

impl Drop for Logged {
    fn drop(&mut self) {
        let server = &self.tail.shared.metrics.server;
        let is_revoked = self.tail.rights.as_ref().is_some_and(|rights| rights.is_revoked());
        let (ended, cause) = match self.end.take() {
            Some(Ok(())) => (&server.flows_whole, None),
            Some(Err(Cut(cause))) => (&server.flows_cut, Some(cause)),
            None if is_revoked => (&server.flows_cut, Some(revocation::CAUSE.to_owned())),
            None => (&server.flows_left, Some("the client left".to_owned())),
        };
        ended.add(1);
        let tail = &mut self.tail;
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
