//! Tail latency of single creates while one bulk create of 1,000 items runs every second.
//!
//! A closed loop sends nothing while it waits, so that a stall costs it one request per connection,
//! however long it lasts (coordinated omission). The paced loads keep their rate whatever happens, and
//! show what a client would see.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::load_generator::{Client, Load, LoadResult, Pacing, RequestTemplate};
use crate::process::Server;
use crate::report::{self, ROUNDS};
use crate::{Result, store};

const RUN: Duration = Duration::from_secs(5);
const BULK_EVERY: Duration = Duration::from_secs(1);
const BULKS: usize = 30;

/// The names of a bulk's items; the built-in model has indexes on names and addresses.
#[derive(Debug, Clone, Copy)]
enum NameOrder {
    /// Ascending, so that an index grows at its end.
    Ascending,
    /// Random, like real ones: each is inserted at another position of the index.
    Random,
}

/// The worst ratios of the p99 during bulks to the p99 without.
#[derive(Debug, Clone, Copy, Default)]
pub struct TailLatencyRatios {
    pub closed: f64,
    pub paced: f64,
}

/// Measures and prints the latencies.
pub fn measure(nouns: &Path, folder: &Path) -> Result<TailLatencyRatios> {
    let filled = store::fill(nouns, folder, crate::cases::ROWS)?;
    let server = filled.serve(nouns)?;
    let every = Pacing::FixedInterval(Duration::from_millis(32));
    let loads = [
        ("16 connections, closed loop", 16, Pacing::ClosedLoop, NameOrder::Ascending),
        ("64 connections, closed loop", 64, Pacing::ClosedLoop, NameOrder::Ascending),
        ("16 connections, 500/s in all", 16, every, NameOrder::Ascending),
        ("64 connections, 2000/s in all", 64, every, NameOrder::Ascending),
        ("the same, scattered names", 64, every, NameOrder::Random),
    ];
    println!("\nsingle creates, quiet and beside one bulk create of 1000 items a second:");
    println!(
        "{:<30} {:>9} {:>9} {:>10} {:>10} {:>7} {:>8}",
        "", "quiet p50", "p99 µs", "beside p50", "p99 µs", "ratio", "bulk ms"
    );
    let mut worst = TailLatencyRatios::default();
    for (name, connections, pace, names) in loads {
        let load = Load {
            connections,
            pacing: pace,
            time: RUN,
            requests: store::create_requests(),
            first_request: 0,
        };
        let (mut quiet, mut beside, mut bulks) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            quiet.push(report::run_without_refusals(&load, server.address)?);
            let (done, times) = run_during_bulks(&load, server.address, names)?;
            beside.push(done);
            bulks.extend(times.into_iter().map(report::micros));
        }
        let of = |all: &[LoadResult], share: f64| {
            report::median(all.iter().map(|done| report::micros(done.percentile(share))).collect())
        };
        let ratio = of(&beside, 0.99) / of(&quiet, 0.99);
        match pace {
            Pacing::ClosedLoop => worst.closed = worst.closed.max(ratio),
            Pacing::FixedInterval(_) => worst.paced = worst.paced.max(ratio),
        }
        println!(
            "{name:<30} {:>9.0} {:>9.0} {:>10.0} {:>10.0} {ratio:>6.2}× {:>8.1}",
            of(&quiet, 0.5),
            of(&quiet, 0.99),
            of(&beside, 0.5),
            of(&beside, 0.99),
            report::median(bulks) / 1e3
        );
    }
    print_alone(&server)?;
    Ok(worst)
}

/// Prints the time of a bulk on an idle server.
fn print_alone(server: &Server) -> Result<()> {
    let mut client = Client::connect(server.address)?;
    for (name, names) in [("in order", NameOrder::Ascending), ("scattered", NameOrder::Random)] {
        let mut times = Vec::new();
        let before = server.cpu_time()?;
        for number in 0..BULKS {
            let shot = bulk_request(number, names);
            let began = Instant::now();
            client.send(&shot)?;
            times.push(report::micros(began.elapsed()) / 1e3);
        }
        let cpu_ms = report::micros(server.cpu_time()? - before) / 1e3 / BULKS as f64;
        println!(
            "one bulk, nothing beside it, names {name}: {:.1} ms, CPU {cpu_ms:.1} ms",
            report::median(times)
        );
    }
    Ok(())
}

/// The bulk with this number: no two have the same names.
fn bulk_request(number: usize, names: NameOrder) -> RequestTemplate {
    let first = (number + 1) * 1_000_000;
    let name = |number: usize| match names {
        NameOrder::Ascending => number,
        NameOrder::Random => number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24,
    };
    store::bulk_create((first..first + 1_000).map(name))
}

/// Runs a load while another client sends bulks; returns the duration of each bulk.
fn run_during_bulks(
    load: &Load,
    address: SocketAddr,
    names: NameOrder,
) -> Result<(LoadResult, Vec<Duration>)> {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let bulks =
            scope.spawn(|| send_bulks(address, names, &is_over).map_err(|error| error.to_string()));
        let done = report::run_without_refusals(load, address);
        is_over.store(true, Ordering::Relaxed);
        let times = bulks.join().map_err(|_| "the client of bulks panicked")??;
        Ok((done?, times))
    })
}

fn send_bulks(
    address: SocketAddr,
    names: NameOrder,
    is_over: &AtomicBool,
) -> Result<Vec<Duration>> {
    let mut client = Client::connect(address)?;
    let mut times = Vec::new();
    // The first bulk is sent half a second after the load began.
    let mut due = Instant::now() + BULK_EVERY / 2;
    while !is_over.load(Ordering::Relaxed) {
        std::thread::sleep(due.saturating_duration_since(Instant::now()).min(BULK_EVERY / 10));
        if Instant::now() >= due {
            let shot = bulk_request(times.len(), names);
            let began = Instant::now();
            client.send(&shot)?;
            times.push(began.elapsed());
            due += BULK_EVERY;
        }
    }
    Ok(times)
}

/// Runs this part alone.
pub fn run() -> Result<()> {
    let nouns = crate::process::build_dist()?;
    let folder = crate::process::Folder::new()?;
    measure(&nouns, &folder.0.join("bulk")).map(|_| ())
}
