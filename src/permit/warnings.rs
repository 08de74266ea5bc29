//! Warnings about grants that the author may not have meant, printed by `nouns check`.

use super::rights::{Access, Rights};
use crate::model::expr::{Comparison, ExprNode, MemberTest, Path, PathRoot};
use crate::model::row_filter_index::{
    has_index, member_link, own_path, related_comparison, related_sides,
};
use crate::model::{Expr, GrantVerb, Model, Resource, ResourceIndex};

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
    found.extend(unindexed_filters(model));
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
                missing_list_index(model, grant.resource, condition),
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
        let ExprNode::Compare(Comparison::Equal, one, other) = part else { continue };
        for (side, other) in [(one, other), (other, one)] {
            let ExprNode::Field(path) = &**side else { continue };
            if matches!(**other, ExprNode::Field(_) | ExprNode::Related(_)) {
                continue;
            }
            if has_index(resource, path) {
                return None;
            }
            candidate = candidate.or(field_name(resource, path));
        }
    }
    let name = &resource.name;
    Some(match candidate {
        Some(field) => format!("give `{name}.{field}` filter = true"),
        None => format!("compare a field of `{name}` with `=`"),
    })
}

/// What to do about a condition by which no index finds the rows of a list. One part of `and` is enough.
fn missing_list_index(model: &Model, resource: ResourceIndex, condition: &Expr) -> Option<String> {
    missing_search(model, model.resource(resource), &condition.root)
}

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
            let field = compared.find_map(|path| field_name(members, path));
            let name = &members.name;
            Some(match field {
                Some(field) => format!("give `{name}.{field}` filter = true"),
                None => format!("compare a field of `{name}` with `$user` or a constant by `=`"),
            })
        }
        node => {
            let own = own_path(node).filter(|path| has_index(resource, path));
            if own.is_some() || related_comparison(model, node).is_some() {
                return None;
            }
            let related = related_sides(node).and_then(|(to, _)| {
                let end = model.resource(to.steps.last()?.to);
                Some(format!("give `{}.{}` filter = true", end.name, field_name(end, &to.path)?))
            });
            Some(related.unwrap_or_else(|| NO_INDEX.to_owned()))
        }
    }
}

const NO_INDEX: &str = "add a comparison with `=` of a field that has filter = true";

/// The name of a field that an index could have.
fn field_name<'a>(resource: &'a Resource, path: &Path) -> Option<&'a str> {
    let PathRoot::Field(at) = path.root else { return None };
    let field = resource.fields.get(at).filter(|_| path.inner.is_empty())?;
    Some(&field.name)
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
