//! Declare the nouns. HTTP already has the verbs.
//!
//! The modules in reading order: a request passes through them from top to bottom. ARCHITECTURE.md has the
//! picture, the map and the rules. This is not a library for other programs: it exists so that fuzz targets
//! have something to call.

// The request pipeline: start here.
mod pipeline;

// HTTP requests: heads, bodies, hosts, request ids.
mod wire;
// Stage 1: parsing of requests.
mod intent;
// Events: the change feed, event streams, webhooks.
mod events;
// Authentication and authorization.
mod auth;
mod permit;
// Stage 2: planning.
mod plan;
// Admission control: limits of concurrency, memory and rates.
mod admission;
// Stage 3: execution, the only stage with I/O.
mod store;
// The OpenAPI document.
mod openapi;
// Pages for people, made from replies.
mod pages;
// Stage 4: responses and their formats.
mod reply;
mod formats;

// The model that the author declared.
mod model;
// Every problem (error) that a client can get.
mod problem;
// Strict JSON text, and the value types of every stage.
mod json;
mod value;
// Tokens, quoted strings and lists of HTTP headers.
mod header_syntax;
// DER: the element boundaries of a certificate.
mod der;

// The frame: commands; sockets, threads and timeouts; the log; metrics; the only clock.
mod cli;
mod server;
mod log;
mod metrics;
mod clock;
// Boxing of large futures in place.
mod box_future;
// Fixed-window counters for rate limits.
mod rate_window;
// Memory reservations that several holders share.
mod reservation;
// Files that appear whole or not at all.
mod partial_file;
// Fault injection, and the message of a panic.
mod fault;

// The oracles of the fuzz workspace, which need the modules above; not part of a normal build.
#[cfg(any(fuzzing, test))]
#[path = "../fuzz/oracles/mod.rs"]
pub mod fuzz;

/// Runs the program: `main.rs` calls it, and it is the only item of the public API.
pub fn main() -> std::process::ExitCode {
    cli::run()
}
