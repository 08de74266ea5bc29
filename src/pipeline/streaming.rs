//! Streaming responses: a body that is sent while its collection is read.
//!
//! Nothing is buffered here: the source is polled for each chunk (backpressure). The rights of the caller, the
//! content coding and the log line of a streaming response all take part in one `poll_chunk`. A stream may fail
//! in the middle, and then reports the reason; the server closes the connection, so that the client cannot
//! mistake the truncated body for the whole.
//!
//! No request arrives while a stream runs, and a stalled client triggers no event at all. So the periodic
//! sweep of each worker thread checks the rights: one read tells whether any user has changed. This code
//! cancels only the source of the stream. The sweep itself closes a connection whose client does not read,
//! when it sees that the stream is revoked.

use std::error::Error;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::thread;

use bytes::Bytes;
use http::Method;

use super::context::SharedState;
use crate::admission::{AdmissionControl, StreamPermit};
use crate::auth::IdentifiedCaller;
use crate::clock;
use crate::events::{EventStream, StreamSlot};
use crate::formats::coding::{CodingChoice, ENCODER_BYTES, Encoder};
use crate::log::{RequestLine, StageTimes};
use crate::reply::Reply;
use crate::reservation::SharedReservation;
use crate::store::{ExportControl, ExportStream};
use crate::wire::RequestId;

/// The cause in the log.
const REVOKED_CAUSE: &str = "the rights of the caller have changed";

/// A response body.
#[derive(Debug)]
pub enum ResponseBody {
    Whole(Bytes),
    Stream(Box<StreamingResponse>),
}

impl ResponseBody {
    /// The whole body, if it is not a stream.
    pub(super) fn whole(&self) -> Option<&Bytes> {
        match self {
            Self::Whole(bytes) => Some(bytes),
            Self::Stream(_) => None,
        }
    }
}

impl From<Bytes> for ResponseBody {
    fn from(bytes: Bytes) -> Self {
        Self::Whole(bytes)
    }
}

impl From<Reply> for Reply<ResponseBody> {
    fn from(reply: Reply) -> Self {
        reply.map(ResponseBody::Whole)
    }
}

/// Why a stream was aborted; for the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamAborted(String);

impl StreamAborted {
    fn new(cause: &str) -> Self {
        Self(cause.to_owned())
    }
}

impl fmt::Display for StreamAborted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for StreamAborted {}

/// The rights that permitted a streaming response.
#[derive(Debug)]
pub struct StreamRights {
    pub(super) known: IdentifiedCaller,
    source: StreamControl,
    is_revoked: AtomicBool,
}

impl StreamRights {
    /// Whether the stream must not send anything more.
    pub fn is_revoked(&self) -> bool {
        self.is_revoked.load(Ordering::Relaxed)
    }

    pub(super) fn revoke(&self) {
        self.is_revoked.store(true, Ordering::Relaxed);
        match &self.source {
            StreamControl::Export(export) => export.cancel(REVOKED_CAUSE),
            // It finds out that it is revoked.
            StreamControl::Events(slot) => slot.wake(),
        }
    }
}

/// The part of a source by which it is ended from elsewhere.
#[derive(Debug)]
enum StreamControl {
    Export(Arc<ExportControl>),
    Events(Arc<StreamSlot>),
}

/// Where the chunks of a stream come from.
#[derive(Debug)]
pub(super) enum StreamChunks {
    /// The first chunk of an export, and the rest.
    Export(Option<Bytes>, ExportStream),
    Events(EventStream),
}

