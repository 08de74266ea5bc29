//! New items without a wrapper: a table, or lines of JSON.
//!
//! Never a panic. What is taken as a table is read by another reader of CSV into the same cells; each item
//! that is admitted is written as JSON that is admitted again as the same item.

use csv::{ReaderBuilder, StringRecord};

use super::MODELS;
use super::body::{comes_back, created};
use crate::formats::{BodyForm, table};
use crate::intent::Verb;
use crate::json::{self, Json};
use crate::model::{Class, Resource};

const ROWS_MAX: usize = 1000;
/// More than any item has levels.
const DEPTH_MAX: usize = 100;

pub fn items(data: &[u8]) {
    for model in MODELS.iter() {
        for resource in model.declared() {
            if let Ok(lines) = table::lines(resource, data, ROWS_MAX) {
                compare(resource, data, &lines);
            }
            for form in [BodyForm::Lines, BodyForm::Table] {
                for values in created(model, resource, Verb::PostItems(form), data) {
                    comes_back(model, resource, values);
                }
            }
        }
    }
}

/// Holds the lines that a table became against its cells.
fn compare(resource: &Resource, data: &[u8], lines: &[u8]) {
    let mut reader = ReaderBuilder::new().from_reader(data);
    let names = reader.headers().map(StringRecord::clone).unwrap_or_default();
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
    let class = resource.field(name).map(|(_, field)| field.kind.class(field));
    match value {
        _ if class == Some(Class::Json) => {
            json::parse(cell.as_bytes(), DEPTH_MAX).is_ok_and(|read| read == *value)
        }
        Json::Number(text) => *text == cell && !matches!(class, Some(Class::Text | Class::Moment)),
        Json::Boolean(value) => {
            cell.eq_ignore_ascii_case(&value.to_string()) && class == Some(Class::Boolean)
        }
        Json::Text(text) => *text == cell,
        Json::Null | Json::List(_) | Json::Object(_) => false,
    }
}
