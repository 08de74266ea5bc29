//! Single creates beside a bulk of 1,000 items a second: how much longer the slowest percent waits.
//!
//! A closed loop sends nothing while it waits, so a stall costs it one request a connection, however
//! long it is. The paced loads send as often whatever happens, and show what a client would see.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::load::{Client, Done, Load, Pace};
use crate::report::{self, ROUNDS};
use crate::{Result, store};

const RUN: Duration = Duration::from_secs(5);
const BULK_EVERY: Duration = Duration::from_secs(1);

/// Prints what was seen, and returns the worst ratio of the p99.
pub fn measure(nouns: &Path, folder: &Path) -> Result<f64> {
    let filled = store::fill(nouns, folder, crate::cases::ROWS)?;
    let server = filled.serve(nouns)?;
    let loads = [
        ("16 connections, closed loop", 16, Pace::Closed),
        ("64 connections, closed loop", 64, Pace::Closed),
        ("16 connections, 500/s in all", 16, Pace::Every(Duration::from_millis(32))),
        ("64 connections, 2000/s in all", 64, Pace::Every(Duration::from_millis(32))),
    ];
    println!("\nsingle creates beside one bulk create of 1000 items a second:");
    println!(
        "{:<32} {:>9} {:>9} {:>9} {:>9} {:>7} {:>9}",
        "", "p50 µs", "p99 µs", "p50 µs", "p99 µs", "p99", "bulk"
    );
    println!(
        "{:<32} {:>9} {:>9} {:>9} {:>9} {:>7} {:>9}",
        "", "quiet", "quiet", "bulks", "bulks", "ratio", "ms"
    );
    let mut worst = 0.0_f64;
    for (name, connections, pace) in loads {
        let load = Load { connections, pace, time: RUN, shots: store::create(), first: 0 };
        let (mut quiet, mut beside, mut bulks) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            quiet.push(report::succeed(&load, server.address)?);
            let (done, times) = run_beside_bulks(&load, server.address)?;
            beside.push(done);
            bulks.extend(times.into_iter().map(report::micros));
        }
        let of = |all: &[Done], share: f64| {
            report::median(all.iter().map(|done| report::micros(done.percentile(share))).collect())
        };
        let ratio = of(&beside, 0.99) / of(&quiet, 0.99);
        worst = worst.max(ratio);
        println!(
            "{name:<32} {:>9.0} {:>9.0} {:>9.0} {:>9.0} {ratio:>6.2}× {:>9.1}",
            of(&quiet, 0.5),
            of(&quiet, 0.99),
            of(&beside, 0.5),
            of(&beside, 0.99),
            report::median(bulks) / 1e3
        );
    }
    Ok(worst)
}

/// Runs a load while another client sends bulks; says how long each of those took.
fn run_beside_bulks(load: &Load, address: SocketAddr) -> Result<(Done, Vec<Duration>)> {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let bulks =
            scope.spawn(|| send_bulks(address, &is_over).map_err(|error| error.to_string()));
        let done = report::succeed(load, address);
        is_over.store(true, Ordering::Relaxed);
        let times = bulks.join().map_err(|_| "the client of bulks panicked")??;
        Ok((done?, times))
    })
}

fn send_bulks(address: SocketAddr, is_over: &AtomicBool) -> Result<Vec<Duration>> {
    let bulk = store::bulk(0, 1_000);
    let mut client = Client::connect(address)?;
    let mut times = Vec::new();
    // The first comes half a second after the load began.
    let mut due = Instant::now() + BULK_EVERY / 2;
    while !is_over.load(Ordering::Relaxed) {
        std::thread::sleep(due.saturating_duration_since(Instant::now()).min(BULK_EVERY / 10));
        if Instant::now() >= due {
            let began = Instant::now();
            client.send(&bulk)?;
            times.push(began.elapsed());
            due += BULK_EVERY;
        }
    }
    Ok(times)
}

/// This part alone.
pub fn run() -> Result<()> {
    let nouns = crate::process::build()?;
    let folder = crate::process::Folder::new()?;
    measure(&nouns, &folder.0.join("bulk")).map(|_| ())
}
