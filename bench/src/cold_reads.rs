//! Cold reads: while clients read at random from a database four times larger than the server's memory,
//! the latency of `/-/health` should not rise.
//!
//! A control group limits the memory, including the page cache. A fast disk would hide the effect, so
//! the last part also limits the rate of disk reads.
//! The reads are paced: a closed loop would use all processors, and would measure the wait for those.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::Result;
use crate::cgroup::{Cgroup, CgroupLimits};
use crate::load_generator::{Client, Load, LoadResult, Pacing, RequestTemplate, RequestTemplates};
use crate::process::{self, Server};
use crate::report::{self, ROUNDS, Target, micros};
use crate::store::{self, FilledDatabase};

/// The memory limit of the group. The server's own caches take up to 70 MB of it.
const MEMORY_BYTES: u64 = 96 << 20;
/// Disk reads a second, in the second part.
const SLOW_DISK: u32 = 500;

/// One row: the load that runs during the requests for `/-/health`.
struct ColdReadCase {
    name: &'static str,
    load: Vec<Load>,
}

/// The measurements of one run.
struct ColdReadMeasurement {
    health: LoadResult,
    load_result: Vec<LoadResult>,
    disk_bytes: u64,
}

/// The state that all parts share.
struct ColdReadBenchmark {
    nouns: PathBuf,
    filled: FilledDatabase,
    cursors: Vec<String>,
    /// The duration of one measurement.
    time: Duration,
}

pub fn run(is_quick: bool) -> Result<()> {
    let nouns = process::build_dist()?;
    let folder = process::Folder::new()?;
    let filled = fill(&nouns, &folder.0.join("cold"), 4 * MEMORY_BYTES)?;
    let file_bytes = std::fs::metadata(filled.file())?.len();
    let cursors = collect_cursors(&nouns, &filled)?;
    let time = Duration::from_secs(if is_quick { 1 } else { 4 });
    let setting = ColdReadBenchmark { nouns, filled, cursors, time };
    println!(
        "memory allowed: {} MB; database: {} MB",
        MEMORY_BYTES / 1_000_000,
        file_bytes / 1_000_000
    );
    let limits = |reads_per_second| CgroupLimits { memory_bytes: MEMORY_BYTES, reads_per_second };
    println!("\nwithout a limit of memory, for comparison:");
    setting.measure_within(None)?;
    println!("\nwith the limit of memory:");
    let cold = setting.measure_within(Some(limits(None)))?;
    println!("\nand with at most {SLOW_DISK} reads from the disk a second:");
    let slow = setting.measure_within(Some(limits(Some(SLOW_DISK))))?;
    report::judge(&[
        ("p99 of /-/health beside cold reads, ms", cold, Target::AtMost(10.0)),
        ("the same on the slow disk", slow, Target::AtMost(10.0)),
    ]);
    Ok(())
}

/// Makes a database of at least this many bytes.
fn fill(nouns: &Path, folder: &Path, bytes: u64) -> Result<FilledDatabase> {
    let rows = 10_000;
    let probe = store::fill(nouns, &folder.with_extension("probe"), rows)?;
    let row_bytes = std::fs::metadata(probe.file())?.len() / rows as u64;
    store::fill(nouns, folder, usize::try_from(bytes / row_bytes.max(1))? * 11 / 10)
}

/// Cursors from all over the collection, collected by walking it once.
fn collect_cursors(nouns: &Path, filled: &FilledDatabase) -> Result<Vec<String>> {
    let server = filled.serve(nouns)?;
    let mut client = Client::connect(server.address)?;
    let mut found: Vec<String> = Vec::new();
    loop {
        let after = found.last().map_or(String::new(), |cursor| format!("&cursor={cursor}"));
        let page = client.send(&RequestTemplate::get(&format!("/customers?limit=500{after}")))?;
        let next = page.rsplit_once("\"next\":\"").and_then(|(_, rest)| rest.split('"').next());
        match next {
            Some(cursor) => found.push(cursor.to_owned()),
            None => break,
        }
    }
    drop(client);
    server.stop()?;
    store::shuffle(&mut found);
    Ok(found)
}

impl ColdReadBenchmark {
    /// Measures every case within these limits; returns the worst p99 of `/-/health` in milliseconds.
    fn measure_within(&self, limits: Option<CgroupLimits>) -> Result<f64> {
        let file = self.filled.file();
        // Drops the file from the page cache: the kernel charges cached pages to the group that read them
        // first.
        process::run_to_success(Command::new("dd").arg(format!("if={}", file.display())).args([
            "iflag=nocache",
            "count=0",
            "status=none",
        ]))?;
        let cage = limits.map(|limits| Cgroup::new(limits, &file)).transpose()?;
        let mut server = match &cage {
            None => self.filled.serve(&self.nouns)?,
            Some(cage) => self.filled.serve_in_cgroup(&self.nouns, cage)?,
        };
        let cases = self.cases();
        let mut seen: Vec<Vec<ColdReadMeasurement>> = cases.iter().map(|_| Vec::new()).collect();
        for round in 0..ROUNDS {
            for (case, seen) in cases.iter().zip(&mut seen) {
                let found = self.measure(case, &server, round);
                seen.push(found.map_err(|error| match server.has_ended() {
                    true => format!("{}: the server ended, maybe for its memory", case.name).into(),
                    false => error,
                })?);
            }
        }
        let worst = print(&cases, &seen);
        println!("memory of the process: {:.1} MB", server.memory_bytes()? as f64 / 1e6);
        server.stop()?;
        Ok(worst)
    }

