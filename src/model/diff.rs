//! Schema differences: the consequences of a changed model for stored data (migration).
//!
//! Only additions are differences to apply: a resource, or a field that existing rows do not need. A change
//! that could lose or break data is refused with a reason, by resource, because a resource without items has
//! nothing to lose. A change that does not affect stored data (looser rules, other defaults, more states,
//! filters, roles) is no difference at all: indexes are made from the new model. Whether it affects a running
//! server with the old model is a separate question, which `loosened_rules` answers.

use std::cmp::Ordering;

use super::field::{Field, FieldRules, ResourceIndex};
use super::resource::{Model, Resource, UniqueRule, UniqueScope};
use super::types;
use crate::value::{IdKind, Value};

/// One difference; indices refer to the new model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Difference {
    AddResource(ResourceIndex),
    AddField(ResourceIndex, usize),
    /// Why it cannot be applied while the resource of this name has items.
    Refused {
        resource: Box<str>,
        reason: String,
    },
}

/// The differences to apply, in the order of the new model, and those that are refused.
pub fn compare(old: &Model, new: &Model) -> Vec<Difference> {
    let mut differences = Vec::new();
    for resource in new.declared() {
        match find(old, &resource.name) {
            Some(before) => compare_resources((old, before), (new, resource), &mut differences),
            None => differences.push(Difference::AddResource(resource.index)),
        }
    }
    for resource in old.declared() {
        if find(new, &resource.name).is_none() {
            add_refusal(
                &mut differences,
                &resource.name,
                "the resource was removed, but the database keeps its items",
            );
        }
    }
    differences
}

fn find<'m>(model: &'m Model, name: &str) -> Option<&'m Resource> {
    model.declared().find(|resource| &*resource.name == name)
}

/// `path` begins with the name of the resource.
fn add_refusal(differences: &mut Vec<Difference>, path: &str, reason: &str) {
    let resource = path.split('.').next().unwrap_or(path).into();
    differences.push(Difference::Refused { resource, reason: format!("{path}: {reason}") });
}

type ModelResource<'m> = (&'m Model, &'m Resource);

/// Compares the table name and the kind of key.
fn compare_keys(before: &Resource, after: &Resource, differences: &mut Vec<Difference>) {
    if before.plural != after.plural {
        let message = format!(
            "the plural changed from {} to {}, but it is the name of the table",
            before.plural, after.plural
        );
        add_refusal(differences, &after.name, &message);
    }
    if before.id != after.id {
        let words = |kind: IdKind| match kind {
            IdKind::Uuid => "uuid",
            IdKind::Integer => "integer",
        };
        let message = format!(
            "the kind of id changed from {} to {}, but ids never change",
            words(before.id),
            words(after.id)
        );
        add_refusal(differences, &after.name, &message);
    }
}

fn compare_resources(
    (old, before): ModelResource<'_>,
    (new, after): ModelResource<'_>,
    differences: &mut Vec<Difference>,
) {
    let name = |model: &'_ Model, parent: Option<ResourceIndex>| {
        parent.map(|parent| model.resource(parent).name.clone())
    };
    if name(old, before.parent) != name(new, after.parent) {
        let words = |parent: Option<Box<str>>| parent.unwrap_or("none".into());
        let (was, is) = (words(name(old, before.parent)), words(name(new, after.parent)));
        add_refusal(
            differences,
            &after.name,
            &format!("the parent changed from {was} to {is}, but the items belong where they are"),
        );
    }
    compare_keys(before, after, differences);
    for (index, field) in after.fields.iter().enumerate() {
        let field_path = format!("{}.{}", after.name, field.name);
        match before.field(&field.name) {
            Some((_, was)) => {
                let target = |model: &Model, field: &Field| {
                    field.rules.reference.map(|to| model.resource(to.resource).name.clone())
                };
                if was.kind.name == field.kind.name && target(old, was) != target(new, field) {
                    add_refusal(
                        differences,
                        &field_path,
                        "the ref points to another resource, but the stored ids do not",
                    );
                }
                compare_fields(&field_path, was, field, differences);
            }
            None => add_field(after, index, field, differences),
        }
    }
    for field in &before.fields {
        if after.field(&field.name).is_none() {
            let field_path = format!("{}.{}", before.name, field.name);
            add_refusal(
                differences,
                &field_path,
                "the field was removed, but the database keeps values for it",
            );
        }
    }
    compare_uniques(before, after, differences);
}

fn add_field(resource: &Resource, index: usize, field: &Field, differences: &mut Vec<Difference>) {
    let field_path = format!("{}.{}", resource.name, field.name);
    if field.computed.is_some() {
        add_refusal(
            differences,
            &field_path,
            "the new field is computed, but the items that are there have no value for it",
        );
    } else if field.required {
        add_refusal(
            differences,
            &field_path,
            "the new field is required, but the items that are there have no value for it; give it a default instead",
        );
    } else {
        differences.push(Difference::AddField(resource.index, index));
    }
}

