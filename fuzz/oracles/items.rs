//! Fuzz target: new items without a wrapper, as CSV or NDJSON.
//!
//! Properties: no panic; the csv crate parses an accepted table into the same cells; each valid item, written
//! as JSON and as CSV, validates as the same item again.

use csv::{ReaderBuilder, StringRecord};

use super::MODELS;
use super::body::{check_put_round_trip, created_items};
use crate::formats::{self, BodyForm, ItemMember, ItemView, csv_input};
use crate::intent::RequestVerb;
use crate::json::{self, Json};
use crate::model::{Model, Resource, StorageClass};
use crate::value::{Id, Item, Moment, Value};

const ROWS_MAX: usize = 1000;
/// The maximum nesting depth: more levels than any item has.
const DEPTH_MAX: usize = 100;

pub fn items(data: &[u8]) {
    for model in MODELS.iter() {
        for resource in model.declared() {
            if let Ok(lines) =
                csv_input::to_json_lines(ItemView::all_fields(resource), data, ROWS_MAX)
            {
                compare_with_csv_crate(resource, data, &lines);
            }
            for form in [BodyForm::Ndjson, BodyForm::Csv] {
                for values in created_items(model, resource, RequestVerb::PostItems(form), data) {
                    check_csv_round_trip(model, resource, &values);
                    check_put_round_trip(model, resource, values);
                }
            }
        }
    }
}

/// An export as CSV can be imported again, as far as CSV can express it: it has no null.
fn check_csv_round_trip(model: &Model, resource: &Resource, values: &[Value]) {
    let Some(now) = Moment::parse("2026-11-15T02:28:14.000000Z") else { return };
    let fields = resource.fields.iter().enumerate();
    let fields = fields.filter(|(_, field)| field.computed.is_none() && !field.secret);
    let chosen: Vec<ItemMember> = fields.map(|(index, _)| ItemMember::Field(index)).collect();
    let (id, parent, values) = (Id::Integer(7), None, values.to_vec());
    let item = Item { id, parent, created_at: now, updated_at: now, version: 1, values };
    let view = ItemView { selected_members: Some(&chosen), ..ItemView::all_fields(resource) };
    let csv = formats::ALL.iter().find(|format| format.media.essence == "text/csv");
    let mut table = Vec::new();
    if let Some(csv) = csv {
        (csv.items)(&mut table, view, std::slice::from_ref(&item));
    }
    let shown = String::from_utf8_lossy(&table).into_owned();
    let lines = csv_input::to_json_lines(ItemView::all_fields(resource), &table, ROWS_MAX)
        .unwrap_or_else(|problem| {
            unreachable!("{shown}: {problem:?}");
        });
    // The id is always exported, and cannot be sent.
    let lines = String::from_utf8_lossy(&lines).replacen("\"id\":7,", "", 1);
    let lines = lines.replacen("\"id\":7", "", 1);
    let again =
        created_items(model, resource, RequestVerb::PostItems(BodyForm::Ndjson), lines.as_bytes());
    let has_null = item
        .values
        .iter()
        .zip(&resource.fields)
        .any(|(value, field)| matches!(value, Value::Null) && field.default.is_some());
    match again.as_slice() {
        // A field that is left out gets its default.
        [_] if has_null => {}
        [again] => assert_eq!(*again, item.values, "{shown}"),
        other => unreachable!("{shown}: {other:?}"),
    }
}

/// Compares the NDJSON of a table with its cells.
fn compare_with_csv_crate(resource: &Resource, data: &[u8], lines: &[u8]) {
    let mut reader = ReaderBuilder::new().from_reader(data);
    let names = reader.headers().cloned().unwrap_or_default();
    let rows: Result<Vec<StringRecord>, _> = reader.records().collect();
    let rows = rows.unwrap_or_else(|error| unreachable!("they cannot read it: {error}"));
    let lines: Vec<&[u8]> = lines.split(|byte| *byte == b'\n').collect();
    assert_eq!(lines.len(), rows.len() + 1, "a line for each row, and nothing after the last");
    for (line, row) in lines.iter().zip(&rows) {
        let Ok(Json::Object(members)) = json::parse(line, DEPTH_MAX) else {
            unreachable!("{:?}", String::from_utf8_lossy(line))
        };
        let mut members = members.into_iter().peekable();
        for (name, cell) in names.iter().zip(row) {
            match members.next_if(|(known, _)| known == name) {
                Some((_, value)) => assert!(is_same(resource, name, cell, &value), "{name} {cell}"),
                None => assert_eq!(cell, "", "{name} is left out"),
            }
        }
        assert_eq!(members.next(), None);
    }
}

fn is_same(resource: &Resource, name: &str, cell: &str, value: &Json<'_>) -> bool {
    let class = resource.field(name).map(|(_, field)| field.storage_class());
    match value {
        _ if class == Some(StorageClass::Json) => {
            json::parse(cell.as_bytes(), DEPTH_MAX).is_ok_and(|read| read == *value)
        }
        Json::Number(text) => {
            *text == cell && !matches!(class, Some(StorageClass::Text | StorageClass::Moment))
        }
        Json::Boolean(value) => {
            cell.eq_ignore_ascii_case(&value.to_string()) && class == Some(StorageClass::Boolean)
        }
        Json::Text(text) => *text == cell,
        Json::Null | Json::List(_) | Json::Object(_) => false,
    }
}
