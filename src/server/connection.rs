//! One connection, from its first byte to its last, over any kind of stream.
//!
//! The pipeline handles its requests. Closing takes three steps (send, shut down our side, drain what still
//! arrives: lingering close), because a socket closed over unread bytes may lose the response: RFC 9112 §9.6.

mod http1;

use std::convert::Infallible;
use std::future::{Future, poll_fn, ready};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use http::{HeaderName, HeaderValue, Request, Response, header};
use hyper::body::{Body as _, Incoming};
use hyper::server::conn;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::http1_framing::BodyLength;
use super::outgoing_body::OutgoingBody;
use super::refusal::RefusalContext;
use super::tls::{HandshakeScheduler, TlsConfig};
use super::watchdog::{ConnectionPhase, ConnectionWatchdog, Exchange, WatchdogSignal};
use super::watched_stream::{ByteStream, WatchedStream};
use super::{ListenerKind, ServerOptions};
use crate::admission::MemoryPressure;
use crate::box_future::box_future;
use crate::clock;
use crate::formats::accept::Accept;
use crate::log::{Level, RequestLine, StageTimes};
use crate::model::settings::ServerLimits;
use crate::pipeline::{self, App, StreamRights};
use crate::problem::Problem;
use crate::wire::{PeerConnection, RequestId, TargetFragment};

/// RFC 9113 §3.4: the preface of a client with prior knowledge of HTTP/2.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// How long, and how much, a closed connection is still drained.
const LINGER_TIMEOUT: Duration = Duration::from_secs(2);
const LINGER_BYTES_MAX: usize = 16 << 20;

/// Sockets that a worker closes in one round of its tasks.
const CLOSINGS_MAX: usize = 4;

/// Why a connection is aborted.
#[derive(Debug, Clone, Copy)]
enum AbortReason {
    Unread,
    Revoked,
    Streams,
    Frames,
}

/// State that all connections of one worker share.
pub(super) struct ConnectionContext {
    pub(super) app: Rc<App>,
    pub(super) refusals: RefusalContext,
    http1: conn::http1::Builder,
    http2_prior_knowledge: bool,
    head_bytes_max: usize,
    limits: ServerLimits,
    close_permits: Semaphore,
    pub(super) tls: Option<Arc<TlsConfig>>,
    pub(super) handshakes: HandshakeScheduler,
}

/// The facts about a connection that are known when HTTP begins.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConnectionInfo {
    pub(super) way: PeerConnection,
    pub(super) listener_kind: ListenerKind,
    pub(super) protocol: Protocol,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    Http2,
    /// HTTP/1, unless it begins with the preface of HTTP/2 and that is offered.
    Undetermined,
}

impl ConnectionContext {
    pub(super) fn new(app: App, refusals: RefusalContext, settings: &ServerOptions) -> Self {
        let limits = settings.limits;
        Self {
            app: Rc::new(app),
            refusals,
            http1: http1_builder(&limits),
            http2_prior_knowledge: settings.http2_prior_knowledge,
            head_bytes_max: head_bytes_max(&limits),
            limits,
            close_permits: Semaphore::new(CLOSINGS_MAX),
            tls: settings.tls.clone(),
            handshakes: HandshakeScheduler::new(),
        }
    }

    /// Closes a socket when a permit is free: thousands of clients that disconnect at one moment must not
    /// delay the other connections.
    async fn close_when_permitted<S>(&self, stream: S) {
        let turn = self.close_permits.acquire().await;
        drop(stream);
        drop(turn);
    }

    fn log_abort(&self, why: AbortReason, peer: SocketAddr) {
        let server = &self.refusals.metrics.server;
        let (count, message) = match why {
            AbortReason::Unread => (
                &server.aborted_unread,
                "connection aborted: the client does not read its response",
            ),
            AbortReason::Revoked => (
                &server.cut_revoked,
                "connection aborted: the caller lost the right to a response that the client does not read",
            ),
            AbortReason::Streams => (
                &server.aborted_open_streams,
                "connection aborted: too many HTTP/2 requests left open",
            ),
            AbortReason::Frames => {
                (&server.aborted_frame_flood, "connection aborted: HTTP/2 control-frame flood")
            }
        };
        count.add(1);
        self.refusals.log.event(Level::Info, message, &[("peer", &peer)]);
    }
}

/// Runs the streams of one connection of HTTP/2 on its thread, each until it is done or revoked.
#[derive(Debug, Clone)]
struct StreamExecutor {
    watch: Rc<ConnectionWatchdog>,
}

