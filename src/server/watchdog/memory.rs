//! The memory of a connection, without bodies and large responses, which admission control counts.
//!
//! The sweep sums it up, so that a request updates no shared counter; the sum is up to 250 ms old. The sizes
//! are those of a release build (`docs/explanation/hostile-clients.md` says how they were measured).

use super::phase::ConnectionPhase;
use super::state::ConnectionWatchdog;

/// A parked HTTP/1 connection: its task, its watchdog and its socket.
const PARKED_BYTES: usize = 2 << 10;
/// An HTTP/1 connection with hyper's buffers.
const HTTP1_BYTES: usize = 14 << 10;
/// An HTTP/2 connection without its streams.
const HTTP2_BYTES: usize = 18 << 10;
/// The TLS state of an encrypted connection, in addition.
const TLS_BYTES: usize = 20 << 10;

impl ConnectionWatchdog {
    /// Records that the connection uses TLS.
    pub fn begin_tls(&self) {
        self.tls_bytes.set(TLS_BYTES);
    }

    pub(super) fn held_bytes(&self) -> usize {
        let own = match self.phase.get() {
            ConnectionPhase::Streams => HTTP2_BYTES,
            ConnectionPhase::Handshake => PARKED_BYTES,
            _ if self.is_parked.get() => PARKED_BYTES,
            _ => HTTP1_BYTES,
        };
        let in_flight = self.in_flight.borrow();
        let requests: usize = in_flight.iter().map(|request| request.held_bytes()).sum();
        own + self.tls_bytes.get() + self.head_bytes.get() + requests
    }

    /// Whether the connection has the state of TLS, so that it costs more than a parked one even while it is silent.
    pub(super) fn uses_tls(&self) -> bool {
        self.tls_bytes.get() > 0
    }
}
