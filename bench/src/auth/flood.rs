//! Throughput of an authenticated client during a flood of wrong passwords over 200 connections.
//!
//! The client sends over 32 connections as fast as it is answered, by Basic and by Digest in turn,
//! first alone and then during the flood; the flood comes from the same address, and one kind of it
//! guesses at the client's own name.
//! Attackers, client and server share the processors here, as they would not on a network: so the
//! attackers have a low priority, and each flood is compared with the same rate of requests for
//! `/-/health`, which cost the server next to nothing.
//! The result is the ratio to the client alone.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use bench::attack::{Attack, LOGINS};

use super::{Algorithm, AuthenticatedDatabase};
use crate::Result;
use crate::cases::ROWS;
use crate::hostile;
use crate::load_generator::{Load, Pacing, RequestTemplates};
use crate::process::{self, Folder, Server};
use crate::report::{self, Target, median};

/// The minimum share of its throughput that the client keeps.
const SHARE_MIN: f64 = 0.6;
/// Maximum use of one core by the hashing thread.
const HASHING_MAX: f64 = 0.25;
/// Maximum memory during a flood: one Argon2id hash takes 20 MB; 200 connections with their buffers and
/// the log's queue take the rest.
const PEAK_MEGABYTES_MAX: f64 = 40.0;
/// Maximum memory growth from the first half of a flood to the second: a leak would exceed it.
const GROWTH_MEGABYTES_MAX: f64 = 2.0;

/// Durations of a flood and of each measurement of the client.
#[derive(Debug, Clone, Copy)]
struct FloodDurations {
    flood_seconds: u64,
    measurement_duration: Duration,
}

pub fn run(is_quick: bool) -> Result<()> {
    let times = match is_quick {
        true => FloodDurations { flood_seconds: 10, measurement_duration: Duration::from_secs(2) },
        false => FloodDurations { flood_seconds: 60, measurement_duration: Duration::from_secs(5) },
    };
    let nouns = process::build_dist()?;
    let folder = Folder::new()?;
    let closed = AuthenticatedDatabase::fill(&nouns, &folder, ROWS, "")?;
    let mut judged = Vec::new();
    for attack in LOGINS {
        let (server, admin) = closed.serve(&nouns)?;
        let digest = admin.digest(server.address, Algorithm::Sha256)?;
        let [basic, digest] = [admin.basic(), digest]
            .map(|login| closed.filled.get_requests_with_credentials(&login));
        let caller = AuthenticatedClient { server: &server, basic, digest };
        judged.extend(run_attack(attack, &caller, times)?);
    }
    let judged: Vec<_> =
        judged.iter().map(|(name, seen, target)| (&**name, *seen, *target)).collect();
    report::judge(&judged);
    Ok(())
}

/// An authenticated client.
struct AuthenticatedClient<'a> {
    server: &'a Server,
    basic: RequestTemplates,
    digest: RequestTemplates,
}

/// Requests a second by each scheme.
#[derive(Debug, Default)]
struct SchemeRates {
    basic: Vec<f64>,
    digest: Vec<f64>,
}

impl SchemeRates {
    fn medians(&self) -> (f64, f64) {
        (median(self.basic.clone()), median(self.digest.clone()))
    }
}

impl AuthenticatedClient<'_> {
    /// Measures each scheme this many times, in turn; no request may be refused.
    fn measure_rates(&self, slice: Duration, turns: u64) -> Result<SchemeRates> {
        let mut rates = SchemeRates::default();
        for _ in 0..turns {
            rates.basic.push(self.rate(&self.basic, slice)?);
            rates.digest.push(self.rate(&self.digest, slice)?);
        }
        Ok(rates)
    }

    fn rate(&self, shots: &RequestTemplates, time: Duration) -> Result<f64> {
        let load = Load {
            connections: 32,
            pacing: Pacing::ClosedLoop,
            time,
            requests: shots.clone(),
            first_request: 0,
        };
        Ok(report::run_without_refusals(&load, self.server.address)?.rate())
    }
}

/// Measurements during an attack.
struct FloodMeasurement {
    rates: SchemeRates,
    /// Requests a second of the attack.
    actions_per_second: f64,
    ends: String,
    /// Peak memory in the first half, and in the second.
    peak_megabytes: (f64, f64),
    /// Share of one core that the hashing thread used.
    hashing_cores: f64,
    serving_cores: f64,
}