/// A unique rule may be dropped; a new one may be violated by stored items.
fn compare_uniques(before: &Resource, after: &Resource, differences: &mut Vec<Difference>) {
    for unique in &after.unique {
        // A new field without a default is NULL everywhere, and NULLs do not violate a unique rule.
        let harmless = unique_fields(unique, after)
            .any(|field| before.field(&field.name).is_none() && field.default.is_none());
        if !harmless && !is_implied(after, unique, before) {
            let names: Vec<&str> = unique_fields(unique, after).map(|field| &*field.name).collect();
            let path = format!("{}.{}", after.name, names.join("+"));
            add_refusal(
                differences,
                &path,
                "the values are unique now, but those that are there may not be",
            );
        }
    }
}

/// Whether the unique rules of the other version of a resource imply this one.
fn is_implied(resource: &Resource, unique: &UniqueRule, other: &Resource) -> bool {
    let names: Vec<&str> = unique_fields(unique, resource).map(|field| &*field.name).collect();
    other.unique.iter().any(|rule| {
        let wide_enough =
            rule.scope == UniqueScope::Resource || unique.scope == UniqueScope::Parent;
        wide_enough && unique_fields(rule, other).all(|field| names.contains(&&*field.name))
    })
}

fn unique_fields<'r>(
    unique: &'r UniqueRule,
    resource: &'r Resource,
) -> impl Iterator<Item = &'r Field> {
    unique.fields.iter().filter_map(|index| resource.fields.get(*index))
}

fn compare_fields(
    field_path: &str,
    before: &Field,
    after: &Field,
    differences: &mut Vec<Difference>,
) {
    if before.kind.name != after.kind.name {
        let message = format!("the type changed from {} to {}", before.kind.name, after.kind.name);
        return add_refusal(differences, field_path, &message);
    }
    if before.rules.scale != after.rules.scale {
        let message =
            format!("the scale changed from {} to {}", before.rules.scale, after.rules.scale);
        return add_refusal(differences, field_path, &message);
    }
    let text = |field: &Field| field.computed.as_ref().map(|expression| expression.text.clone());
    match (text(before), text(after)) {
        (before, after) if before == after => {}
        (Some(_), None) => {
            add_refusal(
                differences,
                field_path,
                "the field is no longer computed, but its values were",
            );
        }
        (None, Some(_)) => add_refusal(
            differences,
            field_path,
            "the field is computed now, but the values that are there were sent",
        ),
        _ => add_refusal(
            differences,
            field_path,
            "the expression changed, but the values that are there were computed by the old one",
        ),
    }
    // Missing and null are stored alike, so a field that was nullable may have no value although it was
    // required.
    let may_be_absent = !before.required || before.nullable;
    if may_be_absent && after.required && !after.nullable {
        add_refusal(
            differences,
            field_path,
            "the field is required now, but items may be without it; give it a default instead",
        );
    }
    for rule in tightened_rules(&before.rules, &after.rules) {
        let reason = format!("{rule} is stricter now, and values that are there may break it");
        add_refusal(differences, field_path, &reason);
    }
    if has_fewer_choices(&before.rules, &after.rules) {
        let reason = "one_of is stricter now, and values that are there may break it";
        add_refusal(differences, field_path, reason);
    }
    if let (Some(was), Some(is)) = (&before.rules.states, &after.rules.states) {
        for (state, _) in
            was.next.iter().filter(|(state, _)| !is.next.iter().any(|(other, _)| other == state))
        {
            add_refusal(
                differences,
                field_path,
                &format!("the state {state} was removed, but items may be in it"),
            );
        }
    }
    if let (Some(was), Some(is)) = (&before.rules.element, &after.rules.element) {
        compare_fields(&format!("{field_path}[]"), was, is, differences);
    }
    compare_members(field_path, &before.rules.fields, &after.rules.fields, differences);
}

/// The fields of an object are inside stored JSON text, which is not rewritten.
fn compare_members(
    field_path: &str,
    before: &[Field],
    after: &[Field],
    differences: &mut Vec<Difference>,
) {
    for field in after {
        let field_path = format!("{field_path}.{}", field.name);
        match before.iter().find(|other| other.name == field.name) {
            Some(was) => {
                compare_fields(&field_path, was, field, differences);
                if was.nullable != field.nullable {
                    add_refusal(
                        differences,
                        &field_path,
                        "nullable changed inside an object, but stored objects are not rewritten",
                    );
                }
            }
            None if field.required => add_refusal(
                differences,
                &field_path,
                "the new field is required, but stored objects do not have it",
            ),
            None if field.default.is_some() || field.nullable => {
                add_refusal(
                    differences,
                    &field_path,
                    "a new field inside an object can have no default and not be nullable: stored objects are not rewritten",
                );
            }
            None => {}
        }
    }
    for field in before.iter().filter(|field| !after.iter().any(|other| other.name == field.name)) {
        add_refusal(
            differences,
            &format!("{field_path}.{}", field.name),
            "the field was removed, but stored objects may have it",
        );
    }
}

/// The rules that values which satisfy the old rules may violate.
fn tightened_rules(before: &FieldRules, after: &FieldRules) -> Vec<&'static str> {
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

fn has_fewer_choices(before: &FieldRules, after: &FieldRules) -> bool {
    !after.one_of.is_empty()
        && (before.one_of.is_empty()
            || before.one_of.iter().any(|value| !after.one_of.contains(value)))
}

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
            let names: Vec<&str> =
                unique_fields(unique, before).map(|field| &*field.name).collect();
            lines.push(format!("{}.{}: the values are unique", before.name, names.join("+")));
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

#[cfg(test)]
mod tests;
