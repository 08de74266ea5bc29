//! HTTP-level checks that every request must pass before routing: framing, Host, origin, body.
//!
//! hyper parses; this module checks what hyper leaves open. Nothing here knows the model. A refused request
//! may leave its body unread, so every path out must call `RequestBody::finish` to learn whether the
//! connection can be reused.

mod cross_origin_isolation;
mod body;
mod cors;
mod forwarded;
mod head;
mod host;
mod request_id;
mod https_redirect;

use std::net::SocketAddr;

pub use body::{BodyMemory, ConnectionReuse, RequestBody};
pub use cors::{CorsOrigin, preflight_headers};
pub use cross_origin_isolation::{ReadPurpose, add_cross_origin_isolation, check_fetch_metadata};
pub use forwarded::{Sender, find_sender};
pub use head::{TargetFragment, check_head};
pub use host::{Authority, check_cross_site, check_host_is_local};
pub use https_redirect::{hsts_header, https_url};
pub use request_id::RequestId;

/// The connection that a request arrived over.
#[derive(Debug, Clone, Copy)]
pub struct PeerConnection {
    /// The address of the other end of the connection.
    pub peer: SocketAddr,
    /// Whether this server terminates TLS for the connection.
    pub is_tls: bool,
}

impl PeerConnection {
    /// Whether no third party can read or change the request in transit.
    pub fn is_secure(self) -> bool {
        self.is_tls
    }
}
