//! Roles and their grants. `"*"` stands for every resource that the role does not name itself.
//!
//! A grant may also name a server path, for reading only.

use super::resource::ResourceDraft;
use super::toml_tree::{TomlEntry, TomlTable, check_name};
use super::{expression, keys};
use crate::model::builtin::ADMIN;
use crate::model::expr::ExprScope;
use crate::model::report::Mistakes;
use crate::model::{Grant, GrantVerb, ResourceIndex, Role};
use toml::de::DeValue;

pub fn read(
    root: &TomlTable<'_>,
    drafts: &[ResourceDraft<'_>],
    mistakes: &mut Mistakes,
) -> Vec<Role> {
    let Some(table) = root.find("roles").and_then(|entry| entry.table(mistakes)) else {
        return Vec::new();
    };
    table.entries().iter().map(|entry| read_role(entry, drafts, mistakes)).collect()
}

fn read_role(entry: &TomlEntry<'_>, drafts: &[ResourceDraft<'_>], mistakes: &mut Mistakes) -> Role {
    check_name("role", entry.key, entry.key_span.clone(), mistakes);
    if entry.key == ADMIN {
        let help = "it is built in and may do everything; give this role another name";
        mistakes.add_with_help(entry.key_span.clone(), "the role `admin` cannot be declared", help);
    }
    let table = entry.table(mistakes).unwrap_or_default();
    let mut grants: Vec<Grant> = Vec::new();
    let mut all = None;
    let mut reads_metrics = false;
    for entry in table.entries() {
        if entry.key == "*" {
            all = read_grant_all(entry, mistakes);
        } else if entry.key.starts_with('/') {
            match read_server_path(entry, mistakes) {
                Some(ServerPath::Metrics) => reads_metrics = true,
                // The users come after all resources of the file.
                Some(ServerPath::Users) => {
                    grants.push(unrestricted_grant(
                        ResourceIndex(drafts.len()),
                        vec![GrantVerb::Get],
                    ));
                }
                None => {}
            }
        } else if let Some(draft) = drafts.iter().find(|draft| *draft.resource.name == *entry.key) {
            grants.extend(read_grant(entry, draft, mistakes));
        } else {
            let message = format!("there is no resource `{}`", entry.key);
            let known = drafts.iter().map(|draft| &*draft.resource.name);
            mistakes.add_unknown(entry.key_span.clone(), message, entry.key, known);
        }
    }
    if let Some(verbs) = all {
        for draft in drafts.iter().filter(|draft| table.find(&draft.resource.name).is_none()) {
            grants.push(unrestricted_grant(draft.resource.index, verbs.clone()));
        }
    }
    grants.sort_by_key(|grant| grant.resource);
    Role { name: entry.key.into(), grants, can_read_metrics: reads_metrics }
}

/// A server path that a role may read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServerPath {
    Metrics,
    Users,
}

/// Only reading can be granted: a caller who can write users could make themselves an administrator.
fn read_server_path(entry: &TomlEntry<'_>, mistakes: &mut Mistakes) -> Option<ServerPath> {
    let path = match entry.key {
        "/-/metrics" => ServerPath::Metrics,
        "/-/users" => ServerPath::Users,
        "/-/changes" => {
            let help = "take the grant out until it is";
            mistakes.add_with_help(entry.key_span.clone(), "`/-/changes` is not served yet", help);
            return None;
        }
        other => {
            let message = format!("`{other}` cannot be granted");
            mistakes.add_unknown(entry.key_span.clone(), message, other, keys::SERVER_PATHS);
            return None;
        }
    };
    let is_get = |verbs: Vec<GrantVerb>| verbs == [GrantVerb::Get];
    if entry.node.get_ref().is_array() && read_verbs(entry, mistakes).is_some_and(is_get) {
        return Some(path);
    }
    let message = format!("of `{}` only reading can be granted", entry.key);
    mistakes.add_with_help(entry.span(), message, "write [\"get\"]; the rest is for admins");
    None
}

fn unrestricted_grant(resource: ResourceIndex, verbs: Vec<GrantVerb>) -> Grant {
    Grant { resource, verbs, condition: None, hide: Vec::new(), readonly: Vec::new() }
}

fn read_grant_all(entry: &TomlEntry<'_>, mistakes: &mut Mistakes) -> Option<Vec<GrantVerb>> {
    if entry.node.get_ref().is_table() {
        let help = "fields differ from resource to resource: name the resource to say `where`, `hide` or `readonly`";
        mistakes.add_with_help(entry.span(), "\"*\" takes verbs alone", help);
        return None;
    }
    read_verbs(entry, mistakes)
}

