//! The result table: medians, as ratios to the first row.

use std::net::SocketAddr;
use std::time::Duration;

use crate::Result;
use crate::load_generator::{Load, LoadResult, Pacing, RequestTemplates};
use crate::process::Server;

/// How often each measurement is repeated.
pub const ROUNDS: usize = 3;

/// The load that one row measures.
#[derive(Debug)]
pub struct BenchmarkCase<'a> {
    pub name: &'a str,
    pub server: &'a Server,
    pub connections: usize,
    pub requests: RequestTemplates,
}

impl<'a> BenchmarkCase<'a> {
    pub fn new(
        name: &'a str,
        server: &'a Server,
        connections: usize,
        requests: RequestTemplates,
    ) -> Self {
        Self { name, server, connections, requests }
    }
}

/// One measurement.
#[derive(Debug)]
struct Measurement {
    cpu: Duration,
    result: LoadResult,
}

/// All measurements of one case.
#[derive(Debug)]
pub struct BenchmarkRow {
    name: String,
    measurements: Vec<Measurement>,
}

/// Measures every case several times, in turn.
pub fn measure(cases: &[BenchmarkCase<'_>], time: Duration) -> Result<Vec<BenchmarkRow>> {
    let mut rows: Vec<BenchmarkRow> = cases
        .iter()
        .map(|case| BenchmarkRow { name: case.name.to_owned(), measurements: Vec::new() })
        .collect();
    for round in 0..ROUNDS {
        for (case, row) in cases.iter().zip(&mut rows) {
            row.measurements.push(case.figure(round, time)?);
        }
    }
    Ok(rows)
}

impl BenchmarkCase<'_> {
    fn figure(&self, round: usize, time: Duration) -> Result<Measurement> {
        let before = self.server.cpu_time()?;
        let load = Load {
            connections: self.connections,
            pacing: Pacing::ClosedLoop,
            time,
            requests: self.requests.clone(),
            first_request: round * 7_919,
        };
        let done = run_without_refusals(&load, self.server.address)?;
        Ok(Measurement { cpu: self.server.cpu_time()? - before, result: done })
    }

    /// One measurement of the CPU per request, in microseconds.
    pub fn cpu_us(&self, round: usize, time: Duration) -> Result<f64> {
        self.figure(round, time).map(|figure| figure.cpu_us())
    }
}

impl Measurement {
    fn cpu_us(&self) -> f64 {
        micros(self.cpu) / self.result.latencies.len().max(1) as f64
    }
}

/// Runs a load; a refused request is an error.
pub fn run_without_refusals(load: &Load, address: SocketAddr) -> Result<LoadResult> {
    let done = load.run(address)?;
    match done.refused {
        0 => Ok(done),
        refused => Err(format!("{refused} requests were answered with 503").into()),
    }
}

/// The median.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

pub fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

impl BenchmarkRow {
    fn median(&self, value: impl Fn(&Measurement) -> f64) -> f64 {
        median(self.measurements.iter().map(value).collect())
    }

    pub fn cpu_us(&self) -> f64 {
        self.median(Measurement::cpu_us)
    }

    pub fn rate(&self) -> f64 {
        self.median(|figure| figure.result.rate())
    }

    /// The ratio of the two CPU times per request: the median of the ratios of each round, which other
    /// load on the machine affects less than the ratio of two medians.
    pub fn cpu_ratio(&self, other: &Self) -> f64 {
        self.ratio(other, Measurement::cpu_us)
    }

    /// The ratio of the two throughputs, computed alike.
    pub fn rate_ratio(&self, other: &Self) -> f64 {
        self.ratio(other, |figure| figure.result.rate())
    }

    fn ratio(&self, other: &Self, value: impl Fn(&Measurement) -> f64) -> f64 {
        let rounds = self.measurements.iter().zip(&other.measurements);
        median(rounds.map(|(ours, theirs)| value(ours) / value(theirs)).collect())
    }

    fn percentile_us(&self, share: f64) -> f64 {
        self.median(|figure| micros(figure.result.percentile(share)))
    }
}

/// Prints all rows, as ratios to the first.
pub fn print(rows: &[BenchmarkRow]) {
    let Some(bare) = rows.first() else { return };
    let (cpu, rate) = (bare.cpu_us(), bare.rate());
    println!(
        "\n{:<40} {:>10} {:>7} {:>9} {:>7} {:>8} {:>8}",
        "", "CPU µs/req", "ratio", "req/s", "ratio", "p50 µs", "p99 µs"
    );
    for row in rows {
        println!(
            "{:<40} {:>10.2} {:>6.2}× {:>9.0} {:>7.3} {:>8.0} {:>8.0}",
            row.name,
            row.cpu_us(),
            row.cpu_us() / cpu,
            row.rate(),
            row.rate() / rate,
            row.percentile_us(0.5),
            row.percentile_us(0.99)
        );
    }
}

/// Prints the load average: above the number of processors, times say little.
pub fn print_machine() -> Result<()> {
    let text = std::fs::read_to_string("/proc/loadavg")?;
    let load = text.split(' ').next().unwrap_or_default();
    println!("processors: {}; load average: {load}", std::thread::available_parallelism()?);
    Ok(())
}

/// The target of a figure.
#[derive(Debug, Clone, Copy)]
pub enum Target {
    AtMost(f64),
    AtLeast(f64),
}

/// Prints each figure with its target.
pub fn judge(figures: &[(&str, f64, Target)]) {
    println!("\n{:<52} {:>9} {:>12}", "", "seen", "target");
    for (name, seen, target) in figures {
        let (words, is_met) = match *target {
            Target::AtMost(most) => (format!("at most {most}"), *seen <= most),
            Target::AtLeast(least) => (format!("at least {least}"), *seen >= least),
        };
        let verdict = if is_met { "" } else { "  missed" };
        println!("{name:<52} {seen:>9.2} {words:>14}{verdict}");
    }
}
