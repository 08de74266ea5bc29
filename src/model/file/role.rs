//! Roles and their grants. `"*"` stands for every resource that the role does not name itself.
//!
//! A grant may also name a server path: the webhooks with any verbs, the others for reading only.

use toml::de::DeValue;

use super::resource::ResourceDraft;
use super::toml_tree::{TomlEntry, TomlTable, find_meaning, type_name};
use super::{expression, keys};
use crate::model::builtin::{self, ADMIN};
use crate::model::expr::{self, RelationScope, ResourceScope};
use crate::model::field::{Field, ResourceIndex};
use crate::model::resource::{Grant, GrantVerb, Role};

pub fn read(
    root: &TomlTable<'_>,
    drafts: &[ResourceDraft<'_>],
    user_fields: &[Field],
) -> Vec<Role> {
    let table = root.table("roles").unwrap_or_default();
    let resources: Vec<ResourceScope<'_>> = drafts.iter().map(ResourceDraft::names).collect();
    let relations = RelationScope { resources: &resources, row: ResourceIndex(0), user_fields };
    table.entries.iter().map(|entry| read_role(entry, drafts, relations)).collect()
}

fn read_role(
    entry: &TomlEntry<'_>,
    drafts: &[ResourceDraft<'_>],
    relations: RelationScope<'_>,
) -> Role {
    let name = entry.key.value;
    entry.key.check_name("role");
    if name == ADMIN {
        let help = "it is built in and may do everything; give this role another name";
        entry.key.refuse_with_help("the role `admin` cannot be declared", help);
    }
    let table = entry.table().unwrap_or_default();
    let names = drafts.iter().map(|draft| &*draft.resource.name);
    let mut role = Role {
        name: name.into(),
        grants: Vec::new(),
        can_read_metrics: false,
        can_read_changes: false,
    };
    let mut all = None;
    for entry in &table.entries {
        match entry.key.value {
            "*" => all = read_grant_all(entry),
            "/-/metrics" => role.can_read_metrics |= can_read_path(entry),
            "/-/users" if can_read_path(entry) => {
                let [users, ..] = builtin::indices(drafts.len());
                role.grants.push(unrestricted_grant(users, vec![GrantVerb::Get]));
            }
            "/-/users" => {}
            // With their deliveries.
            keys::WEBHOOKS_PATH => {
                let [_, webhooks, deliveries] = builtin::indices(drafts.len());
                let verbs = read_verbs(entry).unwrap_or_default();
                let grant = |resource| unrestricted_grant(resource, verbs.clone());
                role.grants.extend([webhooks, deliveries].map(grant));
            }
            "/-/changes" => role.can_read_changes |= can_read_path(entry),
            path if path.starts_with('/') => {
                let message = format!("`{path}` cannot be granted");
                entry.key.refuse_unknown(message, keys::SERVER_PATHS);
            }
            _ => {
                let draft = entry.key.find("resource", names.clone()).and_then(|at| drafts.get(at));
                role.grants.extend(
                    draft.into_iter().flat_map(|draft| read_grants(entry, draft, relations)),
                );
            }
        }
    }
    let unnamed = drafts.iter().filter(|draft| table.find(&draft.resource.name).is_none());
    if let Some(verbs) = all {
        let grant = |draft: &ResourceDraft<'_>| {
            unrestricted_grant(draft.resource.index, Vec::clone(&verbs))
        };
        role.grants.extend(unnamed.map(grant));
    }
    role.grants.sort_by_key(|grant| grant.resource);
    role
}

/// Only reading can be granted: a caller who can write users could make themselves an administrator.
fn can_read_path(entry: &TomlEntry<'_>) -> bool {
    let is_get = |verbs: Vec<GrantVerb>| verbs == [GrantVerb::Get];
    let can_read = entry.node.get_ref().is_array() && read_verbs(entry).is_some_and(is_get);
    if !can_read {
        let message = format!("of `{}` only reading can be granted", entry.key.value);
        entry.refuse_with_help(message, "write [\"get\"]; the rest is for admins");
    }
    can_read
}

fn unrestricted_grant(resource: ResourceIndex, verbs: Vec<GrantVerb>) -> Grant {
    Grant { resource, verbs, condition: None, hide: Vec::new(), readonly: Vec::new() }
}

fn read_grant_all(entry: &TomlEntry<'_>) -> Option<Vec<GrantVerb>> {
    if entry.node.get_ref().is_table() {
        let help = "fields differ from resource to resource: name the resource to say `where`, `hide` or `readonly`";
        entry.refuse_with_help("\"*\" takes verbs alone", help);
        return None;
    }
    read_verbs(entry)
}

/// One grant, or a list of them with their own conditions.
fn read_grants(
    entry: &TomlEntry<'_>,
    draft: &ResourceDraft<'_>,
    relations: RelationScope<'_>,
) -> Vec<Grant> {
    let elements: Vec<TomlEntry<'_>> = entry.elements().into_iter().flatten().collect();
    if elements.iter().any(|element| element.node.get_ref().is_table()) {
        return elements.iter().filter_map(|one| read_grant(one, draft, relations)).collect();
    }
    read_grant(entry, draft, relations).into_iter().collect()
}

fn read_grant(
    entry: &TomlEntry<'_>,
    draft: &ResourceDraft<'_>,
    relations: RelationScope<'_>,
) -> Option<Grant> {
    let resource = draft.resource.index;
    if !entry.node.get_ref().is_table() {
        return read_verbs(entry).map(|verbs| unrestricted_grant(resource, verbs));
    }
    let table = entry.table()?;
    table.check(&keys::GRANT);
    let verbs = table.find("verbs").map(read_verbs);
    if verbs.is_none() {
        let help = "say what may be done: verbs = [\"get\"]";
        entry.key.refuse_with_help("a grant needs `verbs`", help);
    }
    let declared = &draft.resource;
    let condition = table.text("where").and_then(|text| {
        let parsed =
            relations.of(resource).and_then(|names| expr::parse_condition(text.value, names));
        expression::read(&text, parsed)
    });
    let [hide, readonly] = ["hide", "readonly"].map(|key| read_field_names(&table, key, draft));
    let both = hide.iter().find(|index| readonly.contains(index));
    if let (Some(entry), Some(field)) =
        (table.find("readonly"), both.and_then(|index| declared.fields.get(*index)))
    {
        let name = &field.name;
        let message = format!("`{name}` is hidden, so nobody with this role can change it anyway");
        entry.refuse_with_help(message, "take it out of `readonly` or out of `hide`");
    }
    let verbs = verbs??;
    if verbs.contains(&GrantVerb::Post) {
        check_can_create(&table, "hide", &hide, draft);
        check_can_create(&table, "readonly", &readonly, draft);
    }
    Some(Grant { resource, verbs, condition, hide, readonly })
}

/// A role that creates items must be able to set all required fields.
fn check_can_create(table: &TomlTable<'_>, key: &str, fields: &[usize], draft: &ResourceDraft<'_>) {
    let fields = fields.iter().filter_map(|index| draft.resource.fields.get(*index));
    // A required field has no constant default.
    for (field, entry) in fields
        .filter(|field| field.required && field.default_from.is_none())
        .zip(table.find(key).into_iter().cycle())
    {
        let name = &field.name;
        entry.refuse_with_help(
            format!("`{name}` is required, but this role creates items and cannot send it"),
            format!(
                "give `{name}` a `default` in place of `required`, or take \"post\" out of `verbs`"
            ),
        );
    }
}

fn read_verbs(entry: &TomlEntry<'_>) -> Option<Vec<GrantVerb>> {
    match entry.node.get_ref() {
        DeValue::String(all) if all == "*" => {
            return Some(keys::GRANT_VERBS.iter().map(|(_, verb)| *verb).collect());
        }
        DeValue::Array(_) => {
            entry.check_words("verb", &keys::words(keys::GRANT_VERBS));
            let verbs = entry.texts().into_iter();
            return Some(
                verbs.filter_map(|text| find_meaning(text.value, keys::GRANT_VERBS)).collect(),
            );
        }
        DeValue::String(one) => entry.refuse_with_help(
            format!("expected a list of verbs, got {one:?}"),
            format!("put verbs into a list: [{one:?}]; only \"*\", all verbs, stands alone"),
        ),
        _ => {
            let got = type_name(entry.node);
            entry.refuse(format!("expected \"*\" or a list of verbs, got {got}"));
        }
    }
    None
}

fn read_field_names(table: &TomlTable<'_>, key: &str, draft: &ResourceDraft<'_>) -> Vec<usize> {
    let texts = table.find(key).map(TomlEntry::texts).unwrap_or_default();
    draft.find_fields(&texts, |name| format!("`{}` has no field `{name}`", draft.resource.name))
}
