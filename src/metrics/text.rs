//! The Prometheus text format, version 0.0.4.
//!
//! It formats lines and does not know what is counted. Names and label values are ours or the model's:
//! nothing in them needs escaping. A family has its HELP and TYPE lines also when it has no samples, so that
//! every server prints the same list of families.

use std::fmt::{Display, Write};

use super::instruments::{Histogram, HistogramSnapshot};

/// The type of a metric family.
#[derive(Debug, Clone, Copy)]
pub enum MetricKind {
    Counter,
    Gauge,
    Histogram,
}

impl MetricKind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

type Labels<'a> = [(&'a str, &'a str)];

/// A text under construction. Writing to a `String` cannot fail.
#[derive(Debug, Default)]
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
    pub fn family(&mut self, name: &'static str, kind: MetricKind, help: &str) -> &mut Self {
        self.name = name;
        let kind = kind.as_str();
        let _ = write!(self.out, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
        self
    }

    pub fn sample(&mut self, labels: &Labels<'_>, value: impl Display) -> &mut Self {
        self.write_line("", labels, None, &value);
        self
    }

    /// A sample that not every server has.
    pub fn optional(&mut self, value: Option<impl Display>) -> &mut Self {
        if let Some(value) = value {
            self.sample(&[], value);
        }
        self
    }

    pub fn optional_histogram(&mut self, histogram: Option<&Histogram>) -> &mut Self {
        if let Some(seen) = HistogramSnapshot::merge(histogram) {
            self.histogram(&[], &seen);
        }
        self
    }

    pub fn histogram(&mut self, labels: &Labels<'_>, seen: &HistogramSnapshot) -> &mut Self {
        for (bound, count) in seen.cumulative() {
            self.write_line("_bucket", labels, Some(&seen.scale.to_unit(bound)), &count);
        }
        self.write_line("_bucket", labels, Some(&"+Inf"), &seen.count());
        self.write_line("_sum", labels, None, &seen.scale.to_unit(seen.sum));
        self.write_line("_count", labels, None, &seen.count());
        self
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

    use super::super::instruments::{GROUP_SIZE_BUCKETS, Histogram};
    use super::*;

    #[test]
    fn prometheus_text_lines() {
        let mut text = PrometheusText::with_capacity(64);
        text.family("a_total", MetricKind::Counter, "Of a.").sample(&[], 3);
        text.family("b", MetricKind::Gauge, "Of b.").sample(&[("x", "1"), ("y", "-")], 0.5);
        text.family("c", MetricKind::Histogram, "Of c.");
        let histogram = Histogram::new(&GROUP_SIZE_BUCKETS);
        histogram.observe(3);
        histogram.observe(600);
        text.histogram(&[("x", "1")], &HistogramSnapshot::merge([&histogram]).unwrap());
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
