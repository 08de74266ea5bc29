//! Schema differences: the consequences of a changed model for stored data (migration).
//!
//! Additions are applied at startup: a resource, or a field that existing rows do not need. All other changes of
//! stored data are left to `nouns migrate`, with what it has to do; a resource without items has nothing to lose, so
//! startup rebuilds its table. A change that does not affect stored data (looser rules, other defaults, more states,
//! filters, roles) is no difference at all: indexes are made from the new model. Whether it affects a running
//! server with the old model is a separate question, which `loosened` answers.

use std::fmt::Display;

use super::field::{Field, ResourceIndex};
use super::resource::{Model, Resource, UniqueRule, UniqueScope};
use super::rule_diff::{
    check_names, derived_change, has_fewer_choices, tightened_checks, tightened_rules,
};
use super::type_conversion;
use crate::value::IdKind;

/// One difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Difference {
    /// Indices refer to the new model.
    AddResource(ResourceIndex),
    AddField(ResourceIndex, usize),
    Change(ModelChange),
}

/// A change that startup does not make while the resource has items.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelChange {
    /// In the old model.
    pub resource: ResourceIndex,
    /// The changed part, such as `customer.name`: by its new name, or by its old one if it was removed.
    pub path: String,
    /// The change, and its effect on stored items.
    pub reason: String,
    pub effect: MigrationEffect,
    /// The field of the new resource whose values have to be checked or written.
    pub field: Option<usize>,
}

impl ModelChange {
    /// The line of a message.
    pub fn describe(&self) -> String {
        format!("{}: {}", self.path, self.reason)
    }
}

/// The effect of a change on stored data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MigrationEffect {
    /// Tables and columns get other names.
    Rename,
    /// Stored data is deleted.
    Remove,
    /// Values are converted, computed or filled in.
    Rewrite,
    /// Values that clients have sent are replaced by computed ones.
    Overwrite,
    /// The texts that follow from a field are made anew; its values stay.
    Derive,
    /// Values that are there may violate a rule.
    Check,
    /// Values that are there may violate this unique rule of the new resource.
    CheckUnique(usize),
    /// Items that are there may break this check of the new resource.
    CheckItem(usize),
    /// No migration can do this while there are items.
    Refuse,
}

/// The differences to apply, in the order of the new model, and those that need a migration.
pub fn compare(old: &Model, new: &Model) -> Vec<Difference> {
    let mut found = Vec::new();
    for resource in new.declared() {
        match former_resource(old, resource) {
            Some(before) => {
                let mut comparison = ModelComparison::new(before, resource, &mut found);
                comparison.compare_resources((old, before), (new, resource));
            }
            None => found.push(Difference::AddResource(resource.index)),
        }
    }
    let is_kept =
        |resource: &Resource| new.declared().any(|one| is_former(old, resource.index, one));
    for resource in old.declared().filter(|resource| !is_kept(resource)) {
        ModelComparison::new(resource, resource, &mut found).add(
            MigrationEffect::Remove,
            "the resource was removed, but the database keeps its items",
        );
    }
    found
}

pub fn find<'m>(model: &'m Model, name: &str) -> Option<&'m Resource> {
    model.declared().find(|resource| &*resource.name == name)
}

/// The resource of the old model that one of the new model continues: by its name, or by its former name.
pub fn former_resource<'m>(old: &'m Model, resource: &Resource) -> Option<&'m Resource> {
    find(old, &resource.name).or_else(|| find(old, resource.renamed_from.as_deref()?))
}

fn is_former(old: &Model, index: ResourceIndex, resource: &Resource) -> bool {
    former_resource(old, resource).is_some_and(|former| former.index == index)
}

type ModelResource<'m> = (&'m Model, &'m Resource);

/// The comparison of one part of a resource; collects the differences.
struct ModelComparison<'d> {
    resource: ResourceIndex,
    field: Option<usize>,
    /// Of the part, from the name of the resource.
    path: String,
    found: &'d mut Vec<Difference>,
}

impl<'d> ModelComparison<'d> {
    fn new(before: &Resource, named: &Resource, found: &'d mut Vec<Difference>) -> Self {
        Self { resource: before.index, field: None, path: named.name.to_string(), found }
    }

