//! A strict parser of the Prometheus text format, version 0.0.4.
//!
//! It is written from the description of the format and knows nothing of the server's metrics.
//! It is stricter than Prometheus. Each family occurs once, complete and with its help text, a
//! counter ends in `_total`, and no series occurs twice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use regex::Regex;

// Compiled once: in a debug build that takes long, and a scrape has hundreds of samples.
static SAMPLE: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r#"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? ([^ ]+)$"#).unwrap());
static LABEL: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r#"^([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\[\\"n])*)"(,|$)"#).unwrap()
});

/// One scrape.
#[derive(Debug)]
pub struct Scrape {
    pub families: Vec<Family>,
}

#[derive(Debug)]
pub struct Family {
    pub name: String,
    pub help: String,
    pub kind: String,
    pub samples: Vec<Sample>,
}

#[derive(Debug)]
pub struct Sample {
    pub name: String,
    pub labels: BTreeMap<String, String>,
    pub value: f64,
}

impl Scrape {
    /// Parses a text; fails where it breaks a rule.
    pub fn read(text: &str) -> Self {
        assert!(text.ends_with('\n') && !text.contains(['\r', '\t']), "{text}");
        let mut families: Vec<Family> = Vec::new();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, help) = rest.split_once(' ').unwrap_or_else(|| panic!("{line}"));
                assert!(!families.iter().any(|family| family.name == name), "twice: {line}");
                assert!(!help.is_empty() && !help.contains('\\'), "{line}");
                let (name, help) = (name.to_owned(), help.to_owned());
                families.push(Family { name, help, kind: String::new(), samples: Vec::new() });
                continue;
            }
            let family = families.last_mut().unwrap_or_else(|| panic!("of no family: {line}"));
            match line.strip_prefix("# TYPE ") {
                Some(rest) => {
                    let kind = rest.strip_prefix(&format!("{} ", family.name)).expect(line);
                    assert!(["counter", "gauge", "histogram"].contains(&kind), "{line}");
                    assert!(family.kind.is_empty() && family.samples.is_empty(), "{line}");
                    kind.clone_into(&mut family.kind);
                }
                None => family.samples.push(Sample::read(line)),
            }
        }
        families.iter().for_each(Family::check);
        Self { families }
    }

    pub fn family(&self, name: &str) -> &Family {
        let found = self.families.iter().find(|family| family.name == name);
        found.unwrap_or_else(|| panic!("no family {name}"))
    }

    /// The value of a sample without labels, if there is one.
    pub fn get(&self, name: &str) -> Option<f64> {
        let samples = self.families.iter().flat_map(|family| &family.samples);
        let mut found = samples.filter(|sample| sample.name == name && sample.labels.is_empty());
        found.next().map(|sample| sample.value)
    }

    pub fn value(&self, name: &str) -> f64 {
        self.get(name).unwrap_or_else(|| panic!("no sample {name}"))
    }
}

impl Sample {
    fn read(line: &str) -> Self {
        let found = SAMPLE.captures(line).unwrap_or_else(|| panic!("no sample: {line}"));
        let mut labels = BTreeMap::new();
        let mut rest = found.get(2).map_or("", |inside| inside.as_str());
        assert!(found.get(2).is_none_or(|inside| !inside.is_empty()), "{line}");
        while !rest.is_empty() {
            let found = LABEL.captures(rest).unwrap_or_else(|| panic!("no label: {rest}: {line}"));
            let is_new = labels.insert(found[1].to_owned(), found[2].to_owned()).is_none();
            assert!(is_new, "a label comes twice: {line}");
            rest = &rest[found[0].len()..];
        }
        let value: f64 = found[3].parse().unwrap_or_else(|_| panic!("no number: {line}"));
        assert!(value.is_finite(), "{line}");
        Self { name: found[1].to_owned(), labels, value }
    }
}

impl Family {
    fn check(&self) {
        let name = &self.name;
        assert!(!self.kind.is_empty(), "{name} has no type");
        assert_eq!(self.kind == "counter", name.ends_with("_total"), "{name}: {}", self.kind);
        let mut seen = BTreeSet::new();
        for sample in &self.samples {
            let is_ours = match self.kind.as_str() {
                "histogram" => ["_bucket", "_sum", "_count"]
                    .iter()
                    .any(|end| sample.name == format!("{name}{end}")),
                _ => sample.name == *name && !sample.labels.contains_key("le"),
            };
            assert!(is_ours, "not of {name}: {sample:?}");
            assert!(sample.value >= 0.0, "{sample:?}");
            assert!(seen.insert((&sample.name, &sample.labels)), "twice: {sample:?}");
        }
        if self.kind == "histogram" {
            self.check_histogram();
        }
    }

    /// Bounds and counts increase, the last bound is +Inf and counts everything.
    fn check_histogram(&self) {
        let mut by_labels: BTreeMap<_, Vec<&Sample>> = BTreeMap::new();
        for sample in &self.samples {
            let mut labels = sample.labels.clone();
            labels.remove("le");
            by_labels.entry(labels).or_default().push(sample);
        }
        for samples in by_labels.values() {
            let of = |end: &str| {
                let name = format!("{}{end}", self.name);
                samples.iter().filter(|sample| sample.name == name).collect::<Vec<_>>()
            };
            let (buckets, sums, counts) = (of("_bucket"), of("_sum"), of("_count"));
            assert!(buckets.len() > 2 && sums.len() == 1 && counts.len() == 1, "{samples:?}");
            let bounds: Vec<f64> =
                buckets.iter().map(|bucket| bucket.labels["le"].parse().unwrap()).collect();
            assert!(bounds.is_sorted_by(|one, next| one < next), "{bounds:?}");
            assert_eq!(bounds.last(), Some(&f64::INFINITY));
            assert!(buckets.is_sorted_by_key(|bucket| bucket.value), "{buckets:?}");
            assert_eq!(buckets.last().unwrap().value, counts[0].value);
        }
    }
}

#[test]
fn metrics_parser_refuses_malformed_text() {
    let good = "# HELP a_total A.\n# TYPE a_total counter\na_total{x=\"1\",y=\"\\\"\"} 2\n";
    assert_eq!(Scrape::read(good).family("a_total").samples[0].value, 2.0);
    let histogram = "# HELP h H.\n# TYPE h histogram\nh_bucket{le=\"1\"} 1\nh_bucket{le=\"2\"} 1\nh_bucket{le=\"+Inf\"} 2\nh_sum 3\nh_count 2\n";
    assert_eq!(Scrape::read(histogram).value("h_count"), 2.0);
    let bad = [
        good.trim_end().to_owned(),
        format!("{good}{good}"),
        good.replace("a_total counter", "a_total thing"),
        good.replace("# TYPE a_total counter\n", ""),
        good.replace("a_total{", "b_total{"),
        good.replace(" 2", " two"),
        good.replace(" 2", " -2"),
        good.replace(" 2", "  2"),
        good.replace("y=", "x="),
        good.replace("\"1\"", "1"),
        good.replace("\\\"", "\\x"),
        good.replace("{x=\"1\",y=\"\\\"\"}", "{}"),
        good.replace("counter", "gauge"),
        histogram.replace("h_count 2", "h_count 3"),
        histogram.replace("\"2\"} 1", "\"2\"} 0"),
        histogram.replace("le=\"2\"", "le=\"0.5\""),
        histogram.replace("h_bucket{le=\"+Inf\"} 2\n", ""),
        histogram.replace("h_sum 3\n", ""),
    ];
    for text in bad {
        assert!(std::panic::catch_unwind(|| Scrape::read(&text)).is_err(), "{text}");
    }
}