fn measure_during_attack(
    caller: &AuthenticatedClient<'_>,
    name: &str,
    force: (u32, u64),
    slice: Duration,
) -> Result<FloodMeasurement> {
    let server = caller.server;
    let time = Duration::from_secs(force.1);
    let (hashed, served) = (server.thread_cpu_time("nouns-hasher")?, server.cpu_time()?);
    let attacker = hostile::start_attack(name, server, Some(force))?;
    let began = Instant::now();
    let stop = AtomicBool::new(false);
    let (rates, peaks, output) = thread::scope(|scope| {
        let sampler = scope.spawn(|| peaks(server, began + time / 2, &stop));
        // By now the connections are open, and the first requests are answered.
        thread::sleep(Duration::from_millis(500));
        let rates = caller.measure_rates(slice, (force.1 - 1) / (slice.as_secs() * 2));
        let output = attacker.wait_with_output();
        stop.store(true, Ordering::Relaxed);
        (rates, sampler.join().unwrap_or_default(), output)
    });
    let seconds = began.elapsed().as_secs_f64();
    let share = |after: Duration, before: Duration| (after - before).as_secs_f64() / seconds;
    let (actions, ends) = hostile::parse_attack_output(output?.stdout)?;
    Ok(FloodMeasurement {
        rates: rates?,
        actions_per_second: actions / seconds,
        ends,
        peak_megabytes: peaks,
        hashing_cores: share(server.thread_cpu_time("nouns-hasher")?, hashed),
        serving_cores: share(server.cpu_time()?, served),
    })
}

/// Peak memory before this moment, and after it.
fn peaks(server: &Server, middle: Instant, stop: &AtomicBool) -> (f64, f64) {
    let (mut first, mut second) = (0.0_f64, 0.0_f64);
    while !stop.load(Ordering::Relaxed) {
        let megabytes = server.anonymous_megabytes().unwrap_or(f64::NAN);
        match Instant::now() < middle {
            true => first = first.max(megabytes),
            false => second = second.max(megabytes),
        }
        thread::sleep(Duration::from_millis(20));
    }
    (first, second)
}

type JudgedFigure = (String, f64, Target);

fn run_attack(
    attack: &Attack,
    caller: &AuthenticatedClient<'_>,
    times: FloodDurations,
) -> Result<Vec<JudgedFigure>> {
    let FloodDurations { flood_seconds, measurement_duration: slice } = times;
    caller.measure_rates(Duration::from_millis(500), 1)?;
    let quiet = caller.measure_rates(slice, 2)?.medians();
    let before = caller.server.anonymous_megabytes()?;
    let unpaced = attack.force.actions_per_second;
    let flood = measure_during_attack(caller, attack.name, (unpaced, flood_seconds), slice)?;
    let rate = (flood.actions_per_second as u32).max(1);
    let seconds = slice.as_secs() * 4 + 1;
    let harmless = measure_during_attack(caller, "health checks", (rate, seconds), slice)?;
    let after = caller.server.anonymous_megabytes()?;

    let share = |rates: &SchemeRates| {
        let (basic, digest) = rates.medians();
        (basic / quiet.0, digest / quiet.1)
    };
    let (basic, digest) = share(&flood.rates);
    let (harmless_basic, harmless_digest) = share(&harmless.rates);
    let (first, second) = flood.peak_megabytes;
    println!("\n{}: {:.0} a second; {}", attack.name, flood.actions_per_second, flood.ends);
    println!("  the caller alone, requests/s     Basic {:.0}, Digest {:.0}", quiet.0, quiet.1);
    println!("  beside the flood, share of it    Basic {basic:.2}, Digest {digest:.2}");
    println!(
        "  beside {:.0} health checks a second Basic {harmless_basic:.2}, Digest {harmless_digest:.2}",
        harmless.actions_per_second
    );
    println!(
        "  cores: the server {:.2}, of it hashing {:.3}; beside the health checks {:.2}",
        flood.serving_cores, flood.hashing_cores, harmless.serving_cores
    );
    println!(
        "  memory, MB: before {before:.1}, peak {first:.1} and {second:.1} in the second half, after {after:.1}"
    );
    let short = attack.name.trim_start_matches("wrong passwords ");
    let name = |what: &str| format!("{short}: {what}");
    Ok(vec![
        (name("share left, Basic"), basic, Target::AtLeast(SHARE_MIN)),
        (name("share left, Digest"), digest, Target::AtLeast(SHARE_MIN)),
        (name("hashing, cores"), flood.hashing_cores, Target::AtMost(HASHING_MAX)),
        (name("MB at its peak"), first.max(second) - before, Target::AtMost(PEAK_MEGABYTES_MAX)),
        (name("MB, halves"), second - first, Target::AtMost(GROWTH_MEGABYTES_MAX)),
    ])
}
