//! The rules (constraints) of a field, and whether they are consistent.

use std::cmp::Ordering;

use regex::RegexBuilder;

use super::literal::{self, LiteralChecks};
use super::toml_tree::{TomlEntry, TomlTable};
use crate::model::field::Field;
use crate::model::report::Mistakes;
use crate::model::types;
use crate::value::Value;

/// Size limit of a compiled pattern; a few kilobytes are usual.
const PATTERN_BYTES_MAX: usize = 1024 * 1024;

/// Fills in `field.rules`. Keys that the type does not allow have been refused already.
pub fn read(field: &mut Field, table: &TomlTable<'_>, mistakes: &mut Mistakes) {
    let fits = |key: &str| table.find(key).filter(|_| field.kind.keys.contains(&key));
    let count = |key: &str, least: u64, mistakes: &mut Mistakes| {
        let count = fits(key)?.count(least..u64::MAX, mistakes)?;
        usize::try_from(count).ok()
    };
    let min_length = count("min_length", 0, mistakes);
    let max_length = count("max_length", 1, mistakes);
    let min_items = count("min_items", 0, mistakes);
    let max_items = count("max_items", 1, mistakes);
    let pattern = fits("pattern").and_then(|entry| read_pattern(entry, mistakes));
    let (min, max) = (fits("min").cloned(), fits("max").cloned());
    let one_of = fits("one_of").cloned();
    field.rules.min = min.and_then(|entry| read_bound(field, &entry, mistakes));
    field.rules.max = max.and_then(|entry| read_bound(field, &entry, mistakes));
    field.rules.min_length = min_length;
    field.rules.max_length = max_length;
    field.rules.min_items = min_items;
    field.rules.max_items = max_items;
    field.rules.pattern = pattern;
    check_consistent(field, table, mistakes);
    if let Some(entry) = one_of {
        field.rules.one_of = literal::read_list(field, &entry, mistakes);
    }
}

fn read_bound(field: &Field, entry: &TomlEntry<'_>, mistakes: &mut Mistakes) -> Option<Value> {
    literal::read(field, entry, LiteralChecks::Syntax, mistakes)
}

fn read_pattern(entry: &TomlEntry<'_>, mistakes: &mut Mistakes) -> Option<regex::Regex> {
    let text = entry.text(mistakes)?;
    match RegexBuilder::new(text.value).size_limit(PATTERN_BYTES_MAX).build() {
        Ok(pattern) => Some(pattern),
        Err(regex::Error::CompiledTooBig(_)) => {
            mistakes.add_with_help(
                text.span,
                "the pattern is too large",
                "repeat less: `{1000}` of a large class takes much memory",
            );
            None
        }
        Err(error) => {
            // The last line of the message is the reason; the others repeat the pattern.
            let error = error.to_string();
            let reason =
                error.lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned();
            mistakes.add(text.span, format!("`pattern` is not a regular expression: {reason}"));
            None
        }
    }
}

/// Reports lower limits above upper limits.
fn check_consistent(field: &Field, table: &TomlTable<'_>, mistakes: &mut Mistakes) {
    let rules = &field.rules;
    let mut refuse = |low: &str, high: &str| {
        if let Some(entry) = table.find(low) {
            mistakes.add(entry.span(), format!("`{low}` is above `{high}`: no value would fit"));
        }
    };
    if let (Some(min), Some(max)) = (&rules.min, &rules.max)
        && types::compare(min, max) == Some(Ordering::Greater)
    {
        refuse("min", "max");
    }
    if matches!((rules.min_length, rules.max_length), (Some(min), Some(max)) if min > max) {
        refuse("min_length", "max_length");
    }
    if matches!((rules.min_items, rules.max_items), (Some(min), Some(max)) if min > max) {
        refuse("min_items", "max_items");
    }
}