fn read_grant(
    entry: &TomlEntry<'_>,
    draft: &ResourceDraft<'_>,
    mistakes: &mut Mistakes,
) -> Option<Grant> {
    let index = draft.resource.index;
    if !entry.node.get_ref().is_table() {
        return read_verbs(entry, mistakes).map(|verbs| unrestricted_grant(index, verbs));
    }
    let table = entry.table(mistakes)?;
    table.refuse_unknown_keys(&keys::names(keys::GRANT), "a grant", mistakes);
    let verbs = match table.find("verbs") {
        Some(entry) => read_verbs(entry, mistakes),
        None => {
            mistakes.add_with_help(
                entry.key_span.clone(),
                "a grant needs `verbs`",
                "say what may be done: verbs = [\"get\"]",
            );
            None
        }
    };
    let scope = ExprScope {
        fields: &draft.resource.fields,
        invalid_fields: &draft.invalid_fields,
        computed_fields: &[],
    };
    let only = table
        .text("where", mistakes)
        .and_then(|text| expression::read_condition(&text, scope, mistakes));
    let hide = read_field_names("hide", &table, draft, mistakes);
    let readonly = read_field_names("readonly", &table, draft, mistakes);
    if let Some(both) = hide.iter().find(|index| readonly.contains(index))
        && let (Some(entry), Some(field)) =
            (table.find("readonly"), draft.resource.fields.get(*both))
    {
        let message =
            format!("`{}` is hidden, so nobody with this role can change it anyway", field.name);
        mistakes.add_with_help(entry.span(), message, "take it out of `readonly` or out of `hide`");
    }
    let verbs = verbs?;
    if verbs.contains(&GrantVerb::Post) {
        for (key, fields) in [("hide", &hide), ("readonly", &readonly)] {
            check_can_create(&table, key, fields, draft, mistakes);
        }
    }
    Some(Grant { resource: index, verbs, condition: only, hide, readonly })
}

/// A role that creates items must be able to set all required fields.
fn check_can_create(
    table: &TomlTable<'_>,
    key: &str,
    fields: &[usize],
    draft: &ResourceDraft<'_>,
    mistakes: &mut Mistakes,
) {
    let fields = fields.iter().filter_map(|index| draft.resource.fields.get(*index));
    // A required field has no default.
    for field in fields.filter(|field| field.required) {
        if let Some(entry) = table.find(key) {
            let name = &field.name;
            let message =
                format!("`{name}` is required, but this role creates items and cannot send it");
            let help = format!(
                "give `{name}` a `default` in place of `required`, or take \"post\" out of `verbs`"
            );
            mistakes.add_with_help(entry.span(), message, help);
        }
    }
}

fn read_verbs(entry: &TomlEntry<'_>, mistakes: &mut Mistakes) -> Option<Vec<GrantVerb>> {
    match entry.node.get_ref() {
        DeValue::String(all) if all == "*" => {
            Some(keys::VERBS.iter().map(|(_, verb)| *verb).collect())
        }
        DeValue::String(one) => {
            let help =
                format!("put verbs into a list: [{one:?}]; only \"*\", all verbs, stands alone");
            mistakes.add_with_help(
                entry.span(),
                format!("expected a list of verbs, got {one:?}"),
                help,
            );
            None
        }
        DeValue::Array(_) => Some(entry.choices("verb", keys::VERBS, mistakes)),
        _ => {
            mistakes.add(
                entry.span(),
                format!(
                    "expected \"*\" or a list of verbs, got {}",
                    super::toml_tree::type_name(entry.node)
                ),
            );
            None
        }
    }
}

fn read_field_names(
    key: &str,
    table: &TomlTable<'_>,
    draft: &ResourceDraft<'_>,
    mistakes: &mut Mistakes,
) -> Vec<usize> {
    let Some(texts) = table.find(key).and_then(|entry| entry.texts(mistakes)) else {
        return Vec::new();
    };
    let mut indices = Vec::new();
    for text in texts {
        match draft.resource.field(text.value) {
            Some((index, _)) if indices.contains(&index) => {
                mistakes.add(text.span, format!("`{}` stands here twice", text.value));
            }
            Some((index, _)) => indices.push(index),
            None if draft.invalid_fields.contains(&text.value) => {}
            None => {
                let message = format!("`{}` has no field `{}`", draft.resource.name, text.value);
                let known = draft.resource.fields.iter().map(|field| &*field.name);
                mistakes.add_unknown(text.span, message, text.value, known);
            }
        }
    }
    indices
}
