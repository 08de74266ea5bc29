//! One resource of the model file: its fields, and the rules that involve several of them.

use toml::de::DeValue;

use super::field::{self, FieldContext};
use super::field_keys::FieldPosition;
use super::resource_names::{ResourceHeader, ResourceNames};
use super::toml_tree::{TomlEntry, TomlTable, TomlText};
use super::{checks, deprecation, expression, keys, renames};
use crate::model::builtin::NAME_CHARS_MAX;
use crate::model::expr::{self, ExprScope, ResourceScope};
use crate::model::field::{AuditedUser, Field, FieldRules, OnDelete, ResourceIndex, StorageClass};
use crate::model::resource::{
    ChangeLogDetail, ItemCheck, Resource, UniqueConflict, UniqueRule, UniqueScope,
};
use crate::model::settings::RealmIndex;
use crate::model::types;

/// A resource whose relations are not resolved yet.
#[derive(Debug)]
pub struct ResourceDraft<'t> {
    pub resource: Resource,
    /// Names of the fields that have mistakes.
    pub invalid_fields: Vec<&'t str>,
    /// The names of all declared fields.
    pub declared: Vec<TomlText<'t>>,
}

pub fn read<'t>(names: &ResourceNames<'t>, user_fields: &[Field]) -> Vec<ResourceDraft<'t>> {
    let context = FieldContext { names, user_fields, position: FieldPosition::Resource, level: 0 };
    let headers = names.headers.iter().enumerate();
    headers.map(|(index, header)| read_draft(ResourceIndex(index), header, context)).collect()
}

fn read_draft<'t>(
    index: ResourceIndex,
    header: &ResourceHeader<'t>,
    context: FieldContext<'_, 't>,
) -> ResourceDraft<'t> {
    let names = context.names;
    let (name, table) = (header.name.value, &header.table);
    table.check(&keys::RESOURCE);
    if let Some(entry) = table.find("on_delete").filter(|_| table.find("parent").is_none()) {
        let message = format!("`on_delete` needs a `parent`, which `{name}` has not");
        let help =
            "it says what deleting the parent does; a `ref` field has an `on_delete` of its own";
        entry.key.refuse_with_help(message, help);
    }
    let (mut fields, invalid_fields) =
        table.find("fields").map(|entry| field::read_all(entry, context)).unwrap_or_default();
    let entries = table.table("fields").unwrap_or_default().entries;
    fields.extend(audit_fields(table, &entries));
    let resource = Resource {
        index,
        name: name.into(),
        plural: header.plural.as_str().into(),
        is_builtin: false,
        is_server_made: false,
        is_retained: false,
        table: header.plural.as_str().into(),
        label: name.into(),
        parent: header.parent,
        parent_key: None,
        ancestor_keys: Vec::new(),
        flat: None,
        children: Vec::new(),
        referrers: Vec::new(),
        depth: 0,
        on_delete: table.choice("on_delete", keys::ON_DELETE).unwrap_or(OnDelete::Restrict),
        id: header.id,
        realm: RealmIndex::default(),
        fields,
        unique: Vec::new(),
        conflict: table
            .choice("conflict", keys::UNIQUE_CONFLICTS)
            .unwrap_or(UniqueConflict::Silent),
        checks: Vec::new(),
        require_if_match: table.flag("require_if_match").unwrap_or(false),
        changes: table
            .choice("changes", keys::CHANGE_LOG_DETAILS)
            .unwrap_or(ChangeLogDetail::Values),
        deprecated: deprecation::read(table, "resource", name, &names.all().collect::<Vec<_>>()),
        renamed_from: read_former_name(index, header, names),
    };
    let declared = entries.iter().map(|entry| entry.key.clone()).collect();
    let mut draft = ResourceDraft { resource, invalid_fields, declared };
    draft.check_single_field_types(&entries);
    draft.read_computed_fields(&entries);
    draft.resource.checks = draft.read_checks(table);
    draft.resource.unique = draft.read_unique_fields(&entries, table);
    let groups = table.find("unique").map(|entry| draft.read_unique_groups(entry));
    draft.resource.unique.extend(groups.unwrap_or_default());
    if let Some(entry) = table.find("conflict").filter(|_| draft.resource.unique.is_empty()) {
        let help = "it says what a clash of unique values is; take it out";
        entry.key.refuse_with_help("`conflict` needs a unique field, or a group of them", help);
    }
    draft
}

