//! Warnings about grants that the author may not have meant, printed by `nouns check`.

use super::rights::Rights;
use crate::model::expr::{ExprNode, MemberTest, Path, PathRoot};
use crate::model::row_filter_index::{
    equal_sides, has_index, member_link, own_path, related_comparison, related_sides,
};
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
    found.extend(unreachable_grants(model));
    found.extend(unindexed_filters(model));
    found
}

/// Warns of grants on resources below one that the role may not read: requests see nothing below it.
fn unreachable_grants(model: &Model) -> Vec<String> {
    let mut found = Vec::new();
    for role in &model.roles {
        let rights = Rights::of_roles(model, [&*role.name].into_iter());
        for resource in model.declared() {
            let is_granted = role.grants.iter().any(|grant| grant.resource == resource.index);
            let lineage = model.lineage(resource.index);
            let mut ancestors = lineage.iter().filter(|above| above.index != resource.index);
            let unread =
                ancestors.find(|above| rights.access(above.index, GrantVerb::Get).is_none());
            if let Some(above) = unread.filter(|_| is_granted) {
                let (role, name, above) = (&role.name, &resource.name, &above.name);
                found.push(format!(
                    "role `{role}` may use `{name}` but not get `{above}` above it: without another role, all requests \
                     for `{name}` are answered with 404"
                ));
            }
        }
    }
    found
}

/// Warns of row filters that no index serves: each `exists` reads all items of its resource, or each list all items of
/// its own.
fn unindexed_filters(model: &Model) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for role in &model.roles {
        for grant in &role.grants {
            let Some(condition) = &grant.condition else { continue };
            let (role, listed) = (&role.name, &model.resource(grant.resource).name);
            let tests = condition.root.member_tests().into_iter().filter_map(|test| {
                let (name, advice) =
                    (&model.resource(test.resource).name, missing_test_index(model, test)?);
                Some(format!("`exists({name} where …)` reads all items of `{name}`: {advice}"))
            });
            let mut warnings: Vec<String> = tests.collect();
            let is_listed = grant.verbs.contains(&GrantVerb::Get) && condition.reads_related();
            if let (true, true, Some(advice)) = (
                is_listed,
                warnings.is_empty(),
                missing_search(model, model.resource(grant.resource), &condition.root),
            ) {
                warnings.push(format!(
                    "a list of `{listed}` reads all items of `{listed}` until it is full: {advice}"
                ));
            }
            let warnings = warnings.into_iter().map(|warning| format!("role `{role}`: {warning}"));
            for warning in warnings {
                if !found.contains(&warning) {
                    found.push(warning);
                }
            }
        }
    }
    found
}

/// What to do about an `exists` whose items no index finds, even for one row.
fn missing_test_index(model: &Model, test: &MemberTest) -> Option<String> {
    let resource = model.resource(test.resource);
    let mut candidate = None;
    for part in test.condition.conjuncts() {
        for (side, other) in equal_sides(part) {
            let ExprNode::Field(path) = side else { continue };
            if matches!(other, ExprNode::Field(_) | ExprNode::Related(_)) {
                continue;
            }
            if has_index(resource, path) {
                return None;
            }
            candidate = candidate.or_else(|| index_advice(resource, path));
        }
    }
    Some(candidate.unwrap_or_else(|| format!("compare a field of `{}` with `=`", resource.name)))
}

/// What to do about a condition by which no index finds the rows of a list. One part of `and` is enough.
fn missing_search(model: &Model, resource: &Resource, node: &ExprNode) -> Option<String> {
    match node {
        ExprNode::And(one, other) => {
            let one = missing_search(model, resource, one)?;
            let other = missing_search(model, resource, other)?;
            Some(if one == NO_INDEX { other } else { one })
        }
        ExprNode::Or(one, other) => {
            missing_search(model, resource, one).or_else(|| missing_search(model, resource, other))
        }
        ExprNode::Exists(test) => {
            let is_of_row = test.condition.any(&|node| matches!(node, ExprNode::This(_)));
            if !is_of_row || member_link(model, test).is_some() {
                return None;
            }
            let members = model.resource(test.resource);
            let mut compared = test.condition.conjuncts().into_iter().filter_map(own_path);
            let advice = compared.find_map(|path| index_advice(members, path));
            Some(advice.unwrap_or_else(|| {
                let name = &members.name;
                format!("compare a field of `{name}` with `$user` or a constant by `=`")
            }))
        }
        node => {
            let own = own_path(node).filter(|path| has_index(resource, path));
            if own.is_some() || related_comparison(model, node).is_some() {
                return None;
            }
            let related = related_sides(node)
                .and_then(|(to, _)| index_advice(model.resource(to.steps.last()?.to), &to.path));
            Some(related.unwrap_or_else(|| NO_INDEX.to_owned()))
        }
    }
}

const NO_INDEX: &str = "add a comparison with `=` of a field that has filter = true";

/// How a field gets an index; `None` if it has one, or cannot have one.
fn index_advice(resource: &Resource, path: &Path) -> Option<String> {
    let PathRoot::Field(at) = path.root else { return None };
    let field = resource.fields.get(at).filter(|field| path.inner.is_empty() && !field.filter)?;
    Some(format!("give `{}.{}` filter = true", resource.name, field.name))
}

/// Whether GET is granted for every row that a verb is granted for. Two filters are only compared for
/// equality.
fn is_covered_by_get(rights: &Rights, resource: &Resource, verb: GrantVerb) -> bool {
    let access = |verb| rights.access(resource.index, verb);
    let (Some(written), Some(read)) = (access(verb), access(GrantVerb::Get)) else { return false };
    read.covers_rows_of(written)
}

/// `a, b and c`
fn join_with_and(words: &[&str]) -> String {
    match words {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}
