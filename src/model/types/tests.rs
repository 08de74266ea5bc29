//! Tests of the field types: accepted values, and the faults of others.

use expect_test::{Expect, expect};
use proptest::prelude::*;

use super::canonical::DamagedValue;
use super::*;
use crate::json::{self, Json};
use crate::model::file::keys;
use crate::model::{Field, Model, read as read_model};
use crate::problem::FaultCollector;
use crate::value::Value;

const JSON_DEPTH_MAX: usize = 32;

/// A model with one field named `f`.
fn model(field: &str) -> Model {
    let text = format!(
        "title = \"T\"\n[resources.thing.fields]\nf = {field}\n[resources.other]\n[resources.numbered]\nid = \"integer\"\n"
    );
    read_model("test", &text).unwrap_or_else(|errors| panic!("{errors}"))
}

fn shown(field: &Field, text: &str) -> String {
    let json = json::parse(text.as_bytes(), JSON_DEPTH_MAX).unwrap();
    let mut faults = FaultCollector::at_root("/thing".to_owned());
    let value = read(field, &json, &mut faults);
    let faults: Vec<String> = faults
        .into_list()
        .into_iter()
        .map(|fault| format!("{} {}: {}", fault.pointer, fault.code.as_str(), fault.detail))
        .collect();
    match value {
        Some(value) => {
            assert!(faults.is_empty(), "{faults:?}");
            let mut out = Vec::new();
            json::write_value(&mut out, &value);
            String::from_utf8(out).unwrap()
        }
        None => faults.join(" | "),
    }
}

fn check(field: &str, texts: &[&str], expected: &Expect) {
    let model = model(field);
    let field = &model.resources[0].fields[0];
    let lines: Vec<String> =
        texts.iter().map(|text| format!("{text} → {}\n", shown(field, text))).collect();
    expected.assert_eq(&lines.concat());
}

#[test]
fn types_have_unique_names_and_known_keys() {
    for (index, kind) in ALL.iter().enumerate() {
        assert!(ALL[index + 1..].iter().all(|other| other.name != kind.name), "{}", kind.name);
        for key in kind.keys {
            assert!(keys::FIELD.names().any(|known| known == *key), "{}: {key}", kind.name);
            assert!(!keys::FIELD_COMMON.contains(key), "{}: {key}", kind.name);
        }
        let needed = kind.mandatory_keys.iter().map(|need| need.key).chain(kind.implying_key);
        for key in needed {
            assert!(kind.keys.contains(&key), "{}: {key}", kind.name);
        }
    }
}

