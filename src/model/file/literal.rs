//! Literals in the model file (`default`, `min`, `max`, `one_of`), parsed by the same code as a body.
//!
//! A TOML value is converted to JSON text first. TOML values that JSON lacks are refused (`inf`, `nan`) or
//! become text (dates).

use std::ops::Range;

use toml::de::DeValue;

use super::toml_tree::{TomlEntry, TomlNode};
use crate::json;
use crate::model::field::Field;
use crate::model::types;
use crate::problem::FaultCollector;
use crate::value::Value;

/// The maximum nesting depth. Dotted keys inside one another can exceed it.
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
pub fn read(field: &Field, entry: &TomlEntry<'_>, checks: LiteralChecks) -> Option<Value> {
    let key = entry.key.value;
    let mut text = Vec::new();
    if let Err((span, what)) = write_json(entry.node, &mut text) {
        let message = format!("`{key}` cannot hold {what}: JSON has no such value");
        entry.key.refuse_at(span, message, None);
        return None;
    }
    let Ok(json) = json::parse(&text, DEPTH_MAX) else {
        entry.refuse(format!("`{key}` is nested too deeply: at most {DEPTH_MAX} levels"));
        return None;
    };
    let mut faults = FaultCollector::at_root(String::new());
    let value = match checks {
        LiteralChecks::Syntax => (field.kind.read)(field, &json, &mut faults),
        LiteralChecks::Rules => types::read(field, &json, &mut faults),
    };
    for fault in faults.into_list() {
        let place = fault.pointer.trim_start_matches('/');
        let place = if place.is_empty() { String::new() } else { format!(" at {place}") };
        entry.refuse(format!("`{key}` does not fit its own field{place}: {}", fault.detail));
    }
    value
}

/// Parses the list in `entry`, each element as a value of `field`.
pub fn read_list(field: &Field, entry: &TomlEntry<'_>) -> Vec<Value> {
    let Some(elements) = entry.elements() else {
        entry.refuse_type("a list of values");
        return Vec::new();
    };
    let key = entry.key.value;
    if entry.is_empty_list() {
        entry.refuse(format!("`{key}` is empty: no value would fit"));
    }
    let mut values = Vec::new();
    for element in elements {
        let Some(value) = read(field, &element, LiteralChecks::Rules) else { continue };
        if values.contains(&value) {
            element.refuse(format!("this value stands in `{key}` twice"));
        }
        values.push(value);
    }
    values
}

/// Writes the value as JSON text; fails at a number that JSON lacks.
fn write_json(node: &TomlNode<'_>, out: &mut Vec<u8>) -> Result<(), (Range<usize>, &'static str)> {
    match node.get_ref() {
        DeValue::String(text) => json::write_text(out, text),
        DeValue::Integer(number) => match i128::from_str_radix(number.as_str(), number.radix()) {
            Ok(value) => out.extend_from_slice(value.to_string().as_bytes()),
            Err(_) => return Err((node.span(), "an integer of that size")),
        },
        DeValue::Float(number) => {
            let text = number.as_str();
            if text.contains(['n', 'i']) {
                return Err((node.span(), "`nan` or `inf`"));
            }
            out.extend_from_slice(text.strip_prefix('+').unwrap_or(text).as_bytes());
        }
        DeValue::Boolean(value) => out.extend_from_slice(value.to_string().as_bytes()),
        DeValue::Datetime(value) => json::write_text(out, &value.to_string()),
        DeValue::Array(array) => {
            out.push(b'[');
            for (index, node) in array.iter().enumerate() {
                out.extend_from_slice(if index == 0 { b"" } else { b"," });
                write_json(node, out)?;
            }
            out.push(b']');
        }
        DeValue::Table(table) => {
            out.push(b'{');
            for (index, (key, node)) in table.iter().enumerate() {
                out.extend_from_slice(if index == 0 { b"" } else { b"," });
                json::write_text(out, key.get_ref());
                out.push(b':');
                write_json(node, out)?;
            }
            out.push(b'}');
        }
    }
    Ok(())
}
