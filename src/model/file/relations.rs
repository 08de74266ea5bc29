//! Relations between resources: children, depth, realms, references, and name clashes.

use super::resource::ResourceDraft;
use super::resource_names::{ResourceNames, SYSTEM_COLUMNS, SYSTEM_FIELDS};
use crate::model::report::{Mistakes, join_with_and};
use crate::model::{Realm, RealmIndex, Referrer, Resource, ResourceIndex};

/// Turns the drafts into resources with their relations.
pub fn resolve_relations(
    mut drafts: Vec<ResourceDraft<'_>>,
    names: &ResourceNames<'_>,
    realms: &[Realm],
    mistakes: &mut Mistakes,
) -> Vec<Resource> {
    for (index, draft) in drafts.iter_mut().enumerate() {
        let parent = names.ancestors(index).next();
        draft.resource.parent_key = parent.map(|(_, parent)| format!("{}_id", parent.name).into());
    }
    check_reserved(&drafts, names, mistakes);
    let mut resources: Vec<Resource> = drafts.into_iter().map(|draft| draft.resource).collect();
    let referrers = find_referrers(&resources);
    let parents: Vec<Option<ResourceIndex>> =
        resources.iter().map(|resource| resource.parent).collect();
    for (index, resource) in resources.iter_mut().enumerate() {
        let this = ResourceIndex(index);
        let children = parents.iter().enumerate().filter(|(_, parent)| **parent == Some(this));
        resource.children = children.map(|(child, _)| ResourceIndex(child)).collect();
        resource.depth = names.ancestors(index).count();
        resource.realm = find_realm(index, names, realms, mistakes);
        resource.referrers =
            referrers.iter().filter(|(to, _)| *to == this).map(|(_, referrer)| *referrer).collect();
    }
    resources
}

fn find_referrers(resources: &[Resource]) -> Vec<(ResourceIndex, Referrer)> {
    let mut referrers = Vec::new();
    for resource in resources {
        for (field, target) in resource
            .fields
            .iter()
            .enumerate()
            .filter_map(|(index, field)| Some((index, field.rules.reference?)))
        {
            referrers.push((
                target.resource,
                Referrer { resource: resource.index, field, on_delete: target.on_delete },
            ));
        }
    }
    referrers
}

/// The realm of a resource: all descendants have the realm of their top-level resource.
fn find_realm(
    index: usize,
    names: &ResourceNames<'_>,
    realms: &[Realm],
    mistakes: &mut Mistakes,
) -> RealmIndex {
    let Some(named) = names.list.get(index) else { return RealmIndex::default() };
    let top = names.ancestors(index).last();
    // Mistakes of the top-level resource are reported when it is read itself.
    let inherited = top.map(|(top, _)| find_realm(top, names, realms, &mut Mistakes::default()));
    let Some(text) = named.table.text("realm", mistakes) else {
        if inherited.is_none() && realms.len() > 1 {
            let all: Vec<&str> = realms.iter().map(|realm| &*realm.name).collect();
            let message = format!("`{}` needs a `realm`, because there are several", named.name);
            mistakes.add_with_help(
                named.name_span.clone(),
                message,
                format!("realms are {}", join_with_and(&all)),
            );
        }
        return inherited.unwrap_or_default();
    };
    let found = realms.iter().position(|realm| *realm.name == *text.value).map(RealmIndex);
    let Some(found) = found else {
        let message = format!("there is no realm `{}`", text.value);
        mistakes.add_unknown(
            text.span,
            message,
            text.value,
            realms.iter().map(|realm| &*realm.name),
        );
        return inherited.unwrap_or_default();
    };
    if let (Some(inherited), Some((_, top))) = (inherited, top)
        && found != inherited
    {
        let message =
            format!("`{}` is in the realm of `{}`, which is another", named.name, top.name);
        mistakes.add_with_help(
            text.span,
            message,
            "a nested resource has its parent's realm; take this out",
        );
    }
    found
}

/// Checks for fields with the names of members that every item has.
fn check_reserved(
    drafts: &[ResourceDraft<'_>],
    names: &ResourceNames<'_>,
    mistakes: &mut Mistakes,
) {
    for (index, draft) in drafts.iter().enumerate() {
        let mut reserved: Vec<(String, String)> = SYSTEM_FIELDS
            .iter()
            .map(|name| ((*name).to_owned(), "every item has it already".to_owned()))
            .collect();
        reserved.extend(SYSTEM_COLUMNS.iter().map(|name| {
            ((*name).to_owned(), "every table of PostgreSQL has a column of that name".to_owned())
        }));
        let mut below = draft;
        for (level, (above, ancestor)) in names.ancestors(index).enumerate() {
            let name = ancestor.name;
            let key = below.resource.parent_key.as_deref().unwrap_or_default();
            reserved.push((key.to_owned(), format!("it is the id of the parent `{name}`")));
            if level == 0 {
                reserved.push((name.to_owned(), "`expand` puts the parent there".to_owned()));
            }
            let Some(draft) = drafts.get(above) else { break };
            below = draft;
        }
        let own = names.list.get(index).map(|named| named.name).unwrap_or_default();
        for child in names.list.iter().filter(|child| child.parent == Some(ResourceIndex(index))) {
            let plural = &child.plural;
            if let Some((_, reason)) = reserved.iter().find(|(name, _)| name == plural) {
                let message = format!(
                    "`{plural}` cannot be the plural of a resource under `{own}`: {reason}"
                );
                mistakes.add_with_help(
                    child.plural_span.clone(),
                    message,
                    "say another one with `plural`",
                );
            }
            reserved.push((
                plural.clone(),
                format!("`expand` puts the items of `{}` there", child.name),
            ));
            reserved.push((
                format!("{plural}_next"),
                format!("`expand` puts the way to more `{plural}` there"),
            ));
        }
        for (name, span) in &draft.declared {
            if let Some((_, reason)) = reserved.iter().find(|(reserved, _)| reserved == name) {
                let help = if SYSTEM_FIELDS.contains(name) {
                    "take it out"
                } else {
                    "choose another name"
                };
                mistakes.add_with_help(
                    span.clone(),
                    format!("`{name}` cannot be a field of `{own}`: {reason}"),
                    help,
                );
            }
        }
    }
}
