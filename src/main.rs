//! Declare the nouns. HTTP already has the verbs.
//!
//! The modules in reading order: a request goes through them from top to bottom. ARCHITECTURE.md
//! has the picture, the map and the rules.

mod pipeline; // one request from first byte to last: start here

mod auth; // who is asking
mod formats;
mod gate; // how many at once
mod intent; // 1 asked
mod permit; // may they
mod plan; // 2 decided
mod reply; // 4 said
mod store; // 3 done: the only stage that touches anything
mod wire; // what arrives: heads, bodies, hosts, request ids // how things look on the wire

mod json; // JSON text, strictly
mod model; // what the author declared
mod problem; // what can go wrong
mod value; // the words every stage speaks

mod cli; // one file a command
mod clock;
mod log; // one line a request
mod server; // sockets, threads, time limits // the only clock

fn main() -> std::process::ExitCode {
    cli::run()
}
