//! Tests of the JSON parser and writer: by example. `fuzz` compares the parser with serde_json.

use std::borrow::Cow;

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::parse::JsonError;
use super::*;

const DEPTH_MAX: usize = 32;

fn read(text: &str) -> Result<Json<'_>, JsonError> {
    parse(text.as_bytes(), DEPTH_MAX)
}

fn written(json: &Json<'_>) -> String {
    let mut out = Vec::new();
    write(&mut out, json);
    String::from_utf8(out).unwrap()
}

fn check(bytes: &[u8], expected: &Expect) {
    let said = match parse(bytes, DEPTH_MAX) {
        Ok(json) => written(&json),
        Err(error) => error.to_string(),
    };
    expected.assert_eq(&said);
}

#[test]
fn json_count_values_is_never_less_than_what_is_parsed() {
    fn count(json: &Json<'_>) -> usize {
        1 + match json {
            Json::List(list) => list.iter().map(count).sum(),
            Json::Object(members) => members.iter().map(|(_, value)| count(value)).sum(),
            Json::Null | Json::Boolean(_) | Json::Number(_) | Json::Text(_) => 0,
        }
    }
    for (text, expected) in [
        ("0", 1),
        ("[]", 1),
        ("[ [],{} ]", 3),
        ("[[0],[0]]", 5),
        (r#"{"a":{"b":1},"c,{[\"":"x,y\\"}"#, 4),
        (r#"["\",[,",","]"#, 3),
    ] {
        assert_eq!(count_values(text.as_bytes()), expected, "{text}");
        let parsed = read(text).unwrap();
        assert!(count(&parsed) <= expected, "{text}");
    }
}

#[test]
fn json_parse_keeps_values_as_sent() {
    check(
        b" \t\r\n{ \"a\" : [ 1 , -2.50e+7 , true , false , null ] , \"\" : { } } \n",
        &expect![[r#"{"a":[1,-2.50e+7,true,false,null],"":{}}"#]],
    );
    check(b"0", &expect!["0"]);
    check(
        br#""\u0041\ud83d\ude00\u00e9\"\\\/\b\f\n\r\t\u0000""#,
        &expect![[r#""A😀é\"\\/\b\f\n\r\t\u0000""#]],
    );
    check("\"\u{7f}é\u{2028}😀\u{fffd}\"".as_bytes(), &expect![[r#""é 😀�""#]]);
}

#[test]
fn json_parse_error_of_structure_names_position_and_reason() {
    check(b"", &expect!["line 1, column 1: expected a value, got the end"]);
    check(b" \n ", &expect!["line 2, column 2: expected a value, got the end"]);
    check(
        b"\xef\xbb\xbf{}",
        &expect!["line 1, column 1: expected no byte order mark before the value"],
    );
    check(
        b"{\n  \"a\": 1,\n  \"b\": \"\xc3\xa9\" x\n}",
        &expect![[r#"line 3, column 12: expected a comma or }, got "x""#]],
    );
    check(b"{\"a\":1,}", &expect![[r#"line 1, column 8: expected a key in quotes, got "}""#]]);
    check(b"{,}", &expect![[r#"line 1, column 2: expected a key in quotes or }, got ",""#]]);
    check(b"{\"a\" 1}", &expect![[r#"line 1, column 6: expected a colon, got "1""#]]);
    check(b"[1 2]", &expect![[r#"line 1, column 4: expected a comma or ], got "2""#]]);
    check(b"[1,]", &expect![[r#"line 1, column 4: expected a value, got "]""#]]);
    check(b"[", &expect!["line 1, column 2: expected a value, got the end"]);
    check(b"{} {}", &expect![[r#"line 1, column 4: expected nothing after the value, got "{""#]]);
    check(b"nul", &expect![[r#"line 1, column 1: expected a value, got "n""#]]);
    check(b"trueish", &expect![[r#"line 1, column 5: expected nothing after the value, got "i""#]]);
    check(
        b"{\"a\":1,\"b\":2,\"\\u0061\":3}",
        &expect![[r#"line 1, column 14: expected each key once, got "a" again"#]],
    );
    check("\u{a0}1".as_bytes(), &expect![[r#"line 1, column 1: expected a value, got " ""#]]);
}

#[test]
fn json_parse_error_of_string_names_position_and_reason() {
    check(b"'a'", &expect![[r#"line 1, column 1: expected a value, got "'""#]]);
    check(b"\"a", &expect!["line 1, column 3: expected a closing quote, got the end"]);
    check(
        b"\"a\nb\"",
        &expect![[
            r#"line 1, column 3: expected an escape such as \n for a control character, got U+000A"#
        ]],
    );
    check(
        b"\"\\x\"",
        &expect![[
            r#"line 1, column 3: expected one of " \ / b f n r t u after the backslash, got "x""#
        ]],
    );
    check(
        b"\"\\u12g4\"",
        &expect![[r#"line 1, column 6: expected four hex digits after \u, got "g""#]],
    );
    check(
        b"\"\\u+123\"",
        &expect![[r#"line 1, column 4: expected four hex digits after \u, got "+""#]],
    );
    check(
        b"\"\\ud800\"",
        &expect![[
            r#"line 1, column 2: expected a high and a low surrogate together, got \ud800 alone"#
        ]],
    );
    check(
        b"\"\\ud800\\ud800\"",
        &expect![[
            r#"line 1, column 2: expected a high and a low surrogate together, got \ud800 alone"#
        ]],
    );
    check(
        b"\"\\ude00\\ud83d\"",
        &expect![[
            r#"line 1, column 2: expected a high and a low surrogate together, got \ude00 alone"#
        ]],
    );
    check(
        b"\"\\ud83d\\n\"",
        &expect![[
            r#"line 1, column 2: expected a high and a low surrogate together, got \ud83d alone"#
        ]],
    );
    check(
        b"\"\xff\"",
        &expect!["line 1, column 2: expected UTF-8, got a byte that does not belong there"],
    );
    check(
        b"\"\xed\xa0\x80\"",
        &expect!["line 1, column 2: expected UTF-8, got a byte that does not belong there"],
    );
}

#[test]
fn json_parse_error_of_number_names_position_and_reason() {
    check(b"01", &expect![[r#"line 1, column 2: expected no digit after a leading 0, got "1""#]]);
    check(b"-", &expect!["line 1, column 2: expected a digit, got the end"]);
    check(b"1.e5", &expect![[r#"line 1, column 3: expected a digit after the point, got "e""#]]);
    check(b"1e+", &expect!["line 1, column 4: expected a digit of the exponent, got the end"]);
    check(b"[-Infinity]", &expect![[r#"line 1, column 3: expected a digit, got "I""#]]);
}

#[test]
fn json_parse_checks_every_byte() {
    for byte in 0..=0xff {
        let before = [byte, b'1'];
        let is_space = matches!(byte, b' ' | b'\t' | b'\n' | b'\r');
        assert_eq!(
            parse(&before, 1).is_ok(),
            is_space || byte == b'-' || (b'1'..=b'9').contains(&byte),
            "{byte:#x}"
        );
        let inside = [b'"', byte, b'"'];
        let is_plain = (0x20..0x80).contains(&byte) && byte != b'"' && byte != b'\\';
        assert_eq!(parse(&inside, 1).is_ok(), is_plain, "{byte:#x}");
        let escaped = [b'"', b'\\', byte, b'"'];
        assert_eq!(parse(&escaped, 1).is_ok(), b"\"\\/bfnrt".contains(&byte), "{byte:#x}");
    }
}

#[test]
fn json_parse_surrogate_pairs_within_their_ranges() {
    let text = |escapes: &str| match read(&format!("\"{escapes}\"")) {
        Ok(Json::Text(text)) => Some(text.into_owned()),
        _ => None,
    };
    assert_eq!(text(r"\ud800\udc00").as_deref(), Some("\u{10000}"));
    assert_eq!(text(r"\uDBFF\uDFFD").as_deref(), Some("\u{10fffd}"));
    assert_eq!(text(r"\ud7ff\ue000").as_deref(), Some("\u{d7ff}\u{e000}"));
    for refused in [
        r"\ud800\udbff",
        r"\ud800\ue000",
        r"\ud800\u0041",
        r"\udc00\udc00",
        r"\udbff",
        r"\udfff",
        r"\ud800\",
    ] {
        assert_eq!(text(refused), None, "{refused}");
    }
}

#[test]
fn json_parse_borrows_strings_without_escapes() {
    let Ok(Json::Object(members)) = read(r#"{"plain":"text","esc\u0061ped":"\n"}"#) else {
        panic!()
    };
    let [
        (Cow::Borrowed("plain"), Json::Text(Cow::Borrowed("text"))),
        (Cow::Owned(key), Json::Text(Cow::Owned(text))),
    ] = &members[..]
    else {
        panic!("{members:?}")
    };
    assert_eq!((&**key, &**text), ("escaped", "\n"));
}

#[test]
fn json_parse_depth_counts_lists_and_objects_from_one() {
    let nested = |depth: usize| "[".repeat(depth) + "1" + &"]".repeat(depth);
    assert!(read(&nested(DEPTH_MAX)).is_ok());
    assert_eq!(read(&nested(DEPTH_MAX + 1)).unwrap_err().offset, DEPTH_MAX);
    assert!(read(&r#"{"a":"#.repeat(100_000)).is_err());
    assert!(parse(b"1", 0).is_ok());
    assert!(parse(b"[]", 0).is_err());
}

#[test]
fn json_parse_refuses_duplicate_keys_among_few_and_many() {
    for count in [1, 15, 16, 17, 18, 100, 50_000] {
        let keys: Vec<_> = (0..count).map(|index| format!("\"k{index}\":0")).collect();
        let once = keys.join(",");
        assert!(read(&format!("{{{once}}}")).is_ok(), "{count}");
        for again in ["k0".to_owned(), format!("\\u006b{}", count - 1)] {
            let error = read(&format!("{{{once},\"{again}\":0}}")).unwrap_err();
            assert_eq!(error.offset, once.len() + 2, "{count}: {error}");
        }
    }
}

#[test]
fn json_parse_error_truncates_a_long_key() {
    let key = "é".repeat(100_000);
    let error = read(&format!("{{\"{key}\":1,\"{key}\":2}}")).unwrap_err();
    assert!(error.message.len() < 200, "{}", error.message);
}

proptest! {
    #[test]
    fn json_writer_arbitrary_text_round_trips(text: String) {
        let mut out = Vec::new();
        write_text(&mut out, &text);
        prop_assert_eq!(serde_json::from_slice::<String>(&out).unwrap(), text);
    }
}

#[expect(dead_code, reason = "where a body is sent does not concern its syntax")]
#[path = "../../tests/it/json_bodies/table.rs"]
mod table;

#[test]
fn json_parse_bodies_of_the_black_box_table() {
    let rows = table::rows();
    assert!(rows.len() > 170, "{}", rows.len());
    for row in rows {
        let refused = row.expected == table::Expected::Refused("bad-json".to_owned());
        assert_eq!(parse(&row.body, DEPTH_MAX).is_err(), refused, "{}", row.line);
    }
}

#[test]
fn json_is_number_accepts_only_json_numbers() {
    for good in ["0", "-0.50", "12", "1e3", "1.5E-2", "1e+05"] {
        assert!(is_number(good), "{good}");
    }
    for bad in
        ["", "-", "01", "+1", ".5", "1.", "1e", "1 ", "0x1", "1,5", "inf", "--1", "1e--1", "1.5.5"]
    {
        assert!(!is_number(bad), "{bad}");
    }
}
