//! Fuzz target: `Accept`, `Accept-Encoding` and `Content-Type`, as a differential test against a second
//! parser.
//!
//! The second parser is written from the grammar of RFC 9110 with regular expressions, slow and copying; it
//! shares no code with the product. It is lenient in the same way on purpose: a malformed element is skipped,
//! and if none is left there is no preference.

use std::sync::LazyLock;

use http::HeaderValue;
use regex::Regex;

use crate::formats::accept::{self, MediaType};
use crate::formats::coding;

/// Elements after these are ignored.
const ELEMENTS_MAX: usize = 64;

const OFFERS: &[&[MediaType]] = &[
    &[media("application/json", &[])],
    &[media("application/problem+json", &[]), media("application/json", &[])],
    &[
        media("text/csv", &[]),
        media("text/csv", &[("header", "absent")]),
        media("text/html", &[("level", "1"), ("profile", "a b")]),
        media("application/json", &[]),
    ],
    &[],
];

const fn media(
    essence: &'static str,
    parameters: &'static [(&'static str, &'static str)],
) -> MediaType {
    MediaType { essence, parameters }
}

pub fn accept(data: &[u8]) {
    let lines: Vec<&[u8]> = data.split(|byte| *byte == b'\n').collect();
    // A header cannot contain these bytes.
    if lines.iter().any(|line| HeaderValue::from_bytes(line).is_err()) {
        return;
    }
    // Latin-1: each byte becomes one character, so that nothing is lost and nothing is invalid.
    let texts: Vec<String> =
        lines.iter().map(|line| line.iter().map(|byte| char::from(*byte)).collect()).collect();
    let parsed = accept::parse(lines.iter().copied());
    for offered in OFFERS {
        let (ours, theirs) = (parsed.choose(*offered), choose(&texts, offered));
        assert_eq!(ours, theirs, "{texts:?} of {offered:?}");
    }
    let ours = coding::choose(lines.iter().copied());
    let ours = ours.map(|choice| (choice.name(), choice.applies_to(1)));
    let theirs = choose_coding(&texts);
    assert_eq!(ours, theirs.map(|(name, is_always)| (HeaderValue::from_static(name), is_always)));
    if let Some(line) = lines.first().and_then(|line| str::from_utf8(line).ok()) {
        let theirs = WHOLE.captures(line).map(|found| {
            let essence = format!("{}/{}", &found["kind"], &found["subtype"]);
            let charsets = parameters(&found["parameters"]).into_iter();
            let mut charsets = charsets.filter(|(name, _)| name == "charset");
            let is_utf8 = charsets.all(|(_, value)| value == "utf-8" || value == "utf8");
            (essence.eq_ignore_ascii_case("application/json"), is_utf8)
        });
        let ours = accept::parse_content_type(line)
            .map(|ours| (ours.has_essence("application/json"), ours.is_utf8()));
        assert_eq!(ours, theirs, "{line:?}");
    }
}

const TOKEN: &str = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+";
const QUOTED: &str = r#""(?:[^"\\]|\\.)*""#;

fn compile_pattern(pattern: &str) -> Regex {
    let pattern = pattern.replace("TOKEN", TOKEN).replace("QUOTED", QUOTED);
    // A pattern that does not compile is a bug in the target.
    Regex::new(&format!("(?s){pattern}")).unwrap_or_else(|error| unreachable!("{error}"))
}

