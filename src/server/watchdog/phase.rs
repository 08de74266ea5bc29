//! The phases of a connection, as a state machine: what can follow what, and why a connection is aborted.
//!
//! ```text
//!            TLS                      BytesRead           RequestBegun          ResponseReady
//!  accept ─────► Handshake ──► Fresh ───────────► Head ───────────────► Busy ◄───────────────► Sending
//!     │                       ▲  │                 ▲                    ▲     WaitsForServer    │
//!     └─────── plain ─────────┘  │ Http2           │ BytesRead          │ RequestBegun          │ AllSent
//!                                ▼                 └─────────────────  Idle  ◄──────────────────┘
//!                             Streams
//!
//!  Head ──Http2──► Streams               the preface of a client with prior knowledge
//!  Sending ──RequestBegun──► Busy        pipelining: the next request is already there
//!  every phase ──Close──► Closing
//! ```
//!
//! Pure. `ConnectionWatchdog` reports the events and keeps the time of the phase. A phase that an event leads
//! to begins anew, even if it is the same: `Streams` with each request, `Sending` with all progress. Parked
//! (without hyper and its buffers) is not a phase: a connection in `Fresh`, `Head` and `Idle` may be.

use ConnectionEvent as Event;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionPhase {
    /// Accepted, before or in the TLS handshake.
    Handshake,
    /// No byte of HTTP has arrived yet.
    Fresh,
    /// The first byte of a head has arrived, the last has not.
    Head,
    /// A request is with the pipeline, which has its own timeouts.
    Busy,
    /// A response is being sent. The time is that of the last progress.
    Sending,
    /// All requests are answered.
    Idle,
    /// HTTP/2, with concurrent requests. The time is that of the last request or response.
    Streams,
    /// The last bytes are sent; the connection ends by itself.
    Closing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionEvent {
    HandshakeBegun,
    HandshakeDone,
    /// The client speaks HTTP/2, by ALPN or by its preface.
    Http2,
    BytesRead,
    BytesWritten,
    RequestBegun,
    /// hyper has a response, a chunk of it, or its end.
    ResponseReady,
    /// The client has all chunks that there are, and the response goes on.
    WaitsForServer,
    /// A request and its response have ended.
    RequestDone,
    /// hyper has flushed, and no request is in flight.
    AllSent,
    Close,
}

impl ConnectionPhase {
    /// The phase that begins with an event; `None` if the current one goes on. There are no other
    /// transitions.
    pub(super) fn after(self, event: Event) -> Option<Self> {
        match (self, event) {
            (Self::Fresh, Event::HandshakeBegun) => Some(Self::Handshake),
            (Self::Handshake, Event::HandshakeDone) => Some(Self::Fresh),
            // The preface was read as the beginning of a head.
            (Self::Fresh | Self::Head, Event::Http2)
            | (Self::Streams, Event::RequestBegun | Event::RequestDone) => Some(Self::Streams),
            (Self::Fresh | Self::Idle, Event::BytesRead) => Some(Self::Head),
            // In `Sending` the client has sent its next request before the end of the response.
            (
                Self::Fresh | Self::Head | Self::Busy | Self::Sending | Self::Idle,
                Event::RequestBegun,
            )
            | (Self::Sending, Event::WaitsForServer) => Some(Self::Busy),
            (Self::Busy, Event::ResponseReady) | (Self::Sending, Event::BytesWritten) => {
                Some(Self::Sending)
            }
            (Self::Sending, Event::AllSent) => Some(Self::Idle),
            (_, Event::Close) => Some(Self::Closing),
            _ => None,
        }
    }

    /// Whether a response of ours can be in flight. If not, the bytes that hyper writes are its own.
    pub fn is_response_expected(self) -> bool {
        match self {
            Self::Busy | Self::Sending | Self::Streams | Self::Closing => true,
            Self::Handshake | Self::Fresh | Self::Head | Self::Idle => false,
        }
    }

    /// Whether an HTTP/1 connection waits for a request, or for the rest of its head.
    pub fn is_before_request(self) -> bool {
        matches!(self, Self::Fresh | Self::Head | Self::Idle)
    }
}

/// A signal of the watchdog to a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchdogSignal {
    Continue,
    /// Release hyper's buffers until a whole head arrives.
    Park,
    /// Finish the requests in flight, and the first one of a new connection; accept no others.
    Drain,
    /// End now.
    Abort(AbortCause),
}

/// Why a connection is aborted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AbortCause {
    SlowHandshake,
    /// The client has sent no request on its new connection.
    NoRequest,
    /// The head of a request is not complete in time. The client gets 408, unless so few bytes have arrived that
    /// they may be the preface of HTTP/2.
    SlowHead,
    Idle,
    /// A slow reader: the client does not read its response, or too slowly.
    Unread,
    /// The client does not read the end of a response, of which hyper has the rest.
    Unflushed,
    /// The caller has lost the right to a response that the client does not read.
    Revoked,
    /// Too many HTTP/2 requests are left open.
    OpenStreams,
    /// HTTP/2 control frames exceed their budget.
    FrameFlood,
    /// The server stops, and no request is in flight.
    Shutdown,
}

#[cfg(test)]
mod tests {
    use super::ConnectionPhase::*;
    use super::*;

    const PHASES: [ConnectionPhase; 8] =
        [Handshake, Fresh, Head, Busy, Sending, Idle, Streams, Closing];

    /// The phases that an event leads to, in the order of `PHASES`.
    fn row(event: Event) -> [Option<ConnectionPhase>; 8] {
        PHASES.map(|phase| phase.after(event))
    }

    #[test]
    fn connection_phase_has_these_transitions_and_no_others() {
        let none = None;
        let (fresh, head, busy) = (Some(Fresh), Some(Head), Some(Busy));
        let (sending, streams) = (Some(Sending), Some(Streams));
        #[rustfmt::skip]
        let table = [
            //                        Handshake Fresh            Head     Busy     Sending     Idle  Streams  Closing
            (Event::HandshakeBegun, [none,     Some(Handshake), none,    none,    none,       none, none,    none]),
            (Event::HandshakeDone,  [fresh,    none,            none,    none,    none,       none, none,    none]),
            (Event::Http2,          [none,     streams,         streams, none,    none,       none, none,    none]),
            (Event::BytesRead,      [none,     head,            none,    none,    none,       head, none,    none]),
            (Event::BytesWritten,   [none,     none,            none,    none,    sending,    none, none,    none]),
            (Event::RequestBegun,   [none,     busy,            busy,    busy,    busy,       busy, streams, none]),
            (Event::ResponseReady,  [none,     none,            none,    sending, none,       none, none,    none]),
            (Event::WaitsForServer, [none,     none,            none,    none,    busy,       none, none,    none]),
            (Event::RequestDone,    [none,     none,            none,    none,    none,       none, streams, none]),
            (Event::AllSent,        [none,     none,            none,    none,    Some(Idle), none, none,    none]),
            (Event::Close,          [Some(Closing); 8]),
        ];
        for (event, expected) in table {
            assert_eq!(row(event), expected, "{event:?}");
        }
    }
}
