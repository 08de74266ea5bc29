//! One resource of the model file: its fields, and the rules that involve several of them.

use std::ops::Range;

use super::field::{self, FieldContext};
use super::field_keys::FieldPosition;
use super::resource_names::{ResourceHeader, ResourceNames};
use super::toml_tree::{TomlEntry, TomlTable};
use super::{deprecation, expression, keys};
use crate::model::expr::ExprScope;
use crate::model::report::Mistakes;
use crate::model::{
    ChangeLogDetail, Field, RealmIndex, Resource, ResourceIndex, StorageClass, UniqueRule,
    UniqueScope,
};
use toml::de::DeValue;

/// A resource whose relations are not resolved yet.
#[derive(Debug)]
pub struct ResourceDraft<'t> {
    pub resource: Resource,
    /// Names of the fields that have mistakes.
    pub invalid_fields: Vec<&'t str>,
    /// Every declared field with its position.
    pub declared: Vec<(&'t str, Range<usize>)>,
}

pub fn read<'t>(names: &ResourceNames<'t>, mistakes: &mut Mistakes) -> Vec<ResourceDraft<'t>> {
    names
        .list
        .iter()
        .enumerate()
        .map(|(index, named)| read_draft(ResourceIndex(index), named, names, mistakes))
        .collect()
}

fn read_draft<'t>(
    index: ResourceIndex,
    named: &ResourceHeader<'t>,
    names: &ResourceNames<'t>,
    mistakes: &mut Mistakes,
) -> ResourceDraft<'t> {
    let table = &named.table;
    table.refuse_unknown_keys(&keys::names(keys::RESOURCE), "a resource", mistakes);
    if let Some(entry) = table.find("on_delete").filter(|_| table.find("parent").is_none()) {
        let help =
            "it says what deleting the parent does; a `ref` field has an `on_delete` of its own";
        mistakes.add_with_help(
            entry.key_span.clone(),
            format!("`on_delete` needs a `parent`, which `{}` has not", named.name),
            help,
        );
    }
    let context = FieldContext { names, place: FieldPosition::Resource, level: 0 };
    let (mut fields, broken) = match table.find("fields") {
        Some(entry) => field::read_all(entry, context, mistakes),
        None => Default::default(),
    };
    let entries = table
        .find("fields")
        .and_then(|entry| entry.node.get_ref().as_table())
        .map(TomlTable::new)
        .unwrap_or_default();
    check_single_field_types(&fields, &entries, mistakes);
    read_computed_fields(&mut fields, &broken, &entries, mistakes);
    let mut unique = read_unique_fields(&fields, &entries, table, mistakes);
    unique.extend(read_unique_groups(&fields, &broken, table, mistakes));
    let all: Vec<&str> = names.all().collect();
    let resource = Resource {
        index,
        name: named.name.into(),
        plural: named.plural.as_str().into(),
        is_builtin: false,
        table: named.plural.as_str().into(),
        label: named.name.into(),
        parent: named.parent,
        parent_key: None,
        children: Vec::new(),
        referrers: Vec::new(),
        depth: 0,
        on_delete: field::read_on_delete(table, mistakes),
        id: named.id,
        realm: RealmIndex::default(),
        fields,
        unique,
        require_if_match: table.flag("require_if_match", mistakes).unwrap_or_default(),
        changes: table
            .choice("changes", keys::CHANGES, mistakes)
            .unwrap_or(ChangeLogDetail::Values),
        deprecated: deprecation::read_deprecated(table, "resource", named.name, &all, mistakes),
    };
    let declared =
        entries.entries().iter().map(|entry| (entry.key, entry.key_span.clone())).collect();
    ResourceDraft { resource, invalid_fields: broken, declared }
}

/// Checks types that only one field of a resource can have.
fn check_single_field_types(fields: &[Field], entries: &TomlTable<'_>, mistakes: &mut Mistakes) {
    for (index, second) in fields.iter().enumerate() {
        let name = second.kind.name;
        let Some(help) = second.kind.replacement_when_repeated else { continue };
        let first = fields.iter().take(index).find(|field| field.kind.name == name);
        if let (Some(first), Some(entry)) = (first, entries.find(&second.name)) {
            let message =
                format!("a resource has one {name} at most, and `{}` is one already", first.name);
            mistakes.add_with_help(entry.key_span.clone(), message, help);
        }
    }
}

