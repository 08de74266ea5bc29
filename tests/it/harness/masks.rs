//! Masks: placeholders for values that differ from run to run.
//!
//! They hide no header and no member, only values, and number them by their first appearance, so that a
//! snapshot still shows which two values are equal.
//! An ETag keeps its version, `"2-<tag-1>"`: that part does not vary. The tag of a list does not keep
//! its number, which may differ from one backend to the other.

use regex::{Captures, Regex};
use std::sync::LazyLock;

use super::Answer;

/// The rules, in this order: name, and an expression whose group `v` is the value.
const RULES: &[(&str, &str)] = &[
    (
        "date",
        r"(?P<v>(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d GMT)",
    ),
    ("request", r#"(?i:x-request-id: |"request_id":\s?")(?P<v>[0-9A-Za-z_-]+)"#),
    ("cursor", r#"(?:cursor=|"next":\s?")(?P<v>[0-9A-Za-z_.~%-]+)"#),
    ("id", r"(?P<v>\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b)"),
    ("time", r"(?P<v>\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z)"),
    ("tag", r#"(?i:etag: W/"|etag: "(?:\d+-)?)(?P<v>[0-9A-Za-z_-]+)""#),
    ("port", r"(?:127\.0\.0\.1|localhost|\[::1\]):(?P<v>\d{4,5})\b"),
];

static COMPILED: LazyLock<Vec<(&str, Regex)>> =
    LazyLock::new(|| RULES.iter().map(|(name, rule)| (*name, Regex::new(rule).unwrap())).collect());

/// The values seen so far: use one `Masks` for several responses to number them together.
#[derive(Debug, Clone, Default)]
pub struct Masks {
    seen: Vec<(&'static str, String)>,
}

impl Masks {
    pub fn answer(&mut self, answer: &Answer) -> String {
        self.text(&answer.to_string())
    }

    pub fn text(&mut self, text: &str) -> String {
        COMPILED.iter().fold(text.to_owned(), |text, (name, rule)| {
            let replaced = rule.replace_all(&text, |found: &Captures<'_>| {
                let (whole, value) = (found.get(0).unwrap(), found.name("v").unwrap());
                let (front, back) =
                    (&text[whole.start()..value.start()], &text[value.end()..whole.end()]);
                format!("{front}{}{back}", self.placeholder(name, value.as_str()))
            });
            replaced.into_owned()
        })
    }

    /// The values that were given a number, by their first appearance.
    pub fn values(&self) -> impl Iterator<Item = &str> {
        self.seen.iter().map(|(_, value)| value.as_str())
    }

    fn placeholder(&mut self, name: &'static str, value: &str) -> String {
        // Equal dates are a coincidence, and ports mean nothing: numbers would only be noise.
        if matches!(name, "date" | "port") {
            return format!("<{name}>");
        }
        let of_kind = || self.seen.iter().filter(|(kind, _)| *kind == name);
        let number = match of_kind().position(|(_, known)| known == value) {
            Some(index) => index + 1,
            None => {
                let count = of_kind().count();
                self.seen.push((name, value.to_owned()));
                count + 1
            }
        };
        format!("<{name}-{number}>")
    }
}

#[cfg(test)]
mod tests {
    use super::Masks;

    #[test]
    fn masks_equal_values_get_equal_names() {
        let a = "0190e5d0-0000-7000-8000-000000000001";
        let b = "0190e5d0-0000-7000-8000-000000000002";
        let masked = Masks::default().text(&format!("{a} {b} {a}"));
        assert_eq!(masked, "<id-1> <id-2> <id-1>");
    }

    #[test]
    fn masks_keep_headers_and_members_visible() {
        let text = "ETag: \"2-ab12\"\nDate: Sun, 15 Nov 2026 02:28:14 GMT\nX-Request-Id: 01jcq\nHost: 127.0.0.1:43210\n\n\
            {\"request_id\":\"01jcq\",\"at\":\"2026-11-15T02:28:14.000000Z\",\"page\":{\"next\":\"abc\"}}";
        let masked = "ETag: \"2-<tag-1>\"\nDate: <date>\nX-Request-Id: <request-1>\nHost: 127.0.0.1:<port>\n\n\
            {\"request_id\":\"<request-1>\",\"at\":\"<time-1>\",\"page\":{\"next\":\"<cursor-1>\"}}";
        assert_eq!(Masks::default().text(text), masked);
    }
}