#[test]
fn text_values() {
    check(
        r#"{ type = "text", min_length = 2, max_length = 3, pattern = "^[a-zé]+$" }"#,
        &[r#""ab""#, r#""aéé""#, r#""a""#, r#""ABCD""#, r#""a\u0000b""#, "1", "null"],
        &expect![[r#"
            "ab" → "ab"
            "aéé" → "aéé"
            "a" → /thing length: expected at least 2 characters, got 1
            "ABCD" → /thing length: expected at most 3 characters, got 4 | /thing pattern: expected a text that matches ^[a-zé]+$, got "ABCD"
            "a\u0000b" → /thing format: expected a text without the NUL character
            1 → /thing type: expected a text, got a number
            null → /thing null: expected a text, got null
        "#]],
    );
    check(
        r#"{ type = "text", nullable = true, one_of = ["s", "m"] }"#,
        &["null", r#""s""#, r#""x""#],
        &expect![[r#"
        null → null
        "s" → "s"
        "x" → /thing one_of: expected one of "s", "m", got "x"
    "#]],
    );
}

#[test]
fn number_values() {
    check(
        r#"{ type = "integer", min = -5, max = 9007199254740991 }"#,
        &[
            "1",
            "1.0",
            "1e3",
            "-0",
            "1.5",
            "9007199254740991",
            "9007199254740992",
            "1e400",
            "-6",
            r#""1""#,
        ],
        &expect![[r#"
            1 → 1
            1.0 → 1
            1e3 → 1000
            -0 → 0
            1.5 → /thing range: expected an integer within ±9007199254740991, got 1.5
            9007199254740991 → 9007199254740991
            9007199254740992 → /thing range: expected an integer within ±9007199254740991, got 9007199254740992
            1e400 → /thing range: expected an integer within ±9007199254740991, got 1e400
            -6 → /thing range: expected at least -5, got -6
            "1" → /thing type: expected an integer, got a string
        "#]],
    );
    check(
        r#"{ type = "number", max = 1e3 }"#,
        &["1.5", "0.1", "1e400", "0.1000000000000000055511", "9007199254740993", "1001", "true"],
        &expect![[r#"
            1.5 → 1.5
            0.1 → 0.1
            1e400 → /thing range: expected a number that a double holds without loss, got 1e400
            0.1000000000000000055511 → /thing range: expected a number that a double holds without loss, got 0.1000000000000000055511
            9007199254740993 → /thing range: expected a number that a double holds without loss, got 9007199254740993
            1001 → /thing range: expected at most 1000, got 1001
            true → /thing type: expected a number, got a boolean
        "#]],
    );
    check(
        r#"{ type = "decimal", min = "0.10" }"#,
        &[
            "1",
            "1.5",
            r#""1.50""#,
            r#""1.5000""#,
            "1.505",
            "0.05",
            r#""1,5""#,
            r#""""#,
            "1e2",
            "12345678901234567",
            "[]",
        ],
        &expect![[r#"
            1 → "1.00"
            1.5 → "1.50"
            "1.50" → "1.50"
            "1.5000" → "1.50"
            1.505 → /thing range: expected at most 18 digits and 2 decimals, got 1.505
            0.05 → /thing range: expected at least 0.10, got 0.05
            "1,5" → /thing format: expected a decimal number such as "1.50", got "1,5"
            "" → /thing format: expected a decimal number such as "1.50", got ""
            1e2 → "100.00"
            12345678901234567 → /thing range: expected at most 18 digits and 2 decimals, got 12345678901234567
            [] → /thing type: expected a decimal number such as "1.50", got a list
        "#]],
    );
}

#[test]
fn number_negative_zero_becomes_zero() {
    let model = model(r#"{ type = "number" }"#);
    let zero = read(
        &model.resources[0].fields[0],
        &Json::Number("-0.0"),
        &mut FaultCollector::at_root("/thing".to_owned()),
    );
    assert!(
        matches!(zero, Some(Value::Number(zero)) if zero == 0.0 && zero.is_sign_positive()),
        "{zero:?}"
    );
}

#[test]
fn date_timestamp_and_uuid_values() {
    check(
        r#"{ type = "date", min = "2026-01-01" }"#,
        &[r#""2026-02-28""#, r#""2026-02-29""#, r#""2025-12-31""#, "20260228"],
        &expect![[r#"
        "2026-02-28" → "2026-02-28"
        "2026-02-29" → /thing format: expected a date such as "2026-11-15", got "2026-02-29"
        "2025-12-31" → /thing range: expected at least 2026-01-01, got "2025-12-31"
        20260228 → /thing type: expected a date such as "2026-11-15", got a number
    "#]],
    );
    check(
        r#"{ type = "timestamp", max = "2026-12-31T00:00:00Z" }"#,
        &[
            r#""2026-11-15T03:28:14+01:00""#,
            r#""2026-11-15T02:28:14.5z""#,
            r#""2026-11-15""#,
            r#""2027-01-01T00:00:00Z""#,
        ],
        &expect![[r#"
            "2026-11-15T03:28:14+01:00" → "2026-11-15T02:28:14.000000Z"
            "2026-11-15T02:28:14.5z" → "2026-11-15T02:28:14.500000Z"
            "2026-11-15" → /thing format: expected a timestamp such as "2026-11-15T02:28:14Z" with at most 6 decimals, got "2026-11-15"
            "2027-01-01T00:00:00Z" → /thing range: expected at most 2026-12-31T00:00:00.000000Z, got 2027-01-01T00:00:00.000000Z
        "#]],
    );
    let uuid = r#""01890A5D-AC96-774B-BCCE-B302099A8057""#;
    check(
        r#"{ type = "uuid" }"#,
        &[uuid, r#""01890a5dac96774bbcceb302099a8057""#],
        &expect![[r#"
        "01890A5D-AC96-774B-BCCE-B302099A8057" → "01890a5d-ac96-774b-bcce-b302099a8057"
        "01890a5dac96774bbcceb302099a8057" → /thing format: expected a UUID such as "01890a5d-ac96-774b-bcce-b302099a8057", got "01890a5dac96774bbcceb302099a8057"
    "#]],
    );
    check(
        r#"{ type = "ref", to = "other" }"#,
        &[uuid, r#""x""#, "1"],
        &expect![[r#"
        "01890A5D-AC96-774B-BCCE-B302099A8057" → "01890a5d-ac96-774b-bcce-b302099a8057"
        "x" → /thing format: expected an id, which is a UUID, got "x"
        1 → /thing type: expected an id as a text, got a number
    "#]],
    );
    check(
        r#"{ type = "ref", to = "numbered" }"#,
        &["7", "0", r#""7""#],
        &expect![[r#"
            7 → 7
            0 → /thing format: expected an id, which is a positive integer, got 0
            "7" → /thing type: expected an id as a number, got a string
        "#]],
    );
}

#[test]
fn email_url_and_state_values() {
    check(
        r#"{ type = "state", initial = "a", next = { a = ["b"], b = [] } }"#,
        &[r#""b""#, r#""c""#, "null"],
        &expect![[r#"
        "b" → "b"
        "c" → /thing one_of: expected one of "a", "b", got "c"
        null → /thing null: expected a state, got null
    "#]],
    );
    check(
        r#"{ type = "email" }"#,
        &[r#""ann@example.com""#, r#""ann""#],
        &expect![[r#"
        "ann@example.com" → "ann@example.com"
        "ann" → /thing format: expected an e-mail address, got "ann"
    "#]],
    );
    check(
        r#"{ type = "url" }"#,
        &[r#""https://example.com/""#, r#""example""#],
        &expect![[r#"
        "https://example.com/" → "https://example.com/"
        "example" → /thing format: expected an http or https address, got "example"
    "#]],
    );
    check(
        r#"{ type = "boolean" }"#,
        &["true", "0"],
        &expect![[r#"
        true → true
        0 → /thing type: expected true or false, got a number
    "#]],
    );
}

const LINES: &str = r#"{ type = "list", min_items = 1, max_items = 2, of = { fields = {
    product  = { type = "text", required = true },
    quantity = { type = "integer", min = 1, default = 1 },
    note     = { type = "text", nullable = true },
    extra    = { type = "json" } } } }"#;

#[test]
fn list_and_object_collect_faults_and_fill_in_defaults() {
    check(
        LINES,
        &[
            r#"[{"quantity":2,"product":"x","extra":{"b":[1.50,null],"a":"é"}}]"#,
            r#"[{"product":"x"}]"#,
            r#"[]"#,
            r#"[{"qantity":1,"colour":1},{"product":5,"quantity":0},3]"#,
            r#"[{"product":"x","extra":1e999}]"#,
            r#"{}"#,
        ],
        &expect![[r#"
            [{"quantity":2,"product":"x","extra":{"b":[1.50,null],"a":"é"}}] → [{"product":"x","quantity":2,"note":null,"extra":{"b":[1.50,null],"a":"é"}}]
            [{"product":"x"}] → [{"product":"x","quantity":1,"note":null}]
            [] → /thing items: expected at least 1 item, got 0
            [{"qantity":1,"colour":1},{"product":5,"quantity":0},3] → /thing/0/qantity unknown: no such field; did you mean "quantity"? | /thing/0/colour unknown: no such field | /thing/0/product required: expected a text, got nothing | /thing/1/product type: expected a text, got a number | /thing/1/quantity range: expected at least 1, got 0 | /thing/2 type: expected an object, got a number
            [{"product":"x","extra":1e999}] → /thing/0/extra range: expected a number that a double holds without loss, got 1e999
            {} → /thing type: expected a list, got an object
        "#]],
    );
}

/// Regression: a default may be nested more deeply than a body.
#[test]
fn canonical_text_of_a_deep_default_round_trips() {
    let deep = format!("{}{}", "[".repeat(70), "]".repeat(70));
    let text = format!("{{ type = \"list\", of = {{ type = \"json\" }}, default = [{deep}] }}");
    let model = model(&text);
    let field = &model.resources[0].fields[0];
    let default = field.default.clone().unwrap();
    assert_eq!(parse_canonical(field, canonicalize(default.clone())), default);
}

#[test]
fn canonical_text_round_trips() {
    let model = model(
        r#"{ type = "object", fields = {
            t = { type = "text" }, i = { type = "integer" }, n = { type = "number" }, d = { type = "decimal", scale = 3 }, b = { type = "boolean" },
            m = { type = "timestamp" }, l = { type = "list", of = { type = "decimal" } }, j = { type = "json" }, z = { type = "date", nullable = true } } }"#,
    );
    let field = &model.resources[0].fields[0];
    let text = r#"{"t":"x","i":5,"n":0.5,"d":"1.500","b":true,"m":"2026-11-15T02:28:14.000000Z","l":["1.00","2.50"],"j":{"a":[1,{"b":null}]},"z":null}"#;
    let json = json::parse(text.as_bytes(), JSON_DEPTH_MAX).unwrap();
    let value = read(field, &json, &mut FaultCollector::at_root("/thing".to_owned())).unwrap();
    let sealed = canonicalize(value.clone());
    assert_eq!(sealed, Value::Json(text.into()));
    assert_eq!(parse_canonical(field, sealed), value);
    for damaged in
        ["", "[]", "5", r#"{"t":"x""#, r#"{"t":5}"#, r#"{"l":["1.001"]}"#, r#"{"m":"x"}"#]
    {
        let parsed = try_parse_canonical(field, Value::Json(damaged.into()));
        assert_eq!(parsed, Err(DamagedValue), "{damaged}");
    }
    assert_eq!(canonicalize(Value::Integer(1)), Value::Integer(1));
}

fn any_json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("true".to_owned()),
        any::<i64>().prop_map(|number| number.to_string()),
        "-?[1-9][0-9]{0,25}(\\.[0-9]{1,25})?([eE][+-]?[0-9]{1,4})?",
        "[ -~é]{0,12}".prop_map(|text| serde_json::to_string(&text).unwrap()),
        Just("\"2026-02-30\"".to_owned()),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4)
                .prop_map(|list| format!("[{}]", list.join(","))),
            proptest::collection::btree_map("product|quantity|note|x", inner, 0..3).prop_map(
                |map| {
                    let members: Vec<String> =
                        map.into_iter().map(|(key, value)| format!("\"{key}\":{value}")).collect();
                    format!("{{{}}}", members.join(","))
                }
            ),
        ]
    })
}

proptest! {
    #[test]
    fn types_accept_arbitrary_json_or_report_a_fault(text in any_json()) {
        let plain = |kind: &str| match kind {
            "ref" => r#"{ type = "ref", to = "numbered" }"#.to_owned(),
            "refs" => r#"{ type = "refs", to = "numbered" }"#.to_owned(),
            "state" => r#"{ type = "state", initial = "a", next = { a = [] } }"#.to_owned(),
            "list" => LINES.to_owned(),
            "object" => r#"{ type = "object", fields = { x = { type = "decimal" }, note = { type = "json" } } }"#.to_owned(),
            kind => format!("{{ type = \"{kind}\" }}"),
        };
        let json = json::parse(text.as_bytes(), JSON_DEPTH_MAX).unwrap();
        for kind in ALL {
            let model = model(&plain(kind.name));
            let field = &model.resources[0].fields[0];
            let mut faults = FaultCollector::at_root("/thing".to_owned());
            match read(field, &json, &mut faults) {
                Some(value) => {
                    prop_assert!(faults.into_list().is_empty());
                    prop_assert_eq!(parse_canonical(field, canonicalize(value.clone())), value);
                }
                None => prop_assert!(!faults.into_list().is_empty(), "{} took no fault from {}", kind.name, text),
            }
        }
    }
}

#[test]
fn object_with_many_unknown_names_is_cheap() {
    let fields: Vec<String> =
        (0..400).map(|index| format!("field_{index} = {{ type = \"text\" }}")).collect();
    let model = model(&format!("{{ type = \"object\", fields = {{ {} }} }}", fields.join(", ")));
    let names: Vec<String> = (0..100_000).map(|index| format!("\"feild_{index}\":1")).collect();
    let text = format!("{{{}}}", names.join(","));
    let json = json::parse(text.as_bytes(), JSON_DEPTH_MAX).unwrap();
    let mut faults = FaultCollector::at_root("/thing".to_owned());
    assert_eq!(read(&model.resources[0].fields[0], &json, &mut faults), None);
    assert_eq!(faults.into_list().len(), 100);
}
