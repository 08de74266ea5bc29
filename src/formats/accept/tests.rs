//! Tests of content negotiation: the RFC's examples, and headers of real clients.

use proptest::prelude::*;

use super::*;

const fn plain(essence: &'static str) -> MediaType {
    MediaType { essence, parameters: &[] }
}

const OFFERED: &[MediaType] = &[
    plain("application/json"),
    plain("text/html"),
    plain("text/csv"),
    MediaType { essence: "text/csv", parameters: &[("header", "absent")] },
];

fn chosen(lines: &[&str]) -> Option<usize> {
    parse(lines.iter().map(|line| line.as_bytes())).choose(OFFERED)
}

fn check(line: &str, expected: Option<&str>) {
    assert_eq!(chosen(&[line]).map(|index| OFFERED[index].essence), expected, "{line}");
}

#[test]
fn accept_of_common_clients() {
    assert_eq!(chosen(&[]), Some(0));
    check("*/*", Some("application/json"));
    check("application/json", Some("application/json"));
    check("application/json, text/plain, */*", Some("application/json"));
    check("application/json, text/javascript, */*; q=0.01", Some("application/json"));
    check("image/png, *;q=.2", Some("application/json"));
    check("application/json; charset=utf-8", Some("application/json"));
    check("text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2", Some("text/html"));
    let chrome = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,image/apng,*/*;q=0.8,application/signed-exchange;v=b3;q=0.7";
    check(chrome, Some("text/html"));
    let firefox = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
    check(firefox, Some("text/html"));
    let without_html = &[plain("application/json")];
    for line in [chrome, firefox, "text/html, image/gif, image/jpeg, *; q=.2, */*; q=.2"] {
        assert_eq!(parse([line.as_bytes()]).choose(without_html), Some(0), "{line}");
    }
}

#[test]
fn accept_more_specific_range_wins() {
    // RFC 9110 §12.5.1, the example with weights 1, 0.7, 0.3, 0.4 and 0.5.
    let accept =
        parse([b"text/*;q=0.3, text/plain;q=0.7, text/plain;format=flowed, text/plain;format=fixed;q=0.4, */*;q=0.5"
            .as_slice()]);
    let of = |media| weight_of(&accept.0, &media);
    assert_eq!(of(MediaType { essence: "text/plain", parameters: &[("format", "flowed")] }), 1000);
    assert_eq!(of(plain("text/plain")), 700);
    assert_eq!(of(plain("text/html")), 300);
    assert_eq!(of(plain("image/jpeg")), 500);
    assert_eq!(of(MediaType { essence: "text/plain", parameters: &[("format", "fixed")] }), 400);
    assert_eq!(of(MediaType { essence: "text/plain", parameters: &[("format", "other")] }), 700);

    check("*/*, application/json;q=0", Some("text/html"));
    check("text/*, text/html;q=0.5", Some("text/csv"));
    check("text/csv;q=0.5, text/csv;header=absent", Some("text/csv"));
    assert_eq!(chosen(&["text/csv;q=0.5, text/csv;header=absent"]), Some(3));
    assert_eq!(chosen(&["text/csv;q=0.5", "text/csv; Header=\"a\\bsent\" ; Q=1"]), Some(3));
}

#[test]
fn accept_weights_order_types_and_zero_excludes() {
    check("text/html;q=0.5, application/json;q=0.4", Some("text/html"));
    check("text/html;q=0.001, application/json;q=0.002", Some("application/json"));
    check("text/html;q=0.5, application/json;q=0.5", Some("application/json"));
    check("audio/*; q=0.2, audio/basic", None);
    check("*/*;q=0", None);
    check("application/json;q=0.000", None);
    check("text/html;q=0, application/json;q=0, text/*", Some("text/csv"));
    check("application/json;level=1", Some("application/json"));
    check("application/json;level=1;q=0", None);
    check("text/html;level=1", None);
    check("application/json;charset=latin1", None);
    check("TEXT/HTML", Some("text/html"));
    check(" \ttext/html\t;\tq=1.000 ,", Some("text/html"));
    check("text/html;q=0.3;q=1", None);
    check("application/json;q=0, application/json", Some("application/json"));
    // A less specific range never overrides a more specific one, in any order.
    check("*/*;q=1, application/json;q=0.1, text/html;q=0.2, text/csv;q=0", Some("text/html"));
    check("text/*;q=0, text/html;q=0.1, application/json;q=0.05", Some("text/html"));
    check("text/html;q=0.1, text/*;q=0.9", Some("text/csv"));
    check("application/*;q=0.2, text/*;q=0.1, */*;q=0.9", Some("application/json"));
    // All types but one; their order in the header does not matter.
    check("text/csv, text/html, application/json", Some("application/json"));
    check("text/csv;q=0.5, application/*;q=0.5", Some("application/json"));
    check("application/json;q=1.000, text/html;q=1", Some("application/json"));
    check("application/json;q=0.999, text/html", Some("text/html"));
    // A parameter that no representation has does not match; the charset of all of them is UTF-8.
    check("application/json;profile=x, text/html;q=0.1", Some("text/html"));
    check("text/html;charset=UTF-8;q=0.1, application/json;q=0.05", Some("text/html"));
    check("text/csv;header=absent;q=0.2, text/csv;q=0.1", Some("text/csv"));
}

