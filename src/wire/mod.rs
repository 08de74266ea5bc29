//! HTTP-level checks that every request must pass before routing: framing, Host, origin, body.
//!
//! hyper parses; this module checks what hyper leaves open. Nothing here knows the model. What may surprise:
//! a refused request may leave its body unread, so every path out must call `RequestBody::finish` to learn
//! whether the connection can be reused.

mod apart;
mod body;
mod cors;
mod forwarded;
mod head;
mod host;
mod request_id;
mod secure;

use std::net::SocketAddr;

pub use apart::{Purpose, check_reader, keep_apart};
pub use body::{After, Body, BodyMemory};
pub use cors::{Visitor, preflight};
pub use forwarded::{Sender, sender};
pub use head::{TargetFragment, check_head};
pub use host::{Authority, check_host_is_ours, check_site};
pub use request_id::RequestId;
pub use secure::{hsts, secure_address};

/// The connection that a request came over.
#[derive(Debug, Clone, Copy)]
pub struct Way {
    /// The address of the other end of the connection.
    pub peer: SocketAddr,
    /// Whether this server terminates TLS for the connection.
    pub is_tls: bool,
}

impl Way {
    /// Whether nobody in between can read or change the request.
    pub fn is_secure(self) -> bool {
        self.is_tls
    }
}