    /// The comparison of an inner part: `.name` or `[]`.
    fn inner(&mut self, step: &str) -> ModelComparison<'_> {
        let path = format!("{}{step}", self.path);
        ModelComparison { resource: self.resource, field: self.field, path, found: self.found }
    }

    fn field(&mut self, name: &str, at: Option<usize>) -> ModelComparison<'_> {
        let mut inner = self.inner(&format!(".{name}"));
        inner.field = inner.field.or(at);
        inner
    }

    fn add(&mut self, effect: MigrationEffect, reason: &str) {
        self.found.push(Difference::Change(ModelChange {
            resource: self.resource,
            path: self.path.clone(),
            reason: reason.to_owned(),
            effect,
            field: self.field,
        }));
    }

    fn add_if(&mut self, is_found: bool, effect: MigrationEffect, reason: &str) {
        if is_found {
            self.add(effect, reason);
        }
    }

    /// Whether both are equal; if not, the change is added.
    fn compare_values<T: PartialEq + Display>(
        &mut self,
        what: &str,
        (was, is): (T, T),
        (effect, why): (MigrationEffect, &str),
    ) -> bool {
        let is_same = was == is;
        self.add_if(!is_same, effect, &format!("{what} changed from {was} to {is}{why}"));
        is_same
    }

    fn compare_resources(
        &mut self,
        (old, before): ModelResource<'_>,
        (new, after): ModelResource<'_>,
    ) {
        self.compare_identity((old, before), (new, after));
        for (index, field) in after.fields.iter().enumerate() {
            let Some((_, was)) = field.find_former(&before.fields) else {
                self.add_field(after, index, field);
                continue;
            };
            let mut comparison = self.field(&field.name, Some(index));
            comparison.compare_names(was, field, MigrationEffect::Rename);
            comparison.refuse_ambiguous_name(&before.fields, field);
            comparison.compare_targets((old, was), (new, field));
            comparison.compare_fields(was, field);
        }
        for field in removed_fields(&before.fields, &after.fields) {
            self.field(&field.name, None).add(
                MigrationEffect::Remove,
                "the field was removed, but the database keeps values for it",
            );
        }
        self.compare_uniques(before, after);
        for index in tightened_checks(before, after) {
            let Some(check) = after.checks.get(index) else { continue };
            let reason = format!(
                "the check `{}` is new, and items that are there may break it",
                check.that.text
            );
            self.inner(&format!(".{}", check_names(check, after)))
                .add(MigrationEffect::CheckItem(index), &reason);
        }
    }

    /// Compares the targets of references.
    fn compare_targets(&mut self, (old, was): (&Model, &Field), (new, is): (&Model, &Field)) {
        let target = |field: &Field| field.rules.reference.or(field.many_references());
        let (Some(was), Some(is)) = (target(was), target(is)) else { return };
        let is_other = !is_former(old, was.resource, new.resource(is.resource));
        // The number of an item is also the number of another item elsewhere; a UUID is not.
        let (effect, reason) = match is.id {
            IdKind::Integer => (
                MigrationEffect::Overwrite,
                "the ref points to another resource, where its numbers are other items",
            ),
            IdKind::Uuid => (
                MigrationEffect::Rewrite,
                "the ref points to another resource, but the stored ids may not be there",
            ),
        };
        self.add_if(is_other, effect, reason);
        let reason = "the kind of id of its target changed, but the stored ids did not";
        self.add_if(!is_other && was.id != is.id, MigrationEffect::Rewrite, reason);
    }

    /// Compares names, parents and kinds of id.
    fn compare_identity(
        &mut self,
        (old, before): ModelResource<'_>,
        (new, after): ModelResource<'_>,
    ) {
        let both = after.renamed_from.as_deref().filter(|_| before.name == after.name);
        if let Some(former) = both.filter(|name| find(old, name).is_some()) {
            let reason = format!(
                "the resource was renamed from {former}, but {name} is stored too; remove {name} in a migration of its \
                 own, or take out renamed_from",
                name = after.name
            );
            self.add(MigrationEffect::Refuse, &reason);
        }
        let renamed = format!("the resource was renamed from {}", before.name);
        self.add_if(before.name != after.name, MigrationEffect::Rename, &renamed);
        let is_same_parent = match (before.parent, after.parent) {
            (None, None) => true,
            (Some(was), Some(is)) => is_former(old, was, new.resource(is)),
            _ => false,
        };
        // A resource may be called `none`.
        let name = |(model, resource): ModelResource<'_>| {
            resource.parent.map_or("none".into(), |parent| model.resource(parent).name.clone())
        };
        let (from, to) = (name((old, before)), name((new, after)));
        let reason =
            format!("the parent changed from {from} to {to}, but the items belong where they are");
        self.add_if(!is_same_parent, MigrationEffect::Refuse, &reason);
        let parent_id = |(model, resource): ModelResource<'_>| {
            resource.parent.map(|parent| model.resource(parent).id)
        };
        let is_other_kind = is_same_parent && parent_id((old, before)) != parent_id((new, after));
        let reason = "the kind of id of its parent changed, but ids never change";
        self.add_if(is_other_kind, MigrationEffect::Refuse, reason);
        let is_key_renamed = is_same_parent && before.parent_key != after.parent_key;
        let reason = format!("the parent was renamed from {from} to {to}");
        self.add_if(is_key_renamed, MigrationEffect::Rename, &reason);
        let plurals = (&before.plural, &after.plural);
        let table = (MigrationEffect::Rename, ", but it is the name of the table");
        self.compare_values("the plural", plurals, table);
        let id = |resource: &Resource| match resource.id {
            IdKind::Uuid => "uuid",
            IdKind::Integer => "integer",
        };
        let never = (MigrationEffect::Refuse, ", but ids never change");
        self.compare_values("the kind of id", (id(before), id(after)), never);
    }

    /// Which values does the field have: those of its name, or those of its former name?
    fn refuse_ambiguous_name(&mut self, before: &[Field], field: &Field) {
        let is_stored = |name: &str| before.iter().any(|one| *one.name == *name);
        let former = field.renamed_from.as_deref().filter(|name| is_stored(name));
        if let Some(former) = former.filter(|_| is_stored(&field.name)) {
            let reason = format!(
                "the field was renamed from {former}, but {name} is stored too; remove {name} in a migration of its own, or \
                 take out renamed_from",
                name = field.name
            );
            self.add(MigrationEffect::Refuse, &reason);
        }
    }

    fn compare_names(&mut self, before: &Field, after: &Field, effect: MigrationEffect) {
        let reason = format!("the field was renamed from {}", before.name);
        self.add_if(before.name != after.name, effect, &reason);
    }

    fn add_field(&mut self, resource: &Resource, index: usize, field: &Field) {
        const NO_VALUE: &str = "but the items that are there have no value for it";
        let mut comparison = self.field(&field.name, Some(index));
        if field.computed.is_some() {
            comparison
                .add(MigrationEffect::Rewrite, &format!("the new field is computed, {NO_VALUE}"));
        } else if field.fill.is_some() {
            comparison
                .add(MigrationEffect::Rewrite, &format!("the new field has a fill, {NO_VALUE}"));
        } else if field.required && !field.nullable {
            let reason = format!(
                "the new field is required, {NO_VALUE}; give it a fill, or a default instead"
            );
            comparison.add(MigrationEffect::Check, &reason);
        } else {
            self.found.push(Difference::AddField(resource.index, index));
        }
    }

    /// A unique rule may be dropped; a new one may be violated by stored items.
    fn compare_uniques(&mut self, before: &Resource, after: &Resource) {
        for (index, unique) in after.unique.iter().enumerate() {
            // A new field without a default is NULL everywhere, and NULLs do not violate a unique rule.
            let harmless = unique_fields(unique, after).any(|field| {
                field.find_former(&before.fields).is_none()
                    && field.default.is_none()
                    && field.fill.is_none()
                    && field.computed.is_none()
            });
            // A rule that was there holds for the stored values, but not for those that the migration writes.
            let is_written = unique.fields.iter().any(|at| self.is_written(*at));
            if !harmless && (is_written || !is_implied(after, unique, before)) {
                self.inner(&format!(".{}", unique_names(unique, after))).add(
                    MigrationEffect::CheckUnique(index),
                    "the values are unique now, but those that are there may not be",
                );
            }
        }
    }

    /// Whether the values of a field are written, as far as its changes were found.
    fn is_written(&self, at: usize) -> bool {
        use MigrationEffect::{Overwrite, Rewrite};
        self.found.iter().any(|difference| match difference {
            Difference::Change(change) => {
                (change.resource, change.field) == (self.resource, Some(at))
                    && matches!(change.effect, Rewrite | Overwrite)
            }
            _ => false,
        })
    }

    fn compare_fields(&mut self, before: &Field, after: &Field) {
        let (was, is) = (&before.rules, &after.rules);
        self.compare_expressions(before, after);
        if let Some(reason) = derived_change(before, after) {
            self.add(MigrationEffect::Derive, reason);
        }
        let conversion = match type_conversion::can_convert(before, after) {
            true => (MigrationEffect::Rewrite, ""),
            false => (MigrationEffect::Refuse, ", and there is no conversion"),
        };
        if !self.compare_values("the type", (before.kind.name, after.kind.name), conversion)
            || !self.compare_values(
                "the scale",
                (was.scale, is.scale),
                (MigrationEffect::Rewrite, ""),
            )
        {
            return;
        }
        // Missing and null are stored alike, so a field that was nullable may have no value although it was
        // required.
        let may_be_absent = !before.required || before.nullable;
        let (effect, remedy) = match after.fill {
            Some(_) => (MigrationEffect::Rewrite, "they get its fill"),
            None => (MigrationEffect::Check, "give it a fill, or a default instead"),
        };
        self.add_if(
            may_be_absent && after.required && !after.nullable,
            effect,
            &format!("the field is required now, but items may be without it; {remedy}"),
        );
        let choices = has_fewer_choices(was, is).then_some("one_of");
        for rule in tightened_rules(was, is).into_iter().chain(choices) {
            let reason = format!("{rule} is stricter now, and values that are there may break it");
            self.add(MigrationEffect::Check, &reason);
        }
        if let (Some(was), Some(is)) = (&was.states, &is.states) {
            let is_gone = |state: &str| !is.next.iter().any(|(other, _)| **other == *state);
            for (state, _) in was.next.iter().filter(|(state, _)| is_gone(state)) {
                let moved_to = is.moved_to.iter().find(|(from, _)| from == state);
                let reason = format!("the state {state} was removed, but items may be in it");
                match moved_to {
                    Some((_, to)) => {
                        self.add(MigrationEffect::Rewrite, &format!("{reason}; they move to {to}"));
                    }
                    None => self.add(
                        MigrationEffect::Check,
                        &format!("{reason}; say where they go with moved_to"),
                    ),
                }
            }
        }
        if let (Some(was), Some(is)) = (&was.element, &is.element) {
            self.inner("[]").compare_fields(was, is);
        }
        self.compare_members(&was.fields, &is.fields);
    }

    fn compare_expressions(&mut self, before: &Field, after: &Field) {
        let text = |field: &Field| field.computed.as_ref().map(|computed| computed.text.clone());
        match (text(before), text(after)) {
            (before, after) if before == after => {}
            (Some(_), None) => self.add(
                MigrationEffect::Check,
                "the field is no longer computed, but its values were",
            ),
            (None, _) => self.add(
                MigrationEffect::Overwrite,
                "the field is computed now, but the values that are there were sent",
            ),
            (Some(_), Some(_)) => self.add(
                MigrationEffect::Rewrite,
                "the expression changed, but the values that are there were computed by the old one",
            ),
        }
    }

    /// The fields of an object are inside stored JSON text, which only a migration rewrites.
    fn compare_members(&mut self, before: &[Field], after: &[Field]) {
        for field in after {
            let mut comparison = self.field(&field.name, None);
            let reason = match field.find_former(before) {
                Some((_, was)) => {
                    comparison.compare_names(was, field, MigrationEffect::Rewrite);
                    comparison.compare_fields(was, field);
                    comparison.add_if(
                        was.nullable != field.nullable,
                        MigrationEffect::Rewrite,
                        "nullable changed inside an object, but stored objects have the former form",
                    );
                    continue;
                }
                None if field.fill.is_some() => "the new field has a fill",
                None if field.required => {
                    comparison.add(
                        MigrationEffect::Check,
                        "the new field is required, but stored objects do not have it; give it a fill",
                    );
                    continue;
                }
                None if field.default.is_some() => "the new field has a default",
                None if field.nullable => "the new field is nullable",
                None => continue,
            };
            comparison.add(
                MigrationEffect::Rewrite,
                &format!("{reason}, but stored objects do not have it"),
            );
        }
        for field in removed_fields(before, after) {
            self.field(&field.name, None).add(
                MigrationEffect::Remove,
                "the field was removed, but stored objects may have it",
            );
        }
    }
}

