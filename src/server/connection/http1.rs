//! One connection of HTTP/1, from hyper's first read to the closing of its socket.
//!
//! How a connection begins and how it is closed is in the parent module; where messages end is in
//! `message`.
//! The surprising thing: a head with HTTP/1.2 to HTTP/1.9 makes hyper's connection fail, and another one
//! is started on the same stream with that head, in which the version is now HTTP/1.1.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::Poll;

use bytes::Bytes;
use hyper_util::rt::TokioIo;

use super::{Cut, Requests, close, refuse};
use crate::problem::{self, Problem};
use crate::server::refusal;
use crate::server::socket::{Stream, Watched};
use crate::server::watch::{Ask, Phase};

pub(super) async fn serve<S>(mut stream: Watched<S>, mut service: Requests)
where
    S: Stream,
{
    let (shared, watch, way) = (Rc::clone(&service.shared), Rc::clone(&service.watch), service.way);
    let ConnectionEnd { stream, result, phase, has_unread, unparsed, was_idle, .. } = loop {
        let end = run(stream, service).await;
        match end.as_http_1_1() {
            // The same head, and what comes behind it, is parsed anew.
            Some(head) => {
                (stream, service) = (end.stream, end.service);
                stream.put_back(head);
            }
            None => break end,
        }
    };
    watch.enter(Phase::Closing);
    let (stream, has_ended) = stream.into_inner();
    let refusal = match (result, phase) {
        (Some(Ok(())), _) => None,
        (Some(Err(error)), Phase::Fresh | Phase::Head | Phase::Idle) if error.is_parse() => {
            Some(refusal::of_parser(&error, &unparsed, &shared.limits))
        }
        // The answer ends in the middle: a client of HTTP/1.0 sees it by this alone.
        (Some(Err(error)), _) if error.is_user() => {
            stream.forget_unsent();
            return shared.close_in_turn(stream).await;
        }
        // The client is gone.
        (Some(Err(_)), _) => return shared.close_in_turn(stream).await,
        (None, _) if has_unread => {
            stream.forget_unsent();
            return shared.say_cut(Cut::Unread, way.peer);
        }
        (None, Phase::Head) if !watch.is_stopping() => {
            Some(Problem::new(&problem::TOO_SLOW).detail(format!(
                "expected the whole head within {} seconds",
                shared.limits.header_seconds_max
            )))
        }
        // RFC 9110 §15.5.9 would allow a 408, but a client that reuses the connection at this very
        // moment would take it for the answer to its request.
        (None, _) => return,
    };
    match refusal {
        Some(problem) => {
            let head = watch.message().take_head();
            let accept = refusal::accept_in(&head);
            refuse(stream, (&problem, &accept), way, &shared.refusals).await;
        }
        None if has_ended || was_idle => shared.close_in_turn(stream).await,
        None => close(stream).await,
    }
}

/// How hyper's part of a connection ended.
struct ConnectionEnd<S> {
    stream: Watched<S>,
    service: Requests,
    /// None when it was cut.
    result: Option<hyper::Result<()>>,
    /// The phase in which it ended.
    phase: Phase,
    /// The client has not read all of its answer.
    has_unread: bool,
    /// What hyper has read and not consumed.
    unparsed: Bytes,
    /// When it was asked to leave, every answer had long arrived: a client with a pool may not see the
    /// end for hours.
    was_idle: bool,
}

impl<S> ConnectionEnd<S> {
    fn as_http_1_1(&self) -> Option<Vec<u8>> {
        let is_parse = matches!(&self.result, Some(Err(error)) if error.is_parse());
        let is_in_head = matches!(self.phase, Phase::Fresh | Phase::Head | Phase::Idle);
        (is_parse && is_in_head).then(|| refusal::as_http_1_1(&self.unparsed)).flatten()
    }
}

async fn run<S>(stream: Watched<S>, service: Requests) -> ConnectionEnd<S>
where
    S: Stream,
{
    let (shared, watch) = (Rc::clone(&service.shared), Rc::clone(&service.watch));
    let mut connection = shared.http1.serve_connection(TokioIo::new(stream), service);
    let mut leaving = false;
    let mut was_idle = false;
    let result = poll_fn(|cx| {
        match watch.asked(cx) {
            Ask::Nothing => {}
            Ask::Leave if leaving => {}
            Ask::Leave => {
                leaving = true;
                was_idle = matches!(watch.phase(), Phase::Fresh | Phase::Idle);
                Pin::new(&mut connection).graceful_shutdown();
            }
            Ask::Cut => return Poll::Ready(None),
        }
        Pin::new(&mut connection).poll(cx).map(Some)
    })
    .await;
    // Before the answer goes with the rest of the connection.
    let (phase, has_unread) = (watch.phase(), watch.has_unread());
    let parts = connection.into_parts();
    let (stream, service, unparsed) = (parts.io.into_inner(), parts.service, parts.read_buf);
    ConnectionEnd { stream, service, result, phase, has_unread, unparsed, was_idle }
}
