//! The table: medians, as ratios to the first row.

use std::time::Duration;

use crate::load::Done;

/// One measurement.
#[derive(Debug)]
pub struct Figure {
    pub cpu: Duration,
    pub done: Done,
}

/// All measurements of one case.
#[derive(Debug)]
pub struct Row {
    name: String,
    pub figures: Vec<Figure>,
}

impl Row {
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned(), figures: Vec::new() }
    }

    fn median(&self, value: impl Fn(&Figure) -> f64) -> f64 {
        let mut values: Vec<f64> = self.figures.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
    }

    fn cpu_us(&self) -> f64 {
        self.median(|figure| {
            figure.cpu.as_secs_f64() * 1e6 / figure.done.latencies.len().max(1) as f64
        })
    }

    fn rate(&self) -> f64 {
        self.median(|figure| figure.done.latencies.len() as f64 / figure.done.seconds)
    }

    fn percentile_us(&self, share: f64) -> f64 {
        self.median(|figure| {
            let mut latencies = figure.done.latencies.clone();
            latencies.sort_unstable();
            let at = (latencies.len() as f64 * share) as usize;
            latencies
                .get(at.min(latencies.len().saturating_sub(1)))
                .map_or(f64::NAN, |time| time.as_secs_f64() * 1e6)
        })
    }
}

pub fn print(rows: &[Row]) {
    let Some(bare) = rows.first() else { return };
    let (cpu, rate) = (bare.cpu_us(), bare.rate());
    println!(
        "\n{:<34} {:>10} {:>7} {:>10} {:>7} {:>8} {:>8}",
        "", "CPU µs/req", "ratio", "req/s", "ratio", "p50 µs", "p99 µs"
    );
    for row in rows {
        println!(
            "{:<34} {:>10.2} {:>6.2}× {:>10.0} {:>7.2} {:>8.0} {:>8.0}",
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
