//! Warnings about grants that the author may not have meant, printed by `nouns check`.

use super::rights::{Access, Rights};
use crate::model::expr::{Comparison, ExprNode, MemberTest, PathRoot};
use crate::model::{GrantVerb, Model, Resource, StorageClass};

/// The write verbs, whose responses show the item.
const WRITE_VERBS: [(&str, GrantVerb); 3] =
    [("post", GrantVerb::Post), ("put", GrantVerb::Put), ("patch", GrantVerb::Patch)];

/// Warns of roles that may write items that they may not read, with the grants of `anyone` included.
pub fn warnings(model: &Model) -> Vec<String> {
    let mut found = Vec::new();
    for role in &model.roles {
        let rights = Rights::of_roles(model, [&*role.name].into_iter());
        for resource in model.declared() {
            let own = role.grants.iter().filter(|grant| grant.resource == resource.index);
            let is_own = |verb| own.clone().any(|grant| grant.verbs.contains(&verb));
            let written = WRITE_VERBS.iter().filter(|(_, verb)| is_own(*verb));
            let unseen = written.filter(|(_, verb)| !is_covered_by_get(&rights, resource, *verb));
            let verbs: Vec<&str> = unseen.map(|(name, _)| *name).collect();
            if verbs.is_empty() {
                continue;
            }
            let (verbs, name) = (join_with_and(&verbs), &resource.name);
            let what = match rights.access(resource.index, GrantVerb::Get) {
                None => format!("`{name}` but not get it"),
                Some(_) => format!("rows of `{name}` that it may not get"),
            };
            let role = &role.name;
            found.push(format!("role `{role}` may {verbs} {what}: the answers have no body"));
        }
    }
    found.extend(unindexed_tests(model));
    found
}

/// Warns of `exists` that no index serves: each one reads all items of its resource.
fn unindexed_tests(model: &Model) -> Vec<String> {
    let mut found = Vec::new();
    for role in &model.roles {
        for condition in role.grants.iter().filter_map(|grant| grant.condition.as_ref()) {
            for test in condition.root.member_tests() {
                let resource = model.resource(test.resource);
                let Some(advice) = missing_index(model, resource, test) else { continue };
                let (role, name) = (&role.name, &resource.name);
                let warning = format!(
                    "role `{role}`: `exists({name} where …)` reads all items of `{name}`: {advice}"
                );
                if !found.contains(&warning) {
                    found.push(warning);
                }
            }
        }
    }
    found
}

/// What to do about a test that no index serves. The index of `filter` begins with the parent.
fn missing_index(model: &Model, resource: &Resource, test: &MemberTest) -> Option<String> {
    let name = &resource.name;
    let mut candidate = None;
    for part in test.condition.conjuncts() {
        let ExprNode::Compare(Comparison::Equal, one, other) = part else { continue };
        for (side, other) in [(one, other), (other, one)] {
            let ExprNode::Field(path) = &**side else { continue };
            if matches!(**other, ExprNode::Field(_) | ExprNode::Related(_)) {
                continue;
            }
            let PathRoot::Field(at) = path.root else { return None };
            let field = resource.fields.get(at).filter(|_| path.inner.is_empty());
            let Some(field) = field else { continue };
            let is_unique = field.storage_class() != StorageClass::Text
                && resource.unique.iter().any(|rule| rule.fields.first() == Some(&at));
            let is_filter = field.filter || is_unique;
            if field.rules.reference.is_some() || (is_filter && resource.parent.is_none()) {
                return None;
            }
            candidate = candidate.or(Some(&field.name));
        }
    }
    let parent = resource.parent.map(|parent| &model.resource(parent).name);
    Some(match (parent, candidate) {
        (Some(parent), _) => {
            format!("compare `{parent}` with `=` too, since the index begins with it")
        }
        (None, Some(field)) => format!("give `{name}.{field}` filter = true"),
        (None, None) => format!("compare a field of `{name}` with `=`"),
    })
}

/// Whether GET is granted for every row that a verb is granted for. Two filters are only compared for
/// equality.
fn is_covered_by_get(rights: &Rights, resource: &Resource, verb: GrantVerb) -> bool {
    let access = |verb| rights.access(resource.index, verb);
    let (Some(written), Some(read)) = (access(verb), access(GrantVerb::Get)) else { return false };
    let covers = |read: &Access, written: &Access| {
        !written.row_filters.is_empty()
            && written.row_filters.iter().all(|only| read.row_filters.contains(only))
    };
    read.row_filters.is_empty() || covers(read, written)
}

/// `a, b and c`
fn join_with_and(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}
