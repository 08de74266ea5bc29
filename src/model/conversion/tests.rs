//! Tests of the conversion of whole items.

use super::*;
use crate::model::diff::{Difference, compare};
use crate::model::{Model, read};

fn model(fields: &str) -> Model {
    let (keys, fields) = fields.split_once("---\n").unwrap_or(("", fields));
    read(
        "test",
        &format!("title = \"T\"\n[resources.note]\n{keys}[resources.note.fields]\n{fields}"),
    )
    .unwrap_or_else(|errors| panic!("{errors}"))
}

/// Converts an item from one model to another: its values as JSON, or its faults.
fn convert(before: &str, after: &str, values: &[Value]) -> Result<Vec<String>, Vec<String>> {
    let (old, new) = (model(before), model(after));
    let differences = compare(&old, &new);
    let changes: Vec<&ModelChange> = differences
        .iter()
        .filter_map(|difference| match difference {
            Difference::Change(change) => Some(change),
            _ => None,
        })
        .collect();
    let resource = |model: &'static Model| model.declared().next().unwrap();
    let (old, new): (&'static Model, &'static Model) =
        (Box::leak(Box::new(old)), Box::leak(Box::new(new)));
    let conversion = RowConversion::new(resource(old), resource(new), &changes);
    match conversion.convert(values) {
        Ok(values) => Ok(values.iter().map(json::value_to_text).collect()),
        Err(faults) => Err(faults
            .into_iter()
            .map(|ConversionFault { part, detail }| match part {
                UnfitPart::Field(name) => format!("/{name} {detail}"),
                UnfitPart::Check(index) => format!("check {index}: {detail}"),
            })
            .collect()),
    }
}

/// An unchanged value is not validated again: it may be older than its rules.
#[test]
fn conversion_copies_unchanged_fields() {
    let before = "a = { type = \"email\" }\nb = { type = \"text\" }";
    let after = "a = { type = \"email\" }\nb = { type = \"integer\" }";
    let values = [Value::text("no email"), Value::text("7")];
    assert_eq!(convert(before, after, &values), Ok(vec!["\"no email\"".into(), "7".into()]));
}

#[test]
fn conversion_computes_from_converted_values() {
    let before = "a = { type = \"text\" }";
    let after = "a = { type = \"integer\" }\nb = { type = \"integer\", computed = \"a * 2\" }";
    assert_eq!(convert(before, after, &[Value::text("7")]), Ok(vec!["7".into(), "14".into()]));
    let overflow = convert(before, after, &[Value::text("9007199254740991")]);
    assert!(overflow.is_err_and(|faults| faults.len() == 1 && faults[0].starts_with("/b ")));
}

#[test]
fn conversion_reports_every_field_at_fault() {
    let before = "a = { type = \"text\" }\nb = { type = \"text\" }";
    let after = "a = { type = \"integer\" }\nb = { type = \"text\", required = true }\nc = { type = \"date\", required = true }";
    assert_eq!(
        convert(before, after, &[Value::text("x"), Value::Null]),
        Err(vec![
            "/a expected an integer, got \"x\"".into(),
            "/b expected a text, got nothing".into(),
            "/c expected a date such as \"2026-11-15\", got nothing".into(),
        ])
    );
}

/// A check that did not change is evaluated again where the values that it reads are converted.
#[test]
fn conversion_evaluates_checks_of_converted_values() {
    let check = "check = [{ that = \"a < b\", message = \"too large\" }]\n---\n";
    let before = format!("{check}a = {{ type = \"text\" }}\nb = {{ type = \"text\" }}");
    let after = before.replace("text", "integer");
    let values = [Value::text("10"), Value::text("9")];
    assert_eq!(convert(&before, &after, &values), Err(vec!["check 0: too large".into()]));
    let values = [Value::text("9"), Value::text("10")];
    assert_eq!(convert(&before, &after, &values), Ok(vec!["9".into(), "10".into()]));
}
