//! The stages of a shutdown, and the signals that begin it.

use std::io::IsTerminal;
use std::time::Instant;
use std::{future, io};

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::clock;

/// The stage of the shutdown, as signalled to the workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ShutdownStage {
    Serving,
    Draining,
    Aborting,
}

/// The signals that end a server.
pub(super) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    is_on_terminal: bool,
}

impl Signals {
    pub(super) fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
            is_on_terminal: io::stderr().is_terminal(),
        })
    }

    /// The number of the next signal that is not a repetition of the first.
    pub(super) async fn next_distinct(&mut self, repeated_until: Option<Instant>) -> u8 {
        loop {
            let number = self.next().await;
            if repeated_until.is_none_or(|until| clock::now() >= until) {
                return number;
            }
        }
    }

    /// The number of the next signal.
    pub(super) async fn next(&mut self) -> u8 {
        loop {
            tokio::select! {
                Some(()) = self.terminate.recv() => return 15,
                Some(()) = self.interrupt.recv() => return 2,
                // Closing a terminal ends the programs that run in it; any other SIGHUP is for
                // a reload.
                Some(()) = self.hangup.recv() => {
                    if self.is_on_terminal && !io::stderr().is_terminal() {
                        return 1;
                    }
                }
                else => future::pending().await,
            }
        }
    }
}
