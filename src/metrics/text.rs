//! The Prometheus text format, version 0.0.4.
//!
//! It formats lines and does not know what is counted. Names and label values are ours or the model's:
//! nothing in them needs escaping. A family has its HELP and TYPE lines also when it has no samples, so that
//! every server prints the same list of families.

use std::fmt::{Display, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use super::instruments::{Counter, Gauge, Histogram, HistogramSnapshot};

pub type Labels<'a> = [(&'a str, &'a str)];

/// A number, or several, that can be written as samples.
pub trait Sample {
    fn write(&self, text: &mut PrometheusText, labels: &Labels<'_>);
}

macro_rules! plain_samples {
    ($($type:ty)*) => {
        $(impl Sample for $type {
            fn write(&self, text: &mut PrometheusText, labels: &Labels<'_>) {
                text.sample(labels, self);
            }
        })*
    };
}
plain_samples! { usize u64 i64 f64 }

impl Sample for Counter {
    fn write(&self, text: &mut PrometheusText, labels: &Labels<'_>) {
        text.sample(labels, self.value());
    }
}

impl Sample for Gauge {
    fn write(&self, text: &mut PrometheusText, labels: &Labels<'_>) {
        text.sample(labels, self.value());
    }
}

impl Sample for AtomicBool {
    fn write(&self, text: &mut PrometheusText, labels: &Labels<'_>) {
        text.sample(labels, u8::from(self.load(Ordering::Relaxed)));
    }
}

impl Sample for Histogram {
    fn write(&self, text: &mut PrometheusText, labels: &Labels<'_>) {
        let seen = Histogram::snapshot([self]);
        seen.iter().for_each(|seen| text.histogram(labels, seen));
    }
}

impl<T: Sample> Sample for Option<T> {
    fn write(&self, text: &mut PrometheusText, labels: &Labels<'_>) {
        if let Some(sample) = self {
            sample.write(text, labels);
        }
    }
}

impl Sample for OnceLock<Gauge> {
    fn write(&self, text: &mut PrometheusText, labels: &Labels<'_>) {
        if let Some(gauge) = self.get() {
            gauge.write(text, labels);
        }
    }
}

/// A text under construction. Writing to a `String` cannot fail.
#[derive(Debug)]
pub struct PrometheusText {
    out: String,
    name: &'static str,
}

impl PrometheusText {
    pub fn with_capacity(bytes: usize) -> Self {
        Self { out: String::with_capacity(bytes), name: "" }
    }

    pub fn finish(self) -> String {
        self.out
    }

    /// Begins a family: the samples that follow belong to it.
    pub fn family(&mut self, name: &'static str, kind: &str, help: &str) {
        self.name = name;
        let _ = write!(self.out, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
    }

    pub fn sample(&mut self, labels: &Labels<'_>, value: impl Display) {
        self.write_line("", labels, None, &value);
    }

    pub fn histogram(&mut self, labels: &Labels<'_>, seen: &HistogramSnapshot) {
        for (bound, count) in seen.cumulative() {
            self.write_line("_bucket", labels, Some(&bound), &count);
        }
        self.write_line("_bucket", labels, Some(&"+Inf"), &seen.count());
        self.write_line("_sum", labels, None, &seen.sum());
        self.write_line("_count", labels, None, &seen.count());
    }

    fn write_line(
        &mut self,
        end: &str,
        labels: &Labels<'_>,
        le: Option<&dyn Display>,
        value: &dyn Display,
    ) {
        let (out, name) = (&mut self.out, self.name);
        let _ = write!(out, "{name}{end}");
        let mut before = '{';
        for (label, value) in labels {
            let _ = write!(out, "{before}{label}=\"{value}\"");
            before = ',';
        }
        if let Some(le) = le {
            let _ = write!(out, "{before}le=\"{le}\"");
            before = ',';
        }
        if before == ',' {
            out.push('}');
        }
        let _ = writeln!(out, " {value}");
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::super::instruments::BatchHistogram;
    use super::*;

    #[test]
    fn prometheus_text_lines() {
        let mut text = PrometheusText::with_capacity(64);
        text.family("a_total", "counter", "Of a.");
        text.sample(&[], 3);
        text.family("b", "gauge", "Of b.");
        text.sample(&[("x", "1"), ("y", "-")], 0.5);
        None::<u64>.write(&mut text, &[]);
        text.family("c", "histogram", "Of c.");
        let histogram = BatchHistogram::default();
        histogram.observe(3);
        histogram.observe(600);
        histogram.write(&mut text, &[("x", "1")]);
        expect![[r#"
            # HELP a_total Of a.
            # TYPE a_total counter
            a_total 3
            # HELP b Of b.
            # TYPE b gauge
            b{x="1",y="-"} 0.5
            # HELP c Of c.
            # TYPE c histogram
            c_bucket{x="1",le="1"} 0
            c_bucket{x="1",le="2"} 0
            c_bucket{x="1",le="4"} 1
            c_bucket{x="1",le="8"} 1
            c_bucket{x="1",le="16"} 1
            c_bucket{x="1",le="32"} 1
            c_bucket{x="1",le="64"} 1
            c_bucket{x="1",le="128"} 1
            c_bucket{x="1",le="256"} 1
            c_bucket{x="1",le="512"} 1
            c_bucket{x="1",le="+Inf"} 2
            c_sum{x="1"} 603
            c_count{x="1"} 2
        "#]]
        .assert_eq(&text.finish());
    }
}
