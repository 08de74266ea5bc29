//! The connection watchdog: the phase of each connection and its age, so that one sweep can end those that
//! time out (slowloris, stalled readers).
//!
//! `phase` is the state machine, with a diagram; `deadlines` has the timeout of each phase. Only the socket
//! sees the first byte of a head, and only the service knows that a request is in flight, so both report
//! here; the service does it through `Exchange`.

mod exchange;
mod in_flight;
mod memory;
mod phase;
mod run_until;
mod state;
mod worker_connections;

pub(super) use self::exchange::{Exchange, InFlightChunk};
pub(super) use self::phase::{AbortCause, ConnectionEvent, ConnectionPhase, WatchdogSignal};
pub(super) use self::run_until::{poll_sockets, until_aborted};
pub(super) use self::state::ConnectionWatchdog;
pub(super) use self::worker_connections::WorkerConnections;

#[cfg(test)]
mod tests;
