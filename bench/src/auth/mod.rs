//! Authentication benchmarks: the cost of logins, and the effect of clients that guess.
//!
//! Each part runs alone by its name, so that it can be run while the machine is idle.

mod anonymous;
mod closed;
mod cost;
mod flood;
mod login;
mod statistics;
mod timing;

use crate::Result;
use closed::AuthenticatedDatabase;
use login::{Algorithm, CLOSED_PATH, TestUser};
pub use login::{Credentials, DigestSession};

type BenchmarkPart = fn(bool) -> Result<()>;

const PARTS: &[(&str, BenchmarkPart)] = &[
    ("cost", |_| cost::sqlite()),
    ("postgres", |_| cost::postgres()),
    ("memory", anonymous::run),
    ("flood", flood::run),
    ("timing", timing::run),
];

/// Runs the parts whose names begin with this.
pub fn run(part: &str, is_quick: bool) -> Result<()> {
    let mut has_run = false;
    for (name, run) in PARTS.iter().filter(|(name, _)| name.starts_with(part)) {
        println!("\n--auth {name}");
        run(is_quick)?;
        has_run = true;
    }
    match has_run {
        true => Ok(()),
        false => Err(format!("there is no part `{part}`").into()),
    }
}
