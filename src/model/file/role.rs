//! Roles and their grants. `"*"` stands for every resource that the role does not name itself.
//!
//! A grant may also name a server path, for reading only.

use super::resource::Draft;
use super::tree::{Entry, Table, check_name};
use super::{expression, keys};
use crate::model::expr::Scope;
use crate::model::own::ADMIN;
use crate::model::report::Mistakes;
use crate::model::{Grant, ResourceIndex, Role, Verb};
use toml::de::DeValue;

pub(super) fn read(root: &Table<'_>, drafts: &[Draft<'_>], mistakes: &mut Mistakes) -> Vec<Role> {
    let Some(table) = root.find("roles").and_then(|entry| entry.table(mistakes)) else {
        return Vec::new();
    };
    table.entries().iter().map(|entry| role(entry, drafts, mistakes)).collect()
}

fn role(entry: &Entry<'_>, drafts: &[Draft<'_>], mistakes: &mut Mistakes) -> Role {
    check_name("role", entry.key, entry.key_span.clone(), mistakes);
    if entry.key == ADMIN {
        let help = "it is built in and may do everything; give this role another name";
        mistakes.add_with(entry.key_span.clone(), "the role `admin` cannot be declared", help);
    }
    let table = entry.table(mistakes).unwrap_or_default();
    let mut grants: Vec<Grant> = Vec::new();
    let mut all = None;
    let mut reads_metrics = false;
    for entry in table.entries() {
        if entry.key == "*" {
            all = grant_all(entry, mistakes);
        } else if entry.key.starts_with('/') {
            match server_path(entry, mistakes) {
                Some(ServerPath::Metrics) => reads_metrics = true,
                // The users come after all resources of the file.
                Some(ServerPath::Users) => {
                    grants.push(plain(ResourceIndex(drafts.len()), vec![Verb::Get]));
                }
                None => {}
            }
        } else if let Some(draft) = drafts.iter().find(|draft| *draft.resource.name == *entry.key) {
            grants.extend(grant(entry, draft, mistakes));
        } else {
            let message = format!("there is no resource `{}`", entry.key);
            let known = drafts.iter().map(|draft| &*draft.resource.name);
            mistakes.add_unknown(entry.key_span.clone(), message, entry.key, known);
        }
    }
    if let Some(verbs) = all {
        for draft in drafts.iter().filter(|draft| table.find(&draft.resource.name).is_none()) {
            grants.push(plain(draft.resource.index, verbs.clone()));
        }
    }
    grants.sort_by_key(|grant| grant.resource);
    Role { name: entry.key.into(), grants, reads_metrics }
}

/// A server path that a role may read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServerPath {
    Metrics,
    Users,
}

/// Only reading can be granted: a caller who can write users could make themselves an administrator.
fn server_path(entry: &Entry<'_>, mistakes: &mut Mistakes) -> Option<ServerPath> {
    let path = match entry.key {
        "/-/metrics" => ServerPath::Metrics,
        "/-/users" => ServerPath::Users,
        "/-/changes" => {
            let help = "take the grant out until it is";
            mistakes.add_with(entry.key_span.clone(), "`/-/changes` is not served yet", help);
            return None;
        }
        other => {
            let message = format!("`{other}` cannot be granted");
            mistakes.add_unknown(entry.key_span.clone(), message, other, keys::SERVER_PATHS);
            return None;
        }
    };
    let is_get = |verbs: Vec<Verb>| verbs == [Verb::Get];
    if entry.node.get_ref().is_array() && verbs(entry, mistakes).is_some_and(is_get) {
        return Some(path);
    }
    let message = format!("of `{}` only reading can be granted", entry.key);
    mistakes.add_with(entry.span(), message, "write [\"get\"]; the rest is for admins");
    None
}

fn plain(resource: ResourceIndex, verbs: Vec<Verb>) -> Grant {
    Grant { resource, verbs, only: None, hide: Vec::new(), readonly: Vec::new() }
}

fn grant_all(entry: &Entry<'_>, mistakes: &mut Mistakes) -> Option<Vec<Verb>> {
    if entry.node.get_ref().is_table() {
        let help = "fields differ from resource to resource: name the resource to say `where`, `hide` or `readonly`";
        mistakes.add_with(entry.span(), "\"*\" takes verbs alone", help);
        return None;
    }
    verbs(entry, mistakes)
}

fn grant(entry: &Entry<'_>, draft: &Draft<'_>, mistakes: &mut Mistakes) -> Option<Grant> {
    let index = draft.resource.index;
    if !entry.node.get_ref().is_table() {
        return verbs(entry, mistakes).map(|verbs| plain(index, verbs));
    }
    let table = entry.table(mistakes)?;
    table.only(&keys::names(keys::GRANT), "a grant", mistakes);
    let verbs = match table.find("verbs") {
        Some(entry) => verbs(entry, mistakes),
        None => {
            mistakes.add_with(
                entry.key_span.clone(),
                "a grant needs `verbs`",
                "say what may be done: verbs = [\"get\"]",
            );
            None
        }
    };
    let scope = Scope { fields: &draft.resource.fields, broken: &draft.broken, computed: &[] };
    let only = table
        .text("where", mistakes)
        .and_then(|text| expression::condition(&text, scope, mistakes));
    let hide = fields("hide", &table, draft, mistakes);
    let readonly = fields("readonly", &table, draft, mistakes);
    if let Some(both) = hide.iter().find(|index| readonly.contains(index))
        && let (Some(entry), Some(field)) =
            (table.find("readonly"), draft.resource.fields.get(*both))
    {
        let message =
            format!("`{}` is hidden, so nobody with this role can change it anyway", field.name);
        mistakes.add_with(entry.span(), message, "take it out of `readonly` or out of `hide`");
    }
    let verbs = verbs?;
    if verbs.contains(&Verb::Post) {
        for (key, fields) in [("hide", &hide), ("readonly", &readonly)] {
            check_creatable(&table, key, fields, draft, mistakes);
        }
    }
    Some(Grant { resource: index, verbs, only, hide, readonly })
}

/// A role that creates items must be able to set all required fields.
fn check_creatable(
    table: &Table<'_>,
    key: &str,
    fields: &[usize],
    draft: &Draft<'_>,
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
            mistakes.add_with(entry.span(), message, help);
        }
    }
}

fn verbs(entry: &Entry<'_>, mistakes: &mut Mistakes) -> Option<Vec<Verb>> {
    match entry.node.get_ref() {
        DeValue::String(all) if all == "*" => {
            Some(keys::VERBS.iter().map(|(_, verb)| *verb).collect())
        }
        DeValue::String(one) => {
            let help =
                format!("put verbs into a list: [{one:?}]; only \"*\", all verbs, stands alone");
            mistakes.add_with(entry.span(), format!("expected a list of verbs, got {one:?}"), help);
            None
        }
        DeValue::Array(_) => Some(entry.choices("verb", keys::VERBS, mistakes)),
        _ => {
            mistakes.add(
                entry.span(),
                format!(
                    "expected \"*\" or a list of verbs, got {}",
                    super::tree::kind_of(entry.node)
                ),
            );
            None
        }
    }
}

fn fields(key: &str, table: &Table<'_>, draft: &Draft<'_>, mistakes: &mut Mistakes) -> Vec<usize> {
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
            None if draft.broken.contains(&text.value) => {}
            None => {
                let message = format!("`{}` has no field `{}`", draft.resource.name, text.value);
                let known = draft.resource.fields.iter().map(|field| &*field.name);
                mistakes.add_unknown(text.span, message, text.value, known);
            }
        }
    }
    indices
}
