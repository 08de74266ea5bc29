//! Memory growth under a million unauthenticated requests: each gets a 401 with a nonce of its own, and
//! the server must keep no state for any.

use std::time::Duration;

use super::{AuthenticatedDatabase, CLOSED_PATH};
use crate::Result;
use crate::load_generator::{Load, Pacing, RequestTemplate};
use crate::process::{self, Folder, Server};
use crate::report::{self, Target};

/// After this many requests the connections, buffers and allocator pools are warm.
const WARM_UP: usize = 50_000;
const REQUESTS: usize = 1_000_000;
const REQUESTS_QUICK: usize = 50_000;
/// Allocator noise. For a million requests, two bytes each would be as much.
const GROWTH_MEGABYTES_MAX: f64 = 2.0;

pub fn run(is_quick: bool) -> Result<()> {
    let nouns = process::build_dist()?;
    let folder = Folder::new()?;
    let closed = AuthenticatedDatabase::fill(&nouns, &folder, 1_000, "")?;
    let (server, _) = closed.serve(&nouns)?;
    send_unauthenticated(&server, WARM_UP)?;
    let before = server.anonymous_megabytes()?;
    let wanted = if is_quick { REQUESTS_QUICK } else { REQUESTS };
    let (count, seconds) = send_unauthenticated(&server, wanted)?;
    let after = server.anonymous_megabytes()?;
    println!(
        "\n{count} requests without credentials, {:.0} a second, after {WARM_UP} to warm up: \
         {before:.1} MB before, {after:.1} MB after",
        count as f64 / seconds
    );
    let growth = Target::AtMost(GROWTH_MEGABYTES_MAX);
    report::judge(&[("memory after 401s, MB more", after - before, growth)]);
    Ok(())
}

/// Sends at least this many requests, each answered with 401; returns how many, and in how many
/// seconds.
fn send_unauthenticated(server: &Server, wanted: usize) -> Result<(usize, f64)> {
    let load = Load {
        connections: 32,
        pacing: Pacing::ClosedLoop,
        time: Duration::from_secs(1),
        requests: [RequestTemplate::get(CLOSED_PATH).expecting(401)].into(),
        first_request: 0,
    };
    let (mut count, mut seconds) = (0, 0.0);
    while count < wanted {
        let done = report::run_without_refusals(&load, server.address)?;
        count += done.latencies.len();
        seconds += done.seconds;
    }
    Ok((count, seconds))
}
