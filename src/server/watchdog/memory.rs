//! What a connection takes up in memory, without the bodies and the large answers, which the gate counts.
//!
//! It is summed up by the sweep, so that a request costs no shared counter; the sum is up to a tick old.
//! The sizes are those of a release build (`docs/hostile-clients.md` says how they were measured).

use super::{ConnectionPhase, ConnectionWatchdog, InFlightEntry, InFlightKind};
use crate::admission;

/// A connection of HTTP/1 that waits without hyper: its task, its watch and its socket.
const PARKED_BYTES: usize = 2 << 10;
/// One with hyper's buffers.
const HTTP1_BYTES: usize = 14 << 10;
/// One of HTTP/2 without its streams.
const HTTP2_BYTES: usize = 18 << 10;
/// One that is encrypted has this as well.
const TLS_BYTES: usize = 20 << 10;
/// A request under way, without its head: its future, and what HTTP/2 keeps of a stream.
const REQUEST_BYTES: usize = 8 << 10;

impl ConnectionWatchdog {
    /// The connection is one of TLS.
    pub(in crate::server) fn begin_tls(&self) {
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

    /// More than what every open connection has.
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
        // The gate counts the others.
        let answer = self.response_ready.map_or(0, |(_, bytes)| bytes);
        request + if answer <= admission::SMALL_BYTES_MAX { answer } else { 0 }
    }
}