impl<F: Future + 'static> hyper::rt::Executor<F> for StreamExecutor {
    fn execute(&self, stream: F) {
        let watch = Rc::clone(&self.watch);
        let number = watch.take_request_without_task();
        tokio::task::spawn_local(async move {
            let mut stream = pin!(stream);
            poll_fn(|cx| {
                let is_done = stream.as_mut().poll(cx).is_ready()
                    || number.is_some_and(|number| watch.is_revoked(number, cx));
                if is_done { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        });
    }
}

/// The approximate memory of the head of a request.
fn head_bytes(request: &Request<Incoming>) -> usize {
    // The memory of a header line in the map, beside its text.
    const LINE_BYTES: usize = 100;
    let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
    let line =
        |(name, value): (&HeaderName, &HeaderValue)| LINE_BYTES + name.as_str().len() + value.len();
    let bytes = target + request.headers().iter().map(line).sum::<usize>();
    // The buffer that the head was read into is larger.
    bytes + bytes / 2
}

/// The parsers accept slightly more than the limits, so that our own check refuses the request.
fn head_bytes_max(limits: &ServerLimits) -> usize {
    const SLACK_BYTES: usize = 16 << 10;
    limits.target_bytes_max + limits.headers_bytes_max + SLACK_BYTES
}

fn http1_builder(limits: &ServerLimits) -> conn::http1::Builder {
    const HEADERS_BY_DEFAULT: usize = 100;
    let head_bytes_max = head_bytes_max(limits);
    let mut builder = conn::http1::Builder::new();
    builder
        .keep_alive(true)
        // A client may shut down its side after the request and still wait for the response.
        .half_close(true)
        .header_read_timeout(None)
        .max_header_size(head_bytes_max)
        .max_buf_size(head_bytes_max.max(64 << 10));
    // Any number set here costs an allocation per request.
    if limits.headers_max > HEADERS_BY_DEFAULT {
        builder.max_headers(limits.headers_max);
    }
    builder
}

fn http2_builder(
    limits: &ServerLimits,
    watch: &Rc<ConnectionWatchdog>,
) -> conn::http2::Builder<StreamExecutor> {
    const WINDOW_BYTES: u32 = 256 << 10;
    let executor = StreamExecutor { watch: Rc::clone(watch) };
    let mut builder = conn::http2::Builder::new(executor);
    builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(100)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .max_send_buf_size(256 << 10)
        .max_header_list_size(u32::try_from(head_bytes_max(limits)).unwrap_or(u32::MAX))
        .max_pending_accept_reset_streams(20)
        .max_local_error_reset_streams(256)
        .keep_alive_interval(Duration::from_secs(20))
        .keep_alive_timeout(Duration::from_secs(20));
    builder
}

/// Serves a stream until it ends.
pub(super) async fn serve<S>(
    stream: S,
    info: ConnectionInfo,
    shared: Rc<ConnectionContext>,
    watch: Rc<ConnectionWatchdog>,
) where
    S: ByteStream,
{
    let mut stream = WatchedStream::new(stream, Rc::clone(&watch));
    let is_http2 = match info.protocol {
        Protocol::Http2 => true,
        Protocol::Undetermined if shared.http2_prior_knowledge => {
            match until_ended(&watch, begins_with_preface(&mut stream)).await {
                Some(is_http2) => is_http2,
                None => return,
            }
        }
        Protocol::Http1 | Protocol::Undetermined => false,
    };
    let ConnectionInfo { way, listener_kind, .. } = info;
    let service =
        RequestService { shared: Rc::clone(&shared), watch: Rc::clone(&watch), way, listener_kind };
    if is_http2 {
        watch.enter_phase(ConnectionPhase::Streams);
        // Boxed, so that other connections do not take up its memory.
        Box::pin(serve_http2(stream, service)).await;
    } else {
        http1::serve(stream, service).await;
    }
}

/// Whether the client begins with the HTTP/2 preface. The bytes are put back.
async fn begins_with_preface<S: ByteStream>(stream: &mut WatchedStream<S>) -> bool {
    let mut seen = Vec::with_capacity(PREFACE.len());
    while seen.len() < PREFACE.len() && PREFACE.starts_with(&seen) {
        let mut more = [0; PREFACE.len()];
        let wanted = PREFACE.len() - seen.len();
        match stream.read(more.get_mut(..wanted).unwrap_or_default()).await {
            Ok(count @ 1..) => seen.extend_from_slice(more.get(..count).unwrap_or_default()),
            Ok(0) | Err(_) => break,
        }
    }
    let found = seen == PREFACE;
    stream.unread(&seen);
    found
}

/// Lets the runtime poll the sockets once more. The watchdog may drain a connection before the runtime has
/// noticed bytes that the kernel has already received.
async fn poll_sockets() {
    tokio::task::yield_now().await;
}

/// Runs a future until it is done, or the watchdog ends the connection. What has arrived before the
/// connection is drained is read first: it may be a request.
async fn until_ended<F: Future>(watch: &ConnectionWatchdog, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let done = poll_fn(|cx| match watch.poll_signal(cx) {
        WatchdogSignal::Continue | WatchdogSignal::Park => future.as_mut().poll(cx).map(Some),
        WatchdogSignal::Drain | WatchdogSignal::Abort => Poll::Ready(None),
    })
    .await;
    if done.is_some() || watch.is_aborted() {
        return done;
    }
    poll_sockets().await;
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// Runs a future until it is done, or the watchdog aborts the connection. A drain gives it the time that a
/// stop waits for heads and handshakes.
pub(super) async fn until_aborted<F: Future>(
    watch: &ConnectionWatchdog,
    future: F,
) -> Option<F::Output> {
    let mut future = pin!(future);
    poll_fn(|cx| match watch.poll_signal(cx) {
        WatchdogSignal::Abort => Poll::Ready(None),
        WatchdogSignal::Continue | WatchdogSignal::Park | WatchdogSignal::Drain => {
            future.as_mut().poll(cx).map(Some)
        }
    })
    .await
}

async fn serve_http2<S>(stream: WatchedStream<S>, service: RequestService)
where
    S: ByteStream,
{
    let (shared, watch, peer) =
        (Rc::clone(&service.shared), Rc::clone(&service.watch), service.way.peer);
    let builder = http2_builder(&shared.limits, &watch);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let mut leaving = false;
    let why_cut = poll_fn(|cx| {
        match watch.poll_signal(cx) {
            WatchdogSignal::Continue | WatchdogSignal::Park => {}
            WatchdogSignal::Drain if leaving => {}
            WatchdogSignal::Drain => {
                leaving = true;
                connection.as_mut().graceful_shutdown();
            }
            WatchdogSignal::Abort => {
                let why = match (watch.has_unread(), watch.is_idle()) {
                    (true, _) => AbortReason::Unread,
                    (false, false) => AbortReason::Streams,
                    (false, true) => return Poll::Ready(None),
                };
                // hyper owns the stream, which reports the error at its last poll.
                watch.abandon();
                let _ = connection.as_mut().poll(cx);
                return Poll::Ready(Some(why));
            }
        }
        // An error here is the peer's: HTTP/2 has reported it already.
        connection.as_mut().poll(cx).map(|_| None)
    })
    .await;
    if let Some(why) = why_cut {
        shared.log_abort(why, peer);
    } else if watch.is_frame_budget_exhausted() {
        shared.log_abort(AbortReason::Frames, peer);
    }
}

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
    refusals.metrics.server.count_refusal(problem.kind().status.as_u16());
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

/// Passes the requests of one connection to the pipeline.
struct RequestService {
    shared: Rc<ConnectionContext>,
    watch: Rc<ConnectionWatchdog>,
    way: PeerConnection,
    listener_kind: ListenerKind,
}

impl RequestService {
    /// Passes to the framing how hyper delimits the body, and to the pipeline facts that hyper does not
    /// report.
    fn begin_framing(&self, request: &mut Request<Incoming>) {
        let mut message = self.watch.message();
        if message.has_fragment() {
            request.extensions_mut().insert(TargetFragment);
        }
        let body = request.body();
        message.begin_body(match body.size_hint().exact() {
            _ if body.is_end_stream() => BodyLength::Known(0),
            Some(bytes) => BodyLength::Known(bytes),
            None => BodyLength::Chunked,
        });
    }
}

impl Service<Request<Incoming>> for RequestService {
    type Response = Response<OutgoingBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>>>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        if self.watch.phase() != ConnectionPhase::Streams {
            self.begin_framing(&mut request);
        }
        let is_exhausted =
            || self.shared.app.shared.admission.memory_pressure() == MemoryPressure::Exhausted;
        if !self.watch.can_accept_request() || (self.watch.has_many_streams() && is_exhausted()) {
            self.shared.refusals.metrics.server.streams_refused.add(1);
            if self.watch.should_log_streams() {
                let message = "requests refused: too many HTTP/2 streams in flight";
                self.shared.refusals.log.event(Level::Warning, message, &[]);
            }
            let mut answer = OutgoingBody::too_many_streams();
            pipeline::add_hsts_to_refusal(
                &self.shared.app,
                (self.way, request.headers()),
                answer.headers_mut(),
            );
            return Box::pin(ready(Ok(answer)));
        }
        let exchange = Exchange::begin(&self.watch);
        exchange.has_head(head_bytes(&request));
        let (app, way) = (Rc::clone(&self.shared.app), self.way);
        if self.listener_kind == ListenerKind::Redirect {
            let response = pipeline::redirect(&app, request, way);
            return Box::pin(ready(Ok(
                response.map(|body| OutgoingBody::new(exchange, &app, body, None))
            )));
        }
        // The closure captures only pointers, so that the future is built in its box; anything larger would
        // be copied there, at the full size of the future.
        let request = Box::new(request);
        box_future(|| async move {
            let mut response = pipeline::serve(&app, request, way).await;
            let rights = response.extensions_mut().remove::<Arc<StreamRights>>();
            if exchange.is_last() {
                response
                    .headers_mut()
                    .insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            Ok(response.map(|body| OutgoingBody::new(exchange, &app, body, rights)))
        })
    }
}

#[cfg(test)]
mod tests;
