//! Schema differences: the consequences of a changed model for stored data (migration).
//!
//! Only additions are differences to apply: a resource, or a field that existing rows do not need. A change
//! that could lose or break data is refused with a reason, by resource, because a resource without items has
//! nothing to lose. A change that does not affect stored data (looser rules, other defaults, more states,
//! filters, roles) is no difference at all: indexes are made from the new model. Whether it affects a running
//! server with the old model is a separate question, which `loosened_rules` answers.

use std::cmp::Ordering;
use std::fmt::Display;

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
    let mut found = Vec::new();
    for resource in new.declared() {
        match find(old, &resource.name) {
            Some(before) => {
                let mut comparison = ModelComparison::new(resource, &mut found);
                comparison.compare_resources((old, before), (new, resource));
            }
            None => found.push(Difference::AddResource(resource.index)),
        }
    }
    for resource in old.declared().filter(|resource| find(new, &resource.name).is_none()) {
        ModelComparison::new(resource, &mut found)
            .refuse("the resource was removed, but the database keeps its items");
    }
    found
}

fn find<'m>(model: &'m Model, name: &str) -> Option<&'m Resource> {
    model.declared().find(|resource| &*resource.name == name)
}

type ModelResource<'m> = (&'m Model, &'m Resource);

/// The comparison of one part of a resource; collects the differences.
struct ModelComparison<'m, 'd> {
    resource: &'m str,
    /// Of the part, from the name of the resource.
    path: String,
    found: &'d mut Vec<Difference>,
}

impl<'m, 'd> ModelComparison<'m, 'd> {
    fn new(resource: &'m Resource, found: &'d mut Vec<Difference>) -> Self {
        Self { resource: &resource.name, path: resource.name.to_string(), found }
    }

    /// The comparison of an inner part: `.name` or `[]`.
    fn inner(&mut self, step: &str) -> ModelComparison<'m, '_> {
        let path = format!("{}{step}", self.path);
        ModelComparison { resource: self.resource, path, found: self.found }
    }

    fn field(&mut self, field: &Field) -> ModelComparison<'m, '_> {
        self.inner(&format!(".{}", field.name))
    }

    fn refuse(&mut self, reason: &str) {
        let reason = format!("{}: {reason}", self.path);
        self.found.push(Difference::Refused { resource: self.resource.into(), reason });
    }

    fn refuse_if(&mut self, is_refused: bool, reason: &str) {
        if is_refused {
            self.refuse(reason);
        }
    }

    /// Whether both are equal; if not, the change is refused.
    fn refuse_change<T: PartialEq + Display>(
        &mut self,
        what: &str,
        (was, is): (T, T),
        why: &str,
    ) -> bool {
        let is_same = was == is;
        self.refuse_if(!is_same, &format!("{what} changed from {was} to {is}{why}"));
        is_same
    }

