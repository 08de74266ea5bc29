//! Warnings about grants that the author may not have meant, printed by `nouns check`.

use super::{Access, Rights};
use crate::model::{Model, Resource, Verb};

/// The write verbs, whose responses show the item.
const SHOWN_BY: [(&str, Verb); 3] =
    [("post", Verb::Post), ("put", Verb::Put), ("patch", Verb::Patch)];

/// Warns of roles that may write what they may not read, with the grants of `anyone` included.
pub fn warnings(model: &Model) -> Vec<String> {
    let mut found = Vec::new();
    for role in &model.roles {
        let rights = Rights::of(model, [&*role.name].into_iter());
        for resource in model.declared() {
            let own = role.grants.iter().filter(|grant| grant.resource == resource.index);
            let is_own = |verb| own.clone().any(|grant| grant.verbs.contains(&verb));
            let written = SHOWN_BY.iter().filter(|(_, verb)| is_own(*verb));
            let unseen = written.filter(|(_, verb)| !is_read(&rights, resource, *verb));
            let verbs: Vec<&str> = unseen.map(|(name, _)| *name).collect();
            if verbs.is_empty() {
                continue;
            }
            let (verbs, name) = (listed(&verbs), &resource.name);
            let what = match rights.access(resource.index, Verb::Get) {
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
fn is_read(rights: &Rights, resource: &Resource, verb: Verb) -> bool {
    let access = |verb| rights.access(resource.index, verb);
    let (Some(written), Some(read)) = (access(verb), access(Verb::Get)) else { return false };
    let covers = |read: &Access, written: &Access| {
        !written.only.is_empty() && written.only.iter().all(|only| read.only.contains(only))
    };
    read.only.is_empty() || covers(read, written)
}

/// `a, b and c`
fn listed(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}
