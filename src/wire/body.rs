//! The request body: read completely within a size limit and a deadline (slowloris), or drained so that the
//! connection can be reused.
//!
//! Does not interpret the bytes. The first poll makes hyper send `100 Continue`, so the body of a client that
//! waits for it is never polled once the request is refused.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use http::request::Parts;
use http::{Version, header};
use http_body::{Body as _, Frame};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::timeout_at;

use super::head::check_values;
use crate::admission::MemoryReservation;
use crate::clock;
use crate::problem::{self, Problem};

/// The rest of a refused body is drained up to this size, to keep the connection.
const DRAIN_BYTES_MAX: usize = 64 << 10;
/// The time limit of the drain: the rest should be in flight already.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(250);

/// How often a slow body is checked for memory pressure, under which it is aborted (load shedding).
const MEMORY_CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// Whether the connection is reused after the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionReuse {
    KeepAlive,
    /// The response must have `Connection: close`.
    Close,
}

#[derive(Debug)]
pub struct RequestBody {
    incoming: Incoming,
    state: BodyState,
    is_http_1: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BodyState {
    /// The client waits for `100 Continue`, and the body was not polled yet.
    AwaitingContinue,
    /// More bytes may follow.
    Incomplete,
    Complete,
    /// The start of the next request in the byte stream is unknown.
    Broken,
}

impl RequestBody {
    pub fn new(parts: &Parts, incoming: Incoming) -> Self {
        // RFC 9110 §10.1.1: an HTTP/1.0 client cannot send Expect.
        let expects =
            parts.version == Version::HTTP_11 && parts.headers.contains_key(header::EXPECT);
        let state = match (incoming.is_end_stream(), expects) {
            (true, _) => BodyState::Complete,
            (false, true) => BodyState::AwaitingContinue,
            (false, false) => BodyState::Incomplete,
        };
        Self { incoming, state, is_http_1: parts.version < Version::HTTP_2 }
    }

    /// Reads the whole body; a second call returns nothing.
    pub async fn read(
        &mut self,
        bytes_max: usize,
        deadline: Instant,
        memory: &MemoryReservation<'_>,
    ) -> Result<Bytes, Problem> {
        crate::fault::point("body");
        // Refused before the first poll: a client that waits for `100 Continue` need not send the body.
        if self.incoming.size_hint().lower() > u64::try_from(bytes_max).unwrap_or(u64::MAX) {
            return Err(too_large(bytes_max));
        }
        match self.state {
            BodyState::Complete => return Ok(Bytes::new()),
            BodyState::Broken => return Err(Problem::new(&problem::BAD_REQUEST)),
            BodyState::AwaitingContinue | BodyState::Incomplete => {
                self.state = BodyState::Incomplete;
            }
        }
        {
            let mut gathering = pin!(self.collect(bytes_max, |bytes| memory.grow(bytes)));
            // A body that arrived together with the head needs neither the clock nor a timer.
            let first = poll_fn(|context| Poll::Ready(gathering.as_mut().poll(context)));
            if let Poll::Ready(result) = first.await {
                return result;
            }
            if memory.is_exhausted() {
                return Err(Problem::new(&problem::BUSY).detail("too many slow requests at once"));
            }
            let mut look = clock::now() + MEMORY_CHECK_INTERVAL;
            loop {
                if let Ok(result) = timeout_at(look.min(deadline).into(), &mut gathering).await {
                    return result;
                }
                if look >= deadline || memory.is_hurried() {
                    break;
                }
                look += MEMORY_CHECK_INTERVAL;
            }
        }
        self.state = BodyState::Broken;
        Err(Problem::new(&problem::TOO_SLOW))
    }

    /// Prepares the connection for the next request, if that is cheap. Must be called before every response;
    /// after a complete read it costs nothing.
    pub async fn finish(&mut self) -> ConnectionReuse {
        crate::fault::point("finish");
        match self.state {
            BodyState::Complete => return ConnectionReuse::KeepAlive,
            BodyState::AwaitingContinue | BodyState::Broken => return self.abandon(),
            BodyState::Incomplete => {}
        }
        let rest = self.incoming.size_hint().lower();
        if rest > u64::try_from(DRAIN_BYTES_MAX).unwrap_or(u64::MAX) {
            return self.abandon();
        }
        let deadline = clock::now() + DRAIN_TIMEOUT;
        match timeout_at(deadline.into(), self.collect(DRAIN_BYTES_MAX, |_| true)).await {
            Ok(Ok(_)) => ConnectionReuse::KeepAlive,
            Ok(Err(_)) | Err(_) => self.abandon(),
        }
    }

    /// HTTP/2 resets only the stream; HTTP/1 must close the connection with its unread body.
    fn abandon(&self) -> ConnectionReuse {
        if self.is_http_1 { ConnectionReuse::Close } else { ConnectionReuse::KeepAlive }
    }

    fn check_trailers(&self, frame: &Frame<Bytes>) -> Result<(), Problem> {
        match frame.trailers_ref() {
            Some(trailers) if !self.is_http_1 => check_values(trailers),
            _ => Ok(()),
        }
    }

    async fn collect(
        &mut self,
        bytes_max: usize,
        has_room: impl Fn(usize) -> bool,
    ) -> Result<Bytes, Problem> {
        let mut first = Bytes::new();
        let mut rest = BytesMut::new();
        while let Some(frame) = self.incoming.frame().await {
            let frame = frame.map_err(|error| {
                self.state = BodyState::Broken;
                Problem::new(&problem::BAD_REQUEST)
                    .detail("the body ended early or its chunks are not well-formed")
                    .cause(error.to_string())
            })?;
            let data = match frame.into_data() {
                Ok(data) => data,
                // Trailers are validated and otherwise ignored.
                Err(frame) => {
                    self.check_trailers(&frame)?;
                    continue;
                }
            };
            if first.len().max(rest.len()) + data.len() > bytes_max {
                return Err(too_large(bytes_max));
            }
            if !has_room(data.len()) {
                return Err(Problem::new(&problem::BUSY).detail("too many large bodies at once"));
            }
            // Most bodies arrive in one chunk, which is passed on without a copy.
            if first.is_empty() {
                first = data;
            } else {
                if rest.is_empty() {
                    rest.extend_from_slice(&first);
                }
                rest.extend_from_slice(&data);
            }
            if self.incoming.is_end_stream() {
                break;
            }
        }
        self.state = BodyState::Complete;
        Ok(if rest.is_empty() { first } else { rest.freeze() })
    }
}

fn too_large(bytes_max: usize) -> Problem {
    Problem::new(&problem::TOO_LARGE).detail(format!("expected at most {bytes_max} bytes"))
}