/// One element of a list; an unterminated quoted string runs to the end.
static ELEMENT: LazyLock<Regex> =
    LazyLock::new(|| compile_pattern(r#"(?:[^",]|"(?:[^"\\]|\\.)*(?:"|\\?$))+"#));
static RANGE: LazyLock<Regex> = LazyLock::new(|| {
    compile_pattern(
        r"^(?<kind>TOKEN)(?:/(?<subtype>TOKEN))?(?<parameters>(?:[ \t]*;[ \t]*(?:TOKEN=(?:TOKEN|QUOTED))?)*)[ \t]*$",
    )
});
static WHOLE: LazyLock<Regex> = LazyLock::new(|| {
    compile_pattern(
        r"^[ \t]*(?<kind>TOKEN)/(?<subtype>TOKEN)(?<parameters>(?:[ \t]*;[ \t]*(?:TOKEN=(?:TOKEN|QUOTED))?)*)[ \t]*$",
    )
});
static PARAMETER: LazyLock<Regex> =
    LazyLock::new(|| compile_pattern(r"(?<name>TOKEN)=(?:(?<token>TOKEN)|(?<quoted>QUOTED))"));
static ESCAPED: LazyLock<Regex> = LazyLock::new(|| compile_pattern(r"\\(.)"));
static WEIGHT: LazyLock<Regex> =
    LazyLock::new(|| compile_pattern(r"^(?:0(?:\.[0-9]{0,3})?|\.[0-9]{1,3}|1(?:\.0{0,3})?)$"));

static CODING: LazyLock<Regex> = LazyLock::new(|| {
    compile_pattern(
        r"^(?<name>TOKEN)(?<parameters>(?:[ \t]*;[ \t]*(?:TOKEN=(?:TOKEN|QUOTED))?)*)[ \t]*$",
    )
});

/// Names and values in lower case, since they are compared without regard to case.
fn parameters(text: &str) -> Vec<(String, String)> {
    let found = PARAMETER.captures_iter(text).map(|found| {
        let value = match (found.name("token"), found.name("quoted")) {
            (Some(token), _) => token.as_str().to_owned(),
            (None, Some(quoted)) => {
                let inner = quoted.as_str().trim_start_matches('"');
                let inner = inner.strip_suffix('"').unwrap_or(inner);
                ESCAPED.replace_all(inner, "$1").into_owned()
            }
            (None, None) => String::new(),
        };
        (found["name"].to_ascii_lowercase(), value.to_ascii_lowercase())
    });
    found.collect()
}

/// A media range and its weight.
struct WeightedRange {
    essence: String,
    parameters: Vec<(String, String)>,
    weight: f64,
}

fn parse_range(element: &str) -> Option<WeightedRange> {
    let found = RANGE.captures(element)?;
    let kind = found["kind"].to_ascii_lowercase();
    let subtype = match found.name("subtype") {
        Some(subtype) => subtype.as_str().to_ascii_lowercase(),
        None if kind == "*" => "*".to_owned(),
        None => return None,
    };
    if kind == "*" && subtype != "*" {
        return None;
    }
    let mut parameters = parameters(&found["parameters"]);
    let weight = match parameters.iter().position(|(name, _)| name == "q") {
        None => 1.0,
        Some(at) => {
            let (_, text) = parameters.remove(at);
            WEIGHT.find(&text)?;
            text.parse().ok()?
        }
    };
    Some(WeightedRange { essence: format!("{kind}/{subtype}"), parameters, weight })
}

fn choose(lines: &[String], offered: &[MediaType]) -> Option<usize> {
    let elements = lines.iter().flat_map(|line| ELEMENT.find_iter(line));
    let elements = elements.map(|found| found.as_str().trim_matches([' ', '\t']));
    let elements = elements.filter(|element| !element.is_empty()).take(ELEMENTS_MAX);
    let liked: Vec<WeightedRange> = elements.filter_map(parse_range).collect();
    if liked.is_empty() {
        return (!offered.is_empty()).then_some(0);
    }
    let weights: Vec<f64> = offered.iter().map(|media| weight_of(&liked, media)).collect();
    let best = weights.iter().copied().fold(0.0, f64::max);
    let chosen = weights.iter().position(|weight| *weight == best).filter(|_| best > 0.0);
    chosen.or_else(|| {
        offered.iter().position(|media| accepts_json_with_unknown_parameters(&liked, media))
    })
}

/// Whether only JSON with unknown parameters is accepted, which gets plain JSON unless that is refused by name;
/// a charset other than UTF-8 does not count.
fn accepts_json_with_unknown_parameters(liked: &[WeightedRange], media: &MediaType) -> bool {
    let is_utf8 = |(name, value): &(String, String)| {
        name == "charset" && (value == "utf-8" || value == "utf8")
    };
    let is_other = |parameter: &(String, String)| parameter.0 == "charset" && !is_utf8(parameter);
    let mut named = liked.iter().filter(|range| range.essence == media.essence);
    ["application/json", "application/problem+json"].contains(&media.essence)
        && named.clone().all(|range| range.weight > 0.0 || !range.parameters.iter().all(is_utf8))
        && named.any(|range| range.weight > 0.0 && !range.parameters.iter().any(is_other))
}

/// RFC 9110 §12.5.1: the most specific range counts; of two equally specific ones, the higher weight.
fn weight_of(liked: &[WeightedRange], media: &MediaType) -> f64 {
    let any_subtype = format!("{}/*", media.essence.split('/').next().unwrap_or_default());
    let mut closest = (-1, 0.0);
    for range in liked {
        let closeness = match &range.essence {
            essence if essence == media.essence => 2,
            essence if *essence == any_subtype => 1,
            essence if essence == "*/*" => 0,
            _ => continue,
        };
        let is_met = range.parameters.iter().all(|(name, value)| {
            let is_utf8 = name == "charset" && (value == "utf-8" || value == "utf8");
            is_utf8 || media.parameters.iter().any(|(n, v)| n == name && v == value)
        });
        if !is_met {
            continue;
        }
        // No list has as many parameters.
        let closeness = closeness * 100_000 + i32::try_from(range.parameters.len()).unwrap_or(0);
        if closeness > closest.0 || (closeness == closest.0 && range.weight > closest.1) {
            closest = (closeness, range.weight);
        }
    }
    closest.1
}

/// RFC 9110 §12.5.3: the coding with the highest weight, and whether identity is refused.
fn choose_coding(lines: &[String]) -> Option<(&'static str, bool)> {
    let elements = lines.iter().flat_map(|line| ELEMENT.find_iter(line));
    let elements = elements.map(|found| found.as_str().trim_matches([' ', '\t']));
    let elements = elements.filter(|element| !element.is_empty()).take(ELEMENTS_MAX);
    let mut liked: Vec<(String, f64)> = Vec::new();
    for found in elements.filter_map(|element| CODING.captures(element)) {
        let name = found["name"].to_ascii_lowercase();
        let name = if name == "x-gzip" { "gzip".to_owned() } else { name };
        match parameters(&found["parameters"]).as_slice() {
            [] => liked.push((name, 1.0)),
            [(q, text)] if q == "q" && WEIGHT.is_match(text) => {
                liked.extend(text.parse().ok().map(|weight| (name, weight)));
            }
            _ => {}
        }
    }
    let named = |name: &str| {
        let weights = liked.iter().filter(|(known, _)| known == name).map(|(_, weight)| *weight);
        weights.reduce(f64::max)
    };
    let weight = |name| named(name).or(named("*"));
    let is_refused = weight("identity") == Some(0.0);
    let plain = weight("identity").unwrap_or(0.0);
    let mut ours = ["zstd", "gzip"];
    if named("zstd").is_none() {
        ours.reverse();
    }
    let best = ours.iter().filter_map(|name| weight(name)).fold(0.0, f64::max);
    let chosen = ours.into_iter().find(|name| weight(name) == Some(best));
    chosen.filter(|_| best > 0.0 && best >= plain).map(|name| (name, is_refused))
}