/// The fields that `created_by = true` and `updated_by = true` add. `relations` refuses declared ones of these names.
fn audit_fields(table: &TomlTable<'_>, declared: &[TomlEntry<'_>]) -> Vec<Field> {
    let is_added = |user: &AuditedUser| {
        table.flag(user.name()) == Some(true)
            && !declared.iter().any(|entry| entry.key.value == user.name())
    };
    let added = AuditedUser::ALL.into_iter().filter(is_added);
    let rules = || FieldRules { max_length: Some(NAME_CHARS_MAX), ..FieldRules::default() };
    let field = |user: AuditedUser| Field {
        audit: Some(user),
        filter: true,
        rules: rules(),
        ..Field::new(user.name(), &types::TEXT)
    };
    added.map(field).collect()
}

fn read_former_name(
    index: ResourceIndex,
    header: &ResourceHeader<'_>,
    names: &ResourceNames<'_>,
) -> Option<Box<str>> {
    let earlier = names.headers.iter().take(index.0);
    let earlier = earlier.filter_map(|header| Some(header.table.text("renamed_from")?.value));
    renames::read(&header.table, &names.all().collect::<Vec<_>>(), earlier)
}

impl ResourceDraft<'_> {
    /// The names that conditions of roles may use.
    pub fn names(&self) -> ResourceScope<'_> {
        let Self { resource, invalid_fields, .. } = self;
        let Resource { name, parent, id, fields, .. } = resource;
        ResourceScope { name, parent: *parent, id: *id, fields, invalid_fields }
    }

    /// The valid fields, each with its index and its table in the file.
    fn tables<'t>(
        &self,
        entries: &[TomlEntry<'t>],
    ) -> impl Iterator<Item = (usize, &Field, TomlEntry<'t>, TomlTable<'t>)> {
        let fields = self.resource.fields.iter().enumerate();
        fields.filter_map(|(index, field)| {
            let entry = entries.iter().find(|entry| entry.key.value == &*field.name)?;
            Some((index, field, entry.clone(), entry.table()?))
        })
    }

    /// Checks types that only one field of a resource can have.
    fn check_single_field_types(&self, entries: &[TomlEntry<'_>]) {
        let fields = &self.resource.fields;
        for (index, second, entry, _) in self.tables(entries) {
            let name = second.kind.name;
            let Some(help) = second.kind.replacement_when_repeated else { continue };
            if let Some(first) = fields.iter().take(index).find(|field| field.kind.name == name) {
                let first = &first.name;
                let message =
                    format!("a resource has one {name} at most, and `{first}` is one already");
                entry.key.refuse_with_help(message, help);
            }
        }
    }

    fn read_computed_fields(&mut self, entries: &[TomlEntry<'_>]) {
        // Types that cannot be computed have refused the key already.
        let texts: Vec<_> = self
            .tables(entries)
            .filter(|(_, field, _, _)| field.kind.keys.contains(&"computed"))
            .filter_map(|(index, _, entry, table)| {
                Some((index, entry.key.value, table.text("computed")?))
            })
            .collect();
        let computed: Vec<&str> = texts.iter().map(|(_, name, _)| *name).collect();
        for (index, _, text) in &texts {
            let fields = &self.resource.fields;
            let scope = ExprScope {
                fields,
                invalid_fields: &self.invalid_fields,
                computed_fields: &computed,
                relations: None,
            };
            let expression = fields.get(*index).and_then(|target| {
                expression::read(text, expr::parse_computed(text.value, target, scope))
            });
            if let Some(field) = self.resource.fields.get_mut(*index) {
                field.computed = expression;
            }
        }
    }

    fn read_checks(&self, table: &TomlTable<'_>) -> Vec<ItemCheck> {
        let Some(entry) = table.find("check") else { return Vec::new() };
        let scope = ExprScope {
            fields: &self.resource.fields,
            invalid_fields: &self.invalid_fields,
            computed_fields: &[],
            relations: None,
        };
        checks::read(entry, scope)
    }

    /// Reads `unique = true` and `unique = "parent"` of fields.
    fn read_unique_fields(
        &self,
        entries: &[TomlEntry<'_>],
        resource: &TomlTable<'_>,
    ) -> Vec<UniqueRule> {
        let mut unique = Vec::new();
        let tables = self.tables(entries);
        for (index, _, _, table) in
            tables.filter(|(_, field, _, _)| field.kind.keys.contains(&"unique"))
        {
            let Some(entry) = table.find("unique") else { continue };
            let scope = match entry.node.get_ref() {
                DeValue::Boolean(false) => continue,
                DeValue::Boolean(true) => UniqueScope::Resource,
                DeValue::String(scope) if scope == "parent" => UniqueScope::Parent,
                _ => {
                    entry.refuse("`unique` expected true, false or \"parent\"");
                    continue;
                }
            };
            if scope == UniqueScope::Parent && resource.find("parent").is_none() {
                let help = "say `unique = true`: unique among all items of the resource";
                entry
                    .refuse_with_help("`unique = \"parent\"` needs a resource with a parent", help);
            }
            unique.push(UniqueRule { fields: vec![index], scope });
        }
        unique
    }

    /// Reads `unique = [["a", "b"]]` of the resource.
    fn read_unique_groups(&self, entry: &TomlEntry<'_>) -> Vec<UniqueRule> {
        let Some(groups) = entry.elements() else {
            let help =
                "on a resource it takes groups of fields: unique = [[\"street\", \"number\"]]";
            entry.refuse_with_help("`unique` expected a list of lists of fields", help);
            return Vec::new();
        };
        let mut unique: Vec<UniqueRule> = Vec::new();
        for group in groups.filter(TomlEntry::check_list_of_texts) {
            let texts = group.texts();
            let mut fields = self.find_fields(&texts, |name| format!("there is no field `{name}`"));
            let is_json = |index: &usize| {
                let field = self.resource.fields.get(*index);
                field.is_some_and(|field| field.storage_class() == StorageClass::Json)
            };
            for index in fields.extract_if(.., |index| is_json(index)) {
                let name = self.resource.fields.get(index).map_or("", |field| &*field.name);
                if let Some(text) = texts.iter().find(|text| text.value == name) {
                    text.refuse(format!(
                        "`{name}` is a list, an object or json and cannot be unique"
                    ));
                }
            }
            if texts.len() < 2 {
                let help = "for one field, say `unique = true` on the field";
                group.refuse_with_help("a group of `unique` has at least two fields", help);
            }
            let rule = UniqueRule { fields, scope: UniqueScope::Resource };
            if rule.fields.len() > 1 && unique.contains(&rule) {
                group.refuse("this group stands here twice");
            }
            unique.push(rule);
        }
        unique
    }

    /// The indices of the named fields, without duplicates; `missing` is the message for an unknown one.
    pub fn find_fields(
        &self,
        texts: &[TomlText<'_>],
        missing: impl Fn(&str) -> String,
    ) -> Vec<usize> {
        let mut indices = Vec::new();
        for text in texts {
            match self.resource.field(text.value) {
                Some((index, _)) if indices.contains(&index) => {
                    text.refuse(format!("`{}` stands here twice", text.value));
                }
                Some((index, _)) => indices.push(index),
                None if self.invalid_fields.contains(&text.value) => {}
                None => {
                    let known = self.resource.fields.iter().map(|field| &*field.name);
                    text.refuse_unknown(missing(text.value), known);
                }
            }
        }
        indices
    }
}
