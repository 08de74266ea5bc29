//! Literals in the model file (`default`, `min`, `max`, `one_of`), parsed by the same code as a body.
//!
//! A TOML value is converted to JSON text first. TOML values that JSON lacks are refused (`inf`, `nan`) or
//! become text (dates).

use std::ops::Range;

use toml::de::DeValue;

use super::toml_tree::{TomlEntry, TomlNode};
use crate::json::{self, Json};
use crate::model::report::Mistakes;
use crate::model::{Field, types};
use crate::problem::FaultCollector;
use crate::value::Value;

/// The maximum nesting depth: more levels than the TOML parser accepts.
const DEPTH_MAX: usize = 128;

/// Which checks of the field a literal must pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LiteralChecks {
    /// The syntax of its type.
    Syntax,
    /// The syntax and the rules.
    Rules,
}

/// Parses the value of `entry` as a value of `field`.
pub fn read(
    field: &Field,
    entry: &TomlEntry<'_>,
    against: LiteralChecks,
    mistakes: &mut Mistakes,
) -> Option<Value> {
    read_node(field, entry.key, entry.node, against, mistakes)
}

/// Parses the list in `entry`, each element as a value of `field`.
pub fn read_list(field: &Field, entry: &TomlEntry<'_>, mistakes: &mut Mistakes) -> Vec<Value> {
    let DeValue::Array(array) = entry.node.get_ref() else {
        entry.add_expected("a list of values", mistakes);
        return Vec::new();
    };
    if array.is_empty() {
        mistakes.add(entry.span(), format!("`{}` is empty: no value would fit", entry.key));
    }
    let mut values = Vec::new();
    for node in array {
        let Some(value) = read_node(field, entry.key, node, LiteralChecks::Rules, mistakes) else {
            continue;
        };
        if values.contains(&value) {
            mistakes.add(node.span(), format!("this value stands in `{}` twice", entry.key));
        }
        values.push(value);
    }
    values
}

fn read_node(
    field: &Field,
    key: &str,
    node: &TomlNode<'_>,
    against: LiteralChecks,
    mistakes: &mut Mistakes,
) -> Option<Value> {
    let mut text = String::new();
    if let Err((span, what)) = write_json(node, &mut text) {
        mistakes.add(span, format!("`{key}` cannot hold {what}: JSON has no such value"));
        return None;
    }
    let json = json::parse(text.as_bytes(), DEPTH_MAX).unwrap_or(Json::Null);
    let mut faults = FaultCollector::at_root(String::new());
    let value = match against {
        LiteralChecks::Syntax => (field.kind.read)(field, &json, &mut faults),
        LiteralChecks::Rules => types::read(field, &json, &mut faults),
    };
    for fault in faults.into_list() {
        let place = fault.pointer.trim_start_matches('/');
        let place = if place.is_empty() { String::new() } else { format!(" at {place}") };
        mistakes.add(
            node.span(),
            format!("`{key}` does not fit its own field{place}: {}", fault.detail),
        );
    }
    value
}

/// Writes the value as JSON text; fails at a number that JSON lacks.
fn write_json(node: &TomlNode<'_>, out: &mut String) -> Result<(), (Range<usize>, &'static str)> {
    match node.get_ref() {
        DeValue::String(text) => write_text(text, out),
        DeValue::Integer(number) => match i128::from_str_radix(number.as_str(), number.radix()) {
            Ok(value) => out.push_str(&value.to_string()),
            Err(_) => return Err((node.span(), "an integer of that size")),
        },
        DeValue::Float(number) => {
            let text = number.as_str();
            if text.contains(['n', 'i']) {
                return Err((node.span(), "`nan` or `inf`"));
            }
            out.push_str(text.strip_prefix('+').unwrap_or(text));
        }
        DeValue::Boolean(value) => out.push_str(if *value { "true" } else { "false" }),
        DeValue::Datetime(value) => write_text(&value.to_string(), out),
        DeValue::Array(array) => {
            out.push('[');
            for (index, node) in array.iter().enumerate() {
                out.push_str(if index == 0 { "" } else { "," });
                write_json(node, out)?;
            }
            out.push(']');
        }
        DeValue::Table(table) => {
            out.push('{');
            for (index, (key, node)) in table.iter().enumerate() {
                out.push_str(if index == 0 { "" } else { "," });
                write_text(key.get_ref(), out);
                out.push(':');
                write_json(node, out)?;
            }
            out.push('}');
        }
    }
    Ok(())
}

fn write_text(text: &str, out: &mut String) {
    let mut bytes = Vec::new();
    json::write_text(&mut bytes, text);
    out.push_str(&String::from_utf8(bytes).unwrap_or_default());
}