    fn compare_resources(
        &mut self,
        (old, before): ModelResource<'m>,
        (new, after): ModelResource<'m>,
    ) {
        let parent = |(model, resource): ModelResource<'m>| {
            resource.parent.map(|parent| &*model.resource(parent).name)
        };
        let id = |resource: &Resource| match resource.id {
            IdKind::Uuid => "uuid",
            IdKind::Integer => "integer",
        };
        // A resource may be called `none`.
        let (was, is) = (parent((old, before)), parent((new, after)));
        let (from, to) = (was.unwrap_or("none"), is.unwrap_or("none"));
        let reason =
            format!("the parent changed from {from} to {to}, but the items belong where they are");
        self.refuse_if(was != is, &reason);
        let plurals = (&before.plural, &after.plural);
        self.refuse_change("the plural", plurals, ", but it is the name of the table");
        self.refuse_change("the kind of id", (id(before), id(after)), ", but ids never change");
        for (index, field) in after.fields.iter().enumerate() {
            let Some((_, was)) = before.field(&field.name) else {
                self.add_field(after, index, field);
                continue;
            };
            let target = |model: &'m Model, field: &Field| {
                field.rules.reference.map(|to| &*model.resource(to.resource).name)
            };
            let is_other =
                was.kind.name == field.kind.name && target(old, was) != target(new, field);
            let mut comparison = self.field(field);
            let reason = "the ref points to another resource, but the stored ids do not";
            comparison.refuse_if(is_other, reason);
            comparison.compare_fields(was, field);
        }
        for field in before.fields.iter().filter(|field| after.field(&field.name).is_none()) {
            self.field(field).refuse("the field was removed, but the database keeps values for it");
        }
        self.compare_uniques(before, after);
    }

    fn add_field(&mut self, resource: &Resource, index: usize, field: &Field) {
        const NO_VALUE: &str = "but the items that are there have no value for it";
        if field.computed.is_some() {
            self.field(field).refuse(&format!("the new field is computed, {NO_VALUE}"));
        } else if field.required {
            let reason =
                format!("the new field is required, {NO_VALUE}; give it a default instead");
            self.field(field).refuse(&reason);
        } else {
            self.found.push(Difference::AddField(resource.index, index));
        }
    }

    /// A unique rule may be dropped; a new one may be violated by stored items.
    fn compare_uniques(&mut self, before: &Resource, after: &Resource) {
        for unique in &after.unique {
            // A new field without a default is NULL everywhere, and NULLs do not violate a unique rule.
            let harmless = unique_fields(unique, after)
                .any(|field| before.field(&field.name).is_none() && field.default.is_none());
            if !harmless && !is_implied(after, unique, before) {
                self.inner(&format!(".{}", unique_names(unique, after)))
                    .refuse("the values are unique now, but those that are there may not be");
            }
        }
    }

    fn compare_fields(&mut self, before: &Field, after: &Field) {
        let (was, is) = (&before.rules, &after.rules);
        if !self.refuse_change("the type", (before.kind.name, after.kind.name), "")
            || !self.refuse_change("the scale", (was.scale, is.scale), "")
        {
            return;
        }
        let text = |field: &Field| field.computed.as_ref().map(|computed| computed.text.clone());
        match (text(before), text(after)) {
            (before, after) if before == after => {}
            (Some(_), None) => {
                self.refuse("the field is no longer computed, but its values were");
            }
            (None, _) => {
                self.refuse("the field is computed now, but the values that are there were sent");
            }
            (Some(_), Some(_)) => self.refuse(
                "the expression changed, but the values that are there were computed by the old one",
            ),
        }
        // Missing and null are stored alike, so a field that was nullable may have no value although it was
        // required.
        let may_be_absent = !before.required || before.nullable;
        self.refuse_if(
            may_be_absent && after.required && !after.nullable,
            "the field is required now, but items may be without it; give it a default instead",
        );
        let choices = has_fewer_choices(was, is).then_some("one_of");
        for rule in tightened_rules(was, is).into_iter().chain(choices) {
            let reason = format!("{rule} is stricter now, and values that are there may break it");
            self.refuse(&reason);
        }
        if let (Some(was), Some(is)) = (&was.states, &is.states) {
            let is_gone = |state: &str| !is.next.iter().any(|(other, _)| **other == *state);
            for (state, _) in was.next.iter().filter(|(state, _)| is_gone(state)) {
                self.refuse(&format!("the state {state} was removed, but items may be in it"));
            }
        }
        if let (Some(was), Some(is)) = (&was.element, &is.element) {
            self.inner("[]").compare_fields(was, is);
        }
        self.compare_members(&was.fields, &is.fields);
    }

    /// The fields of an object are inside stored JSON text, which is not rewritten.
    fn compare_members(&mut self, before: &[Field], after: &[Field]) {
        for field in after {
            let mut comparison = self.field(field);
            match before.iter().find(|other| other.name == field.name) {
                Some(was) => {
                    comparison.compare_fields(was, field);
                    comparison.refuse_if(
                        was.nullable != field.nullable,
                        "nullable changed inside an object, but stored objects are not rewritten",
                    );
                }
                None if field.required => {
                    comparison.refuse("the new field is required, but stored objects do not have it");
                }
                None => comparison.refuse_if(
                    field.default.is_some() || field.nullable,
                    "a new field inside an object can have no default and not be nullable: stored objects are not rewritten",
                ),
            }
        }
        let is_gone = |field: &&Field| !after.iter().any(|other| other.name == field.name);
        for field in before.iter().filter(is_gone) {
            self.field(field).refuse("the field was removed, but stored objects may have it");
        }
    }
}

/// Whether the unique rules of the other version of a resource imply this one.
fn is_implied(resource: &Resource, unique: &UniqueRule, other: &Resource) -> bool {
    other.unique.iter().any(|rule| {
        let wide_enough =
            rule.scope == UniqueScope::Resource || unique.scope == UniqueScope::Parent;
        let has = |name: &str| unique_fields(unique, resource).any(|field| *field.name == *name);
        wide_enough && unique_fields(rule, other).all(|field| has(&field.name))
    })
}

fn unique_fields<'r>(
    unique: &'r UniqueRule,
    resource: &'r Resource,
) -> impl Iterator<Item = &'r Field> {
    unique.fields.iter().filter_map(|index| resource.fields.get(*index))
}

fn unique_names(unique: &UniqueRule, resource: &Resource) -> String {
    unique_fields(unique, resource).map(|field| &*field.name).collect::<Vec<_>>().join("+")
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
            let names = unique_names(unique, before);
            lines.push(format!("{}.{names}: the values are unique", before.name));
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
