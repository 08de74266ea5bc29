//! Declare the nouns. HTTP already has the verbs.
//!
//! The modules in reading order: a request goes through them from top to bottom. ARCHITECTURE.md
//! has the picture, the map and the rules.
//! Nothing here is for other programs: a library, so that fuzzing has something to call.

// One request from first byte to last: start here.
mod pipeline;

// What arrives: heads, bodies, hosts, request ids.
mod wire;
// 1, asked.
mod intent;
// Who is asking, and may they?
mod auth;
mod permit;
// 2, decided.
mod plan;
// How many at once.
mod gate;
// 3, done: the only stage that touches anything.
mod store;
// 4, said, and how it looks on the wire.
mod reply;
mod formats;

// What the author declared.
mod model;
// What can go wrong.
mod problem;
// JSON text, strictly, and the words every stage speaks.
mod json;
mod value;
// Where the elements of a certificate end.
mod der;

// Around it all: one file a command; sockets, threads and time limits; one line a request; what
// is counted; the only clock.
mod cli;
mod server;
mod log;
mod metrics;
mod clock;
// Futures that are made where they stay.
mod boxed;
// How often within a span of time.
mod windows;
// Memory that is counted until its last holder is gone.
mod reservation;
// What a panic said, and how a test plants one.
mod fault;

// What fuzzers call; not in what is built to be used.
#[cfg(any(fuzzing, test))]
pub mod fuzz;

/// The whole program: what `main.rs` calls, and all that this library shows.
pub fn main() -> std::process::ExitCode {
    cli::run()
}
