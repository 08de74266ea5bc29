//! The connector of the webhook client: resolves a host once, and connects to addresses that were checked.
//!
//! It is a connector and not a resolver, because hyper's client resolves names only: an address in the URL would
//! not be checked. Nothing resolves the name a second time, so a name server that changes its answer (DNS
//! rebinding) gains nothing. TLS is a layer above, with the name of the URL.

use std::fmt;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower_service::Service;

use super::address::AddressPolicy;

/// The time for one of several addresses, so that one that does not answer leaves time for the next.
const ADDRESS_SECONDS_MAX: Duration = Duration::from_secs(3);

/// Why there is no connection. The texts name no address, so that they are of no use to a port scanner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReceiverConnectError {
    /// The host has no address.
    Unresolved,
    /// One of the addresses is not allowed.
    AddressRefused,
    /// No address accepts the connection.
    Unreachable,
}

impl fmt::Display for ReceiverConnectError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Unresolved => "the name of the host cannot be resolved",
            Self::AddressRefused => "the address of the host is not a public one",
            Self::Unreachable => "the host does not accept connections",
        })
    }
}

impl std::error::Error for ReceiverConnectError {}

/// Opens connections that the policy allows.
#[derive(Debug, Clone, Copy)]
pub struct CheckedConnector {
    pub policy: AddressPolicy,
}

impl Service<Uri> for CheckedConnector {
    type Response = TokioIo<TcpStream>;
    type Error = ReceiverConnectError;
    type Future =
        Pin<Box<dyn Future<Output = Result<Self::Response, ReceiverConnectError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ReceiverConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, target: Uri) -> Self::Future {
        Box::pin(connect(self.policy, target))
    }
}

async fn connect(
    policy: AddressPolicy,
    target: Uri,
) -> Result<TokioIo<TcpStream>, ReceiverConnectError> {
    let default_port = if target.scheme_str() == Some("http") { 80 } else { 443 };
    let port = target.port_u16().unwrap_or(default_port);
    let host = target.host().unwrap_or_default();
    let host = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    // getaddrinfo also reads other spellings of addresses, such as 2130706433 or 0x7f.1.
    let resolved = tokio::net::lookup_host((host, port)).await;
    let addresses: Vec<SocketAddr> =
        resolved.map_err(|_| ReceiverConnectError::Unresolved)?.collect();
    if addresses.is_empty() {
        return Err(ReceiverConnectError::Unresolved);
    }
    // One refused address is enough: a name of both kinds has no honest use.
    if !addresses.iter().all(|address| policy.allows(address.ip())) {
        return Err(ReceiverConnectError::AddressRefused);
    }
    for address in addresses {
        let connecting = tokio::time::timeout(ADDRESS_SECONDS_MAX, TcpStream::connect(address));
        if let Ok(Ok(stream)) = connecting.await {
            // A request is one write; waiting for more would only delay it.
            let _ = stream.set_nodelay(true);
            return Ok(TokioIo::new(stream));
        }
    }
    Err(ReceiverConnectError::Unreachable)
}