    fn cases(&self) -> [ColdReadCase; 6] {
        let paced = |connections, every_ms, shots| Load {
            connections,
            pacing: Pacing::FixedInterval(Duration::from_millis(every_ms)),
            time: self.time,
            requests: shots,
            first_request: 0,
        };
        let gets = || paced(32, 20, self.filled.get_requests(usize::MAX));
        let lists = |limit: usize| -> RequestTemplates {
            let shot =
                |cursor| RequestTemplate::get(&format!("/customers?limit={limit}&cursor={cursor}"));
            self.cursors.iter().map(shot).collect()
        };
        let case = |name, beside| ColdReadCase { name, load: beside };
        [
            case("nothing else", vec![]),
            case("GET by id, 1600/s", vec![gets()]),
            case("lists of 20, 800/s", vec![paced(32, 40, lists(20))]),
            case("lists of 100, 200/s", vec![paced(8, 40, lists(100))]),
            case("lists of 500, 80/s", vec![paced(8, 100, lists(500))]),
            case(
                "GET 1600/s, creates 500/s",
                vec![gets(), paced(16, 32, store::create_requests())],
            ),
        ]
    }

    fn measure(
        &self,
        case: &ColdReadCase,
        server: &Server,
        round: usize,
    ) -> Result<ColdReadMeasurement> {
        let address = server.address;
        let before = server.disk_bytes()?;
        let health = Load {
            // Every worker thread serves some of the connections.
            connections: 8,
            pacing: Pacing::FixedInterval(Duration::from_millis(10)),
            time: self.time,
            requests: [RequestTemplate::get("/-/health")].into(),
            first_request: 0,
        };
        let (health, beside) = std::thread::scope(|scope| {
            let beside: Vec<_> = case
                .load
                .iter()
                .map(|load| Load { first_request: round * 31_337, ..load.clone() })
                .map(|load| scope.spawn(move || run_with_send_error(&load, address)))
                .collect();
            let health = report::run_without_refusals(&health, address)?;
            let beside = beside
                .into_iter()
                .map(|thread| Ok(thread.join().map_err(|_| "a client panicked")??))
                .collect::<Result<Vec<_>>>()?;
            Ok::<_, Box<dyn std::error::Error>>((health, beside))
        })?;
        Ok(ColdReadMeasurement {
            health,
            load_result: beside,
            disk_bytes: server.disk_bytes()? - before,
        })
    }
}

/// Runs a load; its error is `Send`.
fn run_with_send_error(
    load: &Load,
    address: SocketAddr,
) -> std::result::Result<LoadResult, String> {
    load.run(address).map_err(|error| error.to_string())
}

fn print(cases: &[ColdReadCase], seen: &[Vec<ColdReadMeasurement>]) -> f64 {
    println!(
        "\n{:<32} {:>8} {:>8} {:>8} {:>9} {:>9} {:>7} {:>8} {:>9}",
        "beside /-/health",
        "p50 ms",
        "p99 ms",
        "max ms",
        "req/s",
        "p99 ms",
        "503",
        "MB/s",
        "creates/s"
    );
    let mut worst = 0.0_f64;
    for (case, all) in cases.iter().zip(seen) {
        let of = |value: &dyn Fn(&ColdReadMeasurement) -> f64| {
            report::median(all.iter().map(value).collect())
        };
        let health = |share: f64| of(&|seen| micros(seen.health.percentile(share)) / 1e3);
        let rate = |at: usize| of(&|seen| seen.load_result.get(at).map_or(0.0, LoadResult::rate));
        let refused: usize =
            all.iter().flat_map(|seen| &seen.load_result).map(|done| done.refused).sum();
        worst = worst.max(health(0.99));
        println!(
            "{:<32} {:>8.2} {:>8.2} {:>8.2} {:>9.0} {:>9.2} {:>7} {:>8.1} {:>9.0}",
            case.name,
            health(0.5),
            health(0.99),
            health(1.0),
            rate(0),
            of(&|seen| seen
                .load_result
                .first()
                .map_or(0.0, |done| micros(done.percentile(0.99)) / 1e3)),
            refused,
            of(&|seen| seen.disk_bytes as f64 / 1e6 / seen.health.seconds),
            rate(1)
        );
    }
    worst
}
