//! The HTTP client of webhooks: one POST on one connection, without redirects, within one time limit.
//!
//! HTTP/1.1 alone. Resolution, connection, handshake, request and answer are one future: when its time is over, it
//! is dropped with the socket, and nothing of it goes on in the background. The answer is read up to a limit; what
//! a receiver says beyond it is dropped together with the connection.

use std::convert::Infallible;
use std::fmt;
use std::future::pending;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{CONNECTION, HOST, RETRY_AFTER};
use http::{HeaderValue, Method, Request, Response, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::connector::{ReceiverConnectError, SystemResolver, connect};
use super::signature::SignedRequest;
use crate::clock;
use crate::model::types::AddressPolicy;

/// How much of an answer is read.
const ANSWER_BYTES_MAX: usize = 16 << 10;
/// How much of it is shown.
const ANSWER_CHARS_MAX: usize = 1000;
/// The head of an answer, which hyper buffers.
const HEAD_BYTES_MAX: usize = 32 << 10;

/// The answer of a receiver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiverAnswer {
    pub status: u16,
    /// The beginning of the body.
    pub body: Vec<u8>,
    /// `Retry-After`, as it was sent.
    pub retry_after: Option<String>,
}

impl ReceiverAnswer {
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

/// Why nothing is sent if no key of the server opens the secret of a webhook.
pub const NO_SECRET: &str = "the secret of the webhook cannot be opened";

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SendError {
    /// The client cannot be made: no runtime, no TLS.
    Setup(String),
    /// No key of the server opens the secret of the webhook.
    NoSecret,
    InvalidUrl,
    Connect(ReceiverConnectError),
    Tls(String),
    /// The time at which the request must be on its way has passed; nothing was sent.
    TooLate,
    TimedOut,
    /// The head of the answer exceeds `HEAD_BYTES_MAX`.
    HeadTooLarge,
    /// The connection ended before the end of the answer, or the answer is not HTTP.
    IncompleteAnswer,
}

impl fmt::Display for SendError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Setup(cause) => write!(out, "the request cannot be sent ({cause})"),
            Self::NoSecret => out.write_str(NO_SECRET),
            Self::InvalidUrl => out.write_str("the URL is not that of a webhook"),
            Self::Connect(error) => error.fmt(out),
            Self::Tls(cause) => write!(out, "the TLS handshake failed ({cause})"),
            Self::TooLate => out.write_str("the time to send the request has passed"),
            Self::TimedOut => out.write_str("there was no whole answer in time"),
            Self::HeadTooLarge => {
                write!(out, "the head of the answer has more than {HEAD_BYTES_MAX} bytes")
            }
            Self::IncompleteAnswer => {
                out.write_str("the connection ended without a whole HTTP response")
            }
        }
    }
}

/// Whether the policy refused the address.
pub fn is_address_refused(error: &SendError) -> bool {
    *error == SendError::Connect(ReceiverConnectError::AddressRefused)
}

/// The beginning of an answer's body, for people: without control characters.
pub fn printable_answer(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body);
    let shown = text.chars().filter(|c| *c == '\n' || !c.is_control()).take(ANSWER_CHARS_MAX);
    shown.collect::<String>().trim_end().to_owned()
}

/// A time after which nothing is sent, by both clocks: the monotonic one may stand still while the machine sleeps, and
/// the other one may be set back.
#[derive(Debug, Clone, Copy)]
pub struct SendDeadline {
    instant: Instant,
    moment_micros: i64,
}

impl SendDeadline {
    /// This long from now.
    pub fn after(duration: Duration) -> Self {
        let micros = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        let moment_micros = clock::moment().micros().saturating_add(micros);
        Self { instant: clock::now() + duration, moment_micros }
    }

    fn has_passed(&self) -> bool {
        clock::now() >= self.instant || clock::moment().micros() >= self.moment_micros
    }
}

/// The time limits of one request.
#[derive(Debug, Clone, Copy)]
pub struct SendLimits {
    /// From the resolution of the name to the last byte of the answer.
    pub attempt_max: Duration,
    /// Not even the first byte of the request is sent after this time.
    pub send_until: SendDeadline,
}

/// Sends requests to receivers.
#[derive(Clone)]
pub struct WebhookClient {
    policy: AddressPolicy,
    resolver: SystemResolver,
}

impl fmt::Debug for WebhookClient {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "WebhookClient({:?})", self.policy)
    }
}

impl WebhookClient {
    pub fn new(policy: AddressPolicy) -> Self {
        Self { policy, resolver: SystemResolver::new() }
    }

