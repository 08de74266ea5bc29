//! The memory of a connection, without bodies and large responses, which admission control counts.
//!
//! The sweep sums it up, so that a request updates no shared counter; the sum is up to a tick old. The sizes
//! are those of a release build (`docs/explanation/hostile-clients.md` says how they were measured).

use super::state::{ConnectionPhase, ConnectionWatchdog, InFlightEntry, InFlightKind};
use crate::admission;

/// A parked HTTP/1 connection: its task, its watchdog and its socket.
const PARKED_BYTES: usize = 2 << 10;
/// An HTTP/1 connection with hyper's buffers.
const HTTP1_BYTES: usize = 14 << 10;
/// An HTTP/2 connection without its streams.
const HTTP2_BYTES: usize = 18 << 10;
/// The TLS state of an encrypted connection, in addition.
const TLS_BYTES: usize = 20 << 10;
/// A request in flight, without its head: its future, and the stream state of HTTP/2.
const REQUEST_BYTES: usize = 8 << 10;

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
        let requests: usize = self.in_flight.borrow().iter().map(InFlightEntry::held_bytes).sum();
        own + self.tls_bytes.get() + self.head_bytes.get() + requests
    }

    /// Whether the connection holds more memory than every open connection does.
    pub(super) fn holds_buffers(&self) -> bool {
        self.tls_bytes.get() > 0
    }
}

impl InFlightEntry {
    fn held_bytes(&self) -> usize {
        let request = match self.kind {
            InFlightKind::Request | InFlightKind::Stream => REQUEST_BYTES + self.head_bytes,
            InFlightKind::Chunk => 0,
        };
        // Admission control counts the other responses.
        let answer = self.response_ready.map_or(0, |(_, bytes)| bytes);
        request + if answer <= admission::SMALL_BYTES_MAX { answer } else { 0 }
    }
}
