//! What every request must satisfy before anyone asks what it wants: framing, Host, origin, body.
//!
//! The parser is hyper's; here is what it leaves open. Nothing here knows the model's nouns.
//! The one surprising thing: a refused request may leave its body unread, so the answer to "may this
//! connection go on" is `Body::finish`, to be asked on every path out.

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
pub use body::{After, Body};
pub use cors::{Visitor, preflight};
pub use forwarded::{Sender, sender};
pub use head::{TargetFragment, check_head};
pub use host::{Authority, check_host_is_ours, check_site};
pub use request_id::RequestId;
pub use secure::{hsts, secure_address};

/// How a request reached us.
#[derive(Debug, Clone, Copy)]
pub struct Way {
    /// Who is at the other end of the connection.
    pub peer: SocketAddr,
    /// Whether the connection is one of TLS, with us at its end.
    pub is_tls: bool,
}

impl Way {
    /// Whether nobody on the way could listen or change anything.
    pub fn is_secure(self) -> bool {
        self.is_tls
    }
}