    pub async fn send(
        &self,
        url: &str,
        request: &SignedRequest,
        limits: SendLimits,
    ) -> Result<ReceiverAnswer, SendError> {
        let target = ReceiverUrl::parse(url)?;
        let post = target.request(request)?;
        let exchange = async {
            let connecting = connect(self.policy, &self.resolver, (&target.host, target.port));
            let stream = connecting.await.map_err(SendError::Connect)?;
            if !target.is_tls {
                return exchange(stream, post, limits.send_until).await;
            }
            let name = ServerName::try_from(target.host.clone());
            let name = name.map_err(|_| SendError::InvalidUrl)?;
            let stream = tls_connector()?.connect(name, stream).await;
            let stream = stream.map_err(|error| SendError::Tls(error.to_string()))?;
            exchange(stream, post, limits.send_until).await
        };
        match timeout(limits.attempt_max, Box::pin(exchange)).await {
            Ok(answer) => answer,
            Err(_) => Err(SendError::TimedOut),
        }
    }
}

/// The parts of a URL that a request needs.
struct ReceiverUrl {
    uri: Uri,
    /// Without the brackets of an IPv6 address.
    host: String,
    port: u16,
    is_tls: bool,
}

impl ReceiverUrl {
    fn parse(url: &str) -> Result<Self, SendError> {
        let uri: Uri = url.parse().map_err(|_| SendError::InvalidUrl)?;
        let (is_tls, default_port) = match uri.scheme_str() {
            Some("https") => (true, 443),
            Some("http") => (false, 80),
            _ => return Err(SendError::InvalidUrl),
        };
        let host = uri.host().ok_or(SendError::InvalidUrl)?;
        let host = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
        let (host, port) = (host.to_owned(), uri.port_u16().unwrap_or(default_port));
        Ok(Self { uri, host, port, is_tls })
    }

    /// RFC 9112 §3.2.1: the target is the path and the query, and `Host` is the authority.
    fn request(&self, signed: &SignedRequest) -> Result<Request<Full<Bytes>>, SendError> {
        let path = self.uri.path_and_query().map_or("/", |path| path.as_str());
        let mut post = Request::builder().method(Method::POST).uri(path);
        for (name, value) in signed.headers() {
            post = post.header(name, value);
        }
        let authority = self.uri.authority().map_or("", |authority| authority.as_str());
        post = post.header(HOST, authority);
        post = post.header(CONNECTION, HeaderValue::from_static("close"));
        post.body(Full::new(signed.body.clone())).map_err(|_| SendError::InvalidUrl)
    }
}

/// Sends the request and reads the answer. The connection is driven by the same future.
async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    post: Request<Full<Bytes>>,
    send_until: SendDeadline,
) -> Result<ReceiverAnswer, SendError> {
    let handshake =
        http1::Builder::new().max_buf_size(HEAD_BYTES_MAX).handshake(TokioIo::new(stream));
    let (mut sender, connection) = handshake.await.map_err(|error| classify(&error))?;
    // As late as possible: a process that was stopped meanwhile (SIGSTOP) must not send what others have sent.
    if send_until.has_passed() {
        return Err(SendError::TooLate);
    }
    let exchange = async {
        let response = sender.send_request(post).await.map_err(|error| classify(&error))?;
        read_answer(response).await
    };
    let drive = async {
        // The exchange reports the error, and reads what has arrived before the end.
        let _ = connection.await;
        pending::<Infallible>().await
    };
    tokio::select! {
        answer = exchange => answer,
        never = drive => match never {},
    }
}

async fn read_answer(response: Response<Incoming>) -> Result<ReceiverAnswer, SendError> {
    let retry_after = response.headers().get(RETRY_AFTER);
    let retry_after = retry_after.and_then(|value| value.to_str().ok()).map(str::to_owned);
    let status = response.status().as_u16();
    let mut incoming = response.into_body();
    let mut body = Vec::new();
    while body.len() < ANSWER_BYTES_MAX
        && let Some(frame) = incoming.frame().await
    {
        // The status alone is not enough: a receiver that dies while it answers may have done nothing.
        let frame = frame.map_err(|_| SendError::IncompleteAnswer)?;
        let Ok(data) = frame.into_data() else { continue };
        let room = ANSWER_BYTES_MAX - body.len();
        body.extend_from_slice(data.get(..room).unwrap_or(&data));
    }
    Ok(ReceiverAnswer { status, body, retry_after })
}

fn classify(error: &hyper::Error) -> SendError {
    match error.is_parse_too_large() {
        true => SendError::HeadTooLarge,
        false => SendError::IncompleteAnswer,
    }
}

/// Trusts the certificate authorities of the system. Made at the first HTTPS URL, since it takes milliseconds and many
/// servers have no webhook; if there are none, the next attempt looks for them again.
fn tls_connector() -> Result<&'static TlsConnector, SendError> {
    static CONNECTOR: OnceLock<TlsConnector> = OnceLock::new();
    if let Some(connector) = CONNECTOR.get() {
        return Ok(connector);
    }
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    // The system's list may have some that rustls cannot parse.
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let causes: String = found.errors.iter().map(|error| format!("; {error}")).collect();
        let message = format!("the system has no list of certificate authorities{causes}");
        return Err(SendError::Setup(message));
    }
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| SendError::Setup(error.to_string()))?;
    let config = config.with_root_certificates(roots).with_no_client_auth();
    Ok(CONNECTOR.get_or_init(|| TlsConnector::from(Arc::new(config))))
}
