//! Differences between the rules of two versions of a field, and between the checks of a resource.

use std::cmp::Ordering;

use super::expr::{Expr, fails};
use super::field::{Field, FieldRules};
use super::resource::{ItemCheck, Resource};
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

/// Why the texts that are stored beside those of a field have to be made anew.
pub fn derived_change(before: &Field, after: &Field) -> Option<&'static str> {
    let (was, is) = (Vec::from_iter(before.derivations()), Vec::from_iter(after.derivations()));
    match was == is {
        true if is.is_empty() || before.derived_version == after.derived_version => None,
        true => Some("this version makes other texts for match and order, which are stored"),
        false => Some("match or order changed, and with it the texts that are stored for it"),
    }
}

/// The checks of the new version that stored items may break, by index.
pub fn tightened_checks(before: &Resource, after: &Resource) -> Vec<usize> {
    let checks = after.checks.iter().enumerate();
    let may_break = checks.filter(|(_, check)| {
        !has_check(before, check) && !holds_for_new_fields(before, after, &check.that)
    });
    may_break.map(|(index, _)| index).collect()
}

pub fn has_check(resource: &Resource, check: &ItemCheck) -> bool {
    resource.checks.iter().any(|other| other.that.text == check.that.text)
}

/// Whether a check is about new fields only, and holds for the values that these have in all stored items.
fn holds_for_new_fields(before: &Resource, after: &Resource, that: &Expr) -> bool {
    let is_constant = |field: &Field| {
        field.find_former(&before.fields).is_none()
            && field.computed.is_none()
            && field.fill.is_none()
    };
    let mut read = that.field_paths().into_iter();
    let value = |field: &Field| field.default.clone().unwrap_or(Value::Null);
    let values: Vec<Value> = after.fields.iter().map(value).collect();
    read.all(|(at, _)| after.fields.get(at).is_some_and(is_constant)) && !fails(that, &values)
}

/// The names of the fields that a check reads.
pub fn check_names(check: &ItemCheck, resource: &Resource) -> String {
    let mut names: Vec<&str> = Vec::new();
    for (at, _) in check.that.field_paths() {
        let name = resource.fields.get(at).map_or("", |field| &*field.name);
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.join("+")
}
