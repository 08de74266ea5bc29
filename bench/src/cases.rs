//! The main run: cost of each kind of request, memory, and the time to the first response.
//!
//! Reads and writes have separate databases, so that those that are read keep their size.

use std::time::Duration;

use crate::bulk::TailLatencyRatios;
use crate::load_generator::{Client, RequestTemplate};
use crate::process::{self, Server};
use crate::report::{self, BenchmarkCase, BenchmarkRow, Target};
use crate::{Result, bulk, store};

/// The duration of one measurement.
pub const RUN: Duration = Duration::from_secs(2);
/// Rows of the smaller databases.
pub const ROWS: usize = 10_000;

pub fn list_request() -> RequestTemplate {
    RequestTemplate::get("/customers?limit=20")
}

pub fn run(rows_large: usize) -> Result<()> {
    let nouns = process::build_dist()?;
    let folder = process::Folder::new()?;
    let path = |name: &str| folder.0.join(name);
    let small = store::fill(&nouns, &path("small"), ROWS)?;
    let busy = store::fill(&nouns, &path("busy"), ROWS)?;
    let large = store::fill(&nouns, &path("large"), rows_large)?;
    let starts = [
        (ROWS, store::time_to_first_response(&nouns, &small)?),
        (rows_large, store::time_to_first_response(&nouns, &large)?),
    ];

    let reads = small.serve(&nouns)?;
    let writes = busy.serve(&nouns)?;
    let big = large.serve(&nouns)?;
    let sample = Client::connect(reads.address)?.send(&small.item_request())?.to_owned();
    let bare = Server::start_baseline(&folder.0, &sample)?;
    let everywhere = format!("GET by id, {rows_large} rows");
    let often = format!("GET by id, {rows_large} rows, 1000 of them");
    let case = BenchmarkCase::new;
    let cases = [
        case("bare hyper", &bare, 32, [RequestTemplate::get("/")].into()),
        case("GET by id, 10000 rows", &reads, 32, small.get_requests(usize::MAX)),
        case(&everywhere, &big, 32, large.get_requests(usize::MAX)),
        case(&often, &big, 32, large.get_requests(1_000)),
        case("list of 20, 10000 rows", &reads, 32, [list_request()].into()),
        case("durable create, 32 connections", &writes, 32, store::create_requests()),
        case("durable create, 64 connections", &writes, 64, store::create_requests()),
        case("PUT, 32 connections", &writes, 32, busy.put_requests(usize::MAX)),
        case("PUT, 64 connections", &writes, 64, busy.put_requests(usize::MAX)),
        case("PUT, 32 connections, 100 items", &writes, 32, busy.put_requests(100)),
    ];
    let rows = report::measure(&cases, RUN)?;
    report::print(&rows);

    println!("\nmemory after it, without mapped database files:");
    let mut memory_max = 0.0_f64;
    for (name, server) in [("reads", &reads), ("writes", &writes), ("large", &big)] {
        let megabytes = server.memory_bytes()? as f64 / 1e6;
        memory_max = memory_max.max(megabytes);
        println!("{name:<8} {megabytes:.1} MB");
    }
    drop((reads, big, bare));
    writes.stop()?;
    println!("\nfirst answer after start:");
    for (rows, time) in starts {
        println!("{rows:>8} rows, closed well  {time:.1?}");
    }
    let killed = store::time_to_first_response_after_kill(&nouns, &busy)?;
    println!("   after a kill amid creates  {killed:.1?}");

    let stalled = bulk::measure(&nouns, &path("bulk"))?;
    let first_ms = starts.iter().map(|(_, time)| report::micros(*time) / 1e3).fold(0.0, f64::max);
    judge_targets(&rows, memory_max, first_ms, stalled);
    Ok(())
}

fn judge_targets(rows: &[BenchmarkRow], memory_mb: f64, first_ms: f64, stalled: TailLatencyRatios) {
    let [bare, small, large, _, list, create, create_64, put, _, _] = rows else { return };
    let cost = |row: &BenchmarkRow| row.cpu_us() / bare.cpu_us();
    report::judge(&[
        ("GET by id, CPU, ratio to bare hyper", cost(small), Target::AtMost(2.0)),
        ("list of 20, CPU, ratio", cost(list), Target::AtMost(4.0)),
        ("durable create at 32 connections, CPU, ratio", cost(create), Target::AtMost(3.5)),
        ("PUT at 32 connections, CPU, ratio", cost(put), Target::AtMost(4.0)),
        (
            "durable creates/s at 64, ratio to bare GETs/s",
            create_64.rate() / bare.rate(),
            Target::AtLeast(0.3),
        ),
        (
            "GET by id, CPU, all rows to 10000 rows",
            large.cpu_us() / small.cpu_us(),
            Target::AtMost(1.15),
        ),
        ("memory, MB, the largest", memory_mb, Target::AtMost(48.0)),
        ("first answer, ms, the slowest", first_ms, Target::AtMost(30.0)),
        ("p99 of creates beside bulks, ratio, closed loop", stalled.closed, Target::AtMost(3.0)),
        ("p99 of creates beside bulks, ratio, paced", stalled.paced, Target::AtMost(3.0)),
    ]);
}