impl StreamChunks {
    fn control(&self) -> StreamControl {
        match self {
            Self::Export(_, chunks) => StreamControl::Export(Arc::clone(chunks.control())),
            Self::Events(events) => StreamControl::Events(Arc::clone(events.slot())),
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, StreamAborted>>> {
        match self {
            Self::Export(first, chunks) => match first.take() {
                Some(first) => Poll::Ready(Some(Ok(first))),
                None => chunks.poll(context).map_err(|error| StreamAborted(error.to_string())),
            },
            Self::Events(events) => events.poll(context).map_err(StreamAborted),
        }
    }
}

/// A streaming response. Dropped before its end, it releases all that it holds.
#[derive(Debug)]
pub struct StreamingResponse {
    /// `None` after the end: its database connection and its permit are released at once.
    source: Option<StreamSource>,
    /// `None` for an anonymous caller, whose rights cannot be revoked.
    rights: Option<Arc<StreamRights>>,
    encoder: Option<ReservedEncoder>,
    /// `None` for HEAD, whose response has no body to wait for.
    log: Option<StreamLog>,
    bytes_sent: usize,
    end: Option<Result<(), StreamAborted>>,
}

#[derive(Debug)]
struct StreamSource {
    chunks: StreamChunks,
    _permit: StreamPermit,
}

/// A content encoder with the memory reserved for it.
#[derive(Debug)]
struct ReservedEncoder {
    encoder: Encoder,
    _memory: Option<Arc<SharedReservation>>,
}

impl StreamingResponse {
    pub(super) fn new(
        known: &IdentifiedCaller,
        chunks: StreamChunks,
        permit: StreamPermit,
    ) -> Self {
        let rights = known.caller.is_authenticated().then(|| {
            Arc::new(StreamRights {
                known: known.without_info(),
                source: chunks.control(),
                is_revoked: AtomicBool::new(false),
            })
        });
        let source = StreamSource { chunks, _permit: permit };
        let source = Some(source);
        Self { source, rights, encoder: None, log: None, bytes_sent: 0, end: None }
    }

    /// The rights that it depends on.
    pub fn rights(&self) -> Option<&Arc<StreamRights>> {
        self.rights.as_ref()
    }

    /// Whether it is an event stream, which is never compressed: an encoder for each of thousands of streams is
    /// much memory.
    pub fn is_event_stream(&self) -> bool {
        matches!(&self.source, Some(StreamSource { chunks: StreamChunks::Events(_), .. }))
    }

    /// Compresses each chunk, so that the client can decode it as it arrives; false where there is no memory
    /// for an encoder.
    pub(super) fn encode(&mut self, admission: &AdmissionControl, choice: CodingChoice) -> bool {
        let memory = admission.reserve_memory();
        if !memory.grow(ENCODER_BYTES) {
            return false;
        }
        let reserve = |encoder| ReservedEncoder { encoder, _memory: memory.share() };
        self.encoder = choice.encoder().map(reserve);
        self.encoder.is_some()
    }

    /// Logs the request when the stream ends, is truncated or is abandoned.
    pub(super) fn log_at_end(&mut self, log: StreamLog) {
        self.log = Some(log);
    }

    /// Records why the server drops it before its end, unless it is revoked, which it knows itself.
    pub fn abort(&mut self, reason: &str) {
        if !self.is_revoked() {
            self.end.get_or_insert_with(|| Err(StreamAborted::new(reason)));
        }
    }

    fn is_revoked(&self) -> bool {
        self.rights.as_ref().is_some_and(|rights| rights.is_revoked())
    }

    /// The next chunk, which is not empty; `None` at the end.
    pub fn poll_chunk(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, StreamAborted>>> {
        let polled = ready!(self.poll_encoded(context));
        match &polled {
            Some(Ok(chunk)) => self.bytes_sent += chunk.len(),
            Some(Err(aborted)) => self.end = Some(Err(aborted.clone())),
            None => self.end = Some(Ok(())),
        }
        Poll::Ready(polled)
    }

    fn poll_encoded(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, StreamAborted>>> {
        loop {
            let chunk = match ready!(self.poll_source(context)) {
                Some(Ok(chunk)) => chunk,
                Some(Err(aborted)) => return Poll::Ready(Some(Err(aborted))),
                None => {
                    self.source = None;
                    // The encoder's trailer marks the content as complete.
                    return Poll::Ready(self.encoder.take().map(ReservedEncoder::finish));
                }
            };
            match &mut self.encoder {
                None => return Poll::Ready(Some(Ok(chunk))),
                Some(encoder) => match encoder.push(&chunk) {
                    // A chunk must not be empty.
                    Ok(encoded) if encoded.is_empty() => {}
                    encoded => return Poll::Ready(Some(encoded)),
                },
            }
        }
    }

    /// The next chunk before it is encoded.
    fn poll_source(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, StreamAborted>>> {
        let is_revoked = self.is_revoked();
        let Some(source) = &mut self.source else { return Poll::Ready(None) };
        if is_revoked {
            return Poll::Ready(Some(Err(StreamAborted::new(REVOKED_CAUSE))));
        }
        source.chunks.poll(context)
    }
}

impl ReservedEncoder {
    fn push(&mut self, chunk: &[u8]) -> Result<Bytes, StreamAborted> {
        self.encoder.push(chunk).map(Bytes::from).ok_or_else(no_encoder_memory)
    }

    fn finish(self) -> Result<Bytes, StreamAborted> {
        self.encoder.finish().map(Bytes::from).ok_or_else(no_encoder_memory)
    }
}

fn no_encoder_memory() -> StreamAborted {
    StreamAborted::new("no memory for the content encoder")
}

impl Drop for StreamingResponse {
    fn drop(&mut self) {
        let Some(log) = self.log.take() else { return };
        let server = &log.shared.metrics.server;
        let is_revoked = self.is_revoked();
        let (ended, cause) = match self.end.take() {
            Some(Ok(())) => (&server.streams_completed, None),
            Some(Err(StreamAborted(cause))) => (&server.streams_aborted, Some(cause)),
            None if is_revoked => (&server.streams_aborted, Some(REVOKED_CAUSE.to_owned())),
            None if thread::panicking() => (&server.streams_aborted, Some("panic".to_owned())),
            None => (&server.streams_abandoned, Some("the client disconnected".to_owned())),
        };
        ended.add(1);
        log.write(self.bytes_sent, cause.as_deref());
    }
}

/// The fields of the log line of a stream. The metrics count the request when the response begins: the time
/// that a client takes to read is not time that it has waited for the server.
#[derive(Debug)]
pub(super) struct StreamLog {
    pub(super) shared: Arc<SharedState>,
    pub(super) request_id: RequestId,
    pub(super) peer: SocketAddr,
    pub(super) client: IpAddr,
    pub(super) method: Method,
    pub(super) path: Box<str>,
    pub(super) status: u16,
    pub(super) caller: Box<str>,
    pub(super) stages: StageTimes,
}

impl StreamLog {
    fn write(mut self, bytes: usize, cause: Option<&str>) {
        self.stages.mark("stream");
        self.shared.log.request(&RequestLine {
            time: clock::moment(),
            request_id: self.request_id.as_str(),
            peer: self.peer,
            client: self.client,
            method: self.method.as_str(),
            path: &self.path,
            status: self.status,
            caller: &self.caller,
            bytes,
            duration: self.stages.total(),
            problem: None,
            cause,
            is_cut: cause.is_some(),
            stages: &self.stages,
        });
    }
}
