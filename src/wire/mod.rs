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

pub use body::{ConnectionReuse, RequestBody};
pub use cors::{CorsOrigin, preflight_headers};
pub use cross_origin_isolation::{ReadPurpose, add_cross_origin_isolation, check_fetch_metadata};
pub use forwarded::{PeerConnection, Sender, find_sender};
pub use head::{TargetFragment, check_head};
pub use host::{Authority, authority, check_cross_site, check_host_is_local};
pub use https_redirect::{hsts_header, https_url};
pub use request_id::RequestId;
