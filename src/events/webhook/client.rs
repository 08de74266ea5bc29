//! The HTTP client of webhooks: one POST, without redirects, within one time limit.
//!
//! HTTP/1.1 alone. A connection is kept for a few seconds, for the next event of the same receiver. The answer
//! is read up to a limit; what a receiver says beyond it is dropped together with the connection.

use std::error::Error;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http::header::RETRY_AFTER;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::{Client, Error as ClientError};
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::crypto::aws_lc_rs;
use rustls::{ClientConfig, RootCertStore};

use super::address::AddressPolicy;
use super::connector::{CheckedConnector, ReceiverConnectError};
use super::signature::SignedRequest;

/// How much of an answer is read.
const ANSWER_BYTES_MAX: usize = 16 << 10;
/// How much of it is shown.
const ANSWER_CHARS_MAX: usize = 1000;
/// The head of an answer, which hyper buffers.
const HEAD_BYTES_MAX: usize = 32 << 10;
const IDLE_SECONDS_MAX: Duration = Duration::from_secs(10);

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

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SendError {
    /// The client cannot be made: no trust anchors, no runtime.
    Setup(String),
    InvalidUrl,
    Connect(ReceiverConnectError),
    Tls(String),
    TimedOut,
    /// The connection ended before the end of the answer, or the answer is not HTTP.
    IncompleteAnswer,
}

impl fmt::Display for SendError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Setup(cause) => write!(out, "the request cannot be sent ({cause})"),
            Self::InvalidUrl => out.write_str("the URL is not that of a webhook"),
            Self::Connect(error) => error.fmt(out),
            Self::Tls(cause) => write!(out, "the TLS handshake failed ({cause})"),
            Self::TimedOut => out.write_str("there was no whole answer in time"),
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

/// Sends requests to receivers.
#[derive(Debug)]
pub struct WebhookClient {
    http: Client<HttpsConnector<CheckedConnector>, Full<Bytes>>,
    attempt_max: Duration,
}

impl WebhookClient {
    /// Must be called inside a runtime.
    pub fn new(policy: AddressPolicy, attempt_max: Duration) -> Result<Self, SendError> {
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls_config()?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(CheckedConnector { policy });
        let http = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_SECONDS_MAX)
            .http1_max_buf_size(HEAD_BYTES_MAX)
            .build(connector);
        Ok(Self { http, attempt_max })
    }

    pub async fn send(
        &self,
        url: &str,
        request: &SignedRequest,
    ) -> Result<ReceiverAnswer, SendError> {
        let mut post = Request::builder().method(Method::POST).uri(url);
        for (name, value) in request.headers() {
            post = post.header(name, value);
        }
        let post = post.body(Full::new(request.body.clone())).map_err(|_| SendError::InvalidUrl)?;
        let exchange = async {
            let response = self.http.request(post).await.map_err(|error| classify(&error))?;
            read_answer(response).await
        };
        match tokio::time::timeout(self.attempt_max, exchange).await {
            Ok(answer) => answer,
            Err(_) => Err(SendError::TimedOut),
        }
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

/// hyper-rustls reports our own connector's error and its own in the same way.
fn classify(error: &ClientError) -> SendError {
    let source = error.source();
    match source.and_then(|source| source.downcast_ref()) {
        Some(error) => SendError::Connect(*error),
        None if error.is_connect() => {
            SendError::Tls(source.map_or_else(String::new, ToString::to_string))
        }
        None => SendError::IncompleteAnswer,
    }
}

/// Trusts the certificate authorities of the system.
fn tls_config() -> Result<ClientConfig, SendError> {
    let setup = |error: &dyn fmt::Display| SendError::Setup(error.to_string());
    let provider = Arc::new(aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| setup(&error))?;
    Ok(config.with_root_certificates(Arc::clone(system_roots())).with_no_client_auth())
}

/// Loaded once: it takes tens of milliseconds. Without any, all handshakes fail with the reason.
fn system_roots() -> &'static Arc<RootCertStore> {
    static ROOTS: OnceLock<Arc<RootCertStore>> = OnceLock::new();
    ROOTS.get_or_init(|| {
        let mut roots = RootCertStore::empty();
        // The system's list may have some that rustls cannot parse.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        Arc::new(roots)
    })
}
