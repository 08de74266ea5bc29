//! The connection watchdog: the phase of each connection and its age, so that one sweep can end those that
//! time out (slowloris, stalled readers).
//!
//! Time is counted in ticks of the sweep, not read from a clock: a request sets no timer and reads no
//! clock. A timeout may therefore be late by a tick, and never early. Only the socket sees the first byte of
//! a head, and only the service knows that a request is in flight, so both report here; the service does it
//! through `Exchange`.

mod exchange;
mod memory;
mod revocation;
mod run_until;
mod state;
mod worker_connections;

pub(super) use self::exchange::{Exchange, InFlightChunk};
pub(super) use self::run_until::{poll_sockets, until_aborted, until_ended};
pub(super) use self::state::{
    ConnectionPhase, ConnectionWatchdog, PhaseTimeouts, SWEEP_INTERVAL, WatchdogSignal,
};
pub(super) use self::worker_connections::WorkerConnections;

#[cfg(test)]
mod tests;
