//! Differences between the rules of two versions of a field.

use std::cmp::Ordering;

use super::field::FieldRules;
use super::types;
use crate::value::Value;

/// The rules that values which satisfy the old rules may violate.
pub fn tightened_rules(before: &FieldRules, after: &FieldRules) -> Vec<&'static str> {
    let bound =
        |before: &Option<Value>, after: &Option<Value>, stricter: Ordering| match (before, after) {
            (Some(before), Some(after)) => types::compare(after, before) == Some(stricter),
            (None, Some(_)) => true,
            (_, None) => false,
        };
    let least =
        |before: Option<usize>, after: Option<usize>| after.unwrap_or(0) > before.unwrap_or(0);
    let most = |before: Option<usize>, after: Option<usize>| {
        after.unwrap_or(usize::MAX) < before.unwrap_or(usize::MAX)
    };
    let pattern =
        |rules: &FieldRules| rules.pattern.as_ref().map(|pattern| pattern.as_str().to_owned());
    [
        ("min", bound(&before.min, &after.min, Ordering::Greater)),
        ("max", bound(&before.max, &after.max, Ordering::Less)),
        ("min_length", least(before.min_length, after.min_length)),
        ("max_length", most(before.max_length, after.max_length)),
        ("pattern", after.pattern.is_some() && pattern(before) != pattern(after)),
        ("min_items", least(before.min_items, after.min_items)),
        ("max_items", most(before.max_items, after.max_items)),
    ]
    .into_iter()
    .filter_map(|(name, stricter)| stricter.then_some(name))
    .collect()
}

/// Whether values that were allowed are not any more.
pub fn has_fewer_choices(before: &FieldRules, after: &FieldRules) -> bool {
    !after.one_of.is_empty()
        && (before.one_of.is_empty()
            || before.one_of.iter().any(|value| !after.one_of.contains(value)))
}