/// The old fields that no new one continues.
pub fn removed_fields<'f>(
    before: &'f [Field],
    after: &'f [Field],
) -> impl Iterator<Item = &'f Field> {
    before.iter().enumerate().filter_map(move |(index, field)| {
        let is_kept = after
            .iter()
            .any(|one| one.find_former(before).is_some_and(|(former, _)| former == index));
        (!is_kept).then_some(field)
    })
}

/// Whether the unique rules of the other version of a resource imply this one.
pub fn is_implied(resource: &Resource, unique: &UniqueRule, other: &Resource) -> bool {
    other.unique.iter().any(|rule| {
        let wide_enough =
            rule.scope == UniqueScope::Resource || unique.scope == UniqueScope::Parent;
        // By their names in the other version: one of both is the older one, with the former names.
        let has = |name: &str| {
            unique_fields(unique, resource)
                .any(|field| *field.name == *name || field.renamed_from.as_deref() == Some(name))
        };
        wide_enough && unique_fields(rule, other).all(|field| has(&field.name))
    })
}

fn unique_fields<'r>(
    unique: &'r UniqueRule,
    resource: &'r Resource,
) -> impl Iterator<Item = &'r Field> {
    unique.fields.iter().filter_map(|index| resource.fields.get(*index))
}

pub fn unique_names(unique: &UniqueRule, resource: &Resource) -> String {
    unique_fields(unique, resource).map(|field| &*field.name).collect::<Vec<_>>().join("+")
}

#[cfg(test)]
mod tests;
