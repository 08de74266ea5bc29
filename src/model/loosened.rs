//! Rules that a changed model drops, and that a running server with the old model relies on.

use super::diff::{find, is_implied, unique_names};
use super::field::Field;
use super::resource::Model;
use super::rule_diff::{check_names, has_check, tightened_rules};

/// The rules of one model that another one drops, one line each: a server that runs with the first model
/// relies on them. More words in `one_of` and more states are not listed, since they only add.
pub fn loosened_rules(strict: &Model, loose: &Model) -> Vec<String> {
    let mut lines = Vec::new();
    for before in strict.declared() {
        let Some(after) = find(loose, &before.name) else { continue };
        for field in &before.fields {
            let Some((_, other)) = after.field(&field.name) else { continue };
            loosened_field(&format!("{}.{}", before.name, field.name), field, other, &mut lines);
        }
        for unique in before.unique.iter().filter(|unique| !is_implied(before, unique, after)) {
            let names = unique_names(unique, before);
            lines.push(format!("{}.{names}: the values are unique", before.name));
        }
        for check in before.checks.iter().filter(|check| !has_check(after, check)) {
            let (resource, names) = (&before.name, check_names(check, before));
            lines.push(format!("{resource}.{names}: the check `{}` holds", check.that.text));
        }
    }
    lines
}

fn loosened_field(field_path: &str, strict: &Field, loose: &Field, lines: &mut Vec<String>) {
    let is_required = |field: &Field| field.required && !field.nullable;
    if is_required(strict) && !is_required(loose) {
        lines.push(format!("{field_path}: the field is required"));
    }
    for rule in tightened_rules(&loose.rules, &strict.rules) {
        lines.push(format!("{field_path}: {rule} is stricter"));
    }
    if let (Some(strict), Some(loose)) = (&strict.rules.element, &loose.rules.element) {
        loosened_field(&format!("{field_path}[]"), strict, loose, lines);
    }
    for field in &strict.rules.fields {
        let other = loose.rules.fields.iter().find(|other| other.name == field.name);
        if let Some(other) = other {
            loosened_field(&format!("{field_path}.{}", field.name), field, other, lines);
        }
    }
}
