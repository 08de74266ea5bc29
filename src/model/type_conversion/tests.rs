//! Tests of conversions between field types.

use super::*;
use crate::model::read;

/// The fields `from` and `to` of one resource.
fn fields(from: &str, to: &str) -> crate::model::Model {
    let text = format!(
        "title = \"T\"\n[resources.target.fields]\n[resources.note.fields]\nfrom = {{ {from} }}\nto = {{ {to} }}\n"
    );
    read("test", &text).unwrap_or_else(|errors| panic!("{errors}"))
}

/// The JSON of a value of `from` as a value of `to`, or the faults.
fn convert_json(from: &str, to: &str, json: &str) -> String {
    let model = fields(from, to);
    let note = model.declared().nth(1).unwrap();
    let [from, to] = &*note.fields else { panic!() };
    let parsed = json::parse(json.as_bytes(), DEPTH_MAX).unwrap();
    let mut faults = FaultCollector::at_root(String::new());
    let value = types::read(from, &parsed, &mut faults).unwrap();
    match convert(from, to, &types::canonicalize(value), &mut faults) {
        Some(value) => json::value_to_text(&value),
        None => faults.into_list().into_iter().map(|fault| fault.detail).collect(),
    }
}

#[test]
fn conversion_of_each_pair_of_types() {
    let decimal = "type = \"decimal\", scale = 2";
    for (from, to, json, expected) in [
        ("type = \"text\"", "type = \"integer\"", "\" 12 \"", "12"),
        ("type = \"text\"", "type = \"integer\"", "\"0x1\"", "expected an integer, got \"0x1\""),
        ("type = \"text\"", decimal, "\"1.5\"", "\"1.50\""),
        (decimal, "type = \"integer\"", "\"100.00\"", "100"),
        (decimal, "type = \"number\"", "\"0.10\"", "0.1"),
        (decimal, "type = \"text\"", "\"0.10\"", "\"0.10\""),
        ("type = \"number\"", decimal, "2.5", "\"2.50\""),
        ("type = \"integer\"", "type = \"list\", of = { type = \"text\" }", "7", "[\"7\"]"),
        (
            "type = \"date\"",
            "type = \"timestamp\"",
            "\"2026-01-31\"",
            "\"2026-01-31T00:00:00.000000Z\"",
        ),
        (
            "type = \"text\"",
            "type = \"timestamp\"",
            "\"2026-01-31T10:00:00+01:00\"",
            "\"2026-01-31T09:00:00.000000Z\"",
        ),
        ("type = \"boolean\"", "type = \"text\"", "false", "\"false\""),
        ("type = \"json\"", "type = \"integer\"", "7", "7"),
    ] {
        assert_eq!(convert_json(from, to, json), expected, "{from} to {to}");
    }
}

#[test]
fn conversion_is_refused_where_values_have_no_common_form() {
    let can = |from: &str, to: &str| {
        let model = fields(from, to);
        let note = model.declared().nth(1).unwrap();
        can_convert(&note.fields[0], &note.fields[1])
    };
    let reference = "type = \"ref\", to = \"target\"";
    assert!(can("type = \"uuid\"", reference) && can(reference, "type = \"text\""));
    assert!(!can("type = \"integer\"", reference), "its ids are UUIDs");
    for (from, to) in [
        ("type = \"boolean\"", "type = \"integer\""),
        ("type = \"timestamp\"", "type = \"date\""),
        ("type = \"email\"", "type = \"url\""),
        ("type = \"list\", of = { type = \"text\" }", "type = \"text\""),
    ] {
        assert!(!can(from, to), "{from} to {to}");
    }
}
