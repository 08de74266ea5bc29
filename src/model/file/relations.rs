//! Relations between resources: children, depth, realms, references, and name clashes.

use super::flat;
use super::resource::ResourceDraft;
use super::resource_names::{ResourceHeader, ResourceNames, SYSTEM_COLUMNS, SYSTEM_FIELDS};
use crate::model::field::{AuditedUser, ResourceIndex};
use crate::model::report::join_with_and;
use crate::model::resource::{AncestorKey, Realm, Referrer, Resource};
use crate::model::settings::RealmIndex;

/// Turns the drafts into resources with their relations.
pub fn resolve_relations(
    mut drafts: Vec<ResourceDraft<'_>>,
    names: &ResourceNames<'_>,
    realms: &[Realm],
) -> Vec<Resource> {
    for (index, draft) in drafts.iter_mut().enumerate() {
        let parent = names.ancestors(index).next();
        draft.resource.parent_key =
            parent.map(|(_, parent)| format!("{}_id", parent.name.value).into());
        let key = |header: &ResourceHeader<'_>| AncestorKey {
            name: format!("{}_id", header.name.value).into(),
            id: header.id,
        };
        draft.resource.ancestor_keys =
            names.ancestors(index).map(|(_, ancestor)| key(ancestor)).collect();
        draft.resource.flat = flat::segment(index, names).map(|segment| segment.name.into());
    }
    flat::check(names);
    for index in 0..drafts.len() {
        check_reserved(index, &drafts, names);
    }
    let mut resources: Vec<Resource> = drafts.into_iter().map(|draft| draft.resource).collect();
    let referrers = find_referrers(&resources);
    let realm_of: Vec<Option<RealmIndex>> =
        (0..resources.len()).map(|index| declared_realm(index, names, realms)).collect();
    for (index, resource) in resources.iter_mut().enumerate() {
        let this = ResourceIndex(index);
        let children =
            names.headers.iter().enumerate().filter(|(_, child)| child.parent == Some(this));
        resource.children = children.map(|(child, _)| ResourceIndex(child)).collect();
        resource.depth = names.ancestors(index).count();
        resource.realm = check_realm(index, names, realms, &realm_of);
        resource.referrers =
            referrers.iter().filter(|(to, _)| *to == this).map(|(_, referrer)| *referrer).collect();
    }
    resources
}

fn find_referrers(resources: &[Resource]) -> Vec<(ResourceIndex, Referrer)> {
    let mut referrers = Vec::new();
    for resource in resources {
        for (field, declared) in resource.fields.iter().enumerate() {
            if let Some(target) = declared.rules.reference.or(declared.many_references()) {
                let on_delete = target.on_delete;
                let referrer = Referrer { resource: resource.index, field, on_delete };
                referrers.push((target.resource, referrer));
            }
        }
    }
    referrers
}

/// The realm that a resource names.
fn declared_realm(index: usize, names: &ResourceNames<'_>, realms: &[Realm]) -> Option<RealmIndex> {
    let text = names.headers.get(index)?.table.text("realm")?;
    text.find("realm", realms.iter().map(|realm| &*realm.name)).map(RealmIndex)
}

/// The realm of a resource: all descendants have the realm of their top-level resource.
fn check_realm(
    index: usize,
    names: &ResourceNames<'_>,
    realms: &[Realm],
    declared: &[Option<RealmIndex>],
) -> RealmIndex {
    let (Some(header), own) = (names.headers.get(index), declared.get(index).copied().flatten())
    else {
        return RealmIndex::default();
    };
    let name = header.name.value;
    let Some((top, top_header)) = names.ancestors(index).last() else {
        if own.is_none() && realms.len() > 1 && header.table.find("realm").is_none() {
            let all: Vec<&str> = realms.iter().map(|realm| &*realm.name).collect();
            let message = format!("`{name}` needs a `realm`, because there are several");
            header.name.refuse_with_help(message, format!("realms are {}", join_with_and(&all)));
        }
        return own.unwrap_or_default();
    };
    let inherited = declared.get(top).copied().flatten().unwrap_or_default();
    if let (Some(text), Some(own)) = (header.table.text("realm"), own)
        && own != inherited
    {
        let top = top_header.name.value;
        let help = "a nested resource has its parent's realm; take this out";
        text.refuse_with_help(
            format!("`{name}` is in the realm of `{top}`, which is another"),
            help,
        );
    }
    own.unwrap_or(inherited)
}

/// Checks for fields with the names of members that every item has.
fn check_reserved(index: usize, drafts: &[ResourceDraft<'_>], names: &ResourceNames<'_>) {
    let (Some(draft), Some(header)) = (drafts.get(index), names.headers.get(index)) else { return };
    let own = header.name.value;
    let mut reserved: Vec<(String, String)> = Vec::new();
    let mut reserve = |name: &str, reason: String| reserved.push((name.to_owned(), reason));
    for name in SYSTEM_FIELDS {
        reserve(name, "every item has it already".to_owned());
    }
    for user in AuditedUser::ALL {
        if header.table.flag(user.name()) == Some(true) {
            let reason = format!("`{} = true` adds it", user.name());
            reserve(user.name(), reason);
        }
    }
    for name in SYSTEM_COLUMNS {
        reserve(name, "every table of PostgreSQL has a column of that name".to_owned());
    }
    for (level, (_, ancestor)) in names.ancestors(index).enumerate() {
        let name = ancestor.name.value;
        reserve(&format!("{name}_id"), format!("it is the id of the parent `{name}`"));
        if level == 0 {
            reserve(name, "`expand` puts the parent there".to_owned());
        }
    }
    let is_child = |parent: Option<ResourceIndex>| parent == Some(ResourceIndex(index));
    for child in names.headers.iter().filter(|child| is_child(child.parent)) {
        let (name, plural) = (child.name.value, &child.plural);
        if let Some((_, reason)) = reserved.iter().find(|(name, _)| name == plural) {
            let message =
                format!("`{plural}` cannot be the plural of a resource under `{own}`: {reason}");
            child.plural_text.refuse_with_help(message, "say another one with `plural`");
        }
        reserved.push((plural.clone(), format!("`expand` puts the items of `{name}` there")));
        let reason = format!("`expand` puts the way to more `{plural}` there");
        reserved.push((format!("{plural}_next"), reason));
    }
    for text in &draft.declared {
        if let Some((name, reason)) = reserved.iter().find(|(name, _)| name == text.value) {
            let is_system = SYSTEM_FIELDS.contains(&name.as_str());
            let is_audit = AuditedUser::ALL.iter().any(|user| user.name() == name);
            let help = if is_system || is_audit { "take it out" } else { "choose another name" };
            text.refuse_with_help(format!("`{name}` cannot be a field of `{own}`: {reason}"), help);
        }
    }
}
