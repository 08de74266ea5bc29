//! The service that passes the requests of one connection to the pipeline, and what all connections of one
//! worker share.

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
use hyper_util::rt::TokioTimer;
use tokio::sync::Semaphore;

use super::bind::ListenerKind;
use super::http1_framing::BodyLength;
use super::options::ServerOptions;
use super::outgoing_body::OutgoingBody;
use super::refusal::RefusalContext;
use super::tls::{HandshakeScheduler, TlsConfig};
use super::watchdog::{AbortCause, ConnectionPhase, ConnectionWatchdog, Exchange};
use crate::admission::MemoryPressure;
use crate::box_future::box_future;
use crate::log::Level;
use crate::model::settings::ServerLimits;
use crate::pipeline::{self, App};
use crate::wire::{PeerConnection, TargetFragment};

/// Sockets that a worker closes in one round of its tasks.
const CLOSINGS_MAX: usize = 4;

/// State that all connections of one worker share.
pub(super) struct ConnectionContext {
    pub(super) app: Rc<App>,
    pub(super) refusals: RefusalContext,
    pub(super) http1: conn::http1::Builder,
    pub(super) http2_prior_knowledge: bool,
    pub(super) head_bytes_max: usize,
    pub(super) limits: ServerLimits,
    pub(super) close_permits: Semaphore,
    pub(super) tls: Option<Arc<TlsConfig>>,
    pub(super) handshakes: HandshakeScheduler,
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
    pub(super) async fn close_when_permitted<S>(&self, stream: S) {
        let turn = self.close_permits.acquire().await;
        drop(stream);
        drop(turn);
    }

    /// Counts and logs an abort that is a fault of the client.
    pub(super) fn log_abort(&self, cause: AbortCause, peer: SocketAddr) {
        let server = &self.refusals.metrics.server;
        let (count, message) = match cause {
            AbortCause::Unread => (
                &server.aborted_unread,
                "connection aborted: the client does not read its response",
            ),
            AbortCause::Revoked => (
                &server.cut_revoked,
                "connection aborted: the caller lost the right to a response that the client does not read",
            ),
            AbortCause::OpenStreams => (
                &server.aborted_open_streams,
                "connection aborted: too many HTTP/2 requests left open",
            ),
            AbortCause::FrameFlood => {
                (&server.aborted_frame_flood, "connection aborted: HTTP/2 control-frame flood")
            }
            // Not logged: not a fault of the client, or logged elsewhere.
            AbortCause::SlowHandshake
            | AbortCause::NoRequest
            | AbortCause::SlowHead
            | AbortCause::Idle
            | AbortCause::Unflushed
            | AbortCause::Shutdown => return,
        };
        count.add(1);
        self.refusals.log.event(Level::Info, message, &[("peer", &peer)]);
    }
}

/// Runs the streams of one connection of HTTP/2 on its thread, each until it is done or revoked.
#[derive(Debug, Clone)]
pub(super) struct StreamExecutor {
    watch: Rc<ConnectionWatchdog>,
}

impl<F: Future + 'static> hyper::rt::Executor<F> for StreamExecutor {
    fn execute(&self, stream: F) {
        let watch = Rc::clone(&self.watch);
        let request = watch.take_request_without_task();
        tokio::task::spawn_local(async move {
            let mut stream = pin!(stream);
            poll_fn(|cx| {
                let is_done = stream.as_mut().poll(cx).is_ready()
                    || request.as_ref().is_some_and(|request| request.poll_revoked(cx));
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

pub(super) fn http2_builder(
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

/// Passes the requests of one connection to the pipeline.
pub(super) struct RequestService {
    pub(super) shared: Rc<ConnectionContext>,
    pub(super) watch: Rc<ConnectionWatchdog>,
    pub(super) way: PeerConnection,
    pub(super) listener_kind: ListenerKind,
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
            let response = pipeline::redirect(&app, request, way, &exchange);
            return Box::pin(ready(Ok(
                response.map(|body| OutgoingBody::new(exchange, &app, body))
            )));
        }
        // The closure captures only pointers, so that the future is built in its box; anything larger would
        // be copied there, at the full size of the future.
        let request = Box::new(request);
        box_future(|| async move {
            let mut response = pipeline::serve(&app, request, way, &exchange).await;
            if exchange.is_last() {
                response
                    .headers_mut()
                    .insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            Ok(response.map(|body| OutgoingBody::new(exchange, &app, body)))
        })
    }
}