#[test]
fn accept_malformed_elements_are_skipped() {
    check("", Some("application/json"));
    check(" , ,", Some("application/json"));
    check("json", Some("application/json"));
    check("*/html", Some("application/json"));
    check("application/json;q=2, text/html", Some("text/html"));
    check("application/json;q=0.1234, text/html", Some("text/html"));
    check("application/json;q=, text/html", Some("text/html"));
    check("application/json;q=., text/html", Some("text/html"));
    check("application/json;q=-1, text/html", Some("text/html"));
    check("application/json;q=1.001, text/html;q=0.1", Some("text/html"));
    check("application/json;q=\"0.5\", text/html;q=0.1", Some("application/json"));
    check("application/json;q =1, text/html;q=0.1", Some("text/html"));
    check("application/json;, text/html;q=0.1", Some("application/json"));
    check("application/json;q=+0, text/html", Some("text/html"));
    check("application/json q=1, text/html", Some("text/html"));
    check("*/json, text/html", Some("text/html"));
    check("application/, text/html", Some("text/html"));
    check("a/b;c=\"d, text/html", Some("application/json"));
    check("a/b;c=\"d, \\\" e\", text/html", Some("text/html"));
    check("application/json;;, text/html;q=0.1", Some("application/json"));
    check("text/html;\u{e9}=1, text/csv", Some("text/csv"));
}

#[test]
fn accept_lines_are_joined_and_truncated() {
    assert_eq!(chosen(&["image/png", "text/html"]), Some(1));
    assert_eq!(chosen(&["application/json", "text/html;q=0.5"]), Some(0));
    let many = "image/png,".repeat(RANGES_MAX - 1);
    assert_eq!(chosen(&[&many, "text/html"]), Some(1));
    assert_eq!(chosen(&[&many, "image/png", "text/html"]), None);
}

#[test]
fn accept_absent_accepts_the_first_offer() {
    assert_eq!(parse([]), Accept::ANYTHING);
    assert_eq!(Accept::ANYTHING.choose(OFFERED), Some(0));
    assert_eq!(Accept::ANYTHING.choose(&[]), None);
    assert_eq!(parse([b"application/json".as_slice()]).choose(&OFFERED[1..]), None);
}

#[test]
fn content_type_is_parsed_as_a_whole_or_refused() {
    for value in [
        "application/json",
        "Application/JSON",
        "application/json; charset=utf-8",
        "application/json;charset=\"UTF-8\"",
        "application/json ; charset=utf8;",
        " application/json;odd=1",
    ] {
        let read = parse_content_type(value).unwrap();
        assert!(read.has_essence("application/json") && read.is_utf8(), "{value}");
    }
    for value in
        ["application/json;charset=latin1", "application/json;charset=utf-8;Charset=utf-16"]
    {
        assert!(!parse_content_type(value).unwrap().is_utf8(), "{value}");
    }
    assert!(
        !parse_content_type("application/problem+json").unwrap().has_essence("application/json")
    );
    for value in [
        "",
        "json",
        "application/",
        "/json",
        "application/json, text/html",
        "application/json charset=utf-8",
        "application/json;charset",
        "application/json;charset=",
        "application/json;charset=\"utf-8",
        "application/json;charset = utf-8",
    ] {
        assert_eq!(parse_content_type(value), None, "{value}");
    }
}

proptest! {
    #[test]
    fn accept_arbitrary_header_never_panics_and_chooses_an_offer(
        lines in prop::collection::vec(r#"([*/;,="\\ a-cq.01]|text/|html|csv|application/json|;q=){0,30}"#, 0..4),
        bytes: Vec<u8>,
    ) {
        let values = lines.iter().map(String::as_bytes).chain([bytes.as_slice()]);
        let index = parse(values).choose(OFFERED);
        prop_assert!(index.is_none_or(|index| index < OFFERED.len()));
    }

    #[test]
    fn content_type_arbitrary_header_never_panics(value in r#"[/;="\\ a-c]{0,20}|\PC*"#) {
        let _ = parse_content_type(&value).map(|read| (read.has_essence("a/b"), read.is_utf8()));
    }
}