fn read_computed_fields(
    fields: &mut [Field],
    broken: &[&str],
    entries: &TomlTable<'_>,
    mistakes: &mut Mistakes,
) {
    let texts: Vec<_> = entries
        .entries()
        .iter()
        .filter_map(|entry| {
            let index = fields.iter().position(|field| *field.name == *entry.key)?;
            let computed =
                TomlTable::new(entry.node.get_ref().as_table()?).find("computed")?.clone();
            // Types that cannot be computed have refused the key already.
            let fits = fields.get(index)?.kind.keys.contains(&"computed");
            fits.then_some((index, entry.key, computed))
        })
        .collect();
    let computed: Vec<&str> = texts.iter().map(|(_, name, _)| *name).collect();
    for (index, _, entry) in &texts {
        let Some(text) = entry.text(mistakes) else { continue };
        let scope = ExprScope { fields, invalid_fields: broken, computed_fields: &computed };
        let expression = fields
            .get(*index)
            .and_then(|target| expression::read_computed(&text, target, scope, mistakes));
        if let Some(field) = fields.get_mut(*index) {
            field.computed = expression;
        }
    }
}

/// Reads `unique = true` and `unique = "parent"` of fields.
fn read_unique_fields(
    fields: &[Field],
    entries: &TomlTable<'_>,
    resource: &TomlTable<'_>,
    mistakes: &mut Mistakes,
) -> Vec<UniqueRule> {
    let mut unique = Vec::new();
    for (index, field) in fields.iter().enumerate() {
        let table = entries
            .find(&field.name)
            .and_then(|entry| entry.node.get_ref().as_table())
            .map(TomlTable::new);
        let Some(entry) = table.as_ref().and_then(|table| table.find("unique")) else { continue };
        if !field.kind.keys.contains(&"unique") {
            continue;
        }
        let scope = match entry.node.get_ref() {
            DeValue::Boolean(false) => continue,
            DeValue::Boolean(true) => UniqueScope::Resource,
            DeValue::String(scope) if scope == "parent" => {
                if resource.find("parent").is_none() {
                    let help = "say `unique = true`: unique among all items of the resource";
                    mistakes.add_with_help(
                        entry.span(),
                        "`unique = \"parent\"` needs a resource with a parent",
                        help,
                    );
                }
                UniqueScope::Parent
            }
            _ => {
                mistakes.add(entry.span(), "`unique` expected true, false or \"parent\"");
                continue;
            }
        };
        unique.push(UniqueRule { fields: vec![index], scope });
    }
    unique
}

/// Reads `unique = [["a", "b"]]` of the resource.
fn read_unique_groups(
    fields: &[Field],
    broken: &[&str],
    table: &TomlTable<'_>,
    mistakes: &mut Mistakes,
) -> Vec<UniqueRule> {
    let Some(entry) = table.find("unique") else { return Vec::new() };
    let DeValue::Array(groups) = entry.node.get_ref() else {
        let help = "on a resource it takes groups of fields: unique = [[\"street\", \"number\"]]";
        mistakes.add_with_help(entry.span(), "`unique` expected a list of lists of fields", help);
        return Vec::new();
    };
    let mut unique: Vec<UniqueRule> = Vec::new();
    for group in groups {
        let entry = TomlEntry { key: "unique", key_span: group.span(), node: group };
        let Some(texts) = entry.texts(mistakes) else { continue };
        let mut indices = Vec::new();
        for text in &texts {
            match fields.iter().position(|field| *field.name == *text.value) {
                Some(index) if indices.contains(&index) => {
                    mistakes.add(text.span.clone(), format!("`{}` stands here twice", text.value));
                }
                Some(index)
                    if fields
                        .get(index)
                        .is_some_and(|field| field.storage_class() == StorageClass::Json) =>
                {
                    mistakes.add(
                        text.span.clone(),
                        format!(
                            "`{}` is a list, an object or json and cannot be unique",
                            text.value
                        ),
                    );
                }
                Some(index) => indices.push(index),
                None if broken.contains(&text.value) => {}
                None => mistakes.add_unknown(
                    text.span.clone(),
                    format!("there is no field `{}`", text.value),
                    text.value,
                    fields.iter().map(|field| &*field.name),
                ),
            }
        }
        if texts.len() < 2 {
            let help = "for one field, say `unique = true` on the field";
            mistakes.add_with_help(
                group.span(),
                "a group of `unique` has at least two fields",
                help,
            );
        }
        let one = UniqueRule { fields: indices, scope: UniqueScope::Resource };
        if one.fields.len() > 1 && unique.contains(&one) {
            mistakes.add(group.span(), "this group stands here twice");
        }
        unique.push(one);
    }
    unique
}
