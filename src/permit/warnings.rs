//! Warnings about grants that the author may not have meant, printed by `nouns check`.

use super::rights::{Access, Rights};
use crate::model::{GrantVerb, Model, Resource};

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
    found
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
