//! The rules (constraints) of a field, and whether they are consistent.

use std::cmp::Ordering;

use regex::{Regex, RegexBuilder};

use super::literal::{self, LiteralChecks};
use super::toml_tree::{TomlTable, TomlText};
use crate::model::field::Field;
use crate::model::types;

/// Size limit of a compiled pattern; a few kilobytes are usual.
const PATTERN_BYTES_MAX: usize = 1024 * 1024;

/// Fills in `field.rules`. `table` has only keys that the type allows.
pub fn read(field: &mut Field, table: &TomlTable<'_>) {
    let count = |key: &str| table.count(key).and_then(|count| usize::try_from(count).ok());
    let bound =
        |field: &Field, key: &str| literal::read(field, table.find(key)?, LiteralChecks::Syntax);
    field.rules.min = bound(field, "min");
    field.rules.max = bound(field, "max");
    field.rules.min_length = count("min_length");
    field.rules.max_length = count("max_length");
    field.rules.min_items = count("min_items");
    field.rules.max_items = count("max_items");
    field.rules.pattern = table.text("pattern").and_then(|text| read_pattern(&text));
    check_consistent(field, table);
    if let Some(entry) = table.find("one_of") {
        field.rules.one_of = literal::read_list(field, entry);
    }
}

fn read_pattern(text: &TomlText<'_>) -> Option<Regex> {
    match RegexBuilder::new(text.value).size_limit(PATTERN_BYTES_MAX).build() {
        Ok(pattern) => return Some(pattern),
        Err(regex::Error::CompiledTooBig(_)) => text.refuse_with_help(
            "the pattern is too large",
            "repeat less: `{1000}` of a large class takes much memory",
        ),
        Err(error) => {
            // The last line of the message is the reason; the others repeat the pattern.
            let error = error.to_string();
            let reason = error.lines().last().unwrap_or_default().trim_start_matches("error: ");
            text.refuse(format!("`pattern` is not a regular expression: {reason}"));
        }
    }
    None
}

/// Reports lower limits above upper limits.
fn check_consistent(field: &Field, table: &TomlTable<'_>) {
    let rules = &field.rules;
    let is_above =
        |min: Option<usize>, max: Option<usize>| min.zip(max).is_some_and(|(a, b)| a > b);
    let bounds = rules.min.as_ref().zip(rules.max.as_ref());
    for (low, high, is_above) in [
        (
            "min",
            "max",
            bounds.and_then(|(min, max)| types::compare(min, max)) == Some(Ordering::Greater),
        ),
        ("min_length", "max_length", is_above(rules.min_length, rules.max_length)),
        ("min_items", "max_items", is_above(rules.min_items, rules.max_items)),
    ] {
        if let Some(entry) = table.find(low).filter(|_| is_above) {
            entry.refuse(format!("`{low}` is above `{high}`: no value would fit"));
        }
    }
}
